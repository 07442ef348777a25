"""Parse a training environment as people write it: a table in a TOML, or `KIND=VALUE` on a command line.

Recipes, the config and the command line share this grammar, so that all of them refuse the same mistakes in
the same words. No file is read here: a path is checked on the machine that can see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from posixpath import join, normpath
from types import MappingProxyType
from typing import Any

from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.toml_schema import (
    STRING,
    TABLE,
    Key,
    Kind,
    Schema,
    TableReader,
    WrongValueError,
    fulfilling,
    list_of,
    matching,
    one_of,
)

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

_FROM_ROOT = "expected a path from the root: /…, ~/… or $VARIABLE/…"
_PULL_FIRST = "expected a file: fetch it on the login node with `apptainer pull` first"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/:@-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TORCH = re.compile(r"(?<!\d)\d++(\.\d++)+[A-Za-z0-9.+-]*")
_ROOTED = re.compile(r"(/|~/|\$)")
_REFERENCE = re.compile(r"\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})")

_LINE = fulfilling(
    STRING,
    lambda text: text != "" and all(char.isprintable() or char == "\t" for char in text),
    "a string on one line",
)


def _is_bind(bind: str) -> bool:
    parts = bind.split(":")
    return len(parts) <= 3 and all(parts) and _ROOTED.match(parts[0]) is not None


def _variables(value: Any) -> Mapping[str, str]:
    for name, text in TABLE(value).items():
        if not _VARIABLE.fullmatch(name):
            raise WrongValueError(f"{name!r} is no name of a variable")
        _LINE(text)
    return MappingProxyType(dict(value))


KEYS: Schema = {
    "kind": Key(one_of(_KINDS), "How a job gets at it.", is_needed=True),
    "path": Key(_LINE, "The folder of a venv or of a conda environment, or the name of the latter."),
    "modules": Key(
        list_of(matching(_MODULE, "a module, for example pytorch/2.6")), "Modules to load.", default=()
    ),
    "image": Key(_LINE, "The image of a container."),
    "binds": Key(
        list_of(fulfilling(_LINE, _is_bind, "SRC[:DST[:OPTIONS]], SRC from the root")),
        "Folders that the container sees.",
        default=(),
    ),
    "python": Key(_LINE, "Its interpreter."),
    "setup": Key(list_of(_LINE), "Shell lines before it is used.", default=()),
    "variables": Key(
        Kind('a table, for example { NCCL_DEBUG = "WARN" }', _variables),
        "Variables of its jobs.",
        default=MappingProxyType({}),
    ),
    "torch": Key(matching(_TORCH, 'a version, for example "2.6.0"'), "Its version of torch."),
}
"""The keys of an [environments.NAME] table."""


def read_environment(
    reader: TableReader, name: str | None, table: Mapping[str, Any]
) -> tuple[Environment, list[UserError]]:
    """The environment without its faulty keys, and all mistakes. `name` is None for a recipe's
    [environment]."""
    where = "environment" if name is None else f"environments.{name}"
    values, problems = reader.read(where, table, KEYS)
    place = f"{where}.kind"
    if name == EnvironmentKind.NONE:
        words = "the name none means the node's own Python; choose another"
        problems.append(reader.error(place, f"{where}: {words}"))
    elif name is not None and not _NAME.fullmatch(name):
        problems.append(reader.error(place, f"{where}: a name has letters, digits and . _ + -"))
    kind = EnvironmentKind(values.pop("kind", EnvironmentKind.NONE))
    if "kind" in table and table["kind"] == kind:
        if (missing := _missing(kind, table)) is not None:
            problems.append(reader.error(place, f"{where}: {missing}"))
        for key, words in _misplaced(kind, table, values):
            problems.append(reader.error(f"{where}.{key}", f"{where}.{key} = {table[key]!r}: {words}"))
            values.pop(key, None)
    return Environment(kind=kind, name=name, origin=reader.at(place), **values), problems


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
    try:
        read = KEYS[key].kind(parts if key == "modules" else value)
    except WrongValueError as wrong:
        raise UserError(f"{place} {text!r}: {wrong.words}", wrong.hint) from None
    if kind is EnvironmentKind.APPTAINER and "://" in value:
        raise UserError(f"{place} {text!r}: {_PULL_FIRST}")
    return Environment(kind=kind, **{key: read})


def _missing(kind: EnvironmentKind, table: Mapping[str, Any]) -> str | None:
    """The key that an environment of this kind lacks, in words."""
    needed = _NEEDED.get(kind)
    if needed is None or table.get(needed):
        return None
    example = _EXAMPLES[kind]
    written = example.split(",") if needed == "modules" else example
    return f"kind {kind} needs {needed}, for example {needed} = {written!r}"


def _misplaced(
    kind: EnvironmentKind, table: Mapping[str, Any], values: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Keys that an environment of this kind cannot have, or not with this value, each with the reason."""
    for key, kinds in _KINDS_OF.items():
        if key in table and kind not in kinds:
            yield key, f"only {' and '.join(kinds)} have {key}; this is kind {kind}"
    path, image = values.get("path"), values.get("image")
    is_name = path is not None and kind is EnvironmentKind.CONDA and _NAME.fullmatch(path)
    if path is not None and not is_name and not _ROOTED.match(path):
        yield "path", _FROM_ROOT
    if image is not None and kind is EnvironmentKind.APPTAINER and "://" in image:
        yield "image", _PULL_FIRST
    elif image is not None and _is_path(kind, image) and not _ROOTED.match(image):
        yield "image", _FROM_ROOT


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


def _is_path(kind: EnvironmentKind, image: str) -> bool:
    """True if an image is a file: Pyxis also accepts names in a registry."""
    return (
        kind is not EnvironmentKind.PYXIS or image.startswith(("/", ".", "~", "$")) or image.endswith(".sqsh")
    )


def _spellings() -> str:
    return ", ".join(("none", *(f"{kind}={example}" for kind, example in _EXAMPLES.items())))
