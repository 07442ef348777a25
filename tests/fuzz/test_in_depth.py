"""All parsers with many more examples, new ones each time: `pytest -m long tests/fuzz`.

`COACH_FUZZ_EXAMPLES` sets how many, `-k NAME` which parsers. What fails is printed with the words that do it;
they become one of the `cases` of the test in the module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

NUM_EXAMPLES = int(os.environ.get("COACH_FUZZ_EXAMPLES", "2000"))


def _names() -> Iterator[str]:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem != Path(__file__).stem:
            module = import_module(f"{__package__}.{path.stem}")
            yield from (
                f"{path.stem}:{name}" for name, test in vars(module).items() if hasattr(test, "in_depth")
            )


@pytest.mark.long
@pytest.mark.parametrize("name", tuple(_names()))
def test_many_damaged_words_are_read_as_well(name: str) -> None:
    module, _, test = name.partition(":")
    getattr(import_module(f"{__package__}.{module}"), test).in_depth(NUM_EXAMPLES)
