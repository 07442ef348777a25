"""Read from a log how far a training was when it was ended, and how long it had been silent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coach.lookback.history import History
from coach.model.judging.finding import EARLY_END, Evidence, NotMeasured
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail

_COUNTER = re.compile(
    r"(?<![\w/.])(?P<word>epoch|step|iter|iteration|update|batch)s?\b[\s:=\[(#]{0,6}"
    r"(?P<done>\d{1,9})\s?(?:/|of)\s?(?P<total>\d{1,9})(?![\w/.])",
    re.IGNORECASE,
)
"""`step   110/1000`, `[epoch 109/200]`, `Epoch: 3 of 10`."""
_EPOCH = re.compile(r"(?<![A-Za-z])(?:ep|epoch)s?\b(?:[\s:=\[(#]{0,6}(?P<number>\d{1,9})\b)?", re.IGNORECASE)
_NOT_THE_PROGRAM = re.compile(r"^(?:\d+: )?(?:srun|salloc|slurmstepd\S*|coach): |^\s*$")
_SAVED = re.compile(
    r"\b(?:sav(?:ed|ing)|wrote|written|stored)\b.{0,80}\b(?:checkpoint|ckpt)"
    r"|\b(?:checkpoint|ckpt)\b.{0,80}\b(?:saved|written|stored)\b",
    re.IGNORECASE,
)
_NOT_SAVED = re.compile(r"\b(?:not|no|cannot|fail\w*|error|every|will|before)\b", re.IGNORECASE)
_STEP = re.compile(
    r"\b(?:global[ _]?step|step|iter(?:ation)?|update)s?\b[\s:=\[(#]{0,6}(?P<step>\d{1,12})(?![\d.])",
    re.IGNORECASE,
)
_LINES_AFTER_SAVING = 2
"""A program that went on for so many lines had finished its checkpoint."""
_MIN_SEEN = 2
_MAX_IDLE_CPUS = 0.05
"""Mean number of CPUs that the job used. A process that computes, decodes or writes uses more."""
_MIN_SAMPLES = 10
_MIN_SILENCE_S = 30.0
_MIN_SEEN_SILENCE_S = 300.0
"""The same without a measurement of the CPUs: shorter silences are evaluations and checkpoints."""
_OF_MEAN_GAP = 10.0
"""A silence this many times as long as the mean time of a line is no pause between two lines."""


_NEARLY_ALL = 0.9
"""A counter that begins at 0, or is printed now and then, ends short of its total."""
_LAST_LINES = 20
_SAYS_WHY = re.compile(
    r"early|stop|patience|plateau|converge|\bbest\b|no improvement|target|reached|limit|budget|max_|maximum"
    r"|\b(?:done|finish\w*|complet\w*|end(?:ed|ing)?|test|final\w*|result\w*|total|sav(?:ed|ing)|resum\w*"
    r"|requeu\w*|signal|interrupt\w*|exit\w*)\b",
    re.IGNORECASE,
)
"""Words of a program that ends as it should, or that tells why it ends."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The newest counter that the program printed."""

    word: str
    done: int
    total: int
    before: int = 0
    """How far a training that was resumed had come before; 0 if that is not known."""

    @property
    def num_here(self) -> int:
        """Number of epochs or steps that this job did."""
        return self.done - self.before


@dataclass(frozen=True, slots=True)
class _Seen:
    """A counter in one line."""

    counted: Counted
    epoch: str | None
    """The number of the epoch beside it; empty for an epoch without a number."""


def counted(snapshot: TargetSnapshot) -> Counted | None:
    """The counter of the whole training; None without one. A counter that begins again, or that stands beside
    an epoch and does not grow from one epoch to the next, counts only a part of it."""
    return next(filter(None, map(_counted_in, snapshot.log_tails)), None)


def _counted_in(tail: LogTail) -> Counted | None:
    # Not the plain lines: `[epoch 3/9]` at their beginning looks like a launcher's prefix.
    seen = [found for line in tail.lines if (found := _counter_in(line)) is not None]
    epochs = [each for each in seen if each.counted.word == "epoch"]
    mine = epochs or [each for each in seen if each.counted.word == seen[-1].counted.word]
    if not _is_of_the_whole(mine) or not mine[-1].counted.done:
        return None
    return replace(mine[-1].counted, before=_before(mine, tail))


def _before(mine: Sequence[_Seen], tail: LogTail) -> int:
    """The counter's value before the first line of a log, one interval below the first value; 0 for a
    training that begins there, or if that line is not kept."""
    if tail.first_line > 1:
        return 0
    first, second = list(dict.fromkeys(each.counted.done for each in mine))[:2]
    interval = second - first
    return 0 if first <= max(1, interval) else first - interval


def _is_of_the_whole(seen: Sequence[_Seen]) -> bool:
    """True if lines with one total show that it is that of the whole training."""
    counters = [each.counted for each in seen]
    if len({each.done for each in counters}) < _MIN_SEEN or len({each.total for each in counters}) > 1:
        return False
    if any(before.done > after.done for before, after in pairwise(counters)):  # it began again
        return False
    return all(each.epoch is None for each in seen) or _grows_over_epochs(seen)


def _grows_over_epochs(seen: Sequence[_Seen]) -> bool:
    """True for `epoch 0 step 90/200`, `epoch 1 step 100/200`."""
    ends = [(a.counted.done, b.counted.done) for a, b in pairwise(seen) if a.epoch != b.epoch]
    return all(each.epoch for each in seen) and bool(ends) and all(last < first for last, first in ends)


def _counter_in(line: str) -> _Seen | None:
    found = [
        Counted(match["word"].lower(), int(match["done"]), int(match["total"]))
        for match in _COUNTER.finditer(line[:512])
    ]
    epochs = [each for each in found if each.word == "epoch"]
    if epochs or not found:
        return _Seen(epochs[0], None) if epochs else None
    beside = _EPOCH.search(line[:512])
    return _Seen(found[0], None if beside is None else beside["number"] or "")


def unexplained_end(snapshot: TargetSnapshot) -> list[NotMeasured]:
    """An item for a job that COMPLETED in the middle of its own counter, if its log does not say why; empty
    for any other. A program that stops early on purpose mostly says so, and one that is through counts to
    its end."""
    done = counted(snapshot) if snapshot.state == "COMPLETED" else None
    if done is None or done.done > _NEARLY_ALL * done.total:
        return []
    last = [line for tail in snapshot.log_tails for line in tail.plain[-_LAST_LINES:]]
    if any(_SAYS_WHY.search(line[:512]) for line in last):
        return []
    because = f"it COMPLETED at {done.word} {done.done} of {done.total}, and its log does not say why"
    return [NotMeasured(EARLY_END, because, "look for what ends the program there; an early stop is healthy")]


def reported_checkpoint(snapshot: TargetSnapshot) -> Evidence | None:
    """The line about the newest checkpoint that the program reports, if it printed more after it."""
    for tail in snapshot.log_tails:
        said = [number for number, line in enumerate(tail.plain) if _is_of_the_program(line)]
        for number in reversed(said[:-_LINES_AFTER_SAVING]):
            line = tail.plain[number][:512].strip()
            if _SAVED.search(line) and not _NOT_SAVED.search(line):
                return Evidence(line, tail.file, tail.first_line + number)
    return None


def lost_steps(snapshot: TargetSnapshot) -> int | None:
    """Steps printed after the newest checkpoint that the program reports; None if there is no such report, or
    if the steps may begin again in each epoch."""
    saved = reported_checkpoint(snapshot)
    tail = next((tail for tail in snapshot.log_tails if saved is not None and tail.file == saved.file), None)
    if saved is None or saved.line is None or tail is None:
        return None
    steps = _steps(tail)
    place = saved.line - tail.first_line
    before = [step for number, step in steps if number <= place]
    return steps[-1][1] - before[-1] if before else None


def last_step(snapshot: TargetSnapshot) -> int | None:
    """The last step that the program printed in its only log; None if unknown."""
    steps = _steps(snapshot.log_tails[0]) if len(snapshot.log_tails) == 1 else []
    return steps[-1][1] if steps else None


def _steps(tail: LogTail) -> list[tuple[int, int]]:
    """(index of the line, step) of the kept lines; empty if the steps begin again, or may in each epoch."""
    seen = [(number, line[:512]) for number, line in enumerate(tail.plain) if _STEP.search(line[:512])]
    steps = [(number, int(found["step"])) for number, line in seen if (found := _STEP.search(line))]
    is_anew = any(before > after for (_, before), (_, after) in pairwise(steps))
    return [] if is_anew or any(_EPOCH.search(line) for _, line in seen) else steps


def silence_s(snapshot: TargetSnapshot) -> float | None:
    """Seconds from the last line of the program to the end; None if unknown: Slurm's own last line is written
    into most logs, and hides when the program wrote."""
    if not snapshot.has_ended or snapshot.now_s is None:
        return None
    told = [tail for tail in snapshot.log_tails if any(map(_is_of_the_program, tail.plain))]
    if not told or any(tail.written_s is None or not _ends_with_the_program(tail) for tail in told):
        return None
    return max(0.0, snapshot.now_s - max(tail.written_s or 0.0 for tail in told))


def seen_silence_s(snapshot: TargetSnapshot, ran_s: float | None) -> float | None:
    """Seconds for which no log of the program was seen to grow before the end of the job, as known to coach
    if it followed the job; None if that is short for this program, or unknown."""
    told = [tail for tail in snapshot.log_tails if any(map(_is_of_the_program, tail.plain))]
    if not told or snapshot.now_s is None or ran_s is None:
        return None
    silences = [_seen_silence_of(tail, snapshot.now_s) for tail in told]
    num_lines = sum(tail.num_lines or 0 for tail in told)
    silent_s = min(silences)
    least_s = max(_MIN_SEEN_SILENCE_S, _OF_MEAN_GAP * max(0.0, ran_s - silent_s) / max(1, num_lines))
    return silent_s if silent_s >= least_s else None


def _seen_silence_of(tail: LogTail, end_s: float) -> float:
    written_s = end_s if tail.written_s is None else tail.written_s
    if _ends_with_the_program(tail):
        return max(0.0, end_s - written_s)
    return max(0.0, tail.last_pause_s - max(0.0, written_s - end_s))  # the last words may be seen late


def stood_still_s(snapshot: TargetSnapshot, history: History, ran_s: float | None) -> float | None:
    """Seconds of a silence in which the job used no CPU; None if it worked, or if that is not measured.

    The silence must be long for this program: many times the mean time between two of its lines.
    """
    silent_s = silence_s(snapshot)
    num_lines = sum(tail.num_lines or 0 for tail in snapshot.log_tails)
    if silent_s is None or snapshot.now_s is None or ran_s is None or num_lines == 0:
        return None
    if silent_s < max(_MIN_SILENCE_S, _OF_MEAN_GAP * max(0.0, ran_s - silent_s) / num_lines):
        return None
    since_s = snapshot.now_s - silent_s
    used = [
        sample.cpu_pct / 100 * sample.num_cpus
        for node in history.nodes
        for sample in history.host(node)
        if sample.time_s > since_s and sample.cpu_pct is not None and sample.num_cpus is not None
    ]
    is_idle = len(used) >= _MIN_SAMPLES and sum(used) / len(used) < _MAX_IDLE_CPUS
    return silent_s if is_idle else None


def _is_of_the_program(line: str) -> bool:
    return _NOT_THE_PROGRAM.match(line) is None


def _ends_with_the_program(tail: LogTail) -> bool:
    return bool(tail.plain) and _is_of_the_program(tail.plain[-1])
