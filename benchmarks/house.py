"""Count the modules and lines in each room of coach, and the imports between rooms.

    python benchmarks/house.py [CHECKOUT]

Rooms are the modules and packages directly below `coach/`. Imports are counted by module: three imports from
one module of another are one. This program does not look for import cycles or upward imports: `lint-imports`
refuses both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

import grimp

SMALL_LINES = 40


def room_of(module: str) -> str:
    """`coach.sources.slurm.text` is in `sources`; the package itself is called `coach`."""
    return module.split(".")[1] if "." in module else module


def lines_of(module: str, checkout: Path) -> int:
    base = checkout.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    checkout = parser.parse_args().checkout.resolve()
    sys.path.insert(0, str(checkout))
    graph = grimp.build_graph("coach", cache_dir=None)
    lines: dict[str, list[int]] = defaultdict(list)
    arrows: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        lines[room_of(module)].append(lines_of(module, checkout))
        for imported in graph.find_modules_directly_imported_by(module):
            if room_of(imported) != room_of(module):
                arrows[room_of(module), room_of(imported)] += 1
    importers = [len(graph.find_modules_that_directly_import(module)) for module in graph.modules]
    print(
        f"{'room':<12}{'modules':>8}{'lines':>8}{'median':>8}{'< ' + str(SMALL_LINES):>6}  imports, by module"
    )
    for room, lengths in sorted(lines.items(), key=lambda item: -sum(item[1])):
        targets = sorted(((n, to) for (of, to), n in arrows.items() if of == room), reverse=True)
        small = sum(length < SMALL_LINES for length in lengths)
        words = "  ".join(f"{to} {n}" for n, to in targets)
        print(
            f"{room:<12}{len(lengths):>8}{sum(lengths):>8}{statistics.median(lengths):>8.0f}{small:>6}  "
            f"{words}"
        )
    every = [length for lengths in lines.values() for length in lengths]
    print(
        f"in all {len(every)} modules, {sum(every)} lines, {len(lines)} rooms, {len(arrows)} arrows between "
        "them, "
        f"{sum(arrows.values())} imports across rooms; {importers.count(1)} modules have one importer"
    )


if __name__ == "__main__":
    main()
