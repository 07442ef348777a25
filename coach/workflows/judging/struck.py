"""Strike secrets from an object that will be sent on, and mark each of them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from coach.node.secret_words import MASK, mask_command, mask_text, mask_value


def without_secrets(told: Mapping[str, Any]) -> dict[str, Any]:
    """The object without secrets, and with the number of struck secrets as `num_struck`. A tuple of strings
    is read as a command line."""
    struck = {mask_text(name): _struck(name, value) for name, value in told.items()}
    return {**struck, "num_struck": _num_marks(struck) - _num_marks(told)}


def _struck(name: str, value: Any) -> Any:
    """The value without secrets. Its name, too, may show that it is one."""
    if isinstance(value, str):
        return mask_value(name, value)
    if isinstance(value, Mapping):
        return {mask_text(str(key)): _struck(str(key), each) for key, each in value.items()}
    if not isinstance(value, Sequence):
        return value
    if value and all(isinstance(each, str) for each in value):
        if isinstance(value, tuple):
            return shlex.join(mask_command(value))
        return mask_text("\n".join(value)).split("\n")  # a private key spans several lines
    return [_struck("", each) for each in value]


def _num_marks(value: Any) -> int:
    if isinstance(value, str):
        return value.count(MASK)
    if isinstance(value, Mapping):
        return sum(map(_num_marks, (*value, *value.values())))
    return sum(map(_num_marks, value)) if isinstance(value, Sequence) else 0
