"""Every file is opened for reading by `coach/trusted.py`, which judges what it has opened."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.measures import files, tree
from tests.installed import REPOSITORY

pytestmark = pytest.mark.xdist_group("house")  # one process parses the code once for all guards

DOORS = ("coach/trusted.py",)

EXCEPTIONS = {
    "coach/cli/__init__.py": "the standard streams",
    "coach/launch/snapshot.py": "coach's own trainers and node code, also inside coach.pyz",
    "coach/node/driver.py": "runs alone, without coach; a file of the kernel",
    "coach/node/output.py": "the log that it has just made",
    "coach/node/processes.py": "files of the kernel, thousands of times a minute",
    "coach/node/reporting/coach_report.py": "a copy of it runs in the training, without coach",
    "coach/node/sample.py": "the lock file of the sampler",
    "coach/node/stack_samples.py": "appends to its own file",
    "coach/node/stacks.py": "asks a process of this user through a file that it keeps open",
    "coach/rules/wordings/compile.py": "coach's own tables",
    "coach/rules/wordings/rows.py": "coach's own tables",
    "coach/sources/logs/printed_speeds.py": "coach's own table",
}
"""File → why it opens files itself."""

_MODULES = ("os", "io", "gzip", "bz2", "lzma", "codecs", "zipfile", "tarfile")
_LOADERS = {("np", "load"), ("numpy", "load"), ("np", "loadtxt"), ("np", "memmap"), ("tomllib", "load")}
_MODE = re.compile(r"[rwxab+tU]{1,4}")


def reads(call: ast.Call) -> bool:
    """True if the call opens a named file for reading. Flags in a variable may be any."""
    match call.func:
        case ast.Name(id="open"):
            return not _only_writes(call, 1)
        case ast.Attribute(attr="read_text" | "read_bytes"):
            return True
        case ast.Attribute(value=ast.Name(id="os"), attr="open"):
            return not re.search(r"O_WRONLY|O_DIRECTORY|_FOLDER\b|devnull", ast.unparse(call))
        case ast.Attribute(value=ast.Name(id=module), attr="open") if module in _MODULES:
            is_opened = any(each.arg == "fileobj" for each in call.keywords)
            return not is_opened and not _only_writes(call, 1)
        case ast.Attribute(attr="open"):
            mode = call.args[0] if call.args else ast.Constant("r")
            is_mode = isinstance(mode, ast.Constant) and _MODE.fullmatch(str(mode.value)) is not None
            return is_mode and not _only_writes(call, 0)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return (module, name) in _LOADERS
    return False


def _only_writes(call: ast.Call, place: int) -> bool:
    modes = [*call.args[place : place + 1], *(each.value for each in call.keywords if each.arg == "mode")]
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "r"
    return str(mode)[0] in "wax" and "+" not in str(mode)


def test_only_one_module_opens_files_for_reading() -> None:
    found: dict[str, list[str]] = {}
    for path in files("coach"):
        name = path.relative_to(REPOSITORY).as_posix()
        for node in ast.walk(tree(path)):
            if name not in DOORS and isinstance(node, ast.Call) and reads(node):
                found.setdefault(name, []).append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    others = [line for name in found.keys() - EXCEPTIONS.keys() for line in found[name]]
    assert not others, "\n".join(["take a reader of coach/trusted.py instead:", *others])
    assert EXCEPTIONS.keys() <= found.keys(), f"no longer needed: {EXCEPTIONS.keys() - found.keys()}"


@pytest.mark.parametrize(
    ("text", "is_reader"),
    [
        ("open(path)", True),
        ("open(path, 'rb')", True),
        ("open(path, mode='r+b')", True),
        ("open(path, 'xb')", False),
        ("path.open()", True),
        ("path.open('rb')", True),
        ("path.open(encoding='utf-8')", True),
        ("path.open('w')", False),
        ("stage.open('rule', code)", False),
        ("path.read_text()", True),
        ("Path(name).read_bytes()", True),
        ("read_text(path, owner=None)", False),
        ("os.open(path, flags)", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", False),
        ("gzip.open(path)", True),
        ("tarfile.open(fileobj=file)", False),
        ("np.load(path)", True),
        ("tomllib.load(file)", True),
    ],
)
def test_readers_are_told_from_writers(text: str, is_reader: bool) -> None:
    expression = ast.parse(text, mode="eval").body
    assert isinstance(expression, ast.Call)
    assert reads(expression) is is_reader
