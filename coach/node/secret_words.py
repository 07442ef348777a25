"""Strike secrets from a command line or a text: values of options and variables named like one, and tokens of
known forms.

run.json keeps the command of `coach run`, recordings and findings are shared, and a verdict quotes the log. A
key belongs in none of them.
"""

from __future__ import annotations

import re
from typing import Any, List, Sequence

MASK = "***"

_NAME = (
    r"(?<!pad[-_])(?<!eos[-_])(?<!bos[-_])(?<!unk[-_])(?<!sep[-_])(?<!cls[-_])(?<!mask[-_])(?<!stop[-_])"
    r"(?:api[-_]?key|access[-_]?key(?:[-_]?id)?|secret(?:[-_]?key)?|private[-_]?key|auth[-_]?key|token"
    r"|passw(?:or)?d|passphrase|credentials?)"
)
"""`--pad_token` and its like are words of a tokenizer."""
_VALUE = r"""[^\s"'\\,;&\ue001\ue002]"""
"""Without the backslash of an escaped quote, and without the marks that stand for field separators in an
anonymized answer."""

_ASSIGNED = re.compile(rf"(?is)([\w.-]*{_NAME}[=:]).+")
_OPTION = re.compile(rf"(?i)--?[\w.-]*{_NAME}")
_IN_TEXT = re.compile(
    rf"""(?i)({_NAME}(?:"?\s?[=:]\s?["']?|"\s?,\s?"))(?!--)(?![\d.]+(?:\s|["',;]|$)){_VALUE}{{6,}}"""
    rf"|((?<![\w-])--[\w.-]{{0,40}}?{_NAME}\s){_VALUE}+"
)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16})"
)
_HEADER = re.compile(r"(?i)(\bauthorization:\s?(?:bearer|basic)\s|\bbearer\s)[A-Za-z0-9._~+/=-]{12,}")
_IN_URL = re.compile(r"(://[^/\s:@]{1,100}:)[^/\s@]{1,200}@")


def mask_command(words: Sequence[str]) -> List[str]:
    """The command with a mark for each secret. A value may follow its option as the next word."""
    masked: List[str] = []
    is_secret = False
    for word in words:
        assigned = _ASSIGNED.fullmatch(word)
        if is_secret and not word.startswith("-"):
            masked.append(MASK)
        else:
            masked.append(assigned[1] + MASK if assigned else mask_text(word))
        is_secret = _OPTION.fullmatch(word) is not None
    return masked


def mask_text(text: str) -> str:
    """The text with a mark for each secret in it."""
    text = _IN_TEXT.sub(lambda found: (found[1] or found[2]) + MASK, text)
    text = _HEADER.sub(rf"\1{MASK}", text)
    return _TOKEN.sub(MASK, _IN_URL.sub(rf"\1{MASK}@", text))


def mask_values(value: Any) -> Any:
    """A value of JSON with every text in it masked."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: mask_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_values(item) for item in value]
    return value
