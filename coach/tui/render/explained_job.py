"""The values of a job's screen explained: its row in the queue, its training's numbers, its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coach.analysis.explaining.words import Explained, explain_column
from coach.analysis.queueing.arrays import FoldedJob
from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.render.text import number
from coach.tui.render.explained import explain_cells, explain_gpus
from coach.tui.render.queue import JOB_COLUMNS, Queue, job_rows

_OF_JOB = ("state", "reason", "nodes", "gpus", "used", "left")
_NEWEST = 20


def explain_job_page(
    folded: FoldedJob | None, run: Run | None, history: History, now_s: float
) -> tuple[Explained, ...]:
    """The job's row in the queue, or the state of a run without one; then the measured values."""
    told: tuple[Explained, ...] = ()
    if folded is not None:
        row = job_rows(Queue((folded,), (folded.job.job_id,)), None, now_s).row(0)
        cells = [pair for pair in zip(JOB_COLUMNS, row.cells, strict=True) if pair[0].name in _OF_JOB]
        told = explain_cells("queue", cells, folded.job)
    elif run is not None and run.state is not None:
        state = explain_column("runs", "state", "STATE", run.state, "runs")
        told = (state,) if state is not None else ()
    return (*told, *explain_steps(history), *explain_gpus(history, history.gpus))


def explain_steps(history: History) -> tuple[Explained, ...]:
    """The newest steps of the lowest rank; empty if it has written none."""
    steps = list(history.steps(history.ranks[0]))[-_NEWEST:] if history.ranks else []
    if not steps:
        return ()
    values = _step_values(steps)
    found = [
        explain_column("steps", name, title, value, None) for name, (title, value) in values.items() if value
    ]
    return tuple(replace(each, time_s=steps[-1].time_s) for each in found if each is not None)


def _step_values(steps: Sequence[Step]) -> dict[str, tuple[str, str]]:
    """The values of the newest steps, by the name of the text that explains each; each is empty if it is not
    recorded."""
    total_s = sum(step.step_time_s or 0.0 for step in steps)
    waited_s = sum(step.data_time_s or 0.0 for step in steps)
    num_samples = sum(step.num_samples_global or 0 for step in steps)
    loss = steps[-1].loss
    return {
        "loss": ("LOSS", "" if loss is None else number(loss)),
        "rate": ("SAMPLES/S", number(num_samples / total_s) if num_samples and total_s else ""),
        "data": ("DATA WAIT", f"{waited_s / total_s:.0%} of a step" if waited_s and total_s else ""),
        "time": ("STEP TIME", f"{total_s / len(steps):.3f} s" if total_s else ""),
    }
