"""What every screen has: the top line, the banner, the keys; and the context it works in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.judging.ranking import RankedFinding, worst
from coach.model.judging.finding import Diagnosis
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot
from coach.model.training.run import Run
from coach.tui.keys.key import Key
from coach.tui.keys.table import Mode, keys_of, reason_off
from coach.tui.messages import ScreenAsked, ScreenShown
from coach.tui.ports import Session
from coach.tui.question import Answers, Question
from coach.tui.render.finding import fix_word
from coach.tui.render.findings import withheld_line, worst_line
from coach.tui.render.header import ages_line, asleep_line, banner_lines, spending_line, top_line
from coach.tui.render.text import BLANK, Line, Span, line, muted, printable
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.status_bar import Banner, KeyBar, TopBar
from coach.tui.widgets.text_field import TextField
from coach.workflows.watching.table_views import View


@dataclass(slots=True)
class Context:
    """What the screens share. The app keeps it; screens read it, and change nothing in it but the marks and the views."""

    session: Session
    mode: Mode
    """It can change while coach is open: the site, or the user, sets `readonly`."""
    user: str | None
    place: str
    """Name of what is shown: `slurm · tiger`, `local · ws1`."""
    clock: Callable[[], float]
    """Monotonic."""
    snapshot: Snapshot
    snapshot_time_s: float
    """When it arrived, on `clock`."""
    why_readonly: str | None = None
    """Who says that nothing may be changed, and why; None when it was said as coach was opened."""
    key_time_s: float = 0.0
    """When the key that is being handled arrived, on `clock`."""
    launch_keys: tuple[Key, ...] = ()
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    """The last diagnosis of every target that was ever followed."""
    rates: dict[str, float] = field(default_factory=dict)
    """The last throughput of every run that was ever followed."""
    answers: Answers = field(default_factory=Answers)
    """What was asked on demand."""
    found: dict[str, tuple[RankedFinding, ...]] = field(default_factory=dict)
    """The last findings of every target that was ever judged, with what they cost."""
    unread: list[str] = field(default_factory=list)
    """Jobs that ended within a day and have not been judged yet."""
    views: dict[str, View] = field(default_factory=dict)
    """How the tables are looked at, by their ids."""
    views_problem: str | None = None
    """Why they are not as they were kept."""
    marked: list[str] = field(default_factory=list)
    are_all_shown: bool = False
    """Whether the queue is everybody's: only then is it asked for."""
    asleep_s: float | None = None
    """How long no key was pressed, once nothing is asked any more because of that."""
    _jobs: tuple[object, Mapping[str, Job]] = (None, MappingProxyType({}))
    """The jobs by their ids, and of which queue."""

    @property
    def now_s(self) -> float:
        """The present in the data's time: what ages are counted from. It goes on between two snapshots."""
        if not self.snapshot_time_s:
            return self.snapshot.now_s
        return self.snapshot.now_s + max(0.0, self.clock() - self.snapshot_time_s)

    @property
    def ended_jobs(self) -> Mapping[str, Job]:
        """Those that the queue may have forgotten, by their ids, the newest of each number; none before they were asked for."""
        told = self.answers[Question.PAST_JOBS].value
        return {past.job.job_id: past.job for past in reversed(told.jobs if told is not None else ())}

    def run(self, run_id: str) -> Run | None:
        target = self.snapshot.targets.get(run_id)
        if target is not None and target.run is not None:
            return target.run
        return next((run for run in self.snapshot.runs if run.run_id == run_id), None)

    def job(self, job_id: str | None) -> Job | None:
        return self.jobs_by_id.get(job_id) if job_id is not None else None

    @property
    def jobs_by_id(self) -> Mapping[str, Job]:
        if self._jobs[0] is not self.snapshot.jobs:
            self._jobs = (self.snapshot.jobs, {job.job_id: job for job in self.snapshot.jobs})
        return self._jobs[1]

    def run_of_job(self, job_id: str) -> Run | None:
        job = self.job(job_id)
        runs = (run for run in self.snapshot.runs if run.job_id == job_id)
        return next((run for run in runs if job is None or is_job_of(job, run)), None)

    def forget_jobs_of_runs(self) -> None:
        """Drop the findings of a job that was judged before its run was known: the run has the same ones."""
        judged = self.found.keys() | self.diagnoses.keys()
        # What follows a run knows its job before the list of runs was read again.
        followed = (target.run for target in self.snapshot.targets.values() if target.run is not None)
        for run in (*self.snapshot.runs, *followed):
            if run.job_id is None or run.job_id == run.run_id or run.job_id not in judged:
                continue
            job = self.job(run.job_id) or self.ended_jobs.get(run.job_id)
            if job is not None and is_job_of(job, run):
                self.found.pop(run.job_id, None)
                self.diagnoses.pop(run.job_id, None)

    def state_of(self, run: Run) -> str | None:
        """By whoever knows best: what follows the run, then the queue, then its own file."""
        target = self.snapshot.targets.get(run.run_id)
        if target is not None and target.state is not None:
            return target.state
        job = self.job(run.job_id)
        return job.state if job is not None and is_job_of(job, run) else run.state


class CoachScreen(Screen[None]):
    """Base of all screens. Subclasses compose a body and draw it in `show`."""

    PLACE: ClassVar[str] = ""
    AUTO_FOCUS = None
    TARGETS: tuple[str, ...] = ()
    """Runs to be followed while this screen is on top."""
    questions: tuple[Question, ...] = ()
    """What it shows that is asked only on demand: `^r` asks it again."""

    def __init__(self, context: Context, crumbs: tuple[str, ...]) -> None:
        super().__init__()
        self.context = context
        self.crumbs = crumbs

    def post_message(self, message: Message) -> bool:
        if isinstance(message, ScreenAsked):
            message.asked_by = self
        return super().post_message(message)

    def compose(self) -> ComposeResult:
        yield TopBar()
        yield Banner()
        yield from self.compose_body()
        yield KeyBar()

    def compose_body(self) -> Iterator[Widget]:
        """The widgets between banner and keys."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw what the context holds now."""
        raise NotImplementedError

    def refresh_all(self) -> None:
        """Draw everything: new data, a new size, or this screen came to the top."""
        if not self.is_mounted or not self._is_composed:
            return
        self.tick()
        self._show_keys()
        self.show()

    def tick(self) -> None:
        """Draw what changes by the clock alone: the ages."""
        if not self._is_composed:
            return
        context, width = self.context, self.app.size.width
        now_s = context.now_s
        ages = ages_line(context.snapshot.sources, now_s)
        gravest = self._gravest(now_s) or withheld_line(
            context.diagnoses.get(target) for target in self.TARGETS
        )
        ages = (*gravest, muted(" · "), *ages) if gravest and ages else gravest or ages
        top = top_line(self.crumbs, context.place, context.mode.value, ages, width)
        self.query_one(TopBar).set_lines([top])
        asleep = [asleep_line(context.asleep_s, width)] if context.asleep_s is not None else []
        self.query_one(Banner).set_lines([*asleep, *banner_lines(self._concerning(), now_s, width)])
        self.query_one(KeyBar).set_spending(spending_line(context.snapshot))

    @property
    def subjects(self) -> tuple[str, ...]:
        """The runs and jobs that the screen is about; empty on a screen about all of them."""
        return self.TARGETS

    def _gravest(self, now_s: float) -> Line:
        """The gravest finding of these subjects; where they have none, the gravest of the others, marked
        `elsewhere`."""
        found, subjects = self.context.found, self.subjects
        own = worst({name: found[name] for name in subjects if name in found}, now_s)
        if own is not None or not subjects:
            return worst_line(own or worst(found, now_s))
        return worst_line(worst(found, now_s), is_elsewhere=True)

    def _concerning(self) -> Snapshot:
        """Without the troubles of foreign jobs that are followed beside it: their logs may be nobody's to read."""
        snapshot = self.context.snapshot
        foreign = {name for name, target in snapshot.targets.items() if target.run is None} - {*self.TARGETS}
        kept = {
            key: status for key, status in snapshot.sources.items() if key.partition(":")[2] not in foreign
        }
        return replace(snapshot, sources=kept)

    def _show_keys(self) -> None:
        launches = [key for key in self.context.launch_keys if self.PLACE in key.places]
        hints = [
            (key.id, key.label, self._word(key), self.reason_off(key) is None)
            for key in self.keys()
            if key.word and key not in launches and not (key.id == "back" and self.PLACE == "cluster")
        ]
        if launches:
            # One hint for all of them, in the second place: what coach is for must not be crowded out.
            label = "-".join(dict.fromkeys((launches[0].label, launches[-1].label)))
            hints.insert(1, ("recipes", label, "launch", self.reason_off(launches[0]) is None))
        self.query_one(KeyBar).set_hints(hints)

    def _word(self, key: Key) -> str:
        """The footer's word for a key: `F` shows a fix, or advice where no change of the launch mends it."""
        if key.id != "fix":
            return key.word
        diagnoses = (self.context.diagnoses.get(target) for target in self.subjects)
        return fix_word(f for each in diagnoses if each is not None for f in each.findings) or key.word

    def keys(self) -> tuple[Key, ...]:
        """Every key that works here."""
        return keys_of(self.PLACE, self.context.launch_keys)

    def reason_off(self, key: Key) -> str | None:
        """Why a key does nothing now; None when it works."""
        return reason_off(key, self.context.mode, self.context.why_readonly)

    def is_off(self, key_id: str) -> bool:
        """Whether a key is off; then its reason is said."""
        key = next(key for key in self.keys() if key.id == key_id)
        reason = self.reason_off(key)
        if reason is not None:
            self.note(f"{key.label} is off: {reason}")
        return reason is not None

    def note(self, text: str) -> None:
        """Say something beside the keys, until the next key."""
        self._set_note(line(Span(printable(text), "warning")) if text else BLANK)

    def _set_note(self, note: Line) -> None:
        if self._is_composed:
            self.query_one(KeyBar).set_note(note)

    @property
    def _is_composed(self) -> bool:
        """Whether there is something to draw on. The clock ticks, and keys arrive, also while a screen opens or closes."""
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
        """Give the focus. A field that gets it has its text selected before the next key comes."""
        before = self.focused
        super().set_focus(widget, scroll_visible, from_app_focus)
        if isinstance(widget, TextField) and widget is self.focused is not before and not from_app_focus:
            widget.select_all()

    def go_back(self) -> bool:
        """Handle Esc here. False: leave the screen."""
        return False
