"""Read typed values from JSON that anybody may have written.

Run directories are written by other programs, torn by crashes and edited by hand. A missing value, or one of
the wrong type, is None here, so that no parser has to trust a file and no wrong type enters the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
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


def flag(value: Any) -> bool | None:
    """True or false; None for any other value."""
    return value if isinstance(value, bool) else None


def texts(value: Any) -> tuple[str, ...]:
    """The strings in a JSON array that are not empty; none for any other value."""
    return tuple(filter(text, value)) if isinstance(value, list) else ()


def span(value: Any) -> tuple[float, float] | None:
    """A JSON array of two finite numbers; None for any other value."""
    least, most = map(finite, value) if isinstance(value, list) and len(value) == 2 else (None, None)
    return None if least is None or most is None else (least, most)


_READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "float": finite,
        "int": whole,
        "str": text,
        "bool": flag,
        "Mapping[str, Any]": table,
        "tuple[str, ...]": texts,
        "tuple[float, float]": span,
    }
)
"""Type of a field → its reader."""


class Fields:
    """Reads fields of a dataclass from a JSON object, each by its name and type."""

    def __init__(
        self, kind: type, names: Collection[str], of_any_size: Collection[str] = frozenset()
    ) -> None:
        """`names` are the fields that the object may set. Numbers in `of_any_size` may be infinite or NaN."""
        self._readers: dict[str, Callable[[Any], Any]] = {
            each.name: number
            if each.name in of_any_size
            else _READERS[str(each.type).removesuffix(" | None")]
            for each in fields(kind)
            if each.name in names
        }
        self._missing = {name: reader(None) for name, reader in self._readers.items()}

    def read(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each field; None, or an empty one, if it is missing or of another type."""
        values = self._missing.copy()
        for name, value in record.items():
            if (reader := self._readers.get(name)) is not None:
                values[name] = reader(value)
        return values
