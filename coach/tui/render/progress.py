"""The progress of a job: its time limit as a bar, its steps, the time left."""

from __future__ import annotations

from coach.analysis.jobs.progress import Progress
from coach.render.text import Line, Span, clip, clock, line, line_width, muted, strong
from coach.tui.render.curve import bar

_BAR_WIDTH = 12


def progress_lines(
    progress: Progress | None, used_s: float | None, limit_s: float | None, width: int
) -> list[Line]:
    """`used_s` and `limit_s` are the job's used time and time limit; None if unknown. Empty if nothing is
    known."""
    spans: list[Span] = []
    left_s = limit_s - used_s if used_s is not None and limit_s else None
    if used_s is not None and limit_s and left_s is not None:
        spans += [
            muted(" limit "),
            Span(bar(used_s / limit_s, _BAR_WIDTH), "accent"),
            Span(f" {clock(used_s)} of {clock(limit_s)}"),
        ]
    elif used_s is not None:
        spans += [Span(f" {clock(used_s)} used"), muted(", no time limit is known")]
    rows = _in_rows(spans, _step_spans(progress) if progress is not None else [], width)
    late_s = progress.ends_late_by_s(left_s) if progress is not None else None
    if progress is not None and late_s is not None:
        text = f" ▲ will not finish before its limit: at this pace it ends {clock(late_s)} after it"
        rows.append(clip(line(Span(text, "warning")), width))
    return rows


def _in_rows(limit: list[Span], steps: list[Span], width: int) -> list[Line]:
    """Both parts in one row, or in two if they are too wide for it."""
    together = line(*limit, muted(" · "), *steps)
    if limit and steps and line_width(together) <= width:
        return [together]
    return [clip(row, width) for row in (line(*limit), line(" ", *steps) if steps else ()) if row]


def _step_spans(progress: Progress) -> list[Span]:
    of = f" of {progress.num_steps:,}" if progress.num_steps is not None else ""
    spans = [
        muted("progress bar " if progress.is_bar else f"{progress.counter.word} "),
        strong(f"{progress.step:,}{of}"),
    ]
    if progress.left_s != 0:
        spans.append(Span(f", {clock(progress.left_s)} left"))
    if progress.left_s and (pace := progress.pace) is not None:
        steps = f"{pace.num_steps:,} {progress.counter.word}{'s' * (pace.num_steps > 1)}"
        by = f"its {steps} since its start" if pace.is_since_start else f"its last {steps}"
        spans.append(muted(f" by {by}"))
    return spans
