"""`make site` as an administrator types it: a tree that never changes, two versions side by side, and a
session of the older version that goes on."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coach import __version__, installed
from tests.cluster.lmod import INIT
from tests.installed import REPOSITORY, reachable_python
from tests.ordinary_user import make_open_directory, make_user
from tests.terminal.tmux import Terminal

pytestmark = [pytest.mark.modules, pytest.mark.terminal, pytest.mark.root]

WHOLE = (
    "coach",
    "recipes",
    "site",
    "trainers",
    "docs",
    "LICENSE",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
)


def install(checkout: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    """The program that `make site` runs after its tools are installed."""
    argv = [sys.executable, checkout / "site" / "install.py", "--prefix", prefix]
    python = reachable_python()
    assert python is not None, "no Python that every user can start"
    argv += ["--python", python]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def prefix() -> Iterator[Path]:
    """A folder that everybody sees, with this version installed."""
    folder = make_open_directory("site")
    done = install(REPOSITORY, folder)
    assert done.returncode == 0, done.stderr
    yield folder
    for below, _, _ in os.walk(folder):
        Path(below).chmod(0o755)
    shutil.rmtree(folder)


def loaded(modules: Path, *commands: str) -> str:
    """The output of a login shell with Lmod."""
    program = "; ".join((f". {INIT}", f"module use {modules}", *commands))
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_nothing_of_an_installed_version_can_be_written_and_all_of_it_is_compiled(prefix: Path) -> None:
    root = prefix / __version__
    paths = [path for path in root.rglob("*") if not path.is_symlink()]
    assert [path for path in (root, *paths) if path.stat().st_mode & 0o222] == []
    package = next((root / "libexec" / "lib").glob("python3*/site-packages/coach"))
    sources = [path for path in package.rglob("*.py") if "data" not in path.relative_to(package).parts]
    compiled = {path.name.partition(".")[0] for path in package.rglob("__pycache__/*.pyc")}
    assert {path.stem for path in sources} <= compiled
    assert [path.name for path in (root / "bin").iterdir()] == ["coach"], (
        "no other program gets onto the PATH"
    )
    assert not stat.S_ISLNK((prefix / "etc" / "coach" / "site.toml").lstat().st_mode)


@pytest.mark.parametrize("folder", ["modulefiles", pytest.param("modulefiles-tcl", marks=pytest.mark.long)])
def test_the_modulefiles_bring_coach_and_its_manual_and_no_other_python(prefix: Path, folder: str) -> None:
    said = loaded(
        prefix / folder,
        "command -v python3",
        f"module load coach/{__version__}",
        "coach --version",
        "command -v python3",
    )
    before, version, after = said.splitlines()
    assert version == f"coach {installed.version()}"
    assert before == after
    said = loaded(
        prefix / folder,
        f"module load coach/{__version__}",
        "module unload coach",
        "command -v coach || echo gone",
    )
    assert said.splitlines()[-1] == "gone" or "/coach" in said.splitlines()[-1]
    assert str(prefix) not in said


def test_the_file_of_the_site_beside_all_versions_counts_and_its_locks_hold(
    prefix: Path, tmp_path: Path
) -> None:
    site = prefix / "etc" / "coach" / "site.toml"
    template = site.read_text()
    site.write_text('[switches]\ncancel = false\n[locked]\n"switches.cancel" = "exam week"\n')
    try:
        (tmp_path / "own.toml").write_text("")
        env = {**os.environ, "COACH_HOME": str(tmp_path), "COACH_SITE": str(tmp_path / "own.toml")}
        argv = [prefix / __version__ / "bin" / "coach", "cancel", "17", "--yes"]
        done = subprocess.run(argv, env=env | {"COACH_AS_ROOT": "1"}, capture_output=True, text=True)
        assert f"exam week (switched off by the site: switches.cancel in {site}:2)" in done.stderr
    finally:
        site.write_text(template)


def test_a_version_that_is_there_is_never_changed_in_place(prefix: Path) -> None:
    before = (prefix / __version__).stat().st_mtime_ns
    done = install(REPOSITORY, prefix)
    assert done.returncode == 1
    assert "is never changed in place" in done.stderr
    assert (prefix / __version__).stat().st_mtime_ns == before


@pytest.mark.long
def test_a_session_goes_on_while_a_second_version_is_installed_and_both_can_be_loaded(
    prefix: Path, tmp_path: Path, open_terminal: Callable[..., Terminal]
) -> None:
    user = make_user(make_open_directory("site-home") / "home")
    argv = [prefix / __version__ / "bin" / "coach", "--backend", "local"]
    terminal = open_terminal(argv, env=user.env(), as_user=user)
    terminal.wait_for("1-5 launch")
    checkout = tmp_path / "checkout"
    for name in WHOLE:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, checkout / name)
    following = f"99.{os.getpid()}.{secrets.randbelow(10**6)}"
    init = checkout / "coach" / "__init__.py"
    init.write_text(init.read_text().replace(f'"{__version__}"', f'"{following}"'))
    done = install(checkout, prefix)
    assert done.returncode == 0, done.stderr
    for key, seen in (
        ("R", "RECIPE"),
        ("Escape", "1-5 launch"),
        ("P", "COMPLAINT"),
        ("Escape", "1-5 launch"),
    ):
        terminal.send(key)
        terminal.wait_for(seen)
    terminal.send("d")
    terminal.wait_for(f"{__version__}/libexec/bin/python")
    modules = prefix / "modulefiles"
    for version in (__version__, following):
        assert loaded(modules, f"module load coach/{version}", "coach --version").split()[:2] == [
            "coach",
            version,
        ]
    said = loaded(
        modules, f"module load coach/{__version__}", f"module load coach/{following}", "coach --version"
    )
    assert f"coach {following}" in said
