"""All parsers with many more examples, new ones each time: `pytest -m long tests/fuzz`.

`COACH_FUZZ_EXAMPLES` sets the number of examples, `-k NAME` chooses the parsers. A failure is printed with
its text; add that text to the `cases` of the test in the module.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.harness import named, names

NUM_EXAMPLES = int(os.environ.get("COACH_FUZZ_EXAMPLES", "300"))


@pytest.mark.long
@pytest.mark.parametrize("name", tuple(names()))
def test_many_damaged_words_are_read_as_well(name: str) -> None:
    named(name).in_depth(NUM_EXAMPLES)
