"""Read the choices that Slurm gives a user: accounts, QOS and reservations. Requested only after a refusal.

None of the three is polled: the accounting database is a separate server, which may be slow, absent or closed
to users, and its answer matters only if a submission was refused because of one of them.
"""

from __future__ import annotations

import re

from coach.sources.io import Io, Query

TIMEOUT_S = 2.0
"""The user waits for this answer with a refusal on the screen."""

_FIELD = re.compile(r"(?<!\w)(\w++)=(\S+)")


def read_allowed(io: Io, field: str, user: str) -> tuple[str, ...]:
    """The choices for a field of a launch; empty if Slurm does not answer in time."""
    if field in ("account", "qos"):
        argv = ("sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account,qos")
        accounts, qos = parse_associations(_ask(io, "associations", argv))
        return accounts if field == "account" else qos
    if field == "reservation":
        return parse_reservations(_ask(io, "reservations", ("scontrol", "show", "reservation", "-o")), user)
    return ()


def _ask(io: Io, kind: str, argv: tuple[str, ...]) -> str:
    result = io.run(Query(kind, argv), TIMEOUT_S)
    return result.stdout.decode("utf-8", "replace") if result.returncode == 0 else ""


def parse_associations(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(accounts, QOS) from `sacctmgr -nP show assoc format=account,qos`: each line is `ACCOUNT|QOS,QOS`."""
    accounts: dict[str, None] = {}
    allowed: dict[str, None] = {}
    for line in text.splitlines():
        account, _, qos = line.partition("|")
        if account.strip():
            accounts[account.strip()] = None
        allowed.update(dict.fromkeys(name for name in qos.strip().split(",") if name))
    return tuple(accounts), tuple(allowed)


def parse_reservations(text: str, user: str) -> tuple[str, ...]:
    """Names in `scontrol show reservation -o` that a user may use, judged by the users listed; without
    maintenance reservations."""
    names = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        name = fields.get("ReservationName")
        if name and "MAINT" not in fields.get("Flags", "") and _admits(fields, user):
            names.append(name)
    return tuple(names)


def _admits(fields: dict[str, str], user: str) -> bool:
    users = [name for name in fields.get("Users", "(null)").split(",") if name != "(null)"]
    if not users:
        return True  # restricted by account or group, which only Slurm can check
    if any(name.startswith("-") for name in users):
        return f"-{user}" not in users
    return user in users or fields.get("Accounts", "(null)") != "(null)"
