"""Propose a first `coach.toml` from a person's batch files and Python scripts, which are read as text.

No file is run, and the person is asked nothing. Each training is listed with its parameters, and each file
that cannot be launched with the reason. The coach.toml is a proposal, to be read and changed.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from coach.analysis.spelling.printable import cut, printable
from coach.analysis.spelling.slurm import format_time
from coach.launch.batch_file import has_options, read, resources_of
from coach.launch.own_program import BATCH_SUFFIXES, own_recipe, read_own_program
from coach.launch.parameters import show
from coach.launch.project_file import FILES, read_project
from coach.launch.python_source import imports_of, parse_source, read_program
from coach.launch.recipe_file import Recipe
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind
from coach.sources.machine.new_file import save_new

MAX_FILES = 500
"""A directory with more files holds data, and is no project."""
_FRAMEWORKS = frozenset(
    (
        *("torch", "tensorflow", "keras", "jax", "flax", "lightning", "pytorch_lightning", "transformers"),
        *("accelerate", "deepspeed", "horovod", "mxnet", "paddle", "fastai", "sklearn", "hydra"),
    )
)
_CONFIGS = (".yaml", ".yml", ".json")
_MAX_NAME = 40
_MAX_COMMENT = 200
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_HEAD = """\
# Trainings of this project, proposed by `coach init`: read them, and change what is wrong.
# `coach launch NAME` launches one; its key does so from the screens of a coach that was started here.
"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The text of a coach.toml, and a line for each file that was read."""

    text: str
    """Empty if nothing to launch was found."""
    understood: tuple[str, ...]
    left_out: tuple[str, ...]


def propose(directory: Path) -> Proposal:
    """Read the files of one directory. Raises UserError if it cannot be read."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file() and path.name[0] != ".")
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}") from None
    if len(paths) > MAX_FILES:
        raise UserError(f"{directory}: {len(paths)} files: coach init looks at most at {MAX_FILES}")
    tables: dict[str, str] = {}
    understood: list[str] = []
    left_out: list[str] = []
    started: set[str] = set()
    for path, kind in _candidates(paths):
        try:
            recipe = own_recipe(read_own_program(path.name, (), directory))
        except UserError as error:
            left_out.append(error.message)
            continue
        if kind is OwnKind.SCRIPT and path.name in started:
            left_out.append(f"{path.name}: a batch file starts it")
            continue
        if kind is OwnKind.BATCH:
            started |= _scripts_in(read(path), directory)
        name = _name(path, tables)
        tables[name] = _table(name, path, kind, recipe, key=len(tables) + 1)
        understood.append(f"{path.name}: [training.{name}], {_parameters_text(recipe)}")
    left_out += [
        f"{path.name}: no program; where a training's `arguments` name it, its values are parameters"
        for path in paths
        if path.suffix in _CONFIGS
    ]
    text = "\n".join((_HEAD, *tables.values())) if tables else ""
    return Proposal(text, tuple(understood), tuple(left_out))


def write(proposal: Proposal, directory: Path) -> Path:
    """Write the file unless there is one, and read it back as a launch would. Raises UserError."""
    path = directory / FILES[0]
    if os.path.lexists(path):
        raise UserError(f"{path}: is there already", "--dry-run prints what would be proposed")
    save_new(path, proposal.text, 0o666)  # everybody who may read the project may read it
    read_project(path)
    return path


def _candidates(paths: Iterable[Path]) -> Iterator[tuple[Path, OwnKind]]:
    """Batch files first: a script that one of them starts needs no training of its own."""
    ordered = sorted(paths, key=lambda path: path.suffix == ".py")
    for path in ordered:
        if path.suffix in (*BATCH_SUFFIXES, ".py") and _begins_with_options(path):
            yield path, OwnKind.BATCH
        elif path.suffix == ".py" and _is_training(path):
            yield path, OwnKind.SCRIPT


def _scripts_in(text: str, directory: Path) -> set[str]:
    """Names of the Python files of this directory among the words of a batch file."""
    words = (word.strip("\"'();&|") for word in text.split())
    return {Path(word).name for word in words if word.endswith(".py") and _is_in(directory, word)}


def _is_in(directory: Path, word: str) -> bool:
    """True if the path in a batch file can be that of a file in this directory.

    The directory may have several absolute paths, and the value of a variable is not known. So the last
    folder behind such a beginning decides; without one, the file counts.
    """
    if not word.startswith(("/", "~")) and "$" not in word:
        return Path(os.path.normpath(directory / word)).parent == directory
    _, _, behind = word.rpartition("$")
    folders = Path(behind).parts[1 if "$" in word else 0 : -1]
    return not folders or folders[-1] == directory.name


def _begins_with_options(path: Path) -> bool:
    try:
        return has_options(path)
    except UserError:
        return False


def _is_training(path: Path) -> bool:
    """True if it imports a framework and does something when it is started."""
    try:
        tree = parse_source(read_program(path))
    except (UserError, SyntaxError):
        return False
    does_something = any(
        isinstance(node, ast.If | ast.For | ast.While | ast.With)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in tree.body
    )
    return does_something and not _FRAMEWORKS.isdisjoint(imports_of(ast.walk(tree)))


def _name(path: Path, taken: Container[str]) -> str:
    """A name that no other training has, in the form that coach.toml accepts."""
    stem = _NOT_IN_NAMES.sub("_", path.stem).strip("._-")[:_MAX_NAME] or "training"
    suffixes = chain((path.suffix[1:],), map(str, count(2)))
    longer = (f"{stem[: _MAX_NAME - 1 - len(suffix)]}_{suffix}" for suffix in suffixes)
    return next(name for name in chain((stem,), longer) if name not in taken)


def _table(name: str, path: Path, kind: OwnKind, recipe: Recipe, key: int) -> str:
    lines = [f"[training.{_quoted(name) if '.' in name else name}]", f"{kind} = {_quoted(path.name)}"]
    if key <= 9:
        lines.append(f'key = "{key}"')
    if kind is OwnKind.BATCH:
        lines.append(_comment(f"It asks for {_asked(path)}."))
    else:
        lines.append('# arguments = "--epochs 3"')
        lines += ["# gpus = 1", '# time = "4:00:00"']
    lines += [_comment(f"coach can set {each}") for each in _parameters(recipe)]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """A line of a TOML file for a text that a program holds, which may be of any form and length."""
    return f"# {cut(printable(text), _MAX_COMMENT)}"


def _quoted(text: str) -> str:
    """Quote a text for TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _asked(path: Path) -> str:
    asked = resources_of(read(path), LaunchRequest(""))
    nodes = f"{asked.num_nodes} node{'s' if asked.num_nodes > 1 else ''}"
    num_gpus = asked.gpus_per_node
    gpus = f"{num_gpus} GPU{'s' if num_gpus > 1 else ''} each" if num_gpus else "no GPU"
    more = [asked.mem or "", format_time(asked.time_limit_s) if asked.time_limit_s else ""]
    return ", ".join(word for word in (nodes, gpus, *more) if word)


def _parameters(recipe: Recipe) -> list[str]:
    return [f"{each.name} (now {show(each.default)}): {each.help}" for each in recipe.parameters.values()]


def _parameters_text(recipe: Recipe) -> str:
    names = ", ".join(recipe.parameters)
    return f"parameters that coach can set: {names}" if names else "no parameter that coach can set"
