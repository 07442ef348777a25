"""The course of a training loss over time, from metrics or log lines, for the rules about loss curves.

It decides where a course begins, which values are losses, and which curves prove nothing (adversarial
training, rewards).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from statistics import median

from coach.lookback.history import MIN_STEPS, CurvePoint, History, is_early, noise_of, since_restart
from coach.model.judging.finding import Evidence, Verdict
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.metrics import NAMES_EVENT, Counter
from coach.rules.from_logs.aftermath import MAX_FLUSHED_LINES, lines_below
from coach.rules.from_logs.loss_lines import PROGRESS, name_of
from coach.rules.from_logs.outcome import has_good_end
from coach.rules.from_logs.quoted_evidence import quote
from coach.rules.from_numbers.evaluations import accuracies
from coach.rules.from_numbers.rhythm import started_s
from coach.rules.from_numbers.training_windows import LOW_MFU, MIN_LINES, newest_steady_steps, printed_mfu

_PLAIN_KEY = re.compile(
    r"(?:.*[ _/.])?(?:train(?:ing)?|lm|total|avg|mean|epoch|batch|step|iter)?[ _/.]?loss\b.*", re.IGNORECASE
)
_ADVERSARIES = re.compile(
    r"reward|(?<![a-z])ep_|episode|\breturns?\b|rollout|policy|actor|critic|advantage|epsilon|discriminator"
    r"|generator"
    r"|(?<![a-z])[dg]_?loss|loss_?[dg](?![a-z])|(?<![a-z])gan(?![a-z])",
    re.IGNORECASE,
)
"""Words of reinforcement and adversarial training, where a rising loss proves nothing."""
_COUNTER = re.compile(
    r"\b(?:global[ _]?step|step|iter(?:ation)?|epoch|update)s?\b\D{0,8}?(\d{1,18})", re.IGNORECASE
)
_EPOCH = re.compile(r"\bepochs?\b\W{0,8}(\d{1,9}(?:\.\d+)?)(?!\d)", re.IGNORECASE)
_RATE = re.compile(
    r"(?<![\w/.\-])(?:train/)?(?:lr|learning[_ ]rate)['\"]?\s?[:= ]\s?['\"]?"
    r"(\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
_ROUNDED = re.compile(r"0\.0{2,}")
"""A rate that was printed as zero with few digits; it may be small but not zero."""
_FIRST = 3
"""Number of values that show where a loss began."""
_MUCH = 0.2
"""Of the step time, as GPU005's critical share: a training that waits for so much is not healthy."""
_BEGINNING_S = 300.0
"""A training that loads its data and compiles prints its first loss within minutes."""
_NO_GUESS = math.log(1_000_000)
"""No tokenizer has a million tokens: a model that is fine-tuned on its own kind of text begins far below."""
_NAMES_OF_TRAINER = frozenset({"loss", "learning_rate", "grad_norm"})
"""transformers' Trainer, which mostly trains on tokens."""
_ERRORS = 3
"""Standard errors by which two levels must differ, so that the difference is no chance."""
_ERROR_LINE = re.compile(
    r"Traceback \(most recent|\b(?:ERROR|FATAL|CRITICAL)\b|\b[A-Z]\w{0,80}(?:Error|Exception)\b|\berror: "
    r"|core dumped"
)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a training loss. `step` is the step or epoch that the program gave it, or None."""

    loss: float
    step: int | None
    time_s: float | None
    evidence: Evidence
    counter: Counter = Counter.STEP
    """What `step` counts."""
    epoch: float | None = None
    """The epoch, with the part that is done if the program gives one; None if it is not known."""
    rate: float | None = None
    """The learning rate; None if it is not known."""
    num_steps: int = 1
    """Number of steps whose mean the loss is."""
    position: float | None = None
    """A number that grows evenly through the training, if there is one. A log keeps its newer values more
    densely, so there it is the epoch or the step."""
    line: str = ""
    """The log line; empty for a value from metrics. Only for what a point has no field for."""


def courses(snapshot: TargetSnapshot, history: History) -> Iterable[tuple[Point, ...]]:
    """Each training loss since its last restart: from metrics, else from the log lines, also where the log
    has more than the one or two values in metrics. Check `are_adversaries` before reporting a fault in a
    course."""
    printed = [
        hit
        for hit in snapshot.log_hits
        if hit.rule == PROGRESS.rule and _PLAIN_KEY.fullmatch(hit.fields["key"])
    ]
    measured = _points_of_curve(history.curve, printed)
    if len(measured) >= min(_FIRST, max(1, len(printed))):
        yield tuple(since_restart(measured))
        return
    series: dict[tuple[str, int | None, str, str], list[LogHit]] = {}
    for hit in printed:
        series.setdefault((hit.file, hit.rank, hit.fields["key"], name_of(hit)), []).append(hit)
    for hits in series.values():
        hits.sort(key=lambda hit: hit.line)
        yield tuple(since_restart([_point_of_line(hit) for hit in hits]))


def _point_of_line(hit: LogHit) -> Point:
    counted, at, rated = (each.search(hit.named) for each in (_COUNTER, _EPOCH, _RATE))
    step, epoch = int(counted[1]) if counted else None, float(at[1]) if at else None
    return Point(
        float(hit.fields["value"]),
        step,
        hit.time_s,
        quote(hit),
        Counter.EPOCH if counted and counted[0][0] in "eE" else Counter.STEP,
        epoch,
        None if rated is None or _ROUNDED.fullmatch(rated[1]) else float(rated[1]),
        position=step if epoch is None else epoch,
        line=hit.named,
    )


def _points_of_curve(curve: Sequence[CurvePoint], printed: Iterable[LogHit]) -> list[Point]:
    """The losses of metrics. Each quotes the line that printed it, if one line alone has its step and its
    value."""
    lines: dict[tuple[int | None, float], LogHit | None] = {}
    for hit in printed:
        found = _COUNTER.search(hit.named)
        key = int(found[1]) if found else None, float(hit.fields["value"])
        lines[key] = None if key in lines else hit
    points = []
    for point in curve:
        if point.loss is not None:
            step = None if point.counter is Counter.LINE else point.step
            line = lines.get((step, point.loss))
            told = Evidence(f"loss at {point.counter.word} {point.step}", value=point.loss)
            points.append(
                Point(
                    point.loss,
                    step,
                    point.time_s,
                    told if line is None else quote(line),
                    point.counter,
                    point.step if point.counter is Counter.EPOCH else point.epoch,
                    point.lr,
                    point.num_steps,
                    point.step,
                )
            )
    return points


def are_adversaries(snapshot: TargetSnapshot) -> bool:
    """True if words of the log or names of metrics show reinforcement or adversarial training."""
    return any(map(_ADVERSARIES.search, chain(_names(snapshot), snapshot.lines)))


def _names(snapshot: TargetSnapshot) -> Iterable[str]:
    """The names of all metrics."""
    named = (event.fields.get("names") for event in snapshot.events if event.event == NAMES_EVENT)
    return (str(name) for each in named if isinstance(each, (list, tuple)) for name in each)


def trained_on(hit: LogHit, later: Sequence[LogHit], snapshot: TargetSnapshot) -> bool:
    """True if the program trained on after a line that says that it stops: another trial. `later` are the
    losses below it. A few of them below a traceback prove nothing: a dying process flushes its buffers."""
    return bool(later) and (not hit.traceback or lines_below(hit, snapshot) > MAX_FLUSHED_LINES)


def is_warming_up(points: Sequence[Point]) -> bool:
    """True if the newest learning rate is above the rate at half the time."""
    rates = [point.rate for point in points if point.rate is not None]
    return bool(rates) and rates[-1] > rates[len(rates) // 2]


def last_place(values: Iterable[float]) -> float:
    """The finest decimal place of the finite values: 0.01 for 2.3 and 2.31; infinity without finite
    values."""
    exponents = [Decimal(f"{value:.9g}").as_tuple().exponent for value in values]
    return 10.0 ** min((exponent for exponent in exponents if isinstance(exponent, int)), default=math.inf)


def health_of(snapshot: TargetSnapshot, history: History) -> tuple[Verdict, str]:
    """The verdict on a target without a finding, and its ground.

    Healthy needs a loss or an accuracy that moves as it should over enough steps, or, where none is known, an
    end without an error in the log. The words of a log that tells only its speed are no such end.
    """
    if snapshot.state in ("PENDING", "CONFIGURING"):
        return Verdict.TOO_EARLY, "it has not started"
    if snapshot.state not in (None, "RUNNING", "COMPLETED"):
        return Verdict.UNKNOWN, f"it ended as {snapshot.state}"
    if waits := _unjudged_waits(snapshot, history):
        return (
            Verdict.TOO_EARLY,
            f"it has made too few steps to judge its waits for data, {waits:.0%} of them",
        )
    course = max(courses(snapshot, history), key=len, default=())
    if doubt := _doubt(course, snapshot, history):
        return Verdict.UNKNOWN, doubt
    if course and not are_adversaries(snapshot):
        return _health_by(course, accuracies(snapshot, history))
    if _has_ended_well(snapshot):
        if not course and _tells_only_speed(snapshot, history):
            return Verdict.UNKNOWN, "its log tells its speed, not its loss or its waits for data"
        return Verdict.HEALTHY, "it ended well, without an error in its log; its loss is not known"
    if course:
        return Verdict.UNKNOWN, "its losses compete, so they do not show how it goes"
    start_s = started_s(snapshot) if snapshot.state == "RUNNING" else None
    if start_s is not None and snapshot.now_s is not None and snapshot.now_s - start_s < _BEGINNING_S:
        return Verdict.TOO_EARLY, "it has just started"
    return Verdict.UNKNOWN, ""


def _unjudged_waits(snapshot: TargetSnapshot, history: History) -> float:
    """The share of its steps that a training waits for data, if that is much and the steps are too few for
    GPU005; else 0."""
    for rank in history.ranks[:1]:
        steady, known = (newest_steady_steps(snapshot, history, rank, 200, skipped) for skipped in (3, 0))
        if steady.is_long(MIN_STEPS, 0.0, MIN_LINES) or not known.steps:
            continue
        share = (steady if steady.steps else known).data_share
        return share if share >= _MUCH else 0.0
    return 0.0


def _tells_only_speed(snapshot: TargetSnapshot, history: History) -> bool:
    """True if a log, whose end only its words tell, has steps without known waits."""
    known = [newest_steady_steps(snapshot, history, rank, 200, 0).steps for rank in history.ranks]
    return snapshot.state is None and bool(known) and not any(known)


def _doubt(course: Sequence[Point], snapshot: TargetSnapshot, history: History) -> str:
    """Why it may not go well although nothing wrong was found; empty if nothing speaks against it."""
    mfu = printed_mfu(history)
    if mfu is not None and mfu < LOW_MFU:
        return f"it reports an MFU of {mfu:.2g}, so it hardly uses its GPU"
    if course and course[0].loss > _NO_GUESS and {*_names(snapshot)} >= _NAMES_OF_TRAINER:
        return f"its first loss, {course[0].loss:.3g}, is worse than guessing among a million tokens"
    return ""


def _has_ended_well(snapshot: TargetSnapshot) -> bool:
    """True for a good end and a log, as far as it is kept, without an error."""
    if snapshot.state != "COMPLETED" and not (snapshot.state is None and has_good_end(snapshot)):
        return False
    lines = list(snapshot.lines)
    return bool(lines) and not any(map(_ERROR_LINE.search, lines))


def _health_by(course: Sequence[Point], shares: Sequence[float]) -> tuple[Verdict, str]:
    if is_early(course):
        return Verdict.TOO_EARLY, "it has made too few steps to judge its loss and its speed"
    losses = [point.loss for point in course]
    if not math.isfinite(losses[-1]):
        return Verdict.UNKNOWN, "its newest loss is not finite"
    if median(losses[-(len(losses) // 3) :]) > max(losses[:_FIRST]):
        return Verdict.UNKNOWN, "its loss lies above its first values"
    if _has_risen([-loss for loss in losses]):
        return Verdict.HEALTHY, "its loss falls"
    if _has_risen(shares):
        return Verdict.HEALTHY, "its accuracy rises"
    return Verdict.UNKNOWN, "its loss does not fall by more than its noise"


def _has_risen(values: Sequence[float]) -> bool:
    """True if the last third lies above the first by more than the noise between neighbours explains."""
    third = len(values) // 3
    if third == 0:
        return False
    error = _ERRORS * noise_of(values) * math.sqrt(2 / third)
    return median(values[-third:]) - median(values[:third]) > error
