"""Read the options of somebody else's batch script, and write changes in the words of its framework. Pure.

A script is a program. Only options with a plain value (or with a variable that is set once to one) are read,
and nothing else is ever changed. Missing values are not guessed: the caller gets back the changes that the
script has no place for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from types import MappingProxyType
from typing import Any

from coach.analysis.spelling.printable import printable


@dataclass(frozen=True, slots=True)
class Dialect:
    """A framework's names for its options, and the values of those that are not given. An option that coach
    adds gets its first name."""

    name: str
    mark: re.Pattern[str]
    words: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """They apply only if another option of the framework is given: otherwise the program itself may set the
    values."""
    in_code: Mapping[str, str] = field(default_factory=dict)
    """How the program's own code sets it."""


_DIALECTS = (
    Dialect(
        "Hugging Face Trainer",
        re.compile(r"--per[-_]device[-_]train|TrainingArguments|\btransformers\b|\brun_(?:clm|mlm|glue)\b"),
        {
            "batch_size": ("per_device_train_batch_size",),
            "gradient_accumulation": ("gradient_accumulation_steps",),
            "num_workers": ("dataloader_num_workers",),
            "lr": ("learning_rate",),
            "warmup_steps": ("warmup_steps",),
            "max_steps": ("max_steps",),
            "checkpoint_every": ("save_steps",),
        },
        {
            "batch_size": 8,
            "gradient_accumulation": 1,
            "num_workers": 0,
            "precision": "fp32",
            "activation_checkpointing": False,
        },
        {
            "batch_size": "TrainingArguments(per_device_train_batch_size={})",
            "gradient_accumulation": "TrainingArguments(gradient_accumulation_steps={})",
            "num_workers": "TrainingArguments(dataloader_num_workers={})",
        },
    ),
    Dialect(
        "Lightning",
        re.compile(r"\btrainer\.\w+[= ]|accumulate_grad_batches|\blightning\b|LightningCLI"),
        {
            "batch_size": ("data.batch_size", "data.init_args.batch_size"),
            "gradient_accumulation": ("trainer.accumulate_grad_batches", "accumulate_grad_batches"),
            "num_workers": ("data.num_workers", "data.init_args.num_workers"),
            "max_steps": ("trainer.max_steps",),
            "precision": ("trainer.precision",),
        },
        {"gradient_accumulation": 1},
        {
            "gradient_accumulation": "Trainer(accumulate_grad_batches={})",
            "num_workers": "DataLoader(num_workers={})",
            "precision": 'Trainer(precision="{}-mixed")',
        },
    ),
    Dialect(
        "DeepSpeed",
        re.compile(r"train_micro_batch_size_per_gpu|\bdeepspeed\b"),
        {
            "batch_size": ("train_micro_batch_size_per_gpu",),
            "gradient_accumulation": ("gradient_accumulation_steps",),
            "nproc_per_node": ("num_gpus",),
        },
    ),
    Dialect(
        "torchrun",
        re.compile(r"\btorchrun\b|torch\.distributed\.(?:run|launch)"),
        {"nproc_per_node": ("nproc_per_node",)},
    ),
    Dialect(
        "its own options",
        re.compile(r"$^"),
        {
            "batch_size": ("batch_size", "micro_batch_size"),
            "gradient_accumulation": ("accumulation_steps", "grad_accum_steps", "gradient_accumulation"),
            "num_workers": ("num_workers", "workers"),
            "lr": ("lr",),
            "precision": ("precision", "mixed_precision"),
            "max_steps": ("max_steps",),
        },
    ),
)
_ALSO = {
    "bs": "batch_size",
    "train_batch_size": "batch_size",
    "per_device_batch_size": "batch_size",
    "learning_rate": "lr",
    "n_workers": "num_workers",
    "num_dataloader_workers": "num_workers",
    "grad_acc_steps": "gradient_accumulation",
    "gradient_checkpointing": "activation_checkpointing",
    "checkpoint_activations": "activation_checkpointing",
}
PARAMETER_OF_OPTION: Mapping[str, str] = MappingProxyType(
    {
        **_ALSO,
        **{name: key for each in _DIALECTS for key, names in each.words.items() for name in names},
    }
)
"""Option of a training program, with _ for each -, → its parameter in rules and fixes."""
_SBATCH = {"mem": "", "time": "t", "signal": "", "exclude": "x", "cpus_per_task": "c", "ntasks_per_node": ""}
"""sbatch options that can be changed, with their one-letter forms."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_HEADER = re.compile(r"(?:[ \t]*(?:#.*)?\n)*")
"""Slurm reads its options up to the first command."""
_OTHER_MEMORY = re.compile(
    r"^#SBATCH\b[^#\n]*?[ \t](?P<option>--mem-per-(?:cpu|gpu)(?:=|[ \t]+)[^\s#]+)", re.MULTILINE
)
_WHOLE = re.compile(r"\d+")
_SIZES = ("batch_size", "gradient_accumulation", "num_workers", "warmup_steps", "max_steps", "nproc_per_node")
PRECISIONS = {
    **dict.fromkeys(("32", "32-true", "no"), "fp32"),
    **dict.fromkeys(("16", "16-mixed"), "fp16"),
    "bf16-mixed": "bf16",
}
"""A framework's name for a precision → the rules' name."""
_SETS = r"(?:^|[;&|(]|\b(?:export|env)[ \t])[ \t]*(?:\w+=\S*[ \t]+)*{name}="
"""Each place in a script that sets a variable: `A=1 NAME=2 python …` too."""
_LIGHTNINGS = {"fp32": "32-true", "fp16": "16-mixed", "bf16": "bf16-mixed"}
_NUMBERS = {"fp32": "32", "fp16": "16"}
_FLAG = r"(?<![\w.-])--{name}(?![\w-])(?:[= ](?P<value>[Tt]rue|[Ff]alse|0|1)\b)?"


@dataclass(frozen=True, slots=True)
class _Use:
    """One place that sets an option."""

    text: int
    """Index of the text with the value: of the script, if a variable of it has the value."""
    start: int
    end: int
    value: str
    stop: int
    """Where the option ends, in its own text."""
    name: str
    dash: str
    joint: str
    """The characters before the name, and between name and value."""
    is_on_command_line: bool


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script, followed by the configuration files that it names."""

    texts: tuple[str, ...]
    framework: Dialect
    parameters: Mapping[str, Any]
    asked: Mapping[str, str]
    """The sbatch options that it sets."""
    uses: Mapping[str, tuple[_Use, ...]]


def read_script(texts: Sequence[str], also: str = "") -> Script:
    """`also` is more text that may name the framework: the job's log."""
    seen = _without_comments(texts)
    framework = next(
        (each for told in ("\n".join(seen), also) for each in _DIALECTS if each.mark.search(told)),
        _DIALECTS[-1],
    )
    uses = _unambiguous_uses(seen, framework)
    parameters: dict[str, Any] = dict(framework.defaults) if _anchor(framework, uses) is not None else {}
    for key, found in uses.items():
        parameters[key] = _value(key, found[0].value)
    if framework is _DIALECTS[0]:
        parameters.update(_raised_flags(seen))
    if "batch_size" in parameters:
        parameters.setdefault("gradient_accumulation", 1)
    asked = {name: spots[-1][2] for name in _SBATCH if (spots := list(_directives(texts[0], name)))}
    return Script(
        tuple(texts), framework, MappingProxyType(parameters), MappingProxyType(asked), MappingProxyType(uses)
    )


def _without_comments(texts: Sequence[str]) -> tuple[str, ...]:
    """Replace comments with blanks, so that all positions stay the same."""
    return tuple(_COMMENT.sub(lambda found: " " * len(found[0]), text) for text in texts)


def _unambiguous_uses(seen: Sequence[str], framework: Dialect) -> dict[str, tuple[_Use, ...]]:
    """The places of each parameter that has the same value everywhere. The framework's names come before
    those of other frameworks."""
    uses: dict[str, tuple[_Use, ...]] = {}
    for dialect in (framework, *_DIALECTS):
        for key, names in dialect.words.items():
            places = [use for name in names for use in _uses(seen, name)]
            found = tuple(filter(None, places))
            is_one = len(found) == len(places) and len({use.value for use in found}) == 1
            if key not in uses and is_one:
                uses[key] = found
    return uses


def _raised_flags(seen: Sequence[str]) -> dict[str, Any]:
    """The parameters that Hugging Face's flags set."""
    return {
        key: value
        for name, key, value in (
            ("fp16", "precision", "fp16"),
            ("bf16", "precision", "bf16"),
            ("gradient_checkpointing", "activation_checkpointing", True),
        )
        if any((flag["value"] or "true").lower() in ("true", "1") for _, flag in _flags(seen, name))
    }


def change_script(script: Script, changes: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The changed texts, and the names of changes that the script has no place for."""
    edits: list[tuple[int, int, int, str]] = []
    unsaid: list[str] = []
    for key, value in changes.items():
        made = list(_edits(script, key, value))
        edits += made
        if not made:
            unsaid.append(key)
    texts = list(script.texts)
    for text, start, end, new in sorted(set(edits), reverse=True):
        texts[text] = texts[text][:start] + new + texts[text][end:]
    return tuple(texts), tuple(unsaid)


def _edits(script: Script, key: str, value: Any) -> Iterator[tuple[int, int, int, str]]:
    if key == "env" and isinstance(value, Mapping):
        yield from _exports(script.texts[0], value)
    elif key in _SBATCH:
        yield _directive(script.texts[0], key, str(value))
    elif key in script.uses:
        for use in script.uses[key]:
            word = spelt_precision(use.value, str(value)) if key == "precision" else str(value)
            yield use.text, use.start, use.end, word
    elif script.framework is _DIALECTS[0] and key in ("precision", "activation_checkpointing"):
        yield from _flag_edits(script, "bf16" if key == "precision" else "gradient_checkpointing", value)
    elif key in script.framework.words and key in script.framework.defaults:
        anchor = _anchor(script.framework, script.uses)
        if anchor is not None:
            name = script.framework.words[key][0]
            yield anchor.text, anchor.stop, anchor.stop, f" {anchor.dash}{name}{anchor.joint}{value}"


def spelt_precision(before: str, value: str) -> str:
    """The rules' name of a precision in the spelling of the value that it replaces: `bf16-mixed` for
    `16-mixed`, `32` for `16`."""
    if before.endswith(("-mixed", "-true")):
        return _LIGHTNINGS.get(value, value)
    return _NUMBERS.get(value, value) if before in _NUMBERS.values() else value


def _flag_edits(script: Script, name: str, value: Any) -> Iterator[tuple[int, int, int, str]]:
    """`--fp16` becomes `--bf16`; a flag that is not there is added."""
    if value not in ("bf16", True):
        return
    seen = _without_comments(script.texts)
    old = list(_flags(seen, "fp16" if name == "bf16" else name)) or list(_flags(seen, name))
    for text, found in old:
        yield text, found.start(), found.end(), f"--{name}" + (" True" if found["value"] else "")
    anchor = _anchor(script.framework, script.uses)
    if not old and anchor is not None:
        yield anchor.text, anchor.stop, anchor.stop, f" --{name}"


def _anchor(framework: Dialect, uses: Mapping[str, tuple[_Use, ...]]) -> _Use | None:
    """An option of the framework on the command line, beside which another can stand."""
    own = (use for key, names in framework.words.items() for use in uses.get(key, ()) if use.name in names)
    return next((use for use in own if use.is_on_command_line), None)


def _uses(texts: Sequence[str], name: str) -> Iterator[_Use | None]:
    """The places that set an option; None for one whose value is not known."""
    spelt = re.escape(name).replace("_", "[-_]")
    dash = "(?P<dash>--)?" if "." in name else "(?P<dash>--)"
    option = re.compile(
        rf"(?<![\w.$-]){dash}{spelt}(?P<joint>=|[ \t]+)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\\;|&<>]+)"
    )
    key = re.compile(rf'"{re.escape(name)}"(?P<joint>\s*:\s*)(?P<value>[\d.eE+-]+)')
    said: dict[str, list[re.Match[str]]] = {}
    for index, text in enumerate(texts):
        for found in (*option.finditer(text), *key.finditer(text)):
            start, end = found.span("value")
            is_option = found.re is option
            dash, joint = (found["dash"] or "" if is_option else ""), ("=" if found["joint"] == "=" else " ")
            holder, plain = index, found["value"].strip("\"'")
            if plain != found["value"]:
                start, end = start + 1, end - 1
            variable = re.fullmatch(r"\$(?:\{(\w+)\}|(\w+))", plain)
            if variable is not None:
                used = variable[1] or variable[2]
                if used not in said:
                    said[used] = list(_assignments(texts[0], used))
                assigned = said[used]
                if len(assigned) != 1:
                    yield None
                    continue
                start, end = assigned[0].span("value")
                holder, plain = 0, assigned[0]["value"]
            is_plain = re.fullmatch(r"[\w.+-]+", plain) is not None
            is_typed = is_option and index == 0
            yield (
                _Use(holder, start, end, plain, found.end(), name, dash, joint, is_typed)
                if is_plain
                else None
            )


def _assignments(text: str, name: str) -> Iterable[re.Match[str]]:
    return re.finditer(
        rf"^[ \t]*(?:export[ \t]+)?{name}=(?P<q>[\"']?)(?P<value>[\w.,:+-]+)(?P=q)[ \t]*;?[ \t]*$",
        text,
        re.MULTILINE,
    )


def _flags(texts: Sequence[str], name: str) -> Iterator[tuple[int, re.Match[str]]]:
    for index, text in enumerate(texts):
        for found in re.finditer(_FLAG.format(name=name), text):
            yield index, found


def _directives(text: str, name: str) -> Iterator[tuple[int, int, str]]:
    """Span and value of each place in the header that sets the option; the last one counts. Slurm reads no
    option behind a further #."""
    letter = _SBATCH.get(name, "")
    long = re.escape(name.replace("_", "-"))
    short = rf"|-{letter}[= \t]*" if letter else ""
    wanted = re.compile(
        rf"^#SBATCH\b[^#\n]*?[ \t](?:--{long}(?:=|[ \t]+){short})(?P<value>[^\s#]+)", re.MULTILINE
    )
    for found in wanted.finditer(text, 0, _end_of_header(text)):
        yield *found.span("value"), found["value"]


def _end_of_header(text: str) -> int:
    header = _HEADER.match(text)
    return header.end() if header else 0


def _directive(text: str, key: str, value: str) -> tuple[int, int, int, str]:
    found = list(_directives(text, key))
    if found:
        return 0, found[-1][0], found[-1][1], value
    if key == "mem":  # Slurm accepts only one of them
        other = list(_OTHER_MEMORY.finditer(text, 0, _end_of_header(text)))
        if other:
            return 0, *other[-1].span("option"), f"--mem={value}"
    place = _behind_header(text)
    return 0, place, place, f"#SBATCH --{key.replace('_', '-')}={value}\n"


def _exports(text: str, variables: Mapping[Any, Any]) -> Iterator[tuple[int, int, int, str]]:
    """The edits that set all these variables; none if one of them has no place."""
    made = [_export(text, str(name), str(value)) for name, value in variables.items()]
    if None not in made:
        yield from filter(None, made)


def _export(text: str, name: str, value: str) -> tuple[int, int, int, str] | None:
    """Add the value to those that the variable has: it may hold several settings. None if the script sets it
    in a way that is not changed: that place would win over a new line above it."""
    seen = _without_comments([text])[0]
    found = list(_assignments(seen, name))
    if len(found) < len(re.findall(_SETS.format(name=name), seen, re.MULTILINE)):
        return None
    if found:
        kept = [
            part
            for part in found[-1]["value"].split(",")
            if part.partition(":")[0] != value.partition(":")[0]
        ]
        return 0, *found[-1].span("value"), ",".join((*kept, value)) if ":" in value else value
    place = _behind_header(text)
    return 0, place, place, f"export {name}={quote(value)}\n"


def _behind_header(text: str) -> int:
    """The position after the last #SBATCH line that Slurm reads, else after the first line."""
    options = list(re.finditer(r"^#SBATCH\b.*\n", text[: _end_of_header(text)], re.MULTILINE))
    if options:
        return options[-1].end()
    return text.find("\n") + 1 if text.startswith("#!") else 0


def _value(key: str, text: str) -> Any:
    if key in _SIZES or key == "checkpoint_every":
        return int(text) if _WHOLE.fullmatch(text) else None
    if key == "precision":
        return PRECISIONS.get(text, text)
    try:
        number = float(text)
    except ValueError:
        return printable(text)
    return number if math.isfinite(number) else printable(text)
