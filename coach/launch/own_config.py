"""The config files that an own program's command line names: their values as parameters, and a changed copy.

A person's file is never written. If values differ, the run gets a copy in its own directory, and the copy's
path replaces the file's on the command line. If a copy would not mean the same, the launch is refused, and
the refusal shows the change as a diff.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from coach.analysis.jobs.batch_script import PARAMETER_OF_OPTION
from coach.launch import config_text
from coach.launch.config_text import ConfigValue, read_values, with_changes
from coach.launch.own_arguments import PLAIN, Form, OwnOption, as_known, option_key, with_values
from coach.launch.parameters import Parameter, show
from coach.model.errors import UserError
from coach.model.launching.launch import ConfigCopy, Scalar
from coach.node.secret_words import mask_command, mask_text
from coach.runs import expand_home
from coach.trusted import read_trusted

FOLDER = "config"
"""The folder of a run that holds its changed copies."""
MARKER = "COACH_CONFIG_FILE"
"""The line that ends a copy's text in the script."""
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
"""Of a file with more values, only those with a name that rules use become parameters, because a form shows
all parameters."""
_USUAL = MappingProxyType(
    {
        **{key: name for key, name in PARAMETER_OF_OPTION.items() if name != "nproc_per_node"},
        **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "num_train_epochs"), "epochs"),
        "gradient_accumulation": "gradient_accumulation",
        "activation_checkpointing": "activation_checkpointing",
        "warmup_steps": "warmup_steps",
    }
)
_TEXTS = frozenset({"precision"})
_NOT_TRAINING = re.compile(
    r"(?:^|[._-])(?:e?val|evaluation|validation|test|testing|predict|inference)(?:$|[._-])"
)
_LIKELY = MappingProxyType(
    {
        "batch_size": re.compile(
            r"(?:[a-z]+_)*(?:batch|bs|batch_?size)(?:_per_[a-z]+)?|(?:samples|imgs|images)_per_(?:gpu|device)"
        ),
        "gradient_accumulation": re.compile(r"(?:[a-z]+_)*accum[a-z]*(?:_[a-z]+)*"),
        "num_workers": re.compile(r"(?:[a-z]+_)*workers(?:_per_[a-z]+)?"),
        "lr": re.compile(r"(?:[a-z]+_)*(?:lr0?|learning_?rate)"),
        "warmup_steps": re.compile(r"(?:[a-z]+_)*warm_?up(?:_steps|_iters)?"),
        "max_steps": re.compile(r"(?:max|total|num|train)_?(?:steps|iters|iterations)"),
    }
)
"""Parameter → keys that probably mean it, such as mmengine's `samples_per_gpu`, `train_bs`, `lr0`."""
_ALWAYS_BASES = frozenset({"_base_", "_BASE_", "defaults", "extends"})
_BASES = frozenset({"base", "include", "includes", "inherit", "imports"})
"""Keys by which a config names other configs, relative to its own directory."""
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
_IS_FILE = re.compile(r"[\w./-]+\.(?:ya?ml|json|toml|py)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file that the command line names, or that an option has as its default."""

    path: Path
    place: int | None
    """Index of the word that names it; None: it is the default of an option in the program's text."""
    option: str
    """The option that names it; empty if the word stands alone."""
    text: str
    values: tuple[ConfigValue, ...]


_Found = tuple[ConfigFile, ConfigValue]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One value of a config file as a parameter."""

    parameter: Parameter
    file: ConfigFile
    value: ConfigValue


@dataclass(frozen=True, slots=True)
class OwnConfig:
    """Parameters that the config files of a program add to those of its command line."""

    files: tuple[ConfigFile, ...] = ()
    keys: tuple[ConfigKey, ...] = ()
    undecided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameter → the keys that could each mean it; coach chose none."""

    def lines(self) -> tuple[str, ...]:
        """Lines of the plan about the parameters that coach did not guess."""
        return tuple(
            f"{name} is not guessed: {' and '.join(places)} could be it; "
            f"`parameters = {{ {name} = … }}` in coach.toml decides"
            for name, places in self.undecided.items()
        )


def read_config(
    words: Sequence[str], options: Sequence[OwnOption], directory: Path, named: Mapping[str, str]
) -> OwnConfig:
    """The parameters in config files. `named`: the name that rules and fixes use for a parameter → the
    program's name. A file that cannot be read is skipped: the program itself reports it."""
    return config_of_files(tuple(_files(words, options, directory)), options, named)


def config_of_files(
    files: tuple[ConfigFile, ...], options: Sequence[OwnOption], named: Mapping[str, str]
) -> OwnConfig:
    """The parameters in these files that the program's options do not set."""
    found = [(file, value) for file in files for value in filter(_is_parameter, file.values)]
    said = {each.parameter.name for each in options if each.place is not None}
    declared = _declared(options, found)
    keys: list[ConfigKey] = []
    undecided: dict[str, tuple[str, ...]] = {}
    for name, candidates in _candidates(found, named).items():
        rivals = () if name in named else tuple(filter(None, [declared.get(name)]))
        if name in said:
            continue  # the command line sets it, and wins
        if len(candidates) == 1 and not rivals:
            keys.append(_key(name, *candidates[0]))
        else:
            places = (f"{file.path.name}: {value.name}" for file, value in candidates)
            undecided[name] = (*places, *rivals)
    if len(found) <= _MAX_KEYS:
        keys += _others(found, keys, {*said, *declared, *undecided})
    return OwnConfig(files, tuple(keys), MappingProxyType(undecided))


def hydra_options(
    program: Path, source: str, words: Sequence[str], options: Sequence[OwnOption], named: Mapping[str, str]
) -> tuple[OwnOption, ...]:
    """The values of the file that a Hydra application names in its decorator, or `words` in its place. A word
    on the command line changes each. Values of the files in its `defaults` are not read."""
    decorator = _HYDRA.search(source)
    if decorator is None:
        return ()
    said = {each["what"]: each["value"] for each in _HYDRA_SAYS.finditer(decorator[0])}
    said |= _hydra_words(words)
    if "name" not in said:
        return ()
    folder = program.parent / said.get("path", ".")
    name = said["name"] if said["name"].endswith(config_text.SUFFIXES) else f"{said['name']}.yaml"
    files = tuple(_file(name, None, "", folder))
    keys = config_of_files(files, options, named).keys
    return tuple(OwnOption(key.parameter, key.value.name, Form.PAIR, None) for key in keys)


def _hydra_words(words: Sequence[str]) -> dict[str, str]:
    """`name` and `path` of the config, as far as Hydra's own options set them."""
    said: dict[str, str] = {}
    for word, behind in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if option in _HYDRA_OPTIONS:
            said[_HYDRA_OPTIONS[option]] = value if equals else behind
    return said


def _declared(options: Iterable[OwnOption], found: Iterable[_Found]) -> dict[str, str]:
    """Parameter → the option that the program's text declares for it. An option named like a key of a file is
    left out: the file holds its value."""
    spelt = {value.name.replace("-", "_") for _, value in found}
    return {
        each.parameter.name: each.option
        for each in options
        if each.place is None and option_key(each.option) not in spelt
    }


def _others(found: Iterable[_Found], keys: Iterable[ConfigKey], names: Collection[str]) -> list[ConfigKey]:
    """The values for which rules have no name, by their own keys."""
    taken = {(key.file.path, key.value.path) for key in keys}
    used = {*names, *(key.parameter.name for key in keys)}
    others: list[ConfigKey] = []
    for file, value in found:
        if (file.path, value.path) not in taken and value.name not in used:
            used.add(value.name)
            others.append(_key(value.name, file, value))
    return others


def _files(words: Sequence[str], options: Sequence[OwnOption], directory: Path) -> Iterator[ConfigFile]:
    masked = mask_command(list(words))
    flags = {each.option for each in options if each.form is Form.FLAG}
    for index, word in enumerate(words[1:], start=1):
        pair, before = _PAIR.fullmatch(word), words[index - 1]
        file = pair["file"] if pair is not None else word
        option = pair["option"] if pair is not None else before if before.startswith("-") else ""
        if pair is None and ("=" in option or option in flags):
            option = ""  # the option takes no value, or has it already
        if masked[index] == word:
            yield from _file(file, index, option, directory)
    for each in options:
        if each.place is None and isinstance(each.parameter.default, str):
            yield from _file(each.parameter.default, None, each.option, directory)


def _file(name: str, place: int | None, option: str, directory: Path) -> Iterator[ConfigFile]:
    path = Path(directory, expand_home(name)) if not name.startswith("-") and "\0" not in name else None
    if path is None or path.suffix not in config_text.SUFFIXES:
        return
    if option and not _OPTION.fullmatch(option):
        return
    try:
        data = read_trusted(path, owner=None, follows_links=True, limit=config_text.MAX_BYTES)
        text = data.decode("utf-8")
        if "\0" not in text:
            yield ConfigFile(path, place, option, text, read_values(text, path.suffix))
    except (OSError, ValueError):
        return


def _is_parameter(value: ConfigValue) -> bool:
    is_plain = not isinstance(value.value, str) or PLAIN.fullmatch(value.value) is not None
    is_key = all(isinstance(key, str) and re.fullmatch(r"[\w-]+", key) for key in value.path)
    return is_plain and is_key and not _is_secret(value)


def _is_secret(value: ConfigValue) -> bool:
    text = show(value.value)
    return mask_command([f"--{value.name}={text}"]) != [f"--{value.name}={text}"] or mask_text(text) != text


def _candidates(found: Iterable[_Found], named: Mapping[str, str]) -> dict[str, list[_Found]]:
    """Parameter, by the rules' name → the values that could be it."""
    candidates: dict[str, list[_Found]] = {}
    paths = {path: name for name, path in named.items()}
    for file, value in found:
        name = paths.get(value.name) or usual_name(value)
        if name is not None and (name not in named or named[name] == value.name):
            candidates.setdefault(name, []).append((file, value))
    return candidates


def usual_name(value: ConfigValue) -> str | None:
    """The rules' name for the value, if its key is a framework's word for it. None if it is unknown or
    belongs to an evaluation."""
    key = value.name.replace("-", "_")
    name = _USUAL.get(key) or _USUAL.get(key.rpartition(".")[2])
    if name is None or _NOT_TRAINING.search(key) or (isinstance(value.value, str) and name not in _TEXTS):
        return None
    return name


def likely_keys(config: OwnConfig, known: Collection[str]) -> dict[str, ConfigKey]:
    """Parameter that is not in `known` → the only numeric key that probably means it. With several such keys
    none is taken."""
    likely: dict[str, list[_Found]] = {}
    for file in config.files:
        for value in filter(_is_parameter, file.values):
            name = usual_name(value) or _likely_name(value)
            if name is None or name in known or name in config.undecided:
                continue
            if type(value.value) in (int, float):
                likely.setdefault(name, []).append((file, value))
    return {name: _key(name, *found[0]) for name, found in likely.items() if len(found) == 1}


def _likely_name(value: ConfigValue) -> str | None:
    key = str(value.path[-1]).lower().replace("-", "_")
    names = (name for name, pattern in _LIKELY.items() if pattern.fullmatch(key))
    return None if _NOT_TRAINING.search(value.name) else next(names, None)


def _key(name: str, file: ConfigFile, value: ConfigValue) -> ConfigKey:
    kind = type(value.value).__name__
    text = f"{value.name} in {file.path.name}"
    parameter = Parameter(name, kind, value.value, f"What your program reads as {text}.")
    return ConfigKey(as_known(parameter, name), file, value)


def changed_copies(
    config: OwnConfig, values: Mapping[str, Scalar], directory: Path
) -> tuple[tuple[ConfigFile, ConfigCopy], ...]:
    """A copy of each file in which a requested value differs. Raises UserError, with a diff of the file, if a
    copy would not mean the same."""
    copies: list[tuple[ConfigFile, ConfigCopy]] = []
    for file in dict.fromkeys(key.file for key in config.keys):
        keys = [key for key in config.keys if key.file is file and _differs(key, values)]
        if keys:
            changes = {key.value.path: values[key.parameter.name] for key in keys}
            text = changed_text(file, changes)
            problem = _why_no_copy(file, directory, text)
            if problem is not None:
                raise UserError(
                    f"{file.path}: {problem}, so no changed copy of it can be used",
                    "change the file yourself, and launch it again",
                    diff=diff_of(file, text),
                )
            name = file.path.name
            if name in {copy.name for _, copy in copies}:
                name = f"{len(copies)}-{name}"
            said = {value.path: value.value for value in read_values(text, file.path.suffix)}
            told = {key.value.name: (key.value.value, said[key.value.path]) for key in keys}
            copies.append((file, ConfigCopy(str(file.path), name, text, MappingProxyType(told))))
    return tuple(copies)


def _differs(key: ConfigKey, values: Mapping[str, Scalar]) -> bool:
    return values.get(key.parameter.name, key.parameter.default) != key.parameter.default


def changed_text(file: ConfigFile, changes: Mapping[config_text.Path, Scalar]) -> str:
    try:
        return with_changes(file.text, file.path.suffix, changes)
    except ValueError as error:
        raise UserError(f"{file.path}: {error}", "change the file yourself, and launch it again") from None


def _why_no_copy(file: ConfigFile, directory: Path, text: str) -> str | None:
    """The reason why a copy in another directory would not mean the same; None if no reason is known."""
    if any(_is_secret(value) for value in file.values) or mask_text(file.text) != file.text:
        return "it holds a secret, which the script would show"
    if _is_not_shown(text):
        return "it holds control characters, which the plan could not show"
    if any(line == MARKER for line in text.split("\n")):
        return f"it holds the word {MARKER}"
    if "!include" in file.text:
        return "it includes another file"
    bound = next((value for value in file.values if _is_bound(value, file.path.parent, directory)), None)
    return f"{bound.name} names {bound.value}, which counts from its directory" if bound is not None else None


def _is_bound(value: ConfigValue, home: Path, directory: Path) -> bool:
    """True for a relative path that the program resolves from the config file's directory."""
    held = value.value
    if not isinstance(held, str) or not held or Path(held).is_absolute() or "\0" in held:
        return False
    keys = set(map(str, value.path))
    if keys & _ALWAYS_BASES or (keys & _BASES and _IS_FILE.fullmatch(held)):
        return True
    return _may_be_path(held) and _exists(home, held) and not _exists(directory, held)


def _is_not_shown(text: str) -> bool:
    """True for text with characters that a terminal or a reader would show as something else."""
    plain = text.replace("\r\n", "\n")
    return any(unicodedata.category(each) in _UNSEEN for each in set(plain) - {"\n", "\t"})


def _may_be_path(text: str) -> bool:
    """True for a text that looks like a relative path: a bare word is more often a name."""
    has_mark = "/" in text or "." in text
    return has_mark and len(text) < 1000 and "\n" not in text and "://" not in text


def _exists(directory: Path, name: str) -> bool:
    try:
        return (directory / name).exists()
    except OSError:
        return False


def path_warnings(file: ConfigFile, directory: Path) -> tuple[str, ...]:
    """One line about the relative paths in a copied file: they are resolved from the launch's directory,
    unless the program resolves them from the file's."""
    paths = [
        value
        for value in file.values
        if isinstance(value.value, str)
        and (
            value.value.startswith(("./", "../")) or ("/" in value.value and _exists(directory, value.value))
        )
    ]
    if not paths:
        return ()
    names = ", ".join(f"{value.name} = {value.value}" for value in paths[:3])
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return (
        f"{file.path.name}: {names}{more}: a program that lets them count from its config file, "
        "not from the directory of the launch, would not find them from the copy",
    )


def diff_of(file: ConfigFile, text: str) -> tuple[str, ...]:
    """The change as a unified diff of the person's file; without context lines if they may hold a secret."""
    has_secret = mask_text(file.text) != file.text or any(_is_secret(value) for value in file.values)
    lines = difflib.unified_diff(
        file.text.splitlines(),
        text.splitlines(),
        str(file.path),
        f"{file.path}, changed",
        n=0 if has_secret else 1,
        lineterm="",
    )
    return tuple(lines)


def with_copies(
    words: Sequence[str],
    options: Iterable[OwnOption],
    values: Mapping[str, Scalar],
    copies: Iterable[tuple[ConfigFile, ConfigCopy]],
    run_dir: str,
) -> tuple[str, ...]:
    """The command with its options' values, and with the copies in place of the files."""
    changed, options = list(words), tuple(options)
    for file, copy in copies:
        path = f"{run_dir}/{FOLDER}/{copy.name}"
        option = next((each for each in options if _names(each, file)), None)
        if option is not None:
            values = {**values, option.parameter.name: path}
        elif file.place is not None:
            pair = _PAIR.fullmatch(changed[file.place])
            changed[file.place] = f"{pair['option']}={path}" if pair is not None else path
    return with_values(changed, options, values)


def _names(option: OwnOption, file: ConfigFile) -> bool:
    """True if the option's value is the file's path."""
    if option.place is None or file.place is None:
        return option.place is file.place and option.option == file.option
    return option.form is not Form.FLAG and file.place == option.place + (option.form is Form.APART)
