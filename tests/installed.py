"""coach as a person has installed it: a virtual environment of its own that an ordinary user can reach, from
the built wheel.

The suite's own `.venv` will not do where its interpreter lives under root's home, which no other user may
enter: neither coach as that user, nor his jobs, could start it. It is only used when it is reachable; else an
environment is built from an interpreter that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.json_documents import check_printed
from tests.ordinary_user import User, is_reachable
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[1]

SHARED = "COACH_TEST_SHARED"
"""Names the directory of this run of the suite that all its processes share; every user can enter it."""

_PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check")
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
        """Run `coach args…` to its end, as the user, in his home; `timeout_s` is of an idle machine. The
        caller looks at the exit status."""
        done = subprocess.run(
            self.user.argv(self.argv(*args)),
            env=self.env(env),
            cwd=self.user.home,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout_s * PATIENCE,
        )
        check_printed(args, done.stdout)
        return done


def own_environment() -> Path | None:
    """The suite's own interpreter, if an ordinary user can reach it and the source tree that it is installed
    from."""
    python = Path(sys.executable)
    is_open = is_reachable(python) and is_reachable(Path(sys.prefix)) and is_reachable(REPOSITORY)
    return python if is_open and (python.parent / "coach").exists() else None


def compile_sources() -> None:
    """Compile the modules that the suite's own environment runs from this checkout."""
    _run([sys.executable, "-m", "compileall", "-q", REPOSITORY / "coach", REPOSITORY / "trainers"])


def shared_environment(name: str, wheel: Path, extras: str = "") -> Path:
    """The result of `build_environment`; the first process that needs it builds it for all."""
    folder = Path(os.environ[SHARED])
    complete = folder / f"{name}.complete"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder / name, ignore_errors=True)
            build_environment(folder / name, wheel, extras)
            complete.touch()
    return folder / name / "bin" / "python"


def build_environment(directory: Path, wheel: Path, extras: str = "") -> Path:
    """A new environment with coach from `wheel` and the dependencies of `extras` (`"train"`,
    `"train,frameworks"`), readable by every user. Returns its interpreter.

    The dependencies with torch take a gigabyte, so they are installed once and the environment only refers to
    them.
    """
    base = reachable_python()
    assert base is not None, (
        "no Python 3.11 or newer with venv that every user can reach (Debian: apt install python3-venv)"
    )
    needed = Path(sys.executable) if _has_what_fits(base, extras) else _dependencies(base, wheel, extras)
    _run([base, "-m", "venv", "--without-pip", directory])
    python = directory / "bin" / "python"
    _run([needed, *_PIP[:2], "--python", python, *_PIP[2:], "--no-deps", wheel])
    (_packages_of(python) / "dependencies.pth").write_text(f"{_packages_of(needed)}\n")
    return python


def _has_what_fits(base: Path, extras: str) -> bool:
    """True if an environment from `base` can use the suite's own packages.

    To install them again takes a minute or two. The core alone is installed: the suite's own packages hold
    torch too.
    """
    named = {
        "train": ("torch", "torchvision", "deepspeed"),
        "frameworks": ("pytorch_lightning", "mpi4py", "tensorboard"),
        "language": ("tokenizers", "datasets"),
    }
    modules = [module for extra in filter(None, extras.split(",")) for module in named[extra]]
    version = _run([base, "-c", "import sys; print(sys.implementation.cache_tag)"]).strip()
    return (
        bool(modules)
        and all(importlib.util.find_spec(module) is not None for module in modules)
        and version == sys.implementation.cache_tag
        and is_reachable(_packages_of(Path(sys.executable)))
    )


def _dependencies(base: Path, wheel: Path, extras: str) -> Path:
    """An interpreter with coach's dependencies and without coach. It stays inside the suite's own environment
    for the next run, where others can reach that."""
    keeper = Path(sys.prefix if is_reachable(Path(sys.prefix)) else os.environ[SHARED])
    requirements = [REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt"]
    digest = hashlib.sha256(
        b"".join([os.fsencode(base), *(path.read_bytes() for path in requirements)])
    ).hexdigest()
    prefix = f"everybody-{extras or 'core'}-"
    folder = keeper / f"{prefix}{digest[:12]}"
    python, complete = folder / "bin" / "python", folder / "complete"
    with (keeper / "everybody.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            for stale in keeper.glob(f"{prefix}*"):
                shutil.rmtree(stale)
            _run([base, "-m", "venv", folder])
            requirement = f"{wheel}[{extras}]" if extras else str(wheel)
            _run([python, *_PIP, "-c", REPOSITORY / "constraints.txt", requirement])
            _run([python, "-m", "pip", "uninstall", "-q", "-y", "cluster-coach"])
            complete.touch()
    return python


def _packages_of(python: Path) -> Path:
    return Path(_run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())


def _run(argv: Sequence[str | os.PathLike[str]]) -> str:
    """Run a step of the set-up. Returns its output."""
    result = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=1500, umask=0o022)
    assert result.returncode == 0, f"{' '.join(map(str, argv))}: {result.stderr}"
    return result.stdout


def shared_wheel() -> Path:
    """The wheel of the tree, which the first process that asks for it builds."""
    folder = Path(os.environ[SHARED]) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = next(folder.glob("*.whl"), None)
        return built or build_wheel(folder)


def build_wheel(directory: Path) -> Path:
    """The wheel of the current tree."""
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-qq",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
            directory,
            REPOSITORY,
        ]
    )
    (wheel,) = directory.glob("*.whl")
    return wheel


def reachable_python() -> Path | None:
    """An interpreter, Python 3.11 or newer, that every user can start and make environments with, or None."""
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
