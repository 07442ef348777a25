"""Values of any type as TOML, as far as TOML has them."""

from __future__ import annotations

import json
import math
from typing import Any


def as_toml(value: Any) -> str:
    """A table's text: every value inline, so that any nesting can be written."""
    if not isinstance(value, dict):
        return f"value = {_inline(value)}\n"
    return "".join(f"{_word(name)} = {_inline(each)}\n" for name, each in value.items() if each is not None)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(
            f"{_word(name)} = {_inline(each)}" for name, each in value.items() if each is not None
        )
        return f"{{ {pairs} }}"
    if isinstance(value, list):
        return f"[{', '.join(_inline(each) for each in value if each is not None)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _word(text: str) -> str:
    """JSON's escapes are TOML's, but for DEL and half a surrogate pair."""
    plain = text.encode("utf-16", "replace").decode("utf-16", "replace")
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
