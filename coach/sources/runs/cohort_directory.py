"""Read the directory in which a cohort shares summaries, with their owners; and the names of the expected
users.

Everybody may write there, so every file is hostile until proven otherwise: only small plain files are opened,
links are not followed, and the owner is read from the kernel. A file that does not have exactly the expected
form is reported and left out.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.model.teaching.cohort import OnLadder, Summary
from coach.runs import MAX_SUMMARY_BYTES
from coach.sources.named_file import read_named
from coach.trusted import open_trusted

MAX_FILES = 200_000
"""Largest number of files whose owner is looked up, taken in turn from each uid that begins a file name."""
MAX_FILES_PER_USER = 300
"""The newest files of each user are read, so that nobody can crowd the others out."""

_MAX_TEXT = 200
_LATEST_S = 1e11
_SEVERITIES = {severity.word: severity for severity in Severity}
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
_TICKET = re.compile(r"([0-9]{1,10})-([A-Za-z0-9_.+-]{1,200})\.ticket\.md")


@dataclass(frozen=True, slots=True)
class Shared:
    """Contents of the directory.

    Each of `problems` names a file. `left_out`: uid of the owner, or None → number of files that were not
    read.
    """

    summaries: tuple[Summary, ...]
    problems: tuple[str, ...]
    left_out: Mapping[int | None, int]
    tickets: frozenset[tuple[int, str]] = frozenset()
    """The uid and the run in the name of each ticket. A name proves nothing: it is only shown."""


def read_shared(directory: Path) -> Shared:
    """Raises UserError if the directory cannot be read at all."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(
            f"{directory}: {error.strerror or error}",
            "a directory that runs share in: coach launch --share DIR",
        ) from None
    try:
        return _read_all(folder)
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}") from None
    finally:
        os.close(folder)


def _read_all(folder: int) -> Shared:
    by_user: dict[int, list[tuple[float, str]]] = {}
    problems: list[str] = []
    names, num_unseen, tickets = _in_turn(folder)
    left_out: Counter[int | None] = Counter({None: num_unseen} if num_unseen else {})
    for name in names:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # it was replaced just now
            continue
        if stat.S_ISREG(found.st_mode):
            by_user.setdefault(found.st_uid, []).append((found.st_mtime, name))
        else:
            problems.append(f"{name}: not a plain file")
    summaries = []
    for uid, files in by_user.items():
        newest = sorted(files, reverse=True)
        if newest[MAX_FILES_PER_USER:]:
            left_out[uid] = len(newest) - MAX_FILES_PER_USER
        for _, name in newest[:MAX_FILES_PER_USER]:
            try:
                summaries.append(_read(folder, name))
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")
            except (ValueError, RecursionError) as error:
                problems.append(f"{name}: {error}")
    return Shared(tuple(summaries), tuple(sorted(problems)), dict(left_out), tickets)


def _in_turn(folder: int) -> tuple[list[str], int, frozenset[tuple[int, str]]]:
    """At most MAX_FILES names, newest runs first, the number of further names, and the tickets.

    The names are taken in turn from each uid that begins a name, so that thousands of files of one user do
    not hide those of others.
    """
    by_claim: dict[str, list[str]] = {}
    tickets: set[tuple[int, str]] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if (ticket := _TICKET.fullmatch(entry.name)) is not None and len(tickets) < MAX_FILES:
                tickets.add((int(ticket[1]), ticket[2]))
            elif not entry.name.startswith(".") and entry.name.endswith(".json"):
                by_claim.setdefault(entry.name.partition("-")[0], []).append(entry.name)
    for claimed in by_claim.values():
        claimed.sort(reverse=True)
    turns = chain.from_iterable(zip_longest(*by_claim.values()))
    names = [name for name in turns if name is not None]
    return names[:MAX_FILES], len(names[MAX_FILES:]), frozenset(tickets)


def _read(folder: int, name: str) -> Summary:
    with open_trusted(name, owner=None, folder=folder) as file:
        owner = os.fstat(file.fileno()).st_uid
        data = file.read(MAX_SUMMARY_BYTES + 1)
    if len(data) > MAX_SUMMARY_BYTES:
        raise ValueError(f"larger than {MAX_SUMMARY_BYTES} bytes")
    return parse_summary(data, name, owner)


def parse_summary(data: bytes, name: str, uid: int) -> Summary:
    """Raises ValueError with the reason if the summary is malformed."""
    value = _table(data)
    run_id = _text(value, "run_id")
    if name != f"{uid}-{run_id}.json":
        raise ValueError(f"{uid}-RUN_ID.json must be its name")
    recipe, drill = _text(value, "recipe"), _text(value, "drill")
    thing = drill or recipe
    if run_id is None or thing is None or (drill and recipe):
        raise ValueError("expected a recipe or a drill")
    code, severity = _finding(value.get("finding"))
    is_judged, is_solved = _judged_and_solved(value)
    updated_time_s = _number(value, "updated_time_s")
    if updated_time_s is None:
        raise ValueError("updated_time_s: expected a time")
    is_told = drill is None  # learners who have this drill still before them read this too
    return Summary(
        uid=uid,
        run_id=run_id,
        thing=thing,
        is_drill=drill is not None,
        state=_text(value, "state"),
        samples_per_s=_number(value, "samples_per_s"),
        is_judged=is_judged and is_told,
        code=code if is_told else None,
        severity=severity if is_told else None,
        is_solved=is_solved if drill is not None else None,
        created_time_s=_number(value, "created_time_s"),
        started_time_s=_number(value, "started_time_s"),
        ended_time_s=_number(value, "ended_time_s"),
        updated_time_s=updated_time_s,
        job_id=_text(value, "job_id"),
        step=_whole(value, "step"),
        max_steps=_whole(value, "max_steps"),
        last_step_time_s=_number(value, "last_step_time_s"),
        step_gap_s=_number(value, "step_gap_s"),
        is_spoiled=drill is not None and value.get("is_spoiled") is True,
        ladder=_ladder(value.get("ladder")),
    )


def _ladder(value: object) -> OnLadder | None:
    if not isinstance(value, dict):
        return None
    name, group_id, rung = _text(value, "name"), _text(value, "group_id"), _whole(value, "rung")
    if name is None or group_id is None or rung is None:
        raise ValueError("ladder: expected a name, a group and a rung")
    return OnLadder(name, group_id, rung, _number(value, "ratio"), _number(value, "samples_per_s"))


def _table(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"))
    except ValueError:
        raise ValueError("not valid JSON") from None
    if not isinstance(value, dict) or value.get("schema") != 1:
        raise ValueError("expected schema 1")
    return value


def _judged_and_solved(value: Mapping[str, Any]) -> tuple[bool, bool | None]:
    is_judged, is_solved = value.get("is_judged"), value.get("is_solved")
    if not isinstance(is_judged, bool) or not (is_solved is None or isinstance(is_solved, bool)):
        raise ValueError("is_judged and is_solved: expected true or false")
    return is_judged, is_solved


def _text(value: Mapping[str, Any], key: str) -> str | None:
    said = value.get(key)
    if said is None:
        return None
    if not isinstance(said, str) or not 0 < len(said) <= _MAX_TEXT:
        raise ValueError(f"{key}: expected a short text")
    return said


def _number(value: Mapping[str, Any], key: str) -> float | None:
    said = value.get(key)
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said <= _LATEST_S:
        raise ValueError(f"{key}: expected a number from 0")
    return float(said)


def _whole(value: Mapping[str, Any], key: str) -> int | None:
    number = _number(value, key)
    return None if number is None else int(number)


def _finding(said: object) -> tuple[str | None, Severity | None]:
    if said is None:
        return None, None
    code = said.get("code") if isinstance(said, dict) else None
    severity = said.get("severity") if isinstance(said, dict) else None
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(severity, str):
        raise ValueError("finding: expected a code and a severity")
    if severity not in _SEVERITIES:
        raise ValueError("finding: expected a code and a severity")
    return code, _SEVERITIES[severity]


def user_of(uid: int) -> str:
    """The user's name, or the uid if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError, UnicodeError):
        return None


def members(group: str) -> frozenset[str]:
    """Members of a group, including users whose primary group it is. Raises UserError if there is no such
    group."""
    try:
        found = grp.getgrnam(group)
    except (KeyError, ValueError, UnicodeError):
        raise UserError(f"group {group}: no such group on this machine", "getent group lists them") from None
    own = (entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == found.gr_gid)
    return frozenset({*found.gr_mem, *own})


def read_roster(path: Path) -> frozenset[str]:
    """User names, one per line; a # starts a comment. Raises UserError."""
    # Editors of Windows begin a file with a byte order mark.
    text = read_named(
        path, "a file with user names, one per line", encoding="utf-8-sig", errors="surrogateescape"
    )
    names = set()
    for number, row in enumerate(text.splitlines(), start=1):
        words = row.partition("#")[0].split()
        if len(words) > 1:
            raise UserError(f"{path}:{number}: {len(words)} words", "expected one user name per line")
        names.update(words)
    if not names:
        raise UserError(f"{path}: no name in it", "expected user names, one per line")
    return frozenset(names)


def expected_names(roster: Path | None, group: str | None) -> frozenset[str]:
    """The names on the roster and in the group. Raises UserError if one of them cannot be read."""
    names = read_roster(roster) if roster is not None else frozenset()
    return names | members(group) if group is not None else names
