"""`make site PREFIX=DIR`: install coach for all users, as a tree that never changes again.

Each version has its own folder, which never changes: a user of that version keeps all of its files while
another version is installed beside it. The modulefiles come last, so users see only a complete version.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from shlex import quote

from reference import write_reference

from coach import __version__

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
VENV = "libexec"
"""The folder of the virtual environment in the tree. It is not on the PATH: only `bin/coach` is."""
_PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile", "--no-cache-dir")


def main() -> int:
    """Install. Exit status: 0 done, 1 with one line that says why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", required=True, type=Path, help="the folder of all versions")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that every node sees")
    parser.add_argument("--wheelhouse", default="", help="where the wheels come from, without a network")
    parser.add_argument(
        "--private", action="store_true", help="install although other users cannot start the interpreter"
    )
    args = parser.parse_args()
    prefix = args.prefix.expanduser().absolute()
    root = prefix / __version__
    if root.exists():
        print(f"{root}: this version is installed already, and is never changed in place", file=sys.stderr)
        return 1
    hiding = hidden_by(args.python)
    if hiding is not None:
        words = f"only its owner can enter {hiding}, so nobody else could start coach"
        if not args.private:
            hint = "name another interpreter by PYTHON=, or give PRIVATE=1 if it is for you alone"
            print(f"{words}: nothing was installed; {hint}", file=sys.stderr)
            return 1
        print(f"warning: {words}", file=sys.stderr)
    try:
        _install(root, args.python, args.wheelhouse)
        _publish(prefix, root)
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(root)
        print(f"coach {__version__} was not installed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _remove(root)
        return 130
    print(f"coach {__version__} is in {root}")
    print(f"  module use {prefix / 'modulefiles'}; module load coach/{__version__}")
    return 0


def _install(root: Path, python: str, wheelhouse: str) -> None:
    """The tree of one version."""
    os.umask(0o022)
    venv = root / VENV
    _run(python, "-m", "venv", venv)
    own = venv / "bin" / "python"
    source = ("--no-index", "--find-links", wheelhouse) if wheelhouse else ()
    _run(own, *_PIP, *source, "-c", CHECKOUT / "constraints.txt", CHECKOUT)
    _run(own, "-m", "pip", "--disable-pip-version-check", "uninstall", "-qq", "-y", "pip", "setuptools")
    # Unchecked: a copy of the tree to another file system changes times, and no start asks for them.
    _run(own, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", venv / "lib")
    (root / "bin").mkdir()
    start = root / "bin" / "coach"
    # Isolated: no PYTHONPATH of a user, and so nothing of the current directory, is imported.
    start.write_text(f'#!/bin/sh\nexec {quote(str(own))} -I -m coach "$@"\n', encoding="utf-8")
    start.chmod(0o755)
    share = root / "share"
    write_reference(share)
    (share / "coach").mkdir()
    shutil.copy(HERE / "site.toml", share / "coach")
    shutil.copytree(HERE / "hooks", share / "coach" / "hooks")
    no_program = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(CHECKOUT / "docs", share / "doc" / "coach", ignore=no_program)
    _run(own, "-I", "-m", "coach", "--version")
    make_read_only(root)


def _publish(prefix: Path, root: Path) -> None:
    """The site's file, if there is none yet, and the modulefiles."""
    site_file = prefix / "etc" / "coach" / "site.toml"
    if not site_file.exists():
        site_file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / "site.toml", site_file)
    for template, name in (
        ("coach.lua", f"modulefiles/coach/{__version__}.lua"),
        ("coach.tcl", f"modulefiles-tcl/coach/{__version__}"),
    ):
        text = (HERE / "modulefiles" / template).read_text(encoding="utf-8")
        file = prefix / name
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f".{file.name}.new")
        made.write_text(text.replace("@VERSION@", __version__).replace("@ROOT@", str(root)), encoding="utf-8")
        made.replace(file)


def make_read_only(root: Path) -> None:
    """Take every write bit away, and let everybody read; from the leaves up."""
    for folder, _, names in os.walk(root, topdown=False):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                runs = 0o111 if mode & 0o100 else 0
                path.chmod(0o444 | runs)


def _remove(root: Path) -> None:
    """The parts of an incomplete version."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)
    shutil.rmtree(root, ignore_errors=True)


def hidden_by(python: str) -> Path | None:
    """The first folder above an interpreter that only its owner can enter; None where everybody can."""
    found = shutil.which(python)
    above = Path(os.path.realpath(found)).parents if found else ()
    return next((folder for folder in reversed(above) if not folder.stat().st_mode & stat.S_IXOTH), None)


def _run(*words: str | Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, env=env)


if __name__ == "__main__":
    sys.exit(main())
