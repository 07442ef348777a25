"""coach as a person has installed it: a virtual environment of its own that an ordinary user can reach, from the built wheel.

The suite's own `.venv` will not do where its interpreter lives under root's home, which no other user may enter: neither coach as that
user, nor his jobs, could start it. It is only used when it is reachable; else an environment is built from an interpreter that is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.ordinary_user import User, is_reachable

REPOSITORY = Path(__file__).resolve().parents[1]

_CAN_MAKE_VENV = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"


@dataclass(frozen=True, slots=True)
class InstalledCoach:
    """coach in one environment, run as one ordinary user.

    Call it to run a command to its end, or give `argv()`, `env()` and `user` to a `Terminal` for the screens:

        result = user_coach("launch", "baseline", "--wait", "--set", "max_steps=5", timeout_s=120)
        Terminal(user_coach.argv("--readonly"), env=user_coach.env(), as_user=user_coach.user)
    """

    python: Path
    """Its interpreter; what `--python` takes, when this environment has torch."""
    user: User
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """What the user's environment has beside a fresh login's: `SLURM_CONF`, mostly."""

    def argv(self, *args: str | os.PathLike[str]) -> list[str]:
        """The command line of `coach args…`."""
        return [str(self.python.parent / "coach"), *(os.fspath(arg) for arg in args)]

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment that coach is run in."""
        return self.user.env(self.surroundings, more or {})

    def __call__(
        self,
        *args: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run `coach args…` to its end, as the user, in his home. The caller looks at the exit status."""
        return subprocess.run(
            self.user.argv(self.argv(*args)),
            env=self.env(env),
            cwd=self.user.home,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout_s,
        )

    def read(self, path: Path) -> str:
        """A file of the user's, whose home is closed to everybody but him and root."""
        return path.read_text(encoding="utf-8", errors="surrogateescape")


def own_environment() -> Path | None:
    """The suite's own interpreter, if an ordinary user can reach it and the source tree that it is installed from."""
    python = Path(sys.executable)
    is_open = is_reachable(python) and is_reachable(Path(sys.prefix)) and is_reachable(REPOSITORY)
    return python if is_open and (python.parent / "coach").exists() else None


def build_environment(directory: Path, wheel: Path, extras: str = "") -> Path:
    """A new environment with coach and `extras` (`"train"`), reachable by every user; its interpreter."""
    base = _reachable_python()
    assert base is not None, (
        "no Python 3.11 or newer with venv that every user can reach (Debian: apt install python3-venv)"
    )
    subprocess.run([base, "-m", "venv", directory], check=True, timeout=120)
    python = directory / "bin" / "python"
    requirement = f"{wheel}[{extras}]" if extras else str(wheel)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", "constraints.txt"]
    result = subprocess.run(
        [*pip, requirement], cwd=REPOSITORY, capture_output=True, text=True, timeout=1500, umask=0o022
    )
    assert result.returncode == 0, f"pip install {requirement}: {result.stderr}"
    return python


def build_wheel(directory: Path) -> Path:
    """The wheel of the tree as it stands."""
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    result = subprocess.run(
        [*argv, "-w", directory, REPOSITORY], capture_output=True, text=True, timeout=300, umask=0o022
    )
    assert result.returncode == 0, f"pip wheel: {result.stderr}"
    (wheel,) = directory.glob("*.whl")
    return wheel


def _reachable_python() -> Path | None:
    named = [
        shutil.which(f"python3{minor}", path="/usr/local/bin:/usr/bin")
        for minor in ("", ".14", ".13", ".12", ".11")
    ]
    for name in (getattr(sys, "_base_executable", None), *named):
        if name and is_reachable(Path(name)):
            check = subprocess.run([name, "-c", _CAN_MAKE_VENV], capture_output=True, timeout=30)
            if check.returncode == 0:
                return Path(name)
    return None
