"""The values that a person's own program takes from a configuration file: YAML or JSON.

Hydra's own file is changed by words on the command line. Any other file stays as it is: the run gets a copy
in its directory that differs in the changed values alone, comments and order as they were, and the one word
of the command that names the file names the copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coach.late import LateModule
from coach.launch.own_arguments import Form, OwnOption, option_of_text
from coach.launch.parameters import show
from coach.model.launching.launch import Scalar
from coach.node.secret_words import mask_text

if TYPE_CHECKING:
    import yaml
else:
    yaml = LateModule("yaml")

MAX_BYTES = 1 << 18
_MAX_DEPTH = 8
_MAX_VALUES = 200
_SUFFIXES = (".yaml", ".yml", ".json")
_HYDRA = re.compile(r"@hydra\.main\((?P<said>[^)]{0,400})\)")
_SAID = re.compile(r"\bconfig_(?P<what>path|name)\s*=\s*['\"](?P<value>[\w./-]{1,200})['\"]")
_PLAIN = re.compile(r"[\w.+:/@, -]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Spot:
    """A plain value in a file: where it stands, in characters, and as it was typed."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file that a command reads."""

    path: Path
    text: str
    place: int | None
    """Index of the word that names it; None: Hydra finds it by itself."""
    spots: Mapping[str, Spot]
    """`optimizer.params.lr` → its value."""

    @property
    def form(self) -> Form:
        return Form.PAIR if self.place is None else Form.CONFIG

    def options(self, usual_name: Callable[[str], str], named: Collection[str]) -> Iterator[OwnOption]:
        """The values as options. `usual_name` says what rules call a key.

        Of several keys with the same usual name none is guessed, unless `named` has it.
        """
        usual = Counter(usual_name(key) for key in self.spots)
        for key, spot in self.spots.items():
            if usual[usual_name(key)] == 1 or key in named:
                yield option_of_text(key, spot.text, self.form)

    def changed(self, values: Mapping[str, Scalar]) -> str:
        """The text with these values, by their keys."""
        text = self.text
        for key in sorted(values, key=lambda key: -self.spots[key].start):
            spot = self.spots[key]
            text = text[: spot.start] + _spelt(values[key]) + text[spot.end :]
        return text

    def word_for(self, words: Sequence[str], copy: str) -> str:
        """The word that names the file, naming the copy instead."""
        assert self.place is not None
        option, joint, _ = words[self.place].partition("=")
        return f"{option}={copy}" if joint else copy


def find_config(
    words: Sequence[str], directory: Path, program: Path | None, source: str | None
) -> ConfigFile | None:
    """The one configuration file of a command, where coach can read and change it. None where it names none
    or several, or where a copy in another directory would mean something else."""
    hydra = _hydra_file(program, source) if program is not None and source is not None else None
    if hydra is not None:
        return _read(hydra, None)
    named = [
        (index, Path(directory, word.rpartition("=")[2] if word.startswith("-") else word))
        for index, word in enumerate(words)
        if word.endswith(_SUFFIXES)
    ]
    found = [(index, path) for index, path in named if path.is_file()]
    if len(found) != 1:
        return None
    config = _read(found[0][1], found[0][0])
    return None if config is None or _names_neighbours(config) else config


def _hydra_file(program: Path, source: str) -> Path | None:
    decorator = _HYDRA.search(source)
    if decorator is None:
        return None
    said = {each["what"]: each["value"] for each in _SAID.finditer(decorator["said"])}
    if "name" not in said:
        return None
    name = said["name"] if said["name"].endswith(_SUFFIXES) else f"{said['name']}.yaml"
    path = program.parent / said.get("path", ".") / name
    return path if path.is_file() else None


def _read(path: Path, place: int | None) -> ConfigFile | None:
    """None for a file that cannot be read as what its name says, or that holds a secret."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if _CONTROL.search(text) or mask_text(text) != text:
        return None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    spots: dict[str, Spot] = {}
    _walk(root, "", 0, spots)
    return ConfigFile(path, text, place, MappingProxyType(spots)) if spots else None


def _walk(node: Any, prefix: str, depth: int, spots: dict[str, Spot]) -> None:
    if not isinstance(node, yaml.MappingNode) or depth > _MAX_DEPTH:
        return
    for key, value in node.value:
        if len(spots) >= _MAX_VALUES:
            return
        name = f"{prefix}{key.value}" if isinstance(key, yaml.ScalarNode) else None
        if name is None or not re.fullmatch(r"[A-Za-z_][\w.-]{0,100}", name):
            continue
        if isinstance(value, yaml.ScalarNode) and _PLAIN.fullmatch(value.value):
            quote = 0 if value.style is None else 1
            spots.setdefault(
                name, Spot(value.start_mark.index + quote, value.end_mark.index - quote, value.value)
            )
        _walk(value, f"{name}.", depth + 1, spots)


def _spelt(value: Scalar) -> str:
    """YAML 1.1 takes `1e-05` for text: a number needs its point there."""
    text = show(value)
    head, exponent, tail = text.partition("e")
    is_short = isinstance(value, float) and exponent and "." not in head
    return f"{head}.0e{tail}" if is_short else text


def _names_neighbours(config: ConfigFile) -> bool:
    """True if a value is a path that a reader may look for beside the file itself."""
    for word in re.findall(r"[\w./-]*/[\w./-]+", config.text):
        if word.startswith(("./", "../")) or (
            not word.startswith("/") and (config.path.parent / word).exists()
        ):
            return True
    return False
