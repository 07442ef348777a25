"""Which versions a recipe can do with: `>=2.6`, `>=2.6,<3`, compared by their release numbers. Pure.

Only releases are compared. An image built from a branch calls itself 2.7.0a0+gitsha and has what 2.7 has, and whether a wheel is a CPU
wheel (+cpu) is another question; strict ordering of pre-releases would refuse environments that work.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from types import MappingProxyType

from coach.model.errors import UserError

_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,6}(?:\.\d{1,6}){0,4})", re.ASCII)
_RELEASE = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,4})", re.ASCII)
_COMPARE: Mapping[str, Callable[[list[int], list[int]], bool]] = MappingProxyType(
    {
        ">=": operator.ge,
        "<=": operator.le,
        "==": operator.eq,
        "!=": operator.ne,
        ">": operator.gt,
        "<": operator.lt,
    }
)


def check_requirement(text: str, what: str) -> str:
    """The requirement as it is written. Raises UserError that begins with `what` when it is none."""
    if not all(_CLAUSE.fullmatch(clause.strip()) for clause in text.split(",")):
        raise UserError(f'{what} = {text!r}: expected for example ">=2.6" or ">=2.6,<3"')
    return text


def satisfies(version: str, requirement: str) -> bool | None:
    """Whether a version fulfils a requirement; None when the version is not one that can be compared."""
    release = _RELEASE.match(version.strip())
    if release is None:
        return None
    return all(_holds(release[1], clause.strip()) for clause in requirement.split(","))


def _holds(release: str, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    assert match is not None, f"{clause!r} was not checked"
    pairs = [
        (int(ours), int(theirs))
        for ours, theirs in zip_longest(release.split("."), match[2].split("."), fillvalue="0")
    ]
    return _COMPARE[match[1]]([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
