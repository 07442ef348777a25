"""The parameters that a trainer declares: its `parse_arguments` is read as text, never run.

    parser.add_usual(without=["num_workers"])                              USUAL of common/arguments.py
    parser.add_argument("--tp", type=int, default=2, min=1, help="...")    an option of its own
    parser.add_shared("lr", "epochs")                                      some of SHARED in common/arguments.py
    parser.change("epochs", default=15)                                    a changed key of one option
    parser.change_shared("gpt_in_parts")                                   changes of CHANGES in common/arguments.py

A trainer is never imported: it needs torch, and a user's own trainer may do anything. Its values must
therefore be literals. A value that is not a literal is refused with file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coach.launch.parameter_table import read_parameter
from coach.launch.python_source import parse_source, read_program
from coach.model.errors import UserError
from coach.model.toml_schema import TableReader

PASSED_BY_COACH = frozenset({"run_dir", "data_dir", "cache_dir", "gpus_per_node", "resume_from"})
"""Options that each launch passes to every trainer: they are not parameters."""

_SHARED_FILE = Path("common", "arguments.py")
_FUNCTION = re.compile(r"^def parse_arguments\b", re.MULTILINE)
_TYPES = {"int": "int", "float": "float", "str": "str", "bool": "bool", "boolean": "bool"}
_GOES_ON = " \t#)]}"
"""Characters at the left margin that continue a statement."""
_METHODS = ("add_argument", "add_usual", "add_shared", "change", "change_shared")

Table = dict[str, Any]
"""The same content as [parameters.NAME] of a recipe."""


class TrainerArguments:
    """Reads trainers and remembers them: many recipes share a trainer, and most trainers share one file.

    `trainers` is the folder of coach's own. Its common/ is used if none lies beside a trainer.
    """

    def __init__(self, trainers: Path) -> None:
        self._folder = trainers
        self._trainers: dict[Path, Mapping[str, Table]] = {}
        self._shared: dict[tuple[Path, str], Mapping[str, Any]] = {}
        self._shared_files: dict[Path, Path] = {}
        """Folder of trainers → their common/arguments.py."""

    def of(self, trainer: Path) -> Mapping[str, Table]:
        """Name → table of each parameter. Raises UserError with file and line."""
        if trainer not in self._trainers:
            self._trainers[trainer] = _Trainer(trainer, self).tables()
        return self._trainers[trainer]

    def shared(self, trainer: Path, name: str) -> Mapping[str, Any]:
        """The table with this name in the common/arguments.py of a trainer: `SHARED`, `CHANGES`, or the list
        of names `USUAL`."""
        folder = trainer.parent
        if folder not in self._shared_files:
            beside = folder / _SHARED_FILE
            self._shared_files[folder] = beside if beside.is_file() else self._folder / _SHARED_FILE
        path = self._shared_files[folder]
        if (path, name) not in self._shared:
            self._shared[path, name] = _Source(path).assigned(name)
        return self._shared[path, name]


def declares_options(trainer: Path) -> bool:
    """True if a trainer has a function with options that can be read."""
    try:
        return bool(_FUNCTION.search(read_program(trainer)))
    except UserError:
        return False


class _Source:
    """A Python file from which single statements are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = read_program(path)

    def line(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}"

    def assigned(self, name: str) -> Mapping[str, Any]:
        """The table that is assigned to a name. A list of names gives a table of empty tables."""
        statement = self.statement(name)
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        table = None if value is None else self.literal(value, name)
        if isinstance(table, list) and all(isinstance(each, str) for each in table):
            return {each: {} for each in table}
        if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
            raise UserError(f"{self.line(statement)}: {name}: expected a table of tables, or names")
        return table

    def statement(self, heading: str) -> ast.stmt:
        """The statement at the left margin that begins with `heading`.

        Only its lines are parsed: a whole trainer takes ten times as long. If they are not valid Python, for
        example because a string continues at the left margin, the whole file is parsed.
        """
        lines = self._text.split("\n")
        starts = [number for number, line in enumerate(lines) if _begins(line, heading)]
        if starts:
            end = starts[0] + 1
            while end < len(lines) and lines[end][:1] in ("", *_GOES_ON):
                end += 1
            try:
                parsed = parse_source("\n" * starts[0] + "\n".join(lines[starts[0] : end]))
            except SyntaxError:
                parsed = self._whole()
            for statement in parsed.body:
                if statement.lineno - 1 in starts:
                    return statement
        raise UserError(f"{self.path}: {heading} is missing: coach reads the options of a trainer there")

    def _whole(self) -> ast.Module:
        try:
            return parse_source(self._text)
        except SyntaxError as error:
            raise UserError(f"{self.path}:{error.lineno}: not valid Python: {error.msg}") from None

    def literal(self, node: ast.expr, what: str) -> Any:
        """The value of a literal. Types become a recipe's words, and tuples become lists."""
        try:
            return _listed(ast.literal_eval(_WORDS.visit(node)))
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise UserError(f"{self.line(node)}: {what}: expected values that are written out") from None


class _Trainer(_Source, TableReader):
    """A trainer's file. The line of a dotted key is the one that adds or changes its parameter."""

    def __init__(self, path: Path, arguments: TrainerArguments) -> None:
        super().__init__(path)
        self._arguments = arguments
        self._tables: dict[str, Table] = {}
        self._places: dict[str, str] = {}

    def at(self, dotted: str) -> str:
        return self._places.get(dotted.split(".")[1], str(self.path))

    def tables(self) -> Mapping[str, Table]:
        for method, call in _calls(self.statement("def parse_arguments")):
            names = [self.literal(name, method) for name in call.args]
            if not all(isinstance(name, str) for name in names):
                raise UserError(f"{self.line(call)}: {method}: expected names")
            if method == "add_argument":
                self._add(call, names)
            elif method in ("add_shared", "add_usual"):
                for name in names if method == "add_shared" else self._usual(call):
                    self._put(call, name, self._shared(call, "SHARED", name))
            elif method == "change":
                self._change(call, names[0] if names else "", self._keywords(call, *names))
            else:
                for name in names:
                    for option, keywords in self._shared(call, "CHANGES", name).items():
                        self._change(call, option, keywords)
        for name, table in self._tables.items():
            read_parameter(self, name, table)
        return self._tables

    def _add(self, call: ast.Call, names: list[str]) -> None:
        option = next((name for name in names if name.startswith("--")), "")
        name = option.removeprefix("--")
        if not name:
            raise UserError(f"{self.line(call)}: add_argument: expected an option such as --lr")
        if name not in PASSED_BY_COACH:
            self._put(call, name, {"type": "str", **self._keywords(call, option)})

    def _put(self, call: ast.Call, name: str, table: Table) -> None:
        self._tables[name] = table
        self._places[name] = self.line(call)

    def _change(self, call: ast.Call, name: str, keywords: Table) -> None:
        if name in PASSED_BY_COACH:
            return
        if name not in self._tables:
            raise self._unknown(call, name, self._tables)
        self._put(call, name, {**self._tables[name], **keywords})

    def _shared(self, call: ast.Call, table: str, name: str) -> Table:
        known = self._arguments.shared(self.path, table)
        if name not in known:
            raise self._unknown(call, name, known)
        found: Table = known[name]
        return {"type": "str", **found} if table == "SHARED" else found

    def _unknown(self, call: ast.Call, name: str, known: Mapping[str, Any]) -> UserError:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
        return UserError(f"{self.line(call)}: no option {name!r} to share or to change", hint)

    def _usual(self, call: ast.Call) -> list[str]:
        usual = self._arguments.shared(self.path, "USUAL")
        without = self._keywords(call, "add_usual").get("without", [])
        for name in without:
            if name not in usual:
                raise self._unknown(call, name, usual)
        return [name for name in usual if name not in without]

    def _keywords(self, call: ast.Call, *names: str) -> Table:
        return {
            keyword.arg or "**": self.literal(keyword.value, f"{' '.join(names)}: {keyword.arg or '**'}")
            for keyword in call.keywords
        }


class _TypesAsWords(ast.NodeTransformer):
    """Replaces each type by the recipe's word for it."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(_TYPES[node.id]), node) if node.id in _TYPES else node


_WORDS = _TypesAsWords()


def _begins(line: str, heading: str) -> bool:
    """True if the line begins with the whole of `heading`, not with a longer word."""
    after = line[len(heading) :][:1]
    return line.startswith(heading) and not (after.isalnum() or after == "_")


def _calls(function: ast.stmt) -> Iterator[tuple[str, ast.Call]]:
    """Calls of the parser's methods, in the order of the text."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
            yield call.func.attr, call


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
