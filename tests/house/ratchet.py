"""A ratchet: places over a guard's limit are listed with their figures and a reason, and the list may only
shrink.

`python -m tests.house.ratchet` lowers each figure that fell and strikes each place that is within its limit.
It adds and raises nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.house.measures import GUARDS, Guard
from tests.installed import REPOSITORY

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
_FIGURE = re.compile(r'^"(?P<place>[^"]+)" = (?P<figure>\d+)$')


def read_exceptions(text: str) -> dict[str, dict[str, int]]:
    """Guard → place → figure. Each group of places has a reason; a place is in one group."""
    found: dict[str, dict[str, int]] = {}
    for guard, groups in tomllib.loads(text).items():
        listed = found.setdefault(guard, {})
        for group in groups:
            assert group["reason"].strip(), f"{guard}: a group without a reason"
            twice = listed.keys() & group["places"].keys()
            assert not twice, f"{guard}: listed twice: {sorted(twice)}"
            listed.update(group["places"])
    return found


def complaints(guard: Guard, figures: Mapping[str, int], listed: Mapping[str, int]) -> list[str]:
    """One line for each place that is worse than listed, and for each line of the list that is out of
    date."""
    said = []
    for place, figure in sorted(figures.items()):
        allowed = listed.get(place, guard.limit)
        if figure > max(allowed, guard.limit):
            said.append(f"{place}: {figure}, at most {max(allowed, guard.limit)}: {guard.mend}")
        elif place in listed and guard.limit < figure < allowed:
            said.append(f'{place}: fell from {allowed}: write "{place}" = {figure}')
    return said + [
        f"{place}: is within the limit of {guard.limit} now, or gone: strike its line"
        for place in sorted(listed)
        if figures.get(place, 0) <= guard.limit
    ]


def complaints_of(changed: Iterable[str]) -> list[str]:
    """What is wrong with these files alone, by path from the repository: it takes a second."""
    paths = frozenset(changed)
    among = frozenset(REPOSITORY / path for path in paths)
    listed = read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
    return [
        f"{name}: {said}"
        for name, guard in GUARDS.items()
        for said in complaints(
            guard,
            guard.measure(among),
            {
                place: figure
                for place, figure in listed.get(name, {}).items()
                if place.partition(":")[0] in paths
            },
        )
    ]


def shrink(text: str, figures: Mapping[str, Mapping[str, int]]) -> str:
    """The list with lower figures where they fell, without places that are within the limit, and without
    groups that became empty."""
    kept, guard = [], ""
    for line in text.splitlines():
        if line.startswith("[[") and line.endswith("]]"):
            guard = line.strip("[]")
        match = _FIGURE.match(line)
        if match is None:
            kept.append(line)
            continue
        place, listed = match["place"], int(match["figure"])
        now = figures[guard].get(place, 0)
        if now > GUARDS[guard].limit:
            kept.append(f'"{place}" = {min(now, listed)}')
    empty_group = re.compile(r"\[\[[\w-]+\]\]\nreason = [^\n]*\n\[[\w-]+\.places\]\n*(?=\[\[|#|\Z)")
    return empty_group.sub("", "\n".join(kept).rstrip() + "\n").rstrip() + "\n"


def main() -> None:
    figures = {name: guard.measure(None) for name, guard in GUARDS.items()}
    EXCEPTIONS.write_text(shrink(EXCEPTIONS.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
