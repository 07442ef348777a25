"""Mutation of rules, launch and sources: small faults planted one by one, and the tests that do not notice.

    python -m pip install coverage                       # beside what the tests need
    python -m coverage run -m pytest -n 0 -p benchmarks.mutation tests/rules tests/launch tests/sources
    python -m coverage combine && python -m coverage report
    python -m benchmarks.mutation --jobs 2 --out mutants.jsonl

The first run records the tests that run each line. For each mutant only the tests that run its line are run,
the fastest first, until one fails. A mutant inside a function replaces the function's code in a fork of a
process that has imported all tests; the module of a mutated constant or class is imported again. No file
changes. A program that a test starts does not see the mutant.

Messages (strings with a space), annotations and docstrings are not mutated.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOMS = ("rules", "launch", "sources")
REPOSITORY = Path(__file__).parents[1]
LIMIT_S = 20.0
"""A mutant is given up after this, or after five times what its tests took."""
MEMORY_BYTES = 3 << 30
KILLER = "killed-by"
"""The file in which a fork names the test that failed."""
NUM_FILES_IMPORTED = 5
"""Test files that are collected for a mutant that is imported anew."""
_LEFT_OUT = ("long", "gpu", "cluster", "terminal", "train", "site")
_WORD = re.compile(r"[^\s]{1,40}")
_OPPOSITE: Mapping[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small fault: a place, the old code and the new code."""

    room: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    index: int
    """The number among the mutants of this file, as `_all_of` makes them."""
    function: str | None
    """The outermost function that holds it; None for one that takes effect at the import."""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.before}  →  {self.after}"


# -- making mutants ---------------------------------------------------------------------------------------


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


Change = tuple[str, ast.AST, Callable[[], None], Callable[[], None]]
"""Kind, the node that is shown, make the change, take it back."""


def _set(owner: Any, field: str, value: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    old = getattr(owner, field)
    return (lambda: setattr(owner, field, value)), (lambda: setattr(owner, field, old))


def _set_at(items: list[Any], place: int, value: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    old = items[place]
    return (lambda: items.__setitem__(place, value)), (lambda: items.__setitem__(place, old))


def _constants(node: ast.Constant) -> Iterator[Any]:
    value = node.value
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
        if value not in (0, 1):
            yield value - 1 if isinstance(value, int) else value / 2
    elif isinstance(value, str) and _WORD.fullmatch(value) and re.search(r"\w", value):
        yield value + "X"


def _expression_changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                for other in _OPPOSITE.get(type(operator), ()):
                    is_boundary = type(operator).__name__.rstrip("E") == other.__name__.rstrip("E")
                    yield ("boundary" if is_boundary else "comparison", node, *_set_at(ops, place, other()))
        case ast.BoolOp(op=operator):
            yield ("boolean", node, *_set(node, "op", _OPPOSITE[type(operator)][0]()))
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPPOSITE:
            yield ("arithmetic", node, *_set(node, "op", _OPPOSITE[type(operator)][0]()))
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            if not isinstance(test, (ast.Compare, ast.UnaryOp)):
                yield ("boolean", test, *_set(node, "test", ast.UnaryOp(ast.Not(), test)))
        case ast.Constant():
            for value in _constants(node):
                yield ("constant", node, *_set(node, "value", value))
        case ast.Return(value=value) if value is not None:
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ("return", node, *_set(node, "value", ast.Constant(None)))


def _negations(parent: ast.AST) -> Iterator[Change]:
    """`not x` becomes `x`, anywhere in an expression."""
    for field, value in ast.iter_fields(parent):
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            yield ("boolean", value, *_set(parent, field, value.operand))
        elif isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not):
                    yield ("boolean", each, *_set_at(value, place, each.operand))


def _deletions(node: ast.AST) -> Iterator[Change]:
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if not isinstance(statements, list):
            continue
        for place, each in enumerate(statements):
            if _is_worth_deleting(each):
                nothing = ast.copy_location(ast.Pass(), each)
                yield ("deleted statement", each, *_set_at(statements, place, nothing))


def _is_worth_deleting(statement: ast.stmt) -> bool:
    """A name that is no longer bound is found by any test; a call, a raise or a jump may be missed."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom() | ast.Await()):
            return True
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


_NOT_CODE = ("annotation", "returns", "type_params")


def _walk(
    node: ast.AST, function: str | None, names: tuple[str, ...]
) -> Iterator[tuple[ast.AST, str | None, str | None]]:
    """All nodes that are evaluated, each with the outermost function of it and that of its statements."""
    is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if isinstance(node, ast.ClassDef) or is_function:
        names = (*names, node.name)
    body = ".".join(names) if is_function and function is None else function
    yield node, function, body
    for field, value in ast.iter_fields(node):
        if field in _NOT_CODE:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child, node):
                yield from _walk(child, body if field == "body" else function, names)


def _is_text(node: ast.AST, parent: ast.AST) -> bool:
    """True for code that never runs (docstrings, imports for types), and for the words of a message."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(parent, ast.JoinedStr):
        return not isinstance(node, ast.FormattedValue)
    if isinstance(parent, ast.FormattedValue):
        return node is parent.format_spec
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _all_of(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, ast.AST, Callable[[], None]]]:
    """Yields each mutant of a file while the tree holds its change; the next step of the iterator undoes
    it."""
    room = file.split("/")[1]
    index = 0
    for node, outer, inner in list(_walk(tree, None, ())):
        for kind, shown, make, undo in (*_expression_changes(node), *_negations(node), *_deletions(node)):
            before = _short(shown)
            make()
            after = "pass" if kind == "deleted statement" else _after(node, shown, before)
            function = outer if shown is node else inner
            line = getattr(shown, "lineno", getattr(node, "lineno", 1))
            yield Mutant(room, file, line, kind, before, after, index, function), node, undo
            undo()
            index += 1


def _after(node: ast.AST, shown: ast.AST, before: str) -> str:
    after = _short(shown)
    if after != before:
        return after
    return before.removeprefix("not ") if before.startswith("not ") else f"not {before}"


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a file of the repository."""
    tree = ast.parse((REPOSITORY / file).read_bytes())
    return [mutant for mutant, _, _ in _all_of(file, tree)]


def code_of(mutant: Mutant) -> CodeType:
    """The compiled module with this fault in it."""
    path = REPOSITORY / mutant.file
    tree = ast.parse(path.read_bytes())
    for found, _, _ in _all_of(mutant.file, tree):
        if found.index == mutant.index:
            return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    raise LookupError(mutant.name)


# -- which tests ------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Under coverage: note each line under the name of the test that runs it."""
    current = None
    if "coverage" in sys.modules:
        current = sys.modules["coverage"].Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    result = yield
    if current is not None:
        current.switch_context("")
    return result


class Contexts:
    """The tests that run a line, as the coverage says."""

    def __init__(self, data_file: str, took_s: Mapping[str, float], budget_s: float) -> None:
        from coverage import CoverageData

        self._data = CoverageData(data_file)
        self._data.read()
        self._measured = {str(Path(name)): name for name in self._data.measured_files()}
        self._took_s = took_s
        self._budget_s = budget_s
        self._files: dict[str, dict[int, list[str]]] = {}

    def _lines(self, file: str) -> dict[int, list[str]]:
        if file not in self._files:
            name = self._measured.get(file) or self._measured.get(str(REPOSITORY / file))
            found = self._data.contexts_by_lineno(name) if name else {}
            self._files[file] = found
        return self._files[file]

    def as_run(self, mutant: Mutant) -> Mutant:
        """The mutant; of a line that is run at the import alone, as one that takes effect there."""
        is_at_import = self._lines(mutant.file).get(mutant.line) == [""]
        return replace(mutant, function=None) if is_at_import else mutant

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that run the line of a mutant, its module's own first, until the budget is spent."""
        lines = self._lines(mutant.file)
        if mutant.function is not None:
            tests = set(lines.get(mutant.line, ()))
        else:
            tests = {test for each in lines.values() for test in each}
        stem = Path(mutant.file).stem
        own = (f"test_{stem}", f"[{stem.partition('_')[0].upper()}]")  # beside it, or the case of a rule
        # A test that took an answer from a cache ran no line of the rule, and may notice all the same.
        tests |= {test for test in self._took_s if test.endswith(own[1])}
        ordered = sorted(
            (test for test in tests if test in self._took_s),
            key=lambda test: (not any(word in test for word in own), self._took_s[test], test),
        )
        if mutant.function is None:
            ordered = _of_few_files(ordered)
        chosen, spent_s = [], 0.0
        for test in ordered:
            if spent_s + self._took_s[test] > self._budget_s and chosen:
                continue
            spent_s += self._took_s[test]
            chosen.append(test)
        return chosen

    def limit_s(self, tests: Sequence[str]) -> float:
        return LIMIT_S + 5 * sum(self._took_s[test] for test in tests)


def _of_few_files(tests: Sequence[str]) -> list[str]:
    first = {test.split("::")[0]: None for test in tests[:1]}
    for file, _ in Counter(test.split("::")[0] for test in tests).most_common(NUM_FILES_IMPORTED):
        first[file] = None
    return [test for test in tests if test.split("::")[0] in first]


# -- asking the tests -------------------------------------------------------------------------------------


def _in_fork(work: Callable[[], int], limit_s: float, folder: Path) -> tuple[str, str | None]:
    """Run tests in a fork of this process: killed, survived or timed out; and the test that failed."""
    folder.mkdir(parents=True)
    if (pid := os.fork()) == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        status = 1
        with contextlib.suppress(BaseException):
            status = work()
        os._exit(status)
    end_s = time.monotonic() + limit_s
    outcome = None
    pause_s = 0.002
    while outcome is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            outcome = "survived" if status == 0 else "killed"
        elif time.monotonic() > end_s:
            outcome = "timed out"
        else:
            time.sleep(pause_s)
            pause_s = min(0.05, pause_s * 1.3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if outcome == "timed out":
        os.waitpid(pid, 0)
    by = folder / KILLER
    killer = by.read_text() if by.exists() else None
    shutil.rmtree(folder, ignore_errors=True)
    return outcome, killer


class Collected:
    """A plugin that collects all tests once, and then runs some of them again and again in forks."""

    def __init__(self, work: Callable[[Collected], None]) -> None:
        self._work = work
        self.items: dict[str, pytest.Item] = {}
        self.session: pytest.Session

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        left_out = {item.nodeid for item in session.items if any(map(item.get_closest_marker, _LEFT_OUT))}
        self.items = {item.nodeid: item for item in session.items if item.nodeid not in left_out}
        self.session = session
        gc.collect()
        gc.freeze()
        self._work(self)
        return True

    def run(
        self, tests: Sequence[str], folder: Path, note: Callable[[str, bool, float], None] | None = None
    ) -> int:
        """Run tests in order; without `note` until the first that fails. For use in a fork."""
        self.session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        items = [self.items[test] for test in tests if test in self.items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            failed, start_s = self.session.testsfailed, time.perf_counter()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            has_failed = self.session.testsfailed > failed
            if note is not None:
                note(item.nodeid, has_failed, time.perf_counter() - start_s)
            elif has_failed:
                (folder / KILLER).write_text(item.nodeid)
                return 1
        return 0

    def fails_anyway(self, tests: Sequence[str], folder: Path) -> list[str]:
        """The tests that fail in a fork without a mutant; their kills do not count."""
        file = folder.with_name("failing")
        file.touch()

        def in_child() -> int:
            with file.open("a", buffering=1) as out:
                return self.run(tests, folder, lambda test, failed, _: failed and print(test, file=out))

        _in_fork(in_child, 600, folder)
        return file.read_text().splitlines()


def _collect(work: Callable[[Collected], None], where: Sequence[str]) -> None:
    """Drop the tests' output."""
    _be_quiet()
    pytest.main([*_OPTIONS, *where], plugins=[Collected(work)])


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


class _FirstFailure:
    """A plugin that names the first test that fails."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / KILLER

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._file.exists():
            self._file.write_text(report.nodeid)


_OPTIONS = (
    "-n",
    "0",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-q",
    "-o",
    "tmp_path_retention_policy=none",
)


def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """All functions of coach that live in this process, by file, name and first line."""
    found = defaultdict(list)
    gc.unfreeze()
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            if "/coach/" in code.co_filename:
                found[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
    gc.freeze()
    return found


def _forget_answers() -> None:
    """Clear cached answers from before the mutant."""
    gc.unfreeze()  # frozen objects are not among those that can be gone through
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inner_codes(each)


Functions = Mapping[tuple[str, str, int], list[FunctionType]]


def _places(mutant: Mutant, module: CodeType, functions: Functions) -> list[tuple[FunctionType, CodeType]]:
    """The living functions that take the mutant, each with its new code."""
    path = str(REPOSITORY / mutant.file)
    found = [
        (function, code)
        for code in _inner_codes(module)
        if code.co_qualname == mutant.function
        for function in functions.get((path, code.co_qualname, code.co_firstlineno), ())
    ]
    fit = all(function.__code__.co_freevars == code.co_freevars for function, code in found)
    return found if fit else []


def _import_with(file: str, code: CodeType) -> None:
    """From now on the module of this file is imported with this code."""
    path, original = str(REPOSITORY / file), importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> CodeType | None:
        return code if loader.path == path else original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def measure_times(jobs_folder: Path) -> dict[str, float]:
    """Seconds that each test takes in a fork without a mutant; tests that fail so are left out."""
    file = jobs_folder / "times"

    def work(collected: Collected) -> None:
        def in_child() -> int:
            with file.open("w", buffering=1) as out:
                collected.run(
                    list(collected.items),
                    jobs_folder / "base",
                    lambda *told: print(json.dumps(told), file=out),
                )
            return 0

        _in_fork(in_child, 3600, jobs_folder / "base")

    if (pid := os.fork()) == 0:
        _collect(work, [f"tests/{room}" for room in ROOMS])
        os._exit(0)
    os.waitpid(pid, 0)
    told = [json.loads(line) for line in file.read_text().splitlines()]
    return {test: seconds for test, has_failed, seconds in told if not has_failed}


Tests = list[tuple[Mutant, list[str], float]]
Tell = Callable[[Mutant, str, str | None], None]


def _try_collected(todo: Tests, folder: Path, tell: Tell) -> None:
    """Try the mutants inside functions."""

    def work(collected: Collected) -> None:
        functions, killed, killers = _functions(), [], set()
        for number, (mutant, tests, limit_s) in enumerate(todo):
            place, module = folder / str(number), code_of(mutant)
            changed = _places(mutant, module, functions)
            name = mutant.file.removesuffix(".py").replace("/", ".")
            if name in sys.modules and not changed:
                tell(mutant, "no place", None)
                continue

            def in_child() -> int:
                for function, code in changed:  # noqa: B023  the fork runs before the next turn
                    function.__code__ = code
                if not changed:  # noqa: B023
                    _import_with(mutant.file, module)  # noqa: B023
                _forget_answers()
                return collected.run(tests, place)  # noqa: B023

            outcome, killer = _in_fork(in_child, limit_s, place)
            if outcome == "killed" and killer is not None:
                killed.append((mutant, killer))
                killers.add(killer)
            tell(mutant, outcome, killer)
        bad = collected.fails_anyway(sorted(killers), folder / "anyway")
        for mutant, killer in killed:
            if killer in bad:
                tell(mutant, "unclear", killer)

    _collect(work, sorted({test.split("::")[0] for _, tests, _ in todo for test in tests}))


def _try_imported(todo: Tests, folder: Path, tell: Tell) -> None:
    """Try the mutants that take effect when their module is imported."""
    assert not any(name.startswith("coach.") for name in sys.modules)
    for plugin in ("hypothesis", "pytest_asyncio.plugin", "pytest_timeout", "xdist", "psutil", "yaml"):
        with contextlib.suppress(ImportError):
            importlib.import_module(plugin)
    for number, (mutant, tests, limit_s) in enumerate(todo):
        place, module = folder / f"import-{number}", code_of(mutant)

        def in_child() -> int:
            _import_with(mutant.file, module)  # noqa: B023  the fork runs before the next turn
            _be_quiet()
            arguments = [*_OPTIONS, "-x", f"--basetemp={place / 'tmp'}", *tests]  # noqa: B023
            return int(pytest.main(arguments, plugins=[_FirstFailure(place)]))  # noqa: B023

        tell(mutant, *_in_fork(in_child, limit_s, place))


def sample(room: str, count: int, seed: int, pattern: str) -> list[Mutant]:
    """`count` mutants of a room, always the same ones for a seed."""
    files = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "coach" / room).rglob("*.py"))
    every = [mutant for file in files if re.search(pattern, file) for mutant in mutants_of(file)]
    print(f"{room}: {len(every)} mutants in {len(files)} files", file=sys.stderr)
    chosen = random.Random(f"{seed} {room}").sample(every, min(count, len(every)))
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.index))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Mutation of rules, launch and sources.")
    parser.add_argument("--rules", type=int, default=500, help="mutants of coach/rules")
    parser.add_argument("--launch", type=int, default=400, help="mutants of coach/launch")
    parser.add_argument("--sources", type=int, default=400, help="mutants of coach/sources")
    parser.add_argument("--only", default="", help="a regular expression for the files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=12.0, help="seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--coverage", default=".coverage", help="data file with the name of the test by line")
    parser.add_argument("--times", type=Path, help="keep the seconds of each test here, and read them again")
    parser.add_argument("--again", type=Path, help="try only what an earlier --out did not kill")
    parser.add_argument("--go-on", action="store_true", help="leave out what --out has already")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    return parser.parse_args()


def _times(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    if options.times and options.times.exists():
        known: dict[str, float] = json.loads(options.times.read_text())
        return known
    took_s = measure_times(folder)
    if options.times:
        options.times.write_text(json.dumps(took_s))
    return took_s


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    """The sample; with `again`, the survivors of an earlier run, at their current lines."""
    if options.again is None:
        return [
            mutant
            for room in ROOMS
            for mutant in sample(room, getattr(options, room), options.seed, options.only)
        ]
    left = Counter(_key(Mutant(**_fields(row))) for row in _rows(options.again) if row["outcome"] in _LEFT)
    found = []
    for mutant in (each for file in sorted({key[0] for key in left}) for each in mutants_of(file)):
        if left[_key(mutant)] > 0:
            left[_key(mutant)] -= 1
            found.append(mutant)
    return found


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(Mutant)}


def _key(mutant: Mutant) -> tuple[str | None, ...]:
    return mutant.file, mutant.function, mutant.kind, mutant.before, mutant.after


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


_LEFT = ("survived", "not run", "timed out", "no place")
_COLUMNS = ("mutants", "killed", "timed out", "survived", "not run", "unclear", "no place")


def _workers(todo: Tests, jobs: int, folder: Path, out: Path) -> None:
    """Try all mutants in `jobs` processes, those in functions first; each outcome is one line of `out`."""
    with out.open("a", buffering=1) as stream:

        def tell(mutant: Mutant, outcome: str, killer: str | None) -> None:
            stream.write(json.dumps({**asdict(mutant), "outcome": outcome, "by": killer}) + "\n")

        pids = []
        for try_all, is_inner in ((_try_collected, True), (_try_imported, False)):
            part = [each for each in todo if (each[0].function is not None) is is_inner]
            for job in range(jobs):
                if (pid := os.fork()) == 0:
                    place = folder / f"{job}-{is_inner}"
                    place.mkdir()
                    try_all(part[job::jobs], place, tell)
                    os._exit(0)
                pids.append(pid)
            for pid in pids:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def report(out: Path) -> None:
    """Print the results of the mutants by room and by kind; the last result of each counts."""
    rows = {(row["file"], row["index"]): row for row in _rows(out)}.values()
    for field in ("room", "kind"):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            counts[row[field]][row["outcome"]] += 1
            counts[row[field]]["mutants"] += 1
        print(f"{field:20}", *(f"{column:>9}" for column in _COLUMNS))
        for name, count in sorted(counts.items()):
            print(f"{name:20}", *(f"{count[column]:9}" for column in _COLUMNS))


def main() -> int:
    """Try a sample of mutants and print how many the tests noticed."""
    options = _arguments()
    os.chdir(REPOSITORY)
    os.nice(10)
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory(prefix="coach-mutation-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        chosen = _chosen(options)
        contexts = Contexts(options.coverage, _times(options, folder), options.budget)
        if options.go_on and options.out.exists():
            known = {(row["file"], row["index"]) for row in _rows(options.out)}
            chosen = [each for each in chosen if (each.file, each.index) not in known]
        else:
            options.out.unlink(missing_ok=True)
        todo = []
        with options.out.open("a") as stream:
            for mutant in map(contexts.as_run, chosen):
                if tests := contexts.of(mutant):
                    todo.append((mutant, tests, contexts.limit_s(tests)))
                else:
                    stream.write(json.dumps({**asdict(mutant), "outcome": "not run"}) + "\n")
        _workers(todo, options.jobs, folder, options.out)
    report(options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
