"""How a job goes: its curves, its steps, its nodes, GPUs and ranks."""

from __future__ import annotations

from coach.model.training.metrics import THINNED_EVENT
from coach.tui.job_subject import JobSubject
from coach.tui.question import Question
from coach.tui.render import run as runs
from coach.tui.render.asked import asked_line
from coach.tui.render.curve import curve_lines
from coach.tui.render.job import held_gpu_lines
from coach.tui.render.nodes import node_lines, rank_lines
from coach.tui.render.queue import is_own
from coach.tui.render.stacks import burst_lines
from coach.tui.render.telemetry import step_use_lines, telemetry_lines
from coach.tui.render.text import BLANK, Line, pad

_CURVE_HEIGHT = 6
"""With the line of its steps, for which a low terminal has no room."""
_HIGH = 30
_SIDE_BY_SIDE = 70


def curve_rows(page: JobSubject, width: int, height: int) -> list[Line]:
    """Its curves, side by side where there is room, and how long a step waits for data.

    `height` is the terminal's."""
    curve = page.history.curve
    if not curve:
        return []
    curve_height = _CURVE_HEIGHT if height >= _HIGH else _CURVE_HEIGHT - 1
    left = width // 2 if width >= _SIDE_BY_SIDE else width
    right = width - left or width
    rate_points = runs.throughput_points(curve)
    note = _thinned_words(page)
    loss = curve_lines("loss", runs.loss_points(curve), left, curve_height, note=note)
    rate = curve_lines(
        *("throughput", rate_points, right, curve_height, "samples/s"), starts_at_zero=True, note=note
    )
    if left == width:
        return [*loss, *rate, *runs.step_time_lines(curve, width)]
    both = [(*pad(one, left), *other) for one, other in zip(loss, rate, strict=True)]
    return [*both, *runs.step_time_lines(curve, width)]


def _thinned_words(page: JobSubject) -> str:
    """That old records were thinned to fit the limit; empty where all steps are there."""
    events = page.followed.events if page.followed is not None else ()
    shares = (event.fields.get("every") for event in events if event.event == THINNED_EVENT)
    most = max((each for each in shares if isinstance(each, int)), default=1)
    return f"thinned: one step of {most}" if most > 1 else ""


def device_lines(page: JobSubject, width: int) -> list[Line]:
    """Its nodes, GPUs and ranks, as far as they are measured."""
    run, job, history = page.run, page.job, page.history
    rows = _held_gpus(page, width)
    gaps = page.followed.sensor_gaps if page.followed is not None else ()
    if run is not None and (page.is_live or history.nodes or history.ranks):
        has_gpus = None if run.num_gpus is None else run.num_gpus > 0
        rows += node_lines(history, gaps, has_gpus, page.now_s, width)
        rows += [BLANK, *rank_lines(history, width)] if len(history.ranks) > 1 else []
    if page.followed is not None:
        rows += burst_lines(page.followed.bursts, page.now_s, width)
    if job is not None and job.state == "RUNNING" and job.raw_job_id and is_own(job, page.user):
        rows += _step_use(page, job.raw_job_id, width)
        if run is None:
            rows += telemetry_lines(history, gaps, page.stream_error, page.now_s, width, page.label)
    return [*rows, BLANK] if rows else []


def _held_gpus(page: JobSubject, width: int) -> list[Line]:
    if Question.ALLOCATIONS not in page.questions:
        return []
    told = page.answers[Question.ALLOCATIONS]
    held = held_gpu_lines(page.slots, width) if told.value is not None else []
    return [asked_line("gpus", told, page.now_s, page.label), *held]


def _step_use(page: JobSubject, raw_job_id: str, width: int) -> list[Line]:
    if Question.STEP_USE not in page.questions:
        return []
    told = page.answers[Question.STEP_USE]
    return step_use_lines(told, (told.value or {}).get(raw_job_id, ()), page.now_s, width, page.label)
