"""Read typed values from JSON that anybody may have written.

Run directories are written by other programs, torn by crashes and edited by hand. A missing value, or one of
the wrong type, is None here, so that no parser has to trust a file and no wrong type enters the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from coach import runs

_MAX_WHOLE = 2**63
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def number(value: Any) -> float | None:
    """A number, also one that is not finite ("NaN"); None for any other value."""
    return runs.decode_number(value)


def finite(value: Any) -> float | None:
    """A finite number, as needed for a time, a size or a fraction; else None."""
    result = number(value)
    return result if result is not None and math.isfinite(result) else None


def whole(value: Any) -> int | None:
    """An integer within 64 bits; 12.0 counts as 12. Else None."""
    result = finite(value)
    if result is None or result != int(result) or abs(result) >= _MAX_WHOLE:
        return None
    return int(value)


def text(value: Any) -> str | None:
    """A string that is not empty; else None."""
    return value if isinstance(value, str) and value else None


def table(value: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else _EMPTY
