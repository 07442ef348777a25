"""Find the logs that a batch script names in addition to the job's own, by `srun -o`, redirection or `tee`.
Pure.

Slurm reports where a job writes, but not where its steps write. A script is a program, so its effect cannot
be known for certain: each name becomes a pattern in which an unknown part matches anything, and the caller
also checks the time of a file found by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from coach.sources.logs.output_path import NO_TASK, Names, output_options

MAX_NAMES = 32
_MAX_UNKNOWN = 6
"""Largest number of unknown parts in a name; with more, matching a file name takes long."""

_WORD = r"\"[^\"\n]*\"|'[^'\n]*'|(?:\\.|\$\([^)\n]{0,500}\)|[^\s;|&<>()\"'])+"
_TOKEN = re.compile(rf"(?:{_WORD})+|[;|&]+")
_REDIRECTED = re.compile(rf"(?:&>>?|(?<![<&])\d?>>?\|?)\s*(?P<file>(?:{_WORD})+)")
_TEE = re.compile(rf"\btee\s+(?:-\S+\s+)*(?P<file>(?:{_WORD})+)")
_ASSIGNED = re.compile(
    rf"^[ \t]*(?:export\s+|readonly\s+)?(?P<name>\w+)=(?P<value>(?:{_WORD})*+)[ \t]*$", re.MULTILINE
)
_SRUN = re.compile(r"(?:^|[\s;|&(])srun\s")
_UNKNOWN = re.compile(r"%\d*[\w%]|\$\([^)]{0,500}\)|`[^`]{0,500}`|\$\{?\w{1,100}+[^}/]{0,200}\}|\$\w+|[*?]")
_SHAPES = {"t": r"\d+", "n": r"\d+", "s": r"\w+", "J": r"\d+\.\w+", "N": r"[\w.-]+"}
"""Form of the values that only the step knows, for srun's patterns."""
_OF_THE_JOB = frozenset("Aajux%")
_LETTERS = {
    "SLURM_JOB_ID": "j",
    "SLURM_JOBID": "j",
    "SLURM_ARRAY_JOB_ID": "A",
    "SLURM_ARRAY_TASK_ID": "a",
    "SLURM_JOB_NAME": "x",
    "USER": "u",
}
"""Variable in the job's environment → letter of the pattern with the same value."""
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+))")
_TEXT = re.compile(r"\.(?:out|err|log|txt)$")
_DATA = re.compile(
    r"\.(?:pt|pth|bin|jsonl?|csv|npz?|npy|h5|pkl|safetensors|onnx|tar|gz|zip|parquet|png|ya?ml)$"
)


def named_outputs(script: str, names: Names) -> tuple[str, ...]:
    """Paths as regular expressions, absolute or relative to the script's directory at the time of writing."""
    lines = re.sub(r"\\\n", " ", script)
    lines = re.sub(r"(?m)^[ \t]*#.*$", "", lines)
    known = _variables(lines, names)
    found = dict.fromkeys(_pattern(path, names) for path in _paths(lines, known))
    return tuple(path for path in found if path)[:MAX_NAMES]


def _paths(lines: str, variables: Mapping[str, str]) -> Iterator[str]:
    for line in lines.splitlines():
        for started in islice(_SRUN.finditer(line), MAX_NAMES):
            words = (word[0] for word in _TOKEN.finditer(line, started.end()))
            for name in output_options(words, is_srun=True).values():
                path = _filled(_unquoted(name), variables)
                if not _DATA.search(path):
                    yield path
        for found in (*_REDIRECTED.finditer(line), *_TEE.finditer(line)):
            path = _filled(_unquoted(found["file"]), variables)
            if _TEXT.search(path):
                yield path


def _variables(lines: str, names: Names) -> Mapping[str, str]:
    values = {found["name"]: _unquoted(found["value"]) for found in _ASSIGNED.finditer(lines)}
    known = {name: names[letter] for name, letter in _LETTERS.items()}
    return values | {name: value for name, value in known.items() if value not in (None, NO_TASK)}


def _filled(path: str, variables: Mapping[str, str]) -> str:
    for _ in range(4):  # the value of a variable may contain another variable
        path = _VARIABLE.sub(lambda found: variables.get(found["braced"] or found["plain"], found[0]), path)
    return path


def _pattern(path: str, names: Names) -> str:
    """A regular expression for the path; "" if it would match any file."""
    path = path.removeprefix("./")
    parts, end = [], 0
    for unknown in _UNKNOWN.finditer(path):
        letter = unknown[0][-1] if unknown[0][0] == "%" else ""
        value = names.get(letter) if letter in _OF_THE_JOB else None
        stands_for = _SHAPES.get(letter, ".*") if value is None else re.escape(value)
        parts += [re.escape(path[end : unknown.start()]), stands_for]
        end = unknown.end()
    name = _UNKNOWN.sub(lambda found: "x" if found[0][0] == "%" else "", path.rpartition("/")[2])
    if path.startswith(("/dev/", "&")) or not re.search(r"\w", _TEXT.sub("", name)):
        return ""
    pattern = re.sub(r"(?:\.\*)+", ".*", "".join(parts) + re.escape(path[end:]))
    return pattern if pattern.count(".*") <= _MAX_UNKNOWN else ""


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", lambda found: found[1] or "", word)
