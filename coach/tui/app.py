"""The app: connects controllers, screens and data, and leaves the terminal clean even after a crash."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import WorkerFailed

from coach.analysis.judging.ranking import ranked_findings
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.snapshot import Snapshot, Watch
from coach.tui import messages
from coach.tui.arrangement import put_keys_first
from coach.tui.at_once import done_at_once
from coach.tui.attention import StrayLine, TypedOn, UserAttention
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.controllers.all import Controllers
from coach.tui.exit_signals import FINISH_AT_SIGNAL_S, leave_at_signals, terminal_modes
from coach.tui.follow_list import FollowList
from coach.tui.mode import Mode
from coach.tui.palette import Commands, GoTo, commands_of, places_of, rule_places
from coach.tui.processor_limit import Left, ProcessorLimit, soft_limit_s
from coach.tui.screen_specs import HOME, Follows, ScreenSpec
from coach.tui.stage import Stage
from coach.tui.terminal_input import AsciiDriver, PatientDriver
from coach.tui.theme import NIGHT, find_theme, next_own, styles
from coach.tui.wiring import Opening, demo_recording_path, open_live, open_recorded
from coach.tui.worker import FINISH_TIMEOUT_S

AGES_S = 5.0
"""While no data arrive, the screen redraws the ages of its data at this interval, in seconds. A shorter
interval would send more over a slow connection."""
FILTER_CHARACTER = "/"
_AT_WORK = (events.Key, events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)
_TYPED = (events.Key, events.Paste, events.MouseEvent)


def open_screens(
    settings: Settings, *, backend: str, is_readonly: bool, replay: str | None, is_demo: bool
) -> int:
    """Open the screens. Returns the exit status once the user leaves. Raises UserError if the screens cannot
    open, or if they stop without the user's request."""
    if is_demo:
        opening = open_recorded(settings, demo_recording_path(), Mode.DEMO)
    elif replay is not None:
        opening = open_recorded(settings, Path(replay), Mode.REPLAY)
    else:
        opening = open_live(settings, backend, is_readonly)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "the screens need a terminal", "`coach jobs` and `coach why` print; `coach --help` lists all"
        )
    app = CoachApp(opening)
    put_keys_first()
    app.run()
    if app.crash is not None:
        raise UserError(*_keep_crash(app.crash, settings.cache_dir), exit_status=1)
    if app.leaves_in_words is not None:
        raise UserError(
            app.leaves_in_words, "start it again: jobs and runs continue by themselves", exit_status=1
        )
    return app.return_code or 0


def _keep_crash(crash: BaseException, directory: Path) -> tuple[str, str | None]:
    """Write the traceback to a file. Returns one line for the user, and a hint with the file's path."""
    said = f"the screens stopped: {type(crash).__name__}: {crash}".splitlines()[0]
    file = directory / "crash.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(traceback.format_exception(crash)), encoding="utf-8", errors="replace")
    except OSError:
        return said, None
    return said, f"nothing that was launched is affected; details are in {file}"


class CoachApp(App[None]):
    """The Textual app. It owns the data, the clock and the terminal."""

    CSS = styles()
    TITLE = "coach"
    COMMANDS = {Commands}  # noqa: RUF012 (Textual's own spelling)
    BINDINGS = [  # noqa: RUF012 (Textual's own spelling)
        *(Binding(str(n), f"launch('{n}')", f"Launch recipe {n}", show=False) for n in range(1, 10)),
        Binding("ctrl+z", "help_quit", show=False),
    ]

    def __init__(self, opening: Opening, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_ascii = opening.is_ascii  # Textual asks for the driver in its constructor
        super().__init__()
        self.context = Context(
            session=opening.session,
            mode=opening.mode,
            user=opening.user,
            place=opening.place,
            clock=clock,
            snapshot=Snapshot(opening.session.snapshot.now_s),
            snapshot_time_s=0.0,
            typed_on=TypedOn(),
            key_table=opening.keys.table,
            # A recording costs Slurm no query, so the jobs of all users are shown.
            are_all_shown=opening.mode.is_recorded,
            story=opening.story,
        )
        self.crash: BaseException | None = None
        self._is_leaving = False
        self.animation_level = "none"
        self._take_theme(opening.theme)
        self.set_keymap(opening.keys.keymap)
        self._standing = opening.standing
        self._watch: Watch | None = None
        self._shown: ScreenSpec | None = None
        """The spec of the screen that was on top before."""
        self._pointed: str | None = None
        """The job that the demo's caption describes, until the cursor is on its row."""
        self._follow_list = FollowList(self.context)
        self._attention = UserAttention(opening.session, clock)
        self.processor = ProcessorLimit(soft_limit_s())
        self.leaves_in_words: str | None = None
        """The reason why coach ended without the user's request. The last line in the terminal shows it."""
        self._terminal_modes = terminal_modes()
        self._stray_line = StrayLine()
        self._stage = Stage(self, self.context)
        controllers = Controllers(
            self._stage,
            opening,
            {messages.ScreenShown: self._follow_top, messages.ScreenOpened: self._open},
        )
        self._launches, self._questions = controllers.launches, controllers.questions
        self._job_notices = controllers.notices
        self.handlers = controllers.handlers
        """The handler of each type of request."""
        self._note_standing()

    @on(messages.Request)
    def _answer(self, request: messages.Request) -> None:
        self.handlers[type(request)](request)

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        if found is not LinuxDriver:
            return found
        return AsciiDriver if self._is_ascii else PatientDriver

    # From start to end

    def on_mount(self) -> None:
        if not self.is_headless:
            leave_at_signals(self, self._terminal_modes)
        self._stage.open(HOME.name)
        self._follow()
        self.context.session.start(self._post_snapshot)
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self._launches.load_recipes)

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """End the app. Cancel a search of Textual's palette first: it would fail when its list is removed."""
        self._is_leaving = True
        self.workers.cancel_all()
        super().exit(result, return_code, message)

    def on_unmount(self) -> None:
        self.context.session.stop()
        self._stage.finish(FINISH_AT_SIGNAL_S if self.return_code else FINISH_TIMEOUT_S)

    # Data

    def _post_snapshot(self, snapshot: Snapshot) -> None:
        if not self._stage.is_lent:  # while another program has the terminal, updates would pile up
            self.post_message(messages.Updated(snapshot))

    def on_updated(self, message: messages.Updated) -> None:
        context = self.context
        context.snapshot, context.snapshot_time_s = message.snapshot, context.clock()
        context.answers.node_past.look(message.snapshot.nodes, message.snapshot.now_s)
        context.diagnoses.update(message.snapshot.diagnoses)
        context.found.update(ranked_findings(message.snapshot, context.ended_jobs))
        context.kept.difference_update(message.snapshot.diagnoses)
        context.forget_jobs_of_runs()
        context.trainings.look(context.session, message.snapshot)
        self._note_standing()
        self._follow()
        self._job_notices.look(message.snapshot)
        self._point()

    async def on_done(self, message: messages.Done) -> None:
        result = message.callback()
        if hasattr(result, "__await__"):
            await result

    def _note_standing(self) -> None:
        """Update what coach may change, by the current settings of the site and the user."""
        if self._standing is not None:
            context = self.context
            context.mode, context.why_readonly, context.switched_off = self._standing()

    def _follow_top(self, request: messages.ScreenShown) -> None:
        self._follow()
        spec = self.top.spec if self.top is not None else None
        if spec is HOME and self._shown not in (None, HOME) and self._is_queue_old():
            self.context.session.refresh_soon(is_cluster_only=True)
        self._shown = spec

    def _is_queue_old(self) -> bool:
        status = self.context.snapshot.sources.get("jobs")
        if status is None or status.data_time_s is None or status.error is not None:
            return False  # coach is asking Slurm now, or Slurm does not answer
        return self.context.now_s - status.data_time_s > AGES_S

    def _follow(self) -> None:
        """Follow the runs and jobs that the screen on top declares."""
        top, before = self.top, self._watch.targets if self._watch is not None else ()
        named = top.targets if top is not None else ()
        self._attention.follow(bool(named))
        follows = top.spec.follows if top is not None else Follows.BEFORE
        also = top.also_followed if top is not None else ()
        targets = self._follow_list.targets(follows, (*named, *also), before)
        if self.context.processor_limit_s is not None:
            targets = ()
        watch = Watch(all_jobs=self.context.are_all_shown, targets=targets)
        if watch != self._watch:
            self._watch = watch
            self.context.session.watch(watch)

    # Time and attention

    def _tick(self) -> None:
        self._attention.tick()
        self._heed_processor_limit()
        self._note_sleep()
        self._stage.tell_progress()
        if self.top is not None and self.context.clock() - self.context.snapshot_time_s >= AGES_S:
            self.top.tick()

    def _heed_processor_limit(self) -> None:
        left, context = self.processor.left(), self.context
        if left is Left.NONE:
            self.leaves_in_words = self.processor.words
            self.exit()
        elif left is Left.LITTLE and context.processor_limit_s is None:
            context.processor_limit_s = self.processor.limit_s
            self._follow()
            self._stage.redraw()

    def _note_sleep(self) -> None:
        context, was_awake = self.context, self.context.asleep_s is None
        context.asleep_s = self._attention.asleep_s
        if (context.asleep_s is None) != was_awake:
            self._stage.redraw()

    def on_app_focus(self) -> None:
        self._attention.focus(True)

    def on_app_blur(self) -> None:
        self._attention.focus(False)

    async def on_event(self, event: events.Event) -> None:
        if self._is_leaving and isinstance(event, _TYPED):
            return  # typed for the shell
        if isinstance(event, _AT_WORK) and not event.is_forwarded and self._attention.key():
            self._note_sleep()
            return
        if isinstance(event, events.Key) and not event.is_forwarded:
            # A key's time is its arrival, not the start of its handling. Textual stamps events with
            # time.monotonic().
            self.context.key_time_s = self.context.clock() - max(0.0, time.monotonic() - event.time)
            self.context.typed_on.press(self.context.key_time_s)
            if self._is_stray(event):
                return
            if self.top is not None:
                self.top.note_key()
        if await done_at_once(self, event):
            return
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded and self.top is not None:
            self._heed_dead(self.top, event)
        await super().on_event(event)

    def _heed_dead(self, top: CoachScreen, event: events.Key | events.Paste) -> None:
        """Say why a key or a paste does nothing. After a `/` that does nothing, the user types a line:
        `_is_stray` then ignores its characters."""
        if isinstance(event, events.Paste):
            top.note("pasted text is no key, and no field is open: nothing was done")
        elif top.note_dead(event) and event.character == FILTER_CHARACTER:
            self._stray_line.begin()
            top.note(self._stray_line.words)

    def _is_stray(self, event: events.Key) -> bool:
        """True, with a note, if the key belongs to a line of text that the user began with `/` on a screen
        where `/` does nothing."""
        top, line = self.top, self._stray_line
        if top is None or not line.swallows(event.key, event.character if event.is_printable else None):
            return False
        top.note(line.words)
        return True

    # Screens

    @property
    def top(self) -> CoachScreen | None:
        """The screen on top, if it is one of coach's; None for Textual's own."""
        return self._stage.top

    def _open(self, request: messages.ScreenOpened) -> None:
        if not self._stage.is_overtaken(request):
            self._stage.open(request.name, *request.arguments)

    def action_open_screen(self, name: str) -> None:
        """Open a screen that is not about one job or node."""
        self._stage.open(name)

    def action_open_help(self) -> None:
        if self.top is not None:
            self._stage.open("help", self.top.spec, self.top.crumbs, self.top.first_keys())

    def action_launch(self, key: str) -> None:
        """Open the plan of the recipe that this key launches."""
        self._launches.press(key)

    def action_refresh_data(self) -> None:
        top = self.top
        if top is None or top.ask_again():
            return
        self.context.session.refresh_soon()
        top.note("reading everything again")

    def action_go_back(self) -> None:
        top = self.top
        if top is None or self._stage.stop_work():
            return
        if top.maximized is not None:
            top.minimize()
            return
        if top.go_back():
            return
        if top.spec is not HOME:
            self.pop_screen()
        elif self.context.story is not None and self.context.story.leave():
            top.refresh_all()

    def action_next_chapter(self) -> None:
        """Show the demo's next caption on the first screen, with the cursor on the caption's job."""
        self._tell("story_next")

    def action_previous_chapter(self) -> None:
        self._tell("story_previous")

    def _tell(self, key_id: str) -> None:
        story, top = self.context.story, self.top
        if top is None:
            return
        if story is None or story.is_left:
            top.note(f"{self.context.label(key_id)} is no key: {self.context.label('help')} lists the keys")
            return
        if key_id == "story_next":
            story.go_on()
        else:
            story.go_back()
        chapter = story.chapter
        self._stage.go_home()
        self._pointed = chapter.target if chapter is not None else None
        self._point()

    def _point(self) -> None:
        """Put the cursor on the caption's job, as soon as the job has a row."""
        if self.top is not None and self.top.spec is HOME and self._pointed is not None:
            self._pointed = None if self.top.point_at(self._pointed) else self._pointed
        self._stage.redraw()

    def action_leave(self) -> None:
        """Go one step back; on the first screen, leave coach."""
        top = self.top
        if top is not None and top.spec is HOME and top.maximized is None and not top.go_back():
            self.exit()
        else:
            self.action_go_back()

    def action_help_quit(self) -> None:
        """Textual's action of ^c: name the key that leaves."""
        if self.top is not None:
            self.top.note(f"{self.context.label('quit')} leaves coach; ^c and ^z are no keys")

    async def action_go_to(self) -> None:
        """Ask for a name and open the job, node or screen of that name. Keys typed right after `:` go into
        the field."""
        self._questions.remember()
        places = places_of(self.context, self._launches.recipes, self._go, self._launches.launch)
        palette = GoTo(places, self._go)
        await self.push_screen(palette)
        palette.set_focus(palette.query_one(Input))
        self._questions.name_rules(lambda titles: palette.add(rule_places(titles, self._go)))

    def _go(self, name: str, *arguments: Any) -> None:
        if name == HOME.name:
            self._stage.go_home()
            if self.top is not None and arguments:
                self.top.show_only(*arguments)
        else:
            self._stage.open(name, *arguments)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands that the palette offers. `screen` is the screen below the palette."""
        if isinstance(screen, CoachScreen):
            yield from commands_of(screen, self._launches.recipes, self._act_on, self._launches.launch)

    async def _act_on(self, screen: CoachScreen, action: str) -> None:
        if screen is self.screen:
            screen.note("")
            await self.run_action(action, screen)

    # Colours

    def _take_theme(self, name: str) -> None:
        theme = find_theme(name) or NIGHT
        self.register_theme(theme)
        self.theme = theme.name

    def action_next_theme(self) -> None:
        """Switch to the next of coach's themes, for this session only."""
        self._take_theme(next_own(self.theme))
        if self.top is not None:
            self.top.note(f'{self.theme}; theme = "{self.theme}" in the config keeps it')

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(NIGHT.variables)

    def _handle_exception(self, error: Exception) -> None:
        """Keep the exception and exit, so `open_screens` prints one line in place of Textual's traceback.
        Textual has no public hook for this."""
        if self._is_leaving and isinstance(error, NoMatches | WorkerFailed):
            return  # an app that ends mounts no widgets, so a screen that was just opened misses its own
        if self.crash is None:
            self.crash = error
        if self.is_headless:
            super()._handle_exception(error)
            return
        self.exit(return_code=1)
