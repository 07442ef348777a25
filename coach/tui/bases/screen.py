"""The base of every screen: the top line, the banner, the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from coach.analysis.judging.ranking import worst
from coach.model.snapshot import Snapshot
from coach.render.text import BLANK, Line, Span, line, muted, printable
from coach.tui.context import Context
from coach.tui.keys import Key, bindings_of, keys_of, reason_off, why_dead
from coach.tui.messages import (
    CopyRequested,
    ExplainWanted,
    FirstKeyPressed,
    Request,
    ScreenOpened,
    ScreenShown,
    Wanted,
)
from coach.tui.question import Question
from coach.tui.render.finding import fix_word
from coach.tui.render.findings import withheld_line, worst_line
from coach.tui.render.header import (
    Hint,
    ages_line,
    asleep_line,
    banner_lines,
    fitting_hints,
    processor_line,
    spending_line,
    top_line,
)
from coach.tui.screen_specs import HOME, ScreenSpec, by_name
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.status_bar import Banner, CaptionBar, KeyBar, TopBar
from coach.tui.widgets.text_field import TextField


class CoachScreen(Screen[None]):
    """Base of all screens. Subclasses compose a body and draw it in `show`."""

    spec: ClassVar[ScreenSpec]
    """Its declaration in the table of screens."""
    AUTO_FOCUS = None
    opened_as: tuple[str, tuple[Any, ...]] | None = None
    """The name and the arguments that it was opened with."""
    targets: tuple[str, ...] = ()
    """Runs and jobs to follow while this screen is on top."""
    also_followed: tuple[str, ...] = ()
    """Further runs and jobs to follow, which are not the subject of the screen."""
    not_in_footer: frozenset[str] = frozenset()
    """Ids of keys that are left out of its footer."""
    questions: tuple[Question, ...] = ()
    """The questions on demand whose answers it shows; `^r` asks them again."""

    def __init_subclass__(cls, *, screen: str | None = None, **kwargs: Any) -> None:
        """`screen` is the name of the class's declaration; a base class has none."""
        if screen is not None:
            cls.spec = by_name()[screen]
            cls.BINDINGS = bindings_of(cls.spec)
        super().__init_subclass__(**kwargs)

    def __init__(self, context: Context, crumbs: tuple[str, ...] = ()) -> None:
        """`crumbs`: the path to the screen; without them, the screen below the first one."""
        super().__init__()
        self.context = context
        self.crumbs = crumbs or (HOME.name, self.spec.word)

    def post_message(self, message: Message) -> bool:
        if isinstance(message, Request):
            message.asked_by = self
        return super().post_message(message)

    def compose(self) -> ComposeResult:
        yield TopBar()
        yield Banner()
        yield from self.compose_body()
        if self.context.story is not None:
            yield CaptionBar()
        yield KeyBar()

    def compose_body(self) -> Iterator[Widget]:
        """The widgets between banner and keys."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw the current data of the context."""
        raise NotImplementedError

    def refresh_all(self) -> None:
        """Draw everything: new data, a new size, or this screen came to the top."""
        if not self.is_mounted or not self._is_composed:
            return
        self.tick()
        self._show_keys()
        self.show()

    def tick(self) -> None:
        """Draw the ages, which change without new data."""
        if not self._is_composed:
            return
        context, width = self.context, self.app.size.width
        now_s = context.now_s
        ages = ages_line(context.snapshot.sources, now_s)
        gravest = self._gravest(now_s) or withheld_line(
            context.diagnoses.get(target) for target in self.targets
        )
        ages = (*gravest, muted(" · "), *ages) if gravest and ages else gravest or ages
        top = top_line(self._trail(), context.place, context.mode.value, ages, width)
        self.query_one(TopBar).set_lines([top])
        asleep = [asleep_line(context.asleep_s, width)] if context.asleep_s is not None else []
        limit_s = context.processor_limit_s
        spent = [processor_line(limit_s, width)] if limit_s is not None else []
        self.query_one(Banner).set_lines([*spent, *asleep, *banner_lines(self._concerning(), now_s, width)])
        self.query_one(KeyBar).set_spending(spending_line(context.snapshot, width))
        for bar in self.query(CaptionBar):
            bar.tell(context, self.spec, self.subjects)

    def _trail(self) -> tuple[str, ...]:
        """The path to this screen, along which Esc goes back. Each screen below adds the part that is new."""
        trail: list[str] = []
        for screen in self.app.screen_stack:
            if isinstance(screen, CoachScreen):
                new = [crumb for crumb in screen.crumbs if crumb not in trail]
                trail += new or screen.crumbs[-1:]
            if screen is self:
                break
        return tuple(trail)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The runs and jobs that the screen is about; empty on a screen about all of them."""
        return self.targets

    def _gravest(self, now_s: float) -> Line:
        """The most severe finding of the screen's subjects; if they have none, the most severe of the others,
        marked `other job`."""
        found, subjects = self.context.found, self.subjects
        own = worst({name: found[name] for name in subjects if name in found}, now_s)
        if own is not None or not subjects:
            return worst_line(own or worst(found, now_s))
        return worst_line(worst(found, now_s), is_elsewhere=True)

    def _concerning(self) -> Snapshot:
        """The snapshot without the errors of other followed jobs: the user may have no right to read their
        logs."""
        snapshot = self.context.snapshot
        foreign = {name for name, target in snapshot.targets.items() if target.run is None} - {*self.targets}
        kept = {
            key: status for key, status in snapshot.sources.items() if key.partition(":")[2] not in foreign
        }
        return replace(snapshot, sources=kept)

    def _show_keys(self) -> None:
        self.query_one(KeyBar).set_hints(self._hints())

    def first_keys(self) -> tuple[Hint, ...]:
        """The keys in the footer while no note is shown."""
        return tuple(fitting_hints(self._hints(), self.app.size.width))

    def _hints(self) -> list[Hint]:
        launches = [key for key in self.context.launch_keys if key.works_on(self.spec)]
        hints = [
            (key.id, key.label, self._word(key), self.reason_off(key) is None)
            for key in self.keys()
            if key.word
            and key.id not in self.unfit_keys()
            and key not in launches
            and not self._is_switched_off(key)
            and key.id != ("back" if self.spec is HOME else "leave")
        ]
        if launches and not self._is_switched_off(launches[0]):
            # One hint for all launch keys, in the second place, because launching must not be crowded out.
            label = "-".join(dict.fromkeys((launches[0].label, launches[-1].label)))
            hints.insert(1, ("recipes", label, "launch", self.reason_off(launches[0]) is None))
        return hints

    def unfit_keys(self) -> frozenset[str]:
        """The ids of keys that the footer does not offer now."""
        return self.not_in_footer

    def _is_switched_off(self, key: Key) -> bool:
        """True if the site has switched the key off. The footer does not offer it; the key says why."""
        return key.switch is not None and key.switch in self.context.switched_off

    def _word(self, key: Key) -> str:
        """The footer's word for a key. `F` is `fix`, or `advice` if no change of the launch is a fix."""
        if key.id != "fix":
            return key.word
        diagnoses = (self.context.diagnoses.get(target) for target in self.subjects)
        return fix_word(f for each in diagnoses if each is not None for f in each.findings) or key.word

    def keys(self) -> tuple[Key, ...]:
        """Every key that works here."""
        story = self.context.story
        found = keys_of(self.spec, self.context.launch_keys, self.context.key_table)
        is_told = story is not None and not story.is_left
        return tuple(key for key in found if is_told or not key.is_of_story)

    def reason_off(self, key: Key) -> str | None:
        """Why a key does nothing now; None if it works."""
        context = self.context
        return reason_off(key, context.mode, context.why_readonly, context.switched_off)

    def is_off(self, key_id: str) -> bool:
        """True if a key is off. Its reason is then shown as a note."""
        key = next(key for key in self.keys() if key.id == key_id)
        reason = self.reason_off(key)
        if reason is not None:
            self.note(f"{key.label} is off: {reason}")
        return reason is not None

    def note(self, text: str) -> None:
        """Show a note beside the keys until the next key."""
        if text:
            self.context.typed_on.refuse(self.context.key_time_s)
        self._set_note(line(Span(printable(text), "warning")) if text else BLANK)

    def show_work(self, words: str) -> None:
        """Show the work under way beside the keys, where no note stands."""
        if self._is_composed:
            self.query_one(KeyBar).set_work(line(Span(printable(words), "warning")) if words else BLANK)

    def go(self, way: Request | str) -> None:
        """Post the request. A text instead of a request is the reason why there is none: show it."""
        if isinstance(way, str):
            self.note(way)
        else:
            self.post_message(way)

    def note_key(self) -> None:
        """A key arrived: clear the last note."""
        self.note("")
        if not self.context.is_first_key_pressed:
            self.context.is_first_key_pressed = True
            if self.context.here is not None:
                self.context.here = None
                self.post_message(FirstKeyPressed())
                self.call_after_refresh(self.refresh_all)

    def note_no_row(self) -> None:
        """Show why a key for a row does nothing."""
        self.note("there is no row under the cursor")

    def note_dead(self, key: events.Key) -> bool:
        """Show why this key does nothing here, if it is a character or a key of another screen. A key that
        works is left alone. Returns True if the key does nothing."""
        if key.key in self.active_bindings:
            return False
        character = key.character if key.is_printable else None
        self.note(why_dead(key.key, character, self.spec, self.context.key_table) or "")
        return True

    def _set_note(self, note: Line) -> None:
        if self._is_composed:
            self.query_one(KeyBar).set_note(note)

    @property
    def _is_composed(self) -> bool:
        """True if the screen's widgets exist. Ticks of the clock and keys arrive also while a screen opens or
        closes."""
        return bool(self.query(KeyBar))

    def pane(self, selector: str) -> LinesView:
        return self.query_one(selector, LinesView)

    def on_mount(self) -> None:
        self.call_after_refresh(self.refresh_all)

    def on_screen_resume(self) -> None:
        self.refresh_all()
        self.post_message(ScreenShown())

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.refresh_all)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        key = next((key for key in self.keys() if key.id == message.key_id), None)
        if key is not None:
            self.app.simulate_key(key.key)

    def set_focus(
        self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False
    ) -> None:
        """Give the focus. A field's text is selected at once, before the next key."""
        before = self.focused
        super().set_focus(widget, scroll_visible, from_app_focus)
        if isinstance(widget, TextField) and widget is self.focused is not before and not from_app_focus:
            widget.select_all()

    def action_zoom(self) -> None:
        """Give the pane with the focus the whole screen, or restore its size."""
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)
        else:
            self.note(f"no pane has the focus: {self.context.label('pane')} gives it")

    def explain(self, rule: str | None) -> None:
        """Open the page of a rule."""
        if rule is None:
            self.note_no_row()
        else:
            self.post_message(ScreenOpened("rule", rule))

    def action_explain(self) -> None:
        """Explain the row under the cursor."""
        self.want_explained()

    def want_explained(self, target: str | None = None, **given: Any) -> None:
        """Ask for the explanation of the row under the cursor, or of the given subject."""
        self.post_message(ExplainWanted(target, **given))

    def copy(self, name: str | None, target: str | None = None) -> None:
        """Copy the findings of a target as Markdown under this name; without a verdict, copy only the
        name."""
        if name is None:
            self.note(f"{self.context.label('copy')} copies the row under the cursor: there is none")
        else:
            self.post_message(CopyRequested(name, self.context.diagnoses.get(target or "")))

    def point_at(self, target: str) -> bool:
        """Put the cursor on a run or job. Returns False if the screen has no row for it."""
        return False

    def show_only(self, words: str, view: str = "") -> None:
        """If the screen has rows, filter them by these words, or show a saved view of them."""

    def ask_again(self) -> bool:
        """Ask the screen's questions on demand again. Returns True if nothing else needs to be read again."""
        for question in self.questions:
            self.post_message(Wanted(question, is_anew=True))
        return False

    def go_back(self) -> bool:
        """Handle Esc in the screen. Returns False if Esc must leave the screen."""
        return False
