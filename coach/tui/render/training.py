"""A training as the cells of a row: progress, loss, throughput, devices. Each fits the width of its
column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from coach.analysis.jobs.progress import Progress, recent_mean
from coach.analysis.judging.no_finding import Look, look_of, sign_of
from coach.lookback.glance import DeviceUse
from coach.lookback.history import CurvePoint, throughput
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.slurm.cluster import Job
from coach.render.severity import severity_sign, severity_tone
from coach.render.text import UNKNOWN, age, clock, mib, number, printable, whole_words
from coach.tui.render.axis import tick_label
from coach.tui.render.curve import bar, sparkline
from coach.tui.render.table import Cell
from coach.tui.training import Training

TrainingOf = Callable[[Job], tuple[Training | None, Cell | None]]
"""Returns a job's training, and the cell of its verdict; None for each that is unknown."""
OLD_S = 30.0
"""A measured number older than this, in seconds, is shown with its age."""
_NO_CELL = Cell(UNKNOWN, "muted")
_MANY_CAUSES = frozenset({"code_error", "unknown_failure"})
_LEAST_SUMMARY = 30
"""With less room than this, the name of the cause is shown, not the summary."""


def nothing_of(job: Job) -> tuple[Training | None, Cell | None]:
    """The TrainingOf for lists without followed jobs."""
    return None, None


def training_cells(training: Training | None, *, is_running: bool, now_s: float | None) -> tuple[Cell, ...]:
    """Cells for progress, time left, loss, samples/s, and use, memory and power of its devices."""
    if training is None:
        return (_NO_CELL,) * 7
    progress = training.progress
    gpus = training.gpus if is_running else None
    cpus = training.cpus if is_running and gpus is None else None
    to_go_s = progress.left_s if progress is not None and is_running else None
    return (
        _progress_cell(progress),
        Cell(clock(to_go_s)) if to_go_s is not None else _NO_CELL,
        _loss_cell(training.glance.curve),
        _rate_cell(training.glance.curve) if is_running else _NO_CELL,
        use_cell(gpus, now_s) if gpus is not None else cpu_cell(cpus, now_s),
        memory_cell(gpus or cpus),
        power_cell(gpus),
    )


def _rate_cell(curve: Sequence[CurvePoint]) -> Cell:
    """Recent throughput of all ranks together, in samples/s; for a program that prints only tokens/s, `12.5k
    tok`."""
    unit, rates = throughput(curve)
    rate = recent_mean(rates)
    if rate is None or unit not in ("samples/s", "tokens/s"):
        return _NO_CELL
    return Cell(number(rate) if unit == "samples/s" else tick_label(rate, " tok"))


def progress_words(training: Training | None) -> str:
    """`step 120`, or `step 120/500`; empty if unknown."""
    progress = training.progress if training is not None else None
    if progress is None:
        return ""
    total = f"/{progress.num_steps}" if progress.num_steps else ""
    return f"{progress.counter.word} {progress.step}{total}"


def _progress_cell(progress: Progress | None) -> Cell:
    if progress is None:
        return _NO_CELL
    step, total = progress.step, progress.num_steps
    if not total:
        ways = (f"{progress.counter.word} {step:,}", f"{progress.counter.word} {step}", f"{step:,}")
        return Cell(ways[0], fill=lambda width: next((way for way in ways if len(way) <= width), ways[-1]))
    share = min(1.0, step / total)

    def fill(width: int) -> str:
        percent = f"{math.floor(share * 100)}%"
        steps = f" {step:,}/{total:,}"
        room = width - 5 - len(steps)
        if room >= 6:
            return f"{bar(share, room)} {percent:>4}{steps}"
        return f"{bar(share, width - 5)} {percent:>4}" if width >= 8 else percent

    return Cell(f"{step}/{total}", fill=fill)


def _loss_cell(curve: Sequence[CurvePoint]) -> Cell:
    losses = [point.loss for point in curve]
    newest = next((loss for loss in reversed(losses) if loss is not None), None)
    if newest is None:
        return _NO_CELL
    is_lost = not math.isfinite(newest)
    told = f"✖ {number(newest)}" if is_lost else number(newest, 3)

    def fill(width: int) -> str:
        room = width - 7
        if room < 3:
            return told
        finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        return f"{sparkline(squeezed(losses, room), room, low, high)} {told:<6}"

    return Cell(told, "critical" if is_lost else "", fill=fill)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: each is the last of its part, so that a loss that is not finite stays
    visible."""
    if len(values) <= width:
        return [*values]
    return [values[(index + 1) * len(values) // width - 1] for index in range(width)]


def use_cell(use: DeviceUse | None, now_s: float | None) -> Cell:
    """The use of GPUs as a bar with its number; an old value has its age in place of the bar."""
    if use is None:
        return _NO_CELL
    if use.use_pct is None:
        return _NO_CELL
    share, told = use.use_pct / 100, f"{use.use_pct:.0f}%"
    old = _old(use, now_s)
    if old:
        return _old_cell(told, old)
    return Cell(told, fill=lambda width: f"{bar(share, width - 5)} {told:>4}" if width >= 7 else told)


def cpu_cell(use: DeviceUse | None, now_s: float | None) -> Cell:
    """The use of CPUs as a number."""
    if use is None or use.use_pct is None:
        return _NO_CELL
    old = _old(use, now_s)
    told = f"cpu {use.use_pct:.0f}%"
    return _old_cell(told, old) if old else Cell(told)


def _old_cell(told: str, old: str) -> Cell:
    """A number with its age, or with a mark that it is old if there is no room for the age."""
    ways = (f"{told} {old}", f"{told} old", f"{told.removeprefix('cpu ')} old")

    def fill(width: int) -> str:
        return next((way for way in ways if len(way) <= width), ways[-1])

    return Cell(ways[0], "muted", fill=fill)


def memory_cell(use: DeviceUse | None) -> Cell:
    """The memory used on its GPUs, else on its nodes."""
    if use is None or use.memory_used_mib is None:
        return _NO_CELL
    of = f"/{mib(use.memory_total_mib)}" if use.memory_total_mib is not None else ""
    return Cell(f"{mib(use.memory_used_mib)}{of}")


def power_cell(use: DeviceUse | None) -> Cell:
    """The power of all GPUs together."""
    if use is None or use.power_w is None:
        return _NO_CELL
    of = f"/{use.power_limit_w:.0f}" if use.power_limit_w is not None else ""
    return Cell(f"{use.power_w:.0f}{of} W")


def _old(use: DeviceUse, now_s: float | None) -> str:
    old_s = now_s - use.time_s if now_s is not None else 0.0
    return age(old_s) if old_s > OLD_S else ""


def look_cell(diagnosis: Diagnosis | None) -> Cell | None:
    """The cell for a job without a finding; None until it was judged."""
    look = look_of(diagnosis)
    if diagnosis is None or look in (Look.NOT_LOOKED_AT, Look.WENT_WRONG):
        return None
    told = f"{sign_of(look)} {look.value}"
    return Cell(told, "good" if look is Look.HEALTHY else "muted")


def finding_cell(finding: Finding) -> Cell:
    """Sign, code and cause in a few words; the summary if there is room for it. In a narrow column the cause
    stands without its code, and an error is named by its kind alone."""
    sign, tone = severity_sign(finding.severity).text, severity_tone(finding.severity)
    summary, kind = printable(finding.summary), printable(finding.cause.replace("_", " "))
    cause = summary if finding.cause in _MANY_CAUSES else kind
    if cause is summary:
        kind = _kind_of_error(summary) or kind
    head = f"{sign} {finding.rule} "

    def fill(width: int) -> str:
        told = head + (summary if width - len(head) >= _LEAST_SUMMARY else cause)
        if len(told) <= width or width >= _LEAST_SUMMARY:
            return whole_words(told, width)
        return next(
            (
                way
                for way in (f"{sign} {cause}", head + kind, f"{sign} {kind.removeprefix('slurm ')}")
                if len(way) <= width
            ),
            None,
        ) or _cut_kind(sign, kind, finding.rule, width)

    return Cell(head + cause, tone, fill=fill)


def _cut_kind(sign: str, kind: str, rule: str, width: int) -> str:
    """As many words of the kind as fit; the code in place of a single one, which would say little."""
    told = whole_words(f"{sign} {kind}", width)
    return told if told.count(" ") > 1 else f"{sign} {rule}"


def _kind_of_error(summary: str) -> str | None:
    """`OutOfMemoryError` of `torch.OutOfMemoryError: …`; None if the summary names no exception first."""
    named = summary.partition(":")[0]
    return named.rpartition(".")[2] if ":" in summary and named.replace(".", "").isidentifier() else None
