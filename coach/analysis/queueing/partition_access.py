"""Whether a user may use a partition, as far as the site tells: its accounts, QOS and groups against the user's own."""

from __future__ import annotations

from collections.abc import Sequence

from coach.model.slurm.accounting import Limits
from coach.model.slurm.cluster import Partition


def why_no_access(
    partition: Partition, associations: Sequence[Limits] | None
) -> tuple[bool | None, tuple[str, ...]]:
    """(may use it, what it asks for). None: it asks for something of which it is not told whether the user has it."""
    accounts = None if associations is None else {each.name for each in associations}
    qos = None if associations is None else {name for each in associations for name in each.qos}
    asked = (
        ("account", partition.allow_accounts, accounts),
        ("QOS", partition.allow_qos, qos),
        ("group", partition.allow_groups, None),
    )
    answer: bool | None = partition.state == "up"
    said = [] if answer else [f"it is {partition.state}"]
    for what, allowed, own in asked:
        if allowed is None:
            continue
        mine = [name for name in allowed if own is not None and name in own]
        if mine:
            said.append(f"with {what} {' or '.join(mine)}")
            continue
        said.append(f"only {what} {' or '.join(allowed)}")
        if own is not None:
            answer = False
        elif answer:
            answer = None
    return answer, tuple(said)
