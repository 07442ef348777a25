"""The row of an array in the queue: the same columns as a training, filled from all its tasks."""

from __future__ import annotations

from collections.abc import Callable

from coach.analysis.judging.no_finding import Look, sign_of
from coach.analysis.queueing.arrays import FoldedJob
from coach.render.severity import severity_sign, severity_tone
from coach.render.text import UNKNOWN, number, printable, whole_words
from coach.tui.array_tasks import ArraySoFar, Best
from coach.tui.render.curve import bar
from coach.tui.render.table import Cell
from coach.tui.render.training import cpu_cell, memory_cell, power_cell, use_cell

ArrayOf = Callable[[FoldedJob], ArraySoFar | None]
"""Returns the tasks of an array together; None if none of them is known."""
_NO_CELL = Cell(UNKNOWN, "muted")
_LEAST_BAR = 6


def nothing_of_array(folded: FoldedJob) -> ArraySoFar | None:
    """The ArrayOf for lists without followed jobs."""
    return None


def array_cells(so_far: ArraySoFar | None, now_s: float | None) -> tuple[Cell, ...]:
    """Cells as for one training: progress, time left, loss, samples/s, and use, memory and power of its
    devices."""
    if so_far is None:
        return (_NO_CELL,) * 7
    gpus = so_far.gpus
    return (
        _ended_cell(so_far),
        _NO_CELL,
        _best_cell(so_far.best) if so_far.best is not None else _NO_CELL,
        _NO_CELL,
        use_cell(gpus, now_s) if gpus is not None else cpu_cell(so_far.cpus, now_s),
        memory_cell(gpus),
        power_cell(gpus),
    )


def array_verdict(folded: FoldedJob, so_far: ArraySoFar | None, counted: str) -> Cell | None:
    """The number of tasks with a finding, the worst finding, and `counted`, the number of tasks in each
    state; `healthy` if all tasks have begun and each is healthy; else None."""
    if so_far is not None and so_far.findings:
        return _finding_cell(so_far, counted)
    if so_far is not None and so_far.is_healthy and len(folded.states) < 2:
        return Cell(f"{sign_of(Look.HEALTHY)} {Look.HEALTHY.value}", "good")
    return None


def _finding_cell(so_far: ArraySoFar, counted: str) -> Cell:
    worst, count = so_far.findings[0], len(so_far.findings)
    sign = severity_sign(worst.severity).text
    others = len({finding.rule for finding in so_far.findings}) - 1
    rule = f"{worst.rule} +{others}" if others else worst.rule
    cause = printable(worst.cause.replace("_", " "))
    head = f"{sign} {count} of {so_far.num_tasks}"
    ways = (
        *((f"{head}: {rule} {cause} · {counted}",) if counted else ()),
        f"{head}: {rule} {cause}",
        f"{head}: {rule}",
        f"{sign} {count}/{so_far.num_tasks} {rule}",
    )
    return Cell(ways[-2], severity_tone(worst.severity), fill=lambda width: _fitting((*ways, head), width))


def _ended_cell(so_far: ArraySoFar) -> Cell:
    """`1/3 ended`, in a wide column with a bar before it."""
    if so_far.num_ended is None:
        return _NO_CELL
    share = so_far.num_ended / so_far.num_tasks if so_far.num_tasks else 0.0
    count = f"{so_far.num_ended}/{so_far.num_tasks}"
    told = f"{count} ended"

    def fill(width: int) -> str:
        room = width - len(told) - 1
        if room >= _LEAST_BAR:
            return f"{bar(share, room)} {told}"
        return told if len(told) <= width else count

    return Cell(told, fill=fill)


def _best_cell(best: Best) -> Cell:
    """The best loss with its task: `0.41 in _2`. If not all tasks were read, also the number of those that
    were; a narrow column then shows that the best loss may be lower: `≤ 0.41`."""
    loss, name, value = number(best.loss, 3), printable(best.name), printable(best.value)
    if best.num_read is not None:
        read = f"of {best.num_read} read"
        partly = (f"best {loss} in {name} {read}", f"{loss} in {name} {read}", f"{loss} {read}", f"≤ {loss}")
        return Cell(partly[1], fill=lambda width: _fitting(partly, width))
    ways = (
        *((f"best {loss} in {name} ({value})",) if value else ()),
        f"best {loss} in {name}",
        f"{loss} in {name}",
        f"{loss} {name}",
    )
    return Cell(ways[-2], fill=lambda width: _fitting((*ways, loss), width))


def _fitting(ways: tuple[str, ...], width: int) -> str:
    """The first text that fits; the last one, cut, if none does."""
    return next((way for way in ways if len(way) <= width), None) or whole_words(ways[-1], width)
