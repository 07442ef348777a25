"""How a parser is tried: few examples, the same ones each time, in the ordinary suite; many new ones by hand.

`fuzzed(strategy, …)` makes a test of a function that takes what was drawn and must not raise. The same
function with a thousand times as many examples is `test.in_depth(N)`; `test_in_depth.py` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

NUM_EXAMPLES = 40
_ALWAYS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def fuzzed(
    *drawn: st.SearchStrategy[Any], cases: tuple[Any, ...] = (), num_examples: int = NUM_EXAMPLES
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """`cases` are what was found once, tried each time before all else; of several arguments a tuple each."""

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

        test: Any = built(num_examples, derandomize=True, phases=(Phase.explicit, Phase.generate))
        test.in_depth = lambda count: built(count)()
        return test  # type: ignore[no-any-return]

    return decorate
