"""The values of the config files that an own program's command line names, as its parameters.

A person's file is never written. A parameter whose value stands in a file is changed on the command line, if
the program takes it there: as Hydra's `key=value`, or by an option that has the key's name. A launch that
needs another value of any other key is refused with the line of the file to change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coach.analysis.jobs.batch_script import PARAMETER_OF_OPTION
from coach.late import LateModule
from coach.launch.own_arguments import (
    PLAIN,
    ConfigValue,
    Form,
    OwnOption,
    as_known,
    is_finite,
    option_key,
    typed,
    value_options,
    with_values,
)
from coach.launch.parameters import Parameter, show
from coach.model.launching.launch import Scalar
from coach.model.toml_lines import KeyPath, key_lines
from coach.model.toml_text import parse_toml
from coach.node.secret_words import mask_command, mask_text
from coach.runs import expand_home
from coach.trusted import read_trusted

if TYPE_CHECKING:
    import yaml
else:
    yaml = LateModule("yaml")

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_MAX_BYTES = 64 << 10
"""A longer file holds data. PyYAML reads about 200 KB each second."""
_MAX_DEPTH = 100
"""The most nested brackets allowed in YAML: PyYAML checks all open brackets at each word, and 300 took 1.4 s.
"""
_BRACKETS = re.compile(r"[\[\]{}]")
_KEY = re.compile(r"[\w-]+")
_OPTION = re.compile(
    r"-c|-{0,2}(?:[\w.-]*[_.-])?(?:config|cfg|conf|deepspeed|hparams|params)(?:[_-](?:file|path))?"
)
_PAIR = re.compile(r"(?P<option>-{0,2}[A-Za-z][\w.-]*)=(?P<file>.+)", re.ASCII | re.DOTALL)
_HYDRA = re.compile(r"@hydra\.main\([^)]{0,400}\)")
_HYDRA_SAYS = re.compile(r"\bconfig_(?P<what>path|name)\s*=\s*['\"](?P<value>[\w./-]{1,200})['\"]")
_HYDRA_OPTIONS = MappingProxyType(
    {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}
)
_MAX_KEYS = 100
"""Of files with more values, only those with a name that rules use become parameters, because a form shows
all parameters."""
_USUAL = MappingProxyType(
    {
        **{key: name for key, name in PARAMETER_OF_OPTION.items() if name != "nproc_per_node"},
        **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "num_train_epochs"), "epochs"),
        "gradient_accumulation": "gradient_accumulation",
        "activation_checkpointing": "activation_checkpointing",
        "warmup_steps": "warmup_steps",
        "lr0": "lr",
        "samples_per_gpu": "batch_size",
        "workers_per_gpu": "num_workers",
    }
)
_TEXTS = frozenset({"precision"})
_NOT_TRAINING = re.compile(
    r"(?:^|[._-])(?:e?val|evaluation|validation|test|testing|predict|inference)(?:$|[._-])"
)


def read_values(path: Path, text: str) -> tuple[ConfigValue, ...]:
    """The values of a YAML, JSON or TOML file in the order of the text, each with the line where it stands.
    Left out are those that coach cannot show: long texts, secrets, numbers that are not finite.

    Raises ValueError for text that is not in the format of the path's suffix, or is not a mapping.
    """
    try:
        found = list(_toml_values(text) if path.suffix == ".toml" else _yaml_values(text, path.suffix))
    except (yaml.YAMLError, RecursionError, IndexError) as error:
        raise ValueError(str(error)) from None
    values = (
        ConfigValue(path, line, ".".join(keys), value)
        for keys, value, line in found
        if value is not None and all(map(_KEY.fullmatch, keys))
    )
    last = {each.name: each for each in values if _is_shown(each.name, each.value)}  # a key may occur twice
    return tuple(last.values())


def _is_shown(name: str, value: Scalar) -> bool:
    if not is_finite(value) or (isinstance(value, str) and not PLAIN.fullmatch(value)):
        return False
    word = f"--{name}={show(value)}"
    return mask_command([word]) == [word] and mask_text(word) == word


def _yaml_values(text: str, suffix: str) -> Iterator[tuple[KeyPath, Scalar | None, int]]:
    """Keys, value and line. YAML includes JSON, except for tabs as blanks. An aliased value is found once."""
    if suffix == ".json":
        text = text.replace("\t", " ")
    depths = accumulate(1 if each in "[{" else -1 for each in _BRACKETS.findall(text))
    if max(depths, default=0) > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} brackets within each other")
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(top, yaml.MappingNode):
        raise ValueError("no mapping")
    waiting: list[tuple[KeyPath, yaml.Node]] = [((), top)]
    seen: set[int] = set()
    while waiting:
        keys, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield keys, _yaml_scalar(node), node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            waiting += [((*keys, str(key.value)), held) for key, held in reversed(node.value)]
        else:
            waiting += [((*keys, str(index)), held) for index, held in reversed([*enumerate(node.value)])]


def _yaml_scalar(node: yaml.ScalarNode) -> Scalar | None:
    """The value, or None for a type that a parameter cannot have."""
    text, kind = str(node.value), node.tag.rpartition(":")[2]
    if node.style is not None:
        return text
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    return typed(text)[1] if kind in ("int", "float", "str") else None  # to YAML 1.1, 1e-4 is text


def _toml_values(text: str) -> Iterator[tuple[KeyPath, Scalar, int]]:
    """Keys, value and line. The values in lists are left out."""
    waiting: list[tuple[KeyPath, Any]] = [((), parse_toml(text))]
    lines = key_lines(text)
    while waiting:
        keys, held = waiting.pop()
        if isinstance(held, dict):
            waiting += [((*keys, key), each) for key, each in reversed(held.items())]
        elif isinstance(held, str | int | float):
            # A key in an inline table has the line of the table.
            places = (lines.get(keys[:length]) for length in range(len(keys), 0, -1))
            yield keys, held, next(filter(None, places), 1)


def named_values(
    words: Sequence[str], options: Iterable[OwnOption], directory: Path, said: Mapping[str, Any]
) -> tuple[ConfigValue, ...]:
    """The values of the files that the command line names, or that an option has as its default. `said` are
    values of the options that the launch sets. A file that cannot be read is skipped: the program itself
    reports it."""
    texts = [each for each in options if each.parameter.type == "str"]
    placed = [each for each in texts if each.place is not None]
    flags = {each.option for each in options if each.form is Form.FLAG}
    named = [
        *_named_files(with_values(words, placed, said), flags),
        *(
            (each.option, str(said.get(each.parameter.name, each.parameter.default)))
            for each in texts
            if each.place is None
        ),
    ]
    files = dict.fromkeys(file for option, file in named if not option or _OPTION.fullmatch(option))
    return tuple(value for file in files for value in _values_in(directory, file))


def _named_files(words: Sequence[str], flags: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each word that may name a file, behind the option whose value it is; empty if it stands alone."""
    for before, word in pairwise(words):
        if (pair := _PAIR.fullmatch(word)) is not None:
            yield pair["option"], pair["file"]
        else:
            is_value = before.startswith("-") and "=" not in before and before not in flags
            yield before if is_value else "", word


def hydra_values(program: Path, source: str, words: Sequence[str]) -> tuple[ConfigValue, ...]:
    """The values of the file that a Hydra application names in its decorator, or `words` in its place. Those
    of the files in its `defaults` are not read."""
    decorator = _HYDRA.search(source)
    if decorator is None:
        return ()
    said = {each["what"]: each["value"] for each in _HYDRA_SAYS.finditer(decorator[0])}
    for word, behind in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if option in _HYDRA_OPTIONS:
            said[_HYDRA_OPTIONS[option]] = value if equals else behind
    name = said.get("name", "")
    return _values_in(
        program.parent / said.get("path", "."), name if name.endswith(SUFFIXES) else f"{name}.yaml"
    )


def _values_in(directory: Path, name: str) -> tuple[ConfigValue, ...]:
    try:
        path = directory / expand_home(name)
        if path.suffix not in SUFFIXES:
            return ()
        data = read_trusted(path, owner=None, follows_links=True, limit=_MAX_BYTES)
        return read_values(path, data.decode("utf-8"))
    except (OSError, ValueError):
        return ()


def as_options(values: Iterable[ConfigValue], options: Iterable[OwnOption], source: str) -> list[OwnOption]:
    """The values of files as options of a program with the text `source`: in the form of its own option with
    the key's name, if it takes one."""
    takers = {key: (option, Form.APART) for key, option in value_options(source).items()}
    flags = {option_key(each.option): (each.option, Form.FLAG) for each in options if each.form is Form.FLAG}
    found = []
    for value in values:
        takes = flags if value.value is False else takers  # no word turns a flag off
        option, form = takes.get(option_key(value.name), (value.name, Form.FILE))
        found.append(option_of(value, option, form))
    return found


def option_of(value: ConfigValue, option: str, form: Form) -> OwnOption:
    help_ = f"What your program reads as {value.name} in {value.file.name}."
    parameter = Parameter(value.name, type(value.value).__name__, value.value, help_)
    return OwnOption(parameter, option, form, None, value)


def merged(
    options: Sequence[OwnOption], held: Sequence[OwnOption], named: Mapping[str, str]
) -> tuple[tuple[OwnOption, ...], Mapping[str, tuple[str, ...]]]:
    """The options of a program, and the values of its config files (`held`) that no word of its command line
    sets. `named`: the name that rules and fixes use for a parameter → the program's name.

    The second result has each parameter that several of them could mean: its name → those keys and options.
    """
    chosen = {each.parameter.name: each for each in options if each.place is not None}
    spelt = {option_key(each.option) for each in chosen.values()}
    held = [each for each in held if option_key(each.option) not in spelt]
    candidates = _candidates(options, held, named)
    undecided = {name: tuple(map(_place_of, found)) for name, found in candidates.items() if len(found) > 1}
    chosen |= {name: found[0] for name, found in candidates.items() if len(found) == 1}
    for each in held if len(held) <= _MAX_KEYS else ():
        if each.parameter.name not in undecided and each not in chosen.values():
            chosen.setdefault(each.parameter.name, each)
    known = (replace(each, parameter=as_known(each.parameter, name)) for name, each in chosen.items())
    return tuple(known), undecided


def _candidates(
    options: Sequence[OwnOption], held: Sequence[OwnOption], named: Mapping[str, str]
) -> dict[str, list[OwnOption]]:
    """Each parameter that no word sets → the values of files and the options that could be it. An option with
    the name of a key is left out: the file holds its value."""
    keys = {option_key(each.option) for each in held}
    could_be = [(_usual_name(each.parameter.name, each.parameter.default, named), each) for each in held]
    could_be += [(each.parameter.name, each) for each in options if option_key(each.option) not in keys]
    candidates: dict[str, list[OwnOption]] = {}
    for name, each in could_be:
        if name is not None:
            candidates.setdefault(name, []).append(each)
    for each in options:
        if each.place is not None:
            candidates.pop(each.parameter.name, None)
    return candidates


def _place_of(option: OwnOption) -> str:
    return f"{option.held.file.name}: {option.held.name}" if option.held is not None else option.option


def _usual_name(key: str, value: Scalar, named: Mapping[str, str]) -> str | None:
    """The rules' name for a value: the one in `named`, else that of a key that is a framework's word for it.
    None if it is unknown or belongs to an evaluation."""
    for name, option in named.items():
        if option == key:
            return name
    key = key.replace("-", "_")
    usual = _USUAL.get(key) or _USUAL.get(key.rpartition(".")[2])
    is_other = usual in named or _NOT_TRAINING.search(key) or (isinstance(value, str) and usual not in _TEXTS)
    return None if is_other else usual
