"""The devices of a job: its nodes, GPUs and ranks. If there are many, only the unusual ones."""

from __future__ import annotations

from coach.model.training.run import Run
from coach.render.text import BLANK, Line
from coach.tui.job_subject import JobSubject
from coach.tui.question import Question
from coach.tui.render.answer import answer_line
from coach.tui.render.gpus import newest_samples, spread_lines, trouble_lines
from coach.tui.render.job import held_gpu_lines
from coach.tui.render.nodes import gap_lines, node_lines, rank_lines
from coach.tui.render.queue import is_own
from coach.tui.render.ranks import rank_view_lines
from coach.tui.render.stacks import burst_lines
from coach.tui.render.telemetry import step_use_lines, telemetry_lines

_MANY_GPUS = 8
_MANY_RANKS = 8
_RANKS_HEIGHT = 12


def device_lines(page: JobSubject, width: int) -> list[Line]:
    """The job's measured nodes, GPUs and ranks."""
    run, job, history = page.run, page.job, page.history
    rows = _held_gpus(page, width)
    gaps = page.followed.sensor_gaps if page.followed is not None else ()
    if run is not None and (page.is_live or history.nodes or history.ranks):
        has_gpus = None if run.num_gpus is None else run.num_gpus > 0
        rows += _node_lines(page, has_gpus, width)
        rows += [BLANK, *_rank_lines(page, run, width)] if len(history.ranks) > 1 else []
    if page.followed is not None:
        rows += burst_lines(page.followed.bursts, page.now_s, width)
    if job is not None and job.state == "RUNNING" and job.raw_job_id and is_own(job, page.user):
        rows += _step_use(page, job.raw_job_id, width)
        if run is None:
            rows += telemetry_lines(history, gaps, page.stream_error, page.now_s, width, page.label)
    return [*rows, BLANK] if rows else []


def _node_lines(page: JobSubject, has_gpus: bool | None, width: int) -> list[Line]:
    """Each node with its GPUs; for many GPUs, their spread."""
    history = page.history
    gaps = page.followed.sensor_gaps if page.followed is not None else ()
    if len(history.gpus) <= _MANY_GPUS:
        return node_lines(history, gaps, has_gpus, page.now_s, width)
    fresh = newest_samples(history, history.gpus, page.now_s)
    return [
        *spread_lines(list(fresh.values()), len(history.gpus), width),
        *trouble_lines(history, history.gpus, page.now_s, width),
        *gap_lines(gaps, has_gpus, width),
    ]


def _rank_lines(page: JobSubject, run: Run, width: int) -> list[Line]:
    """A line for each of a few ranks; for more ranks, the unusual ones and a map of all."""
    if len(page.history.ranks) <= _MANY_RANKS:
        return rank_lines(page.history, width)
    return rank_view_lines(page.history, run, None, width, _RANKS_HEIGHT)


def _held_gpus(page: JobSubject, width: int) -> list[Line]:
    if Question.ALLOCATIONS not in page.questions:
        return []
    answer = page.answers[Question.ALLOCATIONS]
    held = held_gpu_lines(page.slots, width) if answer.value is not None else []
    return [answer_line("gpus", answer, page.now_s, page.label, _start_s(page)), *held]


def _step_use(page: JobSubject, raw_job_id: str, width: int) -> list[Line]:
    if Question.STEP_USE not in page.questions:
        return []
    answer = page.answers[Question.STEP_USE]
    steps = (answer.value or {}).get(raw_job_id, ())
    return step_use_lines(answer, steps, page.now_s, width, page.label, _start_s(page))


def _start_s(page: JobSubject) -> float | None:
    return page.job.start_time_s if page.job is not None else None
