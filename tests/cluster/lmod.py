"""Lmod, as Debian installs it, with a module of the tests' own."""

from __future__ import annotations

from pathlib import Path

INIT = Path("/usr/share/lmod/lmod/init/bash")
"""What a login shell reads for Lmod."""

_MODULE = """-- -*- lua -*-
help("torch, in an environment that the tests have made")
prepend_path("PATH", "{bin}")
"""


def why_not() -> str | None:
    """Why there are no modules here, or None when there are."""
    return None if INIT.exists() else "not installed: lmod"


def write_module(folder: Path, name: str, python: Path) -> Path:
    """A modulefile that puts this interpreter's folder on the PATH; the folder for MODULEPATH."""
    path = folder / "modulefiles" / f"{name}.lua"
    path.parent.mkdir(parents=True)
    path.write_text(_MODULE.format(bin=python.parent))
    return folder / "modulefiles"
