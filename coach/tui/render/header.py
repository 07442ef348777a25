"""The top line, the banner of sources in trouble, and the bottom line of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coach.model.snapshot import Snapshot, SourceStatus
from coach.render.text import (
    Line,
    Span,
    age,
    clip,
    line,
    line_width,
    muted,
    pad,
    plural,
    printable,
    strong,
    wrap,
)

_KEPT_HINTS = ("back", "help", "leave")
MAX_HINTS = 12
"""The most keys in the footer. More cannot be read at a glance; `?` lists all."""
CLUSTER_SOURCES = ("jobs", "nodes", "partitions", "runs")
_SLURM_SOURCES = ("jobs", "nodes", "partitions")
MAX_NAMES = 4
SLOW_S = 3.0
"""A slower answer, in seconds, is not due to the size of the cluster: the controller is overloaded, or it
throttles this user."""


def data_age(status: SourceStatus, now_s: float) -> float | None:
    return None if status.data_time_s is None else max(0.0, now_s - status.data_time_s)


def ages_line(sources: Mapping[str, SourceStatus], now_s: float) -> Line:
    """The age of the data, per source: `jobs 2 s · nodes 12 s`. A sign marks a source whose last answer
    failed."""
    spans: list[Span] = []
    for name in CLUSTER_SOURCES:
        status = sources.get(name)
        if status is None:
            continue
        if spans:
            spans.append(muted(" · "))
        text = f"{name} {age(data_age(status, now_s))}"
        spans.append(Span(f"▲ {text}", "warning") if status.error else muted(text))
    return tuple(spans)


def top_line(crumbs: Sequence[str], place: str, watermark: str, right: Line, width: int) -> Line:
    """The breadcrumbs on the left, the watermark beside them, the ages on the right. If there is no room, the
    left part is cut first."""
    left: list[Span] = [Span(" coach", "accent"), muted("  ")]
    if place:
        left.extend((Span(printable(place)), muted("  ")))
    if watermark:
        left.extend((Span(f" {watermark} ", "key"), Span("  ")))
    for index, crumb in enumerate(crumbs):
        if index:
            left.append(muted(" › "))
        is_last = index == len(crumbs) - 1
        left.append(strong(printable(crumb)) if is_last else muted(printable(crumb)))
    fixed = line_width(tuple(left))
    room = width - fixed - 2
    if line_width(right) > room:
        right = _shorter(right, room)
    space = max(0, width - line_width(right) - 1)
    return (*pad(tuple(left), space), *right, Span(" "))


def _shorter(right: Line, room: int) -> Line:
    """As many whole entries from the left as fit, because half an age is useless."""
    entries: list[list[Span]] = [[]]
    for span in right:
        if span.text == " · ":
            entries.append([])
        else:
            entries[-1].append(span)
    kept: list[Span] = []
    for entry in entries:
        longer = [*kept, *([muted(" · ")] if kept else []), *entry]
        if line_width(tuple(longer)) > room:
            break
        kept = longer
    return tuple(kept)


def banner_lines(snapshot: Snapshot, now_s: float, width: int, max_lines: int = 3) -> list[Line]:
    """One line per distinct error: the source's own message, then the age of the data still shown; then the
    number of unreadable rows."""
    rows = [*_error_lines(snapshot, now_s, width), *_bad_row_lines(snapshot)]
    if snapshot.run_problems:
        count = len(snapshot.run_problems)
        more = f" (and {count - 1} more)" if count > 1 else ""
        rows.append(line(Span(f" ▲ {printable(snapshot.run_problems[0])}{more}", "warning")))
    rows = [clip(row, width) for row in rows]
    if len(rows) > max_lines:
        rows = [*rows[: max_lines - 1], line(Span(f" ▲ …and {len(rows) - max_lines + 1} more", "warning"))]
    return rows


def _error_lines(snapshot: Snapshot, now_s: float, width: int) -> Iterator[Line]:
    """One line per error. Sources with the same error share a line."""
    by_error: dict[str, list[SourceStatus]] = {}
    for status in snapshot.sources.values():
        if status.error:
            by_error.setdefault(status.error, []).append(status)
    for error, statuses in by_error.items():
        known = [old for status in statuses if (old := data_age(status, now_s)) is not None]
        # One source of several targets is named once, so that the error's text fits beside the names.
        kinds = list(dict.fromkeys(status.source.partition(":")[0] for status in statuses))
        more = f" +{len(kinds) - MAX_NAMES}" if len(kinds) > MAX_NAMES else ""
        names = ", ".join(kinds[:MAX_NAMES]) + more
        tail = f" · {names}: data {age(max(known))} old" if known else f" · {names}: nothing read yet"
        first, rest = "", printable(error)
        if len(by_error) == 1 and line_width(line(rest, tail)) > width - 4:
            first, *parts = wrap(rest, max(20, width - 4))  # one error has room for two lines
            rest = " ".join(parts)
            yield (Span(" ✖ ", "critical"), Span(first, "critical"))
        message = clip(line(rest), max(20, width - len(tail) - 4))
        text = "".join(span.text for span in message)
        yield (Span("   " if first else " ✖ ", "critical"), Span(text, "critical"), Span(tail, "strong"))


def _bad_row_lines(snapshot: Snapshot) -> Iterator[Line]:
    bad = [
        f"{plural(status.num_bad_rows, 'row')} of {status.source}"
        for status in snapshot.sources.values()
        if status.num_bad_rows
    ]
    if bad:
        yield line(Span(f" ▲ {', '.join(bad)} could not be read and are not shown", "warning"))


_COUNTED_WIDTH = 100
_OLD_S = 30.0
"""Seconds. A user may wait for data that are older than this."""


def spending_line(snapshot: Snapshot, width: int) -> Line:
    """Why the next answers come later: Slurm is slow, or coach has asked it enough in this minute. The RPCs
    of the last minute stand behind it. On a narrow terminal, a spent budget is told only while the data are
    old."""
    spending = snapshot.spending
    if spending is None:
        return ()
    counter = muted(f"{spending.num_rpcs} RPC/min of {spending.limit_per_min:g}")
    statuses = [snapshot.sources[name] for name in _SLURM_SOURCES if name in snapshot.sources]
    if any(status.error is not None for status in statuses):
        words = "▲ no answer, backing off"
    elif any((status.duration_s or 0.0) >= SLOW_S for status in statuses):
        words = "▲ controller slow, backing off"
    elif spending.is_waiting:
        if width < _COUNTED_WIDTH:  # it would take half of the keys' room
            return (Span("sparing Slurm", "warning"),) if _are_old(statuses, snapshot.now_s) else ()
        return (Span("coach waits, to spare Slurm", "warning"), muted(" · "), counter)
    else:
        return ()
    return (Span(words, "warning"), muted(" · "), counter)


def _are_old(statuses: Sequence[SourceStatus], now_s: float) -> bool:
    ages = [data_age(status, now_s) for status in statuses]
    return any(old_s is None or old_s > _OLD_S for old_s in ages)


def processor_line(limit_s: float, width: int) -> Line:
    """The warning near the machine's limit of processor time: what coach has stopped, and what to do."""
    text = f" ▲ processor limit of {age(limit_s)} nearly reached: no job is checked · start coach again"
    return clip(line(Span(text, "warning")), width)


def asleep_line(asleep_s: float, width: int) -> Line:
    """The note after a long time without a key: why the data are old, and what to do."""
    text = f" ● no key for {age(asleep_s)}: coach asks nothing more · any key continues"
    return clip(line(Span(text, "warning")), width)


Hint = tuple[str, str, str, bool]
"""(id, key, word, is on) of a key in the footer."""


def _width_of(hints: Sequence[Hint]) -> int:
    return 1 + sum(len(key) + len(word) + 3 for _, key, word, _ in hints)


def fitting_hints(hints: Sequence[Hint], room: int) -> list[Hint]:
    """The first hints, as many as fit, up to MAX_HINTS. The hints for the way back and the help always
    stay."""
    shown = list(hints)
    while len(shown) > 2 and (len(shown) > MAX_HINTS or _width_of(shown) > room):
        droppable = [hint for hint in shown if hint[0] not in _KEPT_HINTS]
        if not droppable:
            break
        shown.remove(droppable[-1])
    return shown


def footer_line(hints: Sequence[Hint], note: Line, width: int) -> Line:
    """Keys with their words, as many as fit beside the note at the right end."""
    shown = fitting_hints(hints, width - (line_width(note) + 2 if note else 0))
    spans: list[Span] = [Span(" ")]
    for key_id, key, word, is_on in shown:
        spans.append(Span(key, "key" if is_on else "muted", key_id))
        spans.append(Span(f" {word}  ", "" if is_on else "muted", key_id))
    left = tuple(spans)
    return (*pad(left, width - line_width(note) - 1), *note, Span(" ")) if note else left
