"""One run as lines: its head, its parameters, its times and its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from coach.analysis.comparing.time_to_target import target_words, time_to_target
from coach.analysis.jobs.progress import Pace, loss_trend, recent_mean, speed_ratio
from coach.analysis.jobs.segments import segment_words
from coach.lookback.history import CurvePoint, is_early, throughput
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import told
from coach.model.training.run import Run
from coach.render.finding import value_text
from coach.render.severity import state_span
from coach.render.text import (
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    Tone,
    age,
    clip,
    clock,
    line,
    line_width,
    muted,
    number,
    plural,
    printable,
    seconds,
    strong,
    wrap,
)
from coach.tui.render.runs import is_elsewhere

_STEADY = 0.1
"""A change of speed below this share is no trend."""


def head_line(
    run: Run | None, target: TargetSnapshot | None, state: str | None, now_s: float, width: int
) -> Line:
    """State, recipe and size; for a run that has ended or not begun, also the time."""
    state_part = _state_span(run, state, now_s)
    if run is None:
        return clip(line(" ", state_part, f"  {times_text(run, target, now_s)}"), width)
    is_going = run.started_time_s is not None and not is_final(state or "RUNNING")
    times = "" if is_going else f"  {times_text(run, target, now_s)}"
    return clip(
        line(" ", state_part, muted("  "), strong(printable(run.recipe)), times, *_size_spans(run)), width
    )


def parent_lines(run: Run, width: int, label: KeyLabel) -> list[Line]:
    """The parent run, and the fix that made this run from it; empty if it has no parent."""
    if not run.parent_run_id:
        return []
    fix = f": {printable(run.fix.title)} ({run.fix.rule})" if run.fix else ""
    parent = Span(printable(run.parent_run_id), "accent")
    return [
        clip(
            line(muted(" child of "), parent, fix, Span(f"   {label('compare')}", "key"), " compares"), width
        )
    ]


def segment_lines(run: Run, width: int) -> list[Line]:
    """The segments of a long training; none for any other."""
    return [clip(line(muted(f" {printable(words)}")), width) for words in segment_words(run.segments)]


def target_lines(target: TargetSnapshot | None, width: int) -> list[Line]:
    """The accuracy so far against the run's target accuracy; empty if it has no target."""
    told = time_to_target(target) if target is not None else None
    if told is None:
        return []
    tone: Tone = "good" if told.is_reached else "muted" if told.is_going else "warning"
    return [clip(line(Span(f" {target_words(told)}", tone)), width)]


def parameters_lines(run: Run, width: int) -> list[Line]:
    """The parameters of its launch."""
    rows = [line(muted(f" {text}")) for text in wrap(parameters_text(run.parameters), width - 2)]
    about = []
    if run.device.get("type"):
        device = printable(str(run.device.get("name") or run.device["type"]))
        about.append(muted(f" on {device} "))
    if run.dataset.get("is_synthetic"):
        about.append(Span(" generated data", "info"))
    if rows and about and line_width(rows[-1]) + line_width(tuple(about)) + 2 <= width:
        return [*rows[:-1], (*rows[-1], Span(" "), *about)]
    return [*rows, clip(tuple(about), width)] if about else rows


def _size_spans(run: Run) -> Line:
    job = (muted(f"  job {printable(run.job_id)}"),) if run.job_id and run.job_id != run.run_id else ()
    return (*job, muted(f"  {size_text(run)}"))


def _state_span(run: Run | None, state: str | None, now_s: float) -> Span:
    if run is not None and run.submission is not None and state in (None, "PENDING"):
        return Span(run.submission.words, "warning")
    if run is None or not is_elsewhere(run, state):
        return state_span(state)
    spoke_s = run.last_word_time_s
    since = age(now_s - spoke_s) if spoke_s is not None else None
    return Span(printable(told(run.host, state, since)), "muted")


def size_text(run: Run) -> str:
    nodes, ranks = run.resources.get("num_nodes"), run.resources.get("nproc_per_node")
    gpus = run.resources.get("gpus_per_node")
    if not isinstance(nodes, int):
        return UNKNOWN
    text = plural(nodes, "node")
    if isinstance(ranks, int):
        text += f" × {plural(ranks, 'rank')}"
    if isinstance(gpus, int):
        text += f", {plural(gpus, 'GPU')} each" if gpus else ", no GPU requested"
    return text


def times_text(run: Run | None, target: TargetSnapshot | None, now_s: float) -> str:
    """Time used and left, from the queue if it has the job, else from the run directory."""
    job, has_ended = (target.job, target.has_ended) if target is not None else (None, False)
    if job is not None and job.time_used_s is not None and not has_ended:
        return _used_text(job.time_used_s, job.time_left_s)
    if run is None:
        return ""
    if run.started_time_s is None:
        return "" if has_ended else "not started"
    ended = _ended_time_s(run, target)
    if ended is not None:
        return f"ran {clock(ended - run.started_time_s)}, ended {age(now_s - ended)} ago"
    used = now_s - run.started_time_s
    limit = run.resources.get("time_limit_s")
    return _used_text(used, limit - used if isinstance(limit, (int, float)) else None)


def _ended_time_s(run: Run, target: TargetSnapshot | None) -> float | None:
    """The end in Unix seconds, from exit.json, else from run.json."""
    if target is not None and target.exit is not None and target.exit.ended_time_s is not None:
        return target.exit.ended_time_s
    return run.ended_time_s


def _used_text(used_s: float, left_s: float | None) -> str:
    left = f", {clock(left_s)} left" if left_s is not None else ""
    return f"{clock(used_s)} used{left}"


_FIRST_PARAMETERS = ("lr", "batch_size", "epochs", "max_steps", "optimizer", "num_workers")


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """The parameters that matter most first: `lr 0.05  batch_size 64 …`."""
    names = [name for name in _FIRST_PARAMETERS if name in parameters]
    names += [name for name in parameters if name not in names]
    return "  ".join(f"{printable(name)} {value_text(parameters[name])}" for name in names)


def pace_lines(curve: Sequence[CurvePoint], pace: Pace | None, width: int) -> list[Line]:
    """Where the training stands: its newest step and loss, its throughput, the share of a step that waits for
    data, and the trends of loss and speed. `pace` stands in for a throughput that the steps do not tell."""
    newest, trend = curve[-1], _trend_text(curve)
    step_time, data_time = (
        recent_mean(p.step_time_s for p in curve),
        recent_mean(p.data_time_s for p in curve),
    )
    share = min(1.0, data_time / step_time) if data_time is not None and step_time else None
    tone: Tone = "warning" if share is not None and share > 0.3 and not is_early(curve) else ""
    waits = UNKNOWN if share is None else f"{share:.0%} of it"
    parts = [
        line(muted(f"{newest.counter.word} time "), seconds(step_time)),
        line(muted("waits for data "), Span(waits, tone)),
        line(_throughput_text(curve, pace)),
        line(
            muted("loss "), number(newest.loss, 3), muted(f" at {newest.counter.word} {newest.step:,}"), trend
        ),
    ]
    rows = [line(" ", *parts[0])]
    for part in parts[1:]:
        longer = line(*rows[-1], muted(" · "), *part)
        rows[-1:] = [longer] if line_width(longer) <= width else [rows[-1], line(" ", *part)]
    return [clip(row, width) for row in rows]


def _throughput_text(curve: Sequence[CurvePoint], pace: Pace | None) -> str:
    unit, rates = throughput(curve)
    rate, ratio = recent_mean(rates), speed_ratio(rates)
    if rate is None and pace is not None:
        return f"{number(pace.steps_per_s, 3)} {unit}{' since its start' if pace.is_since_start else ''}"
    text = f"{number(rate, 3)} {unit}"
    if ratio is None or is_early(curve):
        return text
    if abs(ratio - 1) < _STEADY:
        return f"{text}, steady"
    return f"{text}, {max(ratio, 1 / ratio):.1f} times {'faster' if ratio > 1 else 'slower'} than at first"


def _trend_text(curve: Sequence[CurvePoint]) -> str:
    loss, trend = curve[-1].loss, loss_trend(curve)
    if loss is None or not math.isfinite(loss):
        return ""
    if trend is None:
        return ", too early for a trend"
    first = trend.since.step - trend.since.num_steps + 1
    return f", {trend.word} since {trend.since.counter.word} {first:,}"
