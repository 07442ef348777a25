"""Parse a training environment as people write it: a table in a TOML, or `KIND=VALUE` on a command line.

Recipes, the config and the command line share this grammar, so that all of them refuse the same mistakes in
the same words. No file is read here: a path is checked on the machine that can see it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from posixpath import join, normpath
from types import MappingProxyType
from typing import Any

from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind

KEYS = tuple(item.name for item in fields(Environment) if item.name not in ("name", "origin"))
"""The keys of an [environments.NAME] table."""

_KINDS = tuple(kind.value for kind in EnvironmentKind)
_CONTAINERS = (EnvironmentKind.APPTAINER, EnvironmentKind.PYXIS)
_NEEDED = {
    EnvironmentKind.VENV: "path",
    EnvironmentKind.CONDA: "path",
    EnvironmentKind.MODULES: "modules",
    EnvironmentKind.APPTAINER: "image",
    EnvironmentKind.PYXIS: "image",
}
# Any kind may have modules: at many sites, conda and Apptainer are loaded as modules.
_KINDS_OF = {
    "path": (EnvironmentKind.VENV, EnvironmentKind.CONDA),
    "image": _CONTAINERS,
    "binds": _CONTAINERS,
}
_EXAMPLES = {
    EnvironmentKind.VENV: "/sw/venvs/torch",
    EnvironmentKind.CONDA: "pytorch",
    EnvironmentKind.MODULES: "cuda/12.4,pytorch/2.6",
    EnvironmentKind.APPTAINER: "/sw/images/pytorch.sif",
    EnvironmentKind.PYXIS: "/sw/images/pytorch.sqsh",
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/:@-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TORCH = re.compile(r"(?<!\d)\d++(\.\d++)+[A-Za-z0-9.+-]*")
_ROOTED = re.compile(r"(/|~/|\$)")
_REFERENCE = re.compile(r"\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})")

PlaceOf = Callable[[str], str]
"""Key of the table → FILE:LINE."""


def read_environment(
    name: str | None, table: Mapping[str, Any], place_of: PlaceOf
) -> tuple[Environment, list[UserError]]:
    """The environment without its faulty keys, and all mistakes. `name` is None for a recipe's
    [environment]."""
    return _Table(name, table, place_of).environment()


def spelt_environment(text: str, place: str = "--env") -> Environment | None:
    """An environment written as `none` or `KIND=VALUE`; None if the text is a name. Paths stay as typed."""
    word, equals, value = text.strip().partition("=")
    if not equals:
        return Environment() if word == EnvironmentKind.NONE else None
    word, value = word.strip(), value.strip()
    if word not in _NEEDED:
        near = get_close_matches(word, _NEEDED, 1)
        wanted = f"did you mean {near[0]}=…?" if near else f"expected a name, or {_spellings()}"
        raise UserError(f"{place} {text!r}: unknown kind of environment {word!r}", wanted)
    kind = EnvironmentKind(word)
    key = _NEEDED[kind]
    parts = [part.strip() for part in value.split(",")]
    if not value or (key == "modules" and not all(parts)):
        raise UserError(f"{place} {text!r}: expected {kind}={_EXAMPLES[kind]}, for example")
    reader = _Table(
        None,
        {"kind": word, key: parts if key == "modules" else value},
        lambda _key: f"{place} {text!r}",
        is_spelt=True,
    )
    environment, problems = reader.environment()
    if problems:
        raise problems[0]
    return environment


def with_absolute_paths(environment: Environment, directory: str, env: Mapping[str, str]) -> Environment:
    """The environment with `~` and variables replaced, and relative paths resolved against `directory`.
    Raises UserError for an unset variable."""

    def place_of(key: str) -> str:
        name = f"environments.{environment.name}.{key}" if environment.name else key
        return f"{environment.origin or '--env'}: {name}"

    def absolute(path: str, key: str) -> str:
        return normpath(join(directory, expanded(path, env, place_of(key))))

    path, image, python = environment.path, environment.image, environment.python
    if path is not None and environment.kind is EnvironmentKind.CONDA and _REFERENCE.fullmatch(path):
        path = expanded(path, env, place_of("path"))  # to a path, or to a name
    if path is not None and (environment.kind is EnvironmentKind.VENV or "/" in path):
        path = absolute(path, "path")
    if image is not None and _is_path(environment.kind, image):
        image = absolute(image, "image")
    if python is not None and "/" in python:
        python = absolute(python, "python")
    binds = tuple(
        ":".join((absolute(source, "binds"), *rest))
        for source, *rest in (bind.split(":") for bind in environment.binds)
    )
    return replace(environment, path=path, image=image, python=python, binds=binds)


def expanded(text: str, env: Mapping[str, str], place: str) -> str:
    """The text with a leading `~` and every `$NAME` or `${NAME}` replaced. Raises UserError naming a variable
    that is not set."""
    if text == "~" or text.startswith("~/"):
        text = "$HOME" + text[1:]

    def value(match: re.Match[str]) -> str:
        name = match["bare"] or match["braced"]
        if not env.get(name):
            raise UserError(f"{place} = {text!r}: the variable {name} is not set here")
        return env[name]

    return _REFERENCE.sub(value, text)


class _Table:
    """Checks one table key by key, and continues after a mistake."""

    def __init__(
        self, name: str | None, table: Mapping[str, Any], place_of: PlaceOf, is_spelt: bool = False
    ) -> None:
        self._name = name
        self._table = table
        self._place_of = place_of
        self._is_spelt = is_spelt
        self._prefix = f"environments.{name}" if name is not None else "environment"
        self._problems: list[UserError] = []

    def environment(self) -> tuple[Environment, list[UserError]]:
        if self._name is not None:
            self._check_name(self._name)
        for key in self._table:
            if key not in KEYS:
                near = get_close_matches(key, KEYS, 1)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(KEYS)}"
                self._problems.append(
                    UserError(f"{self._place_of(key)}: unknown key {self._dotted(key)}", hint)
                )
        kind = self._kind()
        if kind is not None:
            self._check_keys_of(kind)
        environment = Environment(
            kind=kind or EnvironmentKind.NONE,
            name=self._name,
            path=self._path(kind),
            modules=self._strings("modules", _MODULE, "a module, for example pytorch/2.6"),
            image=self._image(kind),
            binds=tuple(bind for bind in self._strings("binds") if self._is_bind(bind)),
            python=self._string("python"),
            setup=self._strings("setup"),
            variables=self._variables(),
            torch=self._string("torch", _TORCH, 'a version, for example "2.6.0"'),
            origin=None if self._is_spelt else self._place_of("kind"),
        )
        return environment, self._problems

    def _check_name(self, name: str) -> None:
        if name == EnvironmentKind.NONE:
            self._wrong(None, "the name none means the node's own Python; choose another")
        elif not _NAME.fullmatch(name):
            self._wrong(None, "a name has letters, digits and . _ + -")

    def _kind(self) -> EnvironmentKind | None:
        if "kind" not in self._table:
            self._wrong(None, f"kind is missing: one of {', '.join(_KINDS)}")
            return None
        value = self._table["kind"]
        if value not in _KINDS:
            self._wrong("kind", f"expected one of {', '.join(_KINDS)}")
            return None
        return EnvironmentKind(value)

    def _check_keys_of(self, kind: EnvironmentKind) -> None:
        needed = _NEEDED.get(kind)
        if needed is not None and not self._table.get(needed):
            example = _EXAMPLES[kind]
            written = example.split(",") if needed == "modules" else example
            self._wrong(None, f"kind {kind} needs {needed}, for example {needed} = {written!r}")
        for key, kinds in _KINDS_OF.items():
            if key in self._table and kind not in kinds:
                self._wrong(key, f"only {' and '.join(kinds)} have {key}; this is kind {kind}")

    def _path(self, kind: EnvironmentKind | None) -> str | None:
        path = self._string("path")
        if path is None or self._is_spelt:
            return path
        if kind is EnvironmentKind.CONDA and _NAME.fullmatch(path):
            return path
        if kind is not None and not _ROOTED.match(path):
            self._wrong("path", "expected a path from the root: /…, ~/… or $VARIABLE/…")
            return None
        return path

    def _image(self, kind: EnvironmentKind | None) -> str | None:
        image = self._string("image")
        if image is None:
            return None
        if kind is EnvironmentKind.APPTAINER and "://" in image:
            self._wrong("image", "expected a file: fetch it on the login node with `apptainer pull` first")
            return None
        if not self._is_spelt and kind is not None and _is_path(kind, image) and not _ROOTED.match(image):
            self._wrong("image", "expected a path from the root: /…, ~/… or $VARIABLE/…")
            return None
        return image

    def _is_bind(self, bind: str) -> bool:
        parts = bind.split(":")
        if len(parts) <= 3 and all(parts) and _ROOTED.match(parts[0]):
            return True
        self._wrong("binds", f"{bind!r}: expected SRC[:DST[:OPTIONS]], SRC from the root")
        return False

    def _variables(self) -> Mapping[str, str]:
        said = self._table.get("variables", {})
        if not isinstance(said, Mapping):
            self._wrong("variables", 'expected a table, for example { NCCL_DEBUG = "WARN" }')
            return MappingProxyType({})
        kept = {}
        for name, value in said.items():
            if not _VARIABLE.fullmatch(name):
                self._wrong("variables", f"{name!r} is no name of a variable")
            elif not isinstance(value, str) or not _is_one_line(value):
                self._wrong(
                    "variables", f'{name} = {value!r}: expected a string on one line, for example "1"'
                )
            else:
                kept[name] = value
        return MappingProxyType(kept)

    def _string(self, key: str, pattern: re.Pattern[str] | None = None, wanted: str = "") -> str | None:
        if key not in self._table:
            return None
        value = self._table[key]
        if not isinstance(value, str) or not value or not _is_one_line(value):
            self._wrong(key, "expected a string on one line")
            return None
        if pattern is not None and not pattern.fullmatch(value):
            self._wrong(key, f"expected {wanted}")
            return None
        return value

    def _strings(self, key: str, pattern: re.Pattern[str] | None = None, wanted: str = "") -> tuple[str, ...]:
        values = self._table.get(key, [])
        if not isinstance(values, list):
            self._wrong(key, "expected a list of strings")
            return ()
        kept = []
        for value in values:
            if not isinstance(value, str) or not value or not _is_one_line(value):
                self._wrong(key, f"{value!r}: expected a string on one line")
            elif pattern is not None and not pattern.fullmatch(value):
                self._wrong(key, f"{value!r}: expected {wanted}")
            else:
                kept.append(value)
        return tuple(kept)

    def _wrong(self, key: str | None, wanted: str) -> None:
        place = self._place_of(key or "kind")
        if self._is_spelt:
            self._problems.append(UserError(f"{place}: {wanted}"))
            return
        said = f" = {self._table[key]!r}" if key is not None else ""
        self._problems.append(UserError(f"{place}: {self._dotted(key)}{said}: {wanted}"))

    def _dotted(self, key: str | None) -> str:
        return self._prefix if key is None else f"{self._prefix}.{key}"


def _is_path(kind: EnvironmentKind, image: str) -> bool:
    """True if an image is a file: Pyxis also accepts names in a registry."""
    return (
        kind is not EnvironmentKind.PYXIS or image.startswith(("/", ".", "~", "$")) or image.endswith(".sqsh")
    )


def _is_one_line(text: str) -> bool:
    return all(char.isprintable() or char == "\t" for char in text)


def _spellings() -> str:
    return ", ".join(("none", *(f"{kind}={example}" for kind, example in _EXAMPLES.items())))
