"""The lines of the Reservations screen: each reservation with its time, its nodes, and for whom it is."""

from __future__ import annotations

from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import Reservation
from coach.model.training.other_machine import rough_age
from coach.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    clip,
    clock,
    line,
    muted,
    plural,
    printable,
    strong,
)
from coach.tui.render.pending import labelled


def reservation_lines(
    told: Part[tuple[Reservation, ...]], user: str | None, now_s: float, width: int
) -> list[Line]:
    """A block for each reservation: active ones first, then by their start. What the site hides or coach
    could not read is said above them."""
    rows: list[Line] = []
    if told.error is not None:
        rows.append(line(Span(f" ▲ {printable(told.error)}", "warning")))
    if told.num_bad_rows:
        rows.append(
            line(Span(f" ▲ {plural(told.num_bad_rows, 'line')} of Slurm could not be read", "warning"))
        )
    for reservation in sorted(told.value or (), key=_order):
        rows += [BLANK, *_block(reservation, user, now_s, width)]
    if told.value:
        return [clip(row, width) for row in rows]
    empty = (
        " no reservation that you may see" if told.error is not None else " no reservation on this cluster"
    )
    return [clip(row, width) for row in (*rows, line(muted(empty)))]


def _order(reservation: Reservation) -> tuple[bool, bool, float, str]:
    starts_s = reservation.start_time_s
    return reservation.state != "active", starts_s is None, starts_s or 0.0, reservation.name


def _block(reservation: Reservation, user: str | None, now_s: float, width: int) -> list[Line]:
    is_active = reservation.state == "active"
    kind = " for maintenance" if reservation.is_maintenance else ""
    where = reservation.nodes or UNKNOWN
    count = reservation.num_nodes
    num_nodes = UNKNOWN if count is None else plural(count, "node")
    partition = f", partition {reservation.partition}" if reservation.partition else ""
    flags = ", ".join(reservation.flags)
    return [
        line(
            Span(" ● " if is_active else " ○ ", "warning" if is_active else "muted"),
            strong(printable(reservation.name)),
            kind,
            muted(f"  {printable(reservation.state) or UNKNOWN}"),
        ),
        *labelled("   when", _when(reservation, now_s), width),
        *labelled("   nodes", f"{where} ({num_nodes}){partition}", width),
        *labelled("   for", _whom(reservation, user), width),
        *(labelled("   flags", flags, width) if flags else []),
    ]


def _when(reservation: Reservation, now_s: float) -> str:
    """For example `begins in 2 h, ends in 3 h, lasts 1:00:00`."""
    starts_s, ends_s = reservation.start_time_s, reservation.end_time_s
    parts = [
        UNKNOWN + " (no start is known)" if starts_s is None else _point("begins", "began", starts_s - now_s),
        UNKNOWN + " (no end is known)" if ends_s is None else _point("ends", "ended", ends_s - now_s),
    ]
    if starts_s is not None and ends_s is not None:
        parts.append(f"lasts {clock(ends_s - starts_s)}")
    return ", ".join(parts)


def _point(coming: str, past: str, distance_s: float) -> str:
    return (
        f"{coming} in {rough_age(distance_s)}" if distance_s > 0 else f"{past} {rough_age(-distance_s)} ago"
    )


def _whom(reservation: Reservation, user: str | None) -> str:
    """The users and accounts that Slurm names. `-bob` is Slurm's way to say all but bob."""
    named = [
        f"{word} {', '.join(names)}"
        for word, names in (("users", reservation.users), ("accounts", reservation.accounts))
        if names
    ]
    you = "you: " if user in reservation.users else ""
    return you + "; ".join(named) if named else f"{UNKNOWN} (Slurm names no user and no account)"
