"""The parameters of a person's own program, read from its command line and its argparse declarations.

The program is never imported or run: its words are read, and its text is parsed as a syntax tree. A parameter
with a framework's name gets the name that coach's rules and fixes use, so a fix for `batch_size` changes
`--per_device_train_batch_size`. A word with an unchanged value is passed on as it was typed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from coach.analysis.jobs.batch_script import PARAMETER_OF_OPTION, PRECISIONS, spelt_precision
from coach.launch.parameters import Parameter, show
from coach.launch.python_source import parse_source
from coach.model.launching.launch import Scalar
from coach.node.secret_words import mask_command

_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.ASCII | re.DOTALL)
_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w.-]*)=(.*)", re.ASCII | re.DOTALL)
"""Hydra's form of a setting: `key=value`."""
_INT = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLS = {"true": True, "false": False}
_TYPES = frozenset({"int", "float", "str"})
_LARGEST = 1 << 63
_NO_SINGLE_VALUE = frozenset({"action", "nargs", "is_flag", "multiple", "count"})
"""Keyword arguments that make an option take no value, or several."""
PLAIN = re.compile(r"[\w.+:/@, -]{1,200}")
"""A value that coach can show and set again. Any other value stays as it is."""


class Form(StrEnum):
    """The form that an option and its value have on a command line."""

    APART = "--lr 0.1"
    JOINT = "--lr=0.1"
    PAIR = "lr=0.1"
    FLAG = "--amp"
    FILE = "lr: 0.1"
    """In a config file; no word of the command line changes it."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One value of a config file."""

    file: Path
    line: int
    """Counted from 1."""
    name: str
    """Its keys from the top of the file, joined by dots: `optim.lr`."""
    value: Scalar

    def change(self, value: Scalar) -> str:
        """The change that the file's owner has to make: `conf.yaml:4: train.batch_size: 32 → 16`."""
        old = show(self.value)
        new = spelt_like(old, value)
        if isinstance(value, float) and "." not in new:
            new = new.replace("e", ".0e")  # YAML 1.1 reads 5e-05 as text
        return f"{self.file}:{self.line}: {self.name}: {old} → {new}"


@dataclass(frozen=True, slots=True)
class OwnOption:
    """One parameter, and the place on the command line that sets it."""

    parameter: Parameter
    """Its default is the value that the program gets if no other is asked for."""
    option: str
    """The program's name for it: `--learning_rate`, or `optimizer.lr` for Hydra."""
    form: Form
    place: int | None
    """Index of the option among the words; None: only the program's text or a config file declares it."""
    held: ConfigValue | None = None
    """The value that it has in a config file."""


def read_options(
    words: Sequence[str], source: str | None, named: Mapping[str, str] = MappingProxyType({})
) -> tuple[OwnOption, ...]:
    """The parameters of a command. `source` is the text of its Python program, if it has one. `named`:
    the name that rules and fixes use for a parameter → the program's name."""
    declared = tuple(_declared(source)) if source is not None else ()
    forms = {option_key(each.option): each.form for each in declared}
    said = {option_key(each.option): each for each in _said(words, _first_argument(words), forms)}
    found = [*said.values(), *declared]  # of an option that is said twice, the last value counts
    texts = {option_key(each.option): each.parameter for each in declared}
    names = {option_key(option): name for name, option in named.items()}
    options: dict[str, OwnOption] = {}
    spelt: set[str] = set()
    for each in found:
        key = option_key(each.option)
        if key in spelt:
            continue  # the command line sets this option already
        spelt.add(key)
        each = _as_declared(each, texts.get(key))
        name = names.get(key) or _name(each.option, {**options, **dict.fromkeys(named, each)})
        if name is not None:
            options[name] = _called(each, name)
    return tuple(options.values())


def _as_declared(option: OwnOption, declared: Parameter | None) -> OwnOption:
    """An option on the command line, with the help and the choices that the program declares for it."""
    if declared is None or option.parameter.help:
        return option
    choices = declared.choices if declared.type == option.parameter.type else ()
    return replace(option, parameter=replace(option.parameter, help=declared.help, choices=choices))


def with_values(
    words: Sequence[str], options: Iterable[OwnOption], values: Mapping[str, Scalar]
) -> tuple[str, ...]:
    """The command with new values for its parameters. An unchanged word stays as it was typed."""
    changed: list[str | None] = list(words)
    behind: list[str] = []
    for each in options:
        value = values.get(each.parameter.name, each.parameter.default)
        if value == each.parameter.default:
            continue
        old = words[each.place] if each.place is not None else ""
        if each.form is Form.FLAG:
            _set_flag(each, value, changed, behind)
        elif each.place is None:
            text = show(value) if each.held is None else spelt_like(show(each.held.value), value)
            behind += [f"{each.option}={text}"] if each.form is Form.PAIR else [each.option, text]
        elif each.form is Form.APART:
            changed[each.place + 1] = spelt_like(words[each.place + 1], value)
        else:
            head, _, before = old.partition("=")
            changed[each.place] = f"{head}={spelt_like(before, value)}"
    return (*(word for word in changed if word is not None), *behind)


def _set_flag(option: OwnOption, value: Scalar, changed: list[str | None], behind: list[str]) -> None:
    if option.place is not None and value is False:
        changed[option.place] = None
    elif option.place is None and value is True:
        behind.append(option.option)


def spelt_like(before: str, value: Scalar) -> str:
    """A new value in the spelling of the old one: `16-mixed` becomes `bf16-mixed`, `True` becomes `False`."""
    if isinstance(value, bool):
        return str(value) if before[:1].isupper() else show(value)
    return spelt_precision(before, value) if isinstance(value, str) else show(value)


def _first_argument(words: Sequence[str]) -> int:
    """Index of the program's first own argument: after the script, after `-m MODULE`, else after the first
    word."""
    for index, word in enumerate(words):
        if word.endswith(".py"):
            return index + 1
        if word == "-m" and index + 1 < len(words) and not words[index + 1].startswith("torch.distributed"):
            return index + 2
    return 1


def _said(words: Sequence[str], start: int, forms: Mapping[str, Form]) -> Iterator[OwnOption]:
    """The options on the command line. `forms` shows, for a declared option, if a value follows it."""
    masked = mask_command(list(words))
    index = start
    while index < len(words):
        word = words[index]
        pair, option = _PAIR.fullmatch(word), _OPTION.fullmatch(word)
        values = _values_behind(words, index + 1, forms.get(option_key(word)))
        if masked[index : index + 2] != list(words[index : index + 2]):
            pass  # a secret is never a parameter
        elif pair is not None and PLAIN.fullmatch(pair[2]):
            yield _option(pair[1], pair[2], Form.PAIR, index)
        elif option is not None and option[2] is not None:
            if PLAIN.fullmatch(option[2]):
                yield _option(word.partition("=")[0], option[2], Form.JOINT, index)
        elif option is not None and word.startswith("--"):
            if not values:
                yield OwnOption(Parameter(option[1], "bool", True, ""), word, Form.FLAG, index)
            elif len(values) == 1 and PLAIN.fullmatch(values[0]):
                yield _option(word, values[0], Form.APART, index)
        index += 1 + (len(values) if option is not None and option[2] is None else 0)


def _values_behind(words: Sequence[str], index: int, form: Form | None) -> list[str]:
    """The words that follow an option up to the next option; a declared option takes only its own value."""
    values: list[str] = []
    for word in words[index:]:
        is_option = word.startswith("-") and not _FLOAT.fullmatch(word)
        if is_option or _PAIR.fullmatch(word):
            break
        values.append(word)
    return values if form is None else values[: form is Form.APART]


def _option(option: str, text: str, form: Form, place: int | None) -> OwnOption:
    return OwnOption(Parameter(option, *typed(text), ""), option, form, place)


def typed(text: str) -> tuple[str, Scalar]:
    """The type of a typed value, and the value in that type."""
    if _INT.fullmatch(text):
        return "int", int(text)
    if _FLOAT.fullmatch(text) and is_finite(float(text)):
        return "float", float(text)
    if text.lower() in _BOOLS:
        return "bool", _BOOLS[text.lower()]
    return "str", text


def is_finite(value: Scalar) -> bool:
    """False for a number that is infinite or NaN, or would be as a float: run.json could not hold it."""
    return isinstance(value, str) or abs(value) <= sys.float_info.max


def _declarations(source: str) -> Iterator[tuple[str, Mapping[str, ast.expr]]]:
    """The long name and the keyword arguments of each option that the text declares to argparse or click."""
    try:
        tree = parse_source(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = map(_literal, node.args) if node.func.attr in ("add_argument", "option") else ()
            option = next((name for name in names if isinstance(name, str) and name.startswith("--")), None)
            if option is not None:
                yield option, {each.arg: each.value for each in node.keywords if each.arg is not None}


def value_options(source: str) -> dict[str, str]:
    """Key → name of each declared option that takes one value, with or without a default."""
    return {
        option_key(option): option for option, said in _declarations(source) if _takes_value(option, said)
    }


def _takes_value(option: str, said: Mapping[str, ast.expr]) -> bool:
    return "/" not in option and _NO_SINGLE_VALUE.isdisjoint(said)


def _declared(source: str) -> Iterator[OwnOption]:
    """The options that are declared with literal defaults."""
    for option, said in _declarations(source):
        help_ = _literal(said.get("help"))
        text = " ".join(help_.split()) if isinstance(help_, str) else ""
        if _literal(said.get("action")) == "store_true" or _literal(said.get("is_flag")) is True:
            yield OwnOption(Parameter(option, "bool", False, text), option, Form.FLAG, None)
        elif _takes_value(option, said):
            default = _literal(said.get("default"))
            kind = _type_of(said.get("type"), default)
            value = _converted(kind, default)
            if kind is not None and value is not None:
                yield _with_choices(option, kind, value, text, said)


def _with_choices(
    option: str, kind: str, value: Scalar, text: str, said: Mapping[str, ast.expr]
) -> OwnOption:
    choices = _literal(said.get("choices"))
    some = choices if isinstance(choices, list | tuple) else ()
    allowed = tuple(
        each for each in some if isinstance(each, str | int | float) and type(each) is type(value)
    )
    return OwnOption(Parameter(option, kind, value, text, choices=allowed), option, Form.APART, None)


def _type_of(said: ast.expr | None, default: object) -> str | None:
    """The type that argparse gives the value: the named type, else text. None for a conversion function of
    the program."""
    if said is None:
        return "str" if isinstance(default, str) else None
    return said.id if isinstance(said, ast.Name) and said.id in _TYPES else None


def _converted(kind: str | None, default: object) -> Scalar | None:
    if kind == "float" and isinstance(default, int):
        return float(default) if abs(default) <= _LARGEST else None
    if not isinstance(default, str | int | float) or type(default).__name__ != kind:
        return None
    return default if is_finite(default) else None


def _literal(node: ast.expr | None) -> object:
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None


def option_key(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _name(option: str, taken: Mapping[str, OwnOption]) -> str | None:
    """coach's name for the parameter: the rules' name if they have one, else the program's."""
    key = option_key(option)
    usual = PARAMETER_OF_OPTION.get(key) or PARAMETER_OF_OPTION.get(key.rpartition(".")[2])
    return next((name for name in (usual, key) if name is not None and name not in taken), None)


def _called(option: OwnOption, name: str) -> OwnOption:
    before = option.parameter
    help_ = before.help or f"Your program's {option.option}."
    told = help_ if option_key(option.option) == name else f"{help_} ({option.option})"
    parameter = as_known(replace(before, help=told), name)
    return OwnOption(parameter, option.option, option.form, option.place)


def as_known(parameter: Parameter, name: str) -> Parameter:
    """The parameter with the name, type and choices that rules use for it."""
    kind, default = parameter.type, parameter.default
    if name == "lr" and kind == "int":
        kind, default = "float", float(default)
    if name == "precision" and not isinstance(default, bool):
        kind, default = "str", PRECISIONS.get(str(default), str(default))
    return replace(parameter, name=name, type=kind, default=default)
