"""Fuzz a parser: a few fixed examples in the ordinary suite, many new ones by hand.

`fuzzed(strategy, …)` makes a test of a function that takes the drawn values and must not raise.
`test.in_depth(N)` runs the same function with N new examples, `test.guided()` with examples led by coverage;
`test_in_depth.py` and `guided.py` run them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

NUM_EXAMPLES = 8
_ALWAYS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def fuzzed(
    *drawn: st.SearchStrategy[Any], cases: tuple[Any, ...] = ()
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """`cases` are texts that failed once; each run tries them first. For several arguments each case is a
    tuple."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def built(count: int, **more: Any) -> Callable[[], None]:
            test: Any = FunctionType(
                check.__code__, check.__globals__, check.__name__, None, check.__closure__
            )
            test.__module__, test.__doc__ = check.__module__, check.__doc__
            for case in reversed(cases):
                test = example(*(case if len(drawn) > 1 else (case,)))(test)
            found: Callable[[], None] = settings(max_examples=count, **_ALWAYS, **more)(given(*drawn)(test))
            return found

        test: Any = built(NUM_EXAMPLES, derandomize=True, phases=(Phase.explicit, Phase.generate))
        test.in_depth = lambda count: built(count)()
        test.guided = lambda: _of_bytes(check, drawn)
        return test  # type: ignore[no-any-return]

    return decorate


def _of_bytes(
    check: Callable[..., None], drawn: tuple[st.SearchStrategy[Any], ...]
) -> Callable[[bytes], object]:
    """The check as a function of any bytes, which choose the drawn values. A failure is printed."""

    def tried(words: tuple[Any, ...]) -> None:
        try:
            check(*words)
        except BaseException:
            sys.stderr.write(f"FOUND {words!r}\n")
            raise

    test: Any = settings(max_examples=1, **_ALWAYS)(given(st.tuples(*drawn))(tried))
    chosen: Callable[[bytes], object] = test.hypothesis.fuzz_one_input
    return chosen


def names() -> Iterator[str]:
    """`module:test` of every property of this folder."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem != "test_in_depth":
            module = import_module(f"{__package__}.{path.stem}")
            yield from (
                f"{path.stem}:{name}" for name, test in vars(module).items() if hasattr(test, "in_depth")
            )


def named(name: str) -> Any:
    """The property of this name."""
    module, _, test = name.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), test)
