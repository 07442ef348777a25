"""Masks secrets in a command line or a text: values of options and variables with a secret's name, and tokens
of known forms.

run.json keeps the command of `coach run`, recordings and findings are shared, a verdict quotes the log, and a
ticket goes to a help desk. None of them may hold a key.
"""

from __future__ import annotations

import re
from typing import Any, List, Match, Sequence

MASK = "***"

_NAME = (
    r"(?<!pad[-_])(?<!eos[-_])(?<!bos[-_])(?<!unk[-_])(?<!sep[-_])(?<!cls[-_])(?<!mask[-_])(?<!stop[-_])"
    r"(?:api[-_]?key|access[-_]?key(?:[-_]?id)?|secret(?:[-_]?key)?|private[-_]?key|auth[-_]?key|token"
    r"|passw(?:or)?d|passphrase|credentials?)"
)
"""Options such as `--pad_token` belong to a tokenizer and hold no secret."""
_VALUE = r"""[^\s"'\\,;&\ue001\ue002]"""
"""Excludes the backslash of an escaped quote, and the marks that stand for field separators in an anonymized
answer."""
_BLANKS = r"\s?[^\S\n]*"
"""Any blanks, and at most one line end."""
_NO_REFERENCE = r"(?!\$\{?[A-Za-z_]\w{0,60}\}?(?:[\s\"';,)]|$)|\$\()"
"""References such as `$HF_TOKEN` and `$(cat FILE)` name a secret but do not reveal it."""

_ASSIGNED = re.compile(rf"(?is)([\w.-]*{_NAME}[=:]).+")
_OPTION = re.compile(rf"(?i)--?[\w.-]*{_NAME}")
_QUOTED = re.compile(
    rf"""(?i)({_NAME}\\?["']?{_BLANKS}[=:]{_BLANKS})(\\?["'])(?![\d.]+\\?["'])(?:(?<=')|{_NO_REFERENCE})"""
    r"(?:(?!\2)[^\n\ue001\ue002]){6,400}?\2"
)
"""A quoted value may contain blanks."""
_IN_TEXT = re.compile(
    rf"""(?i)({_NAME}(?:\\?["']?{_BLANKS}[=:]{_BLANKS}\\?["']?|"\s?,\s?"))"""
    rf"""(?!--)(?![\d.]+(?:\s|["',;]|$)){_NO_REFERENCE}{_VALUE}{{6,}}"""
    rf"|((?<![\w-])--[\w.-]{{0,40}}?{_NAME}\s[^\S\n]*)(?!--){_NO_REFERENCE}{_VALUE}+"
)
_VARIABLE = re.compile(
    r"(?<![A-Za-z0-9_])((?!(?:PAD|EOS|BOS|UNK|SEP|CLS|MASK|STOP)_TOKEN=)(?:[A-Z0-9]{1,30}_){0,6}"
    r"(?:(KEY|KEY_ID|PWD|AUTH|COOKIE|CREDENTIALS?)|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PAT|JWT)=)"
    r"(?![\d.]+(?:\s|[\"',;]|$))"
    rf"((?:\"{_NO_REFERENCE}[^\"\n]{{1,400}}\"|'[^'\n]{{1,400}}'|[\"']?{_NO_REFERENCE}{_VALUE}+))"
)
"""A shell assignment such as `DB_PASSWORD=x`, of any length. The second group: names whose value may be a
file's path."""
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{30,}|wandb_v1_\w{20,}|dckr_pat_[\w-]{20,}|(?<![\w-])eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]+)?)"
)
_HEADER = re.compile(
    rf"(?i)(\bauthorization\\?[\"']?{_BLANKS}[:=]{_BLANKS}\\?[\"']?"
    r"(?:bearer|basic|token|digest|negotiate)\s[^\S\n]*)[^\s\"'\\,;]+"
    r"|(\bbearer\s[^\S\n]*)[A-Za-z0-9._~+/=-]{12,}"
    r"|(\b(?:set-)?cookie:[^\S\n]*)[^\n\"']+"
)
_IN_QUERY = re.compile(r"(?i)([?&](?:x-amz-signature|signature|sig|key|auth|code)=)[^\s&\"'<>]{6,}")
_NAME_IN_URL = re.compile(r"(://)[^/\s:@]{20,200}:[^/\s@]{0,200}@")
"""A token may take the name's place in a URL: `https://TOKEN:x-oauth-basic@host`."""
_IN_URL = re.compile(r"(://[^/\s:@]{0,100}:)[^/\s@]{1,200}@")
_ALONE_IN_URL = re.compile(r"(?i)(https?://)[^/\s:@\"'<>]{1,200}:?@")
_LOGIN = re.compile(
    r"(\blogin\s{1,4}\S{1,100}\s{1,4}password\s{1,4})\S{1,200}"
    r"|(\bwandb\s{1,4}login\s{1,4}(?:--relogin\s{1,4})?)[0-9a-zA-Z_]{20,}"
    r"|(\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[\s=][^\s:]{1,100}:)\S{1,200}"
)
"""`.netrc`, and commands that take a secret without an option that names it."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?s:.*?)-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?s:.*))"
)
"""If the end line is missing, as in a text that was cut, all following text is masked."""
_END_OF_KEY = re.compile(
    r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{8,100}\s{1,4}){1,100}"
    r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY[ A-Z]*-----"
)
_LINE_OF_KEY = re.compile(
    r"(?:(?<![\w+/=.-])|(?<=\\n))(?=[A-Za-z0-9+/]{0,69}[a-z])(?=[A-Za-z0-9+/]{0,69}[A-Z])"
    r"(?=[A-Za-z+/]{0,69}\d)(?!(?:[^/\s]{0,69}/){5})[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{6})?(?![\w+/=.-])"
)
"""A full line of a key, in PEM or of OpenSSH, in a text that has neither its BEGIN nor its END. A path has
more slashes."""
_ESCAPE = re.compile(
    r"(?:\x1b|\\{1,8}(?:x1b|u001b|033|e))\[[0-?]{0,40}[ -/]{0,4}[@-~]|\x9b[0-?]{0,40}[ -/]{0,4}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
)
"""A sequence for the terminal, also in the form of a program's source or JSON, or a character without a
sign."""


def mask_command(words: Sequence[str]) -> List[str]:
    """The command with a mask for each secret. A value may be the word after its option."""
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


def mask_value(name: str, value: str) -> str:
    """The value of a variable, key or parameter with this name; a mask if the name marks it as secret."""
    if value and (_ASSIGNED.fullmatch(f"{name}={value}") or _VARIABLE.match(f"{name}={value}")):
        return MASK
    return mask_text(value)


def mask_text(text: str) -> str:
    """The text with a mask for each secret. A text that has one loses its escape sequences: they may stand
    before or inside a secret."""
    plain = _ESCAPE.sub("", text)
    masked = _masked(plain)
    return text if masked == plain else masked


def _masked(text: str) -> str:
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _END_OF_KEY.sub(MASK, text)
    text = _LINE_OF_KEY.sub(MASK, text)
    text = _NAME_IN_URL.sub(rf"\1{MASK}:{MASK}@", text)
    text = _ALONE_IN_URL.sub(rf"\1{MASK}@", _IN_URL.sub(rf"\1{MASK}@", text))
    text = _TOKEN.sub(MASK, text)
    text = _HEADER.sub(lambda found: (found[1] or found[2] or found[3]) + MASK, text)
    text = _QUOTED.sub(rf"\1\2{MASK}\2", text)
    text = _VARIABLE.sub(_masked_variable, text)
    text = _IN_TEXT.sub(lambda found: (found[1] or found[2]) + MASK, text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    return _LOGIN.sub(lambda found: (found[1] or found[2] or found[3]) + MASK, text)


def _masked_variable(found: Match[str]) -> str:
    bare = found[3].strip("\"'")
    if found[2] and bare.startswith(("/", "./", "../", "~/")):
        return found[0]
    quotes = [mark if mark in ("'", '"') else "" for mark in (found[3][0], found[3][-1])]
    return f"{found[1]}{quotes[0]}{MASK}{quotes[1]}"


def mask_values(value: Any, name: str = "") -> Any:
    """A JSON value with all its texts masked. Its name, too, may show that it is a secret."""
    if isinstance(value, str):
        return mask_value(name, value)
    if isinstance(value, dict):
        return {mask_text(str(key)): mask_values(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, str) for item in value):
            return mask_text("\n".join(value)).split("\n")  # a private key spans several lines
        return [mask_values(item) for item in value]
    return value
