"""How a type says to readers of its JSON what its Python type does not: marks for `Annotated`."""

from __future__ import annotations

from typing import Annotated, Literal

Schema1 = Annotated[int, Literal[1]]
"""The version of the object. It grows only when a key changes its meaning or goes."""
NotFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = Annotated[float | str | None, float | NotFinite | None]
"""A number, a word for one that is not finite, or null where it was not measured."""
