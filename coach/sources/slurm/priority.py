"""Read the priority factors of pending jobs (sprio), and a user's fair share (sshare).

Many sites lack both: sprio needs the multifactor plugin, sshare needs accounting. The columns of sshare are
identified by their headings, because they differ between versions and fair-share algorithms. All functions
are pure except for the random separators.
"""

from __future__ import annotations

from coach.model.slurm.accounting import FairShare, PriorityFactors
from coach.sources.io import Query, new_separator
from coach.sources.slurm.text import BadRow, optional, rows_by_heading, split_records

_COLUMNS = ("%i", "%u", "%r", "%Y", "%A", "%F", "%J", "%P", "%Q", "%B", "%N", "%T")
_FAIR_SHARE = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"


def priorities_query(user: str | None) -> Query:
    """The pending jobs of a user, or of everybody if `user` is None."""
    separator, record_end = new_separator(), new_separator()
    whose = () if user is None else ("-u", user)
    return Query(
        "priorities",
        ("sprio", "-h", *whose, "-o", separator.join(_COLUMNS) + record_end),
        separator,
        record_end,
    )


def parse_priorities(text: str, separator: str, record_end: str) -> tuple[tuple[PriorityFactors, ...], int]:
    """(one row per job and partition, number of malformed records)."""
    found: list[PriorityFactors] = []
    num_bad = 0
    for record in split_records(text, separator, record_end):
        try:
            found.append(_parse([field.strip() for field in record]))
        except BadRow:
            num_bad += 1
    return tuple(found), num_bad


def _parse(record: list[str]) -> PriorityFactors:
    if len(record) != len(_COLUMNS) or not record[0][:1].isdecimal():
        raise BadRow("not a priority")
    job_id, user, partition, *numbers, tres = record
    priority, age, fair_share, size, by_partition, qos, association, nice = map(_whole, numbers)
    return PriorityFactors(
        job_id=job_id,
        user=user,
        partition=optional(partition),
        priority=priority,
        age=age,
        fair_share=fair_share,
        job_size=size,
        partition_factor=by_partition,
        qos=qos,
        association=association,
        nice=nice,
        tres=optional(tres),
    )


def fair_share_query(user: str) -> Query:
    return Query("fair-share", ("sshare", "-P", "-U", "-u", user, "-o", _FAIR_SHARE))


def parse_fair_share(text: str) -> tuple[tuple[FairShare, ...], int]:
    """(one row per account of the user, number of malformed lines)."""
    rows, num_bad = rows_by_heading(text, "Account")
    found = (
        FairShare(
            account=row["Account"].strip(),
            user=optional(row.get("User", "").strip()),
            raw_shares=optional(row.get("RawShares", "").strip()),
            normalized_shares=_number(row.get("NormShares", "")),
            raw_usage=_whole(row.get("RawUsage", "").strip()),
            effective_usage=_number(row.get("EffectvUsage", "")),
            factor=_number(row.get("FairShare", "")),
        )
        for row in rows
    )
    return tuple(found), num_bad


def _whole(text: str) -> int | None:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
