"""A Slurm of another version than the machine's, from the root file system of another distribution.

Sites run versions that differ by years, and rate limits are newer than the test machine's version. The
daemons run inside that root, by chroot, in their own mount namespace. An ordinary user runs the clients and
may not call chroot, so they start outside of the root, with the other root's loader, libraries and plugins.

`COACH_TEST_SLURM_ROOT` names the root; tests/README.md describes how to make it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tests.cluster.slurm import PROGRAMS, SlurmCluster

VARIABLE = "COACH_TEST_SLURM_ROOT"

_CLIENTS = ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "sdiag", "sacct", "sprio", "sshare", "srun")
_ENTER = """\
mount --rbind "$1" "$1" || exit
for shared in /proc /dev /sys "$2"; do mkdir -p "$1$shared" && mount --rbind "$shared" "$1$shared" || exit; done
mkdir -p "$1$1" && mount --bind "$1" "$1$1" || exit
root=$1; shift 2
exec chroot "$root" "$@"
"""
"""The root can be named inside as outside, so that one slurm.conf says to both where the plugins are."""


def why_not() -> str | None:
    """The reason why there is no other Slurm, or None."""
    root = os.environ.get(VARIABLE)
    if not root:
        return f"{VARIABLE} names no root file system with another Slurm"
    missing = [name for name in PROGRAMS if not any(map(os.path.lexists, _places(Path(root), name)))]
    return f"{VARIABLE}: not installed in {root}: {', '.join(missing)}" if missing else None


class OtherSlurm(SlurmCluster):
    """The cluster of the tests with the daemons and clients of another root. Jobs see that root, too."""

    def __init__(self, directory: Path, more_conf: str) -> None:
        self._root = Path(os.environ[VARIABLE]).resolve()
        (self._libraries,) = (self._root / "usr" / "lib").glob("*-linux-gnu")
        plugins = self._libraries / "slurm-wlm"
        super().__init__(directory, more_conf=f"PluginDir={plugins}\n{more_conf}")
        self._bin = self.directory / "bin"
        self._bin.mkdir()
        (loader,) = (self._root / "usr" / "lib64").glob("ld-linux-*")
        for name in _CLIENTS:
            words = [
                loader,
                "--library-path",
                f"{self._libraries}:{plugins}",
                self._root / "usr" / "bin" / name,
            ]
            wrapper = self._bin / name
            wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            wrapper.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"PATH": f"{self._bin}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    @property
    def version(self) -> str:
        return self.run(["sinfo", "--version"]).stdout.split()[-1]

    def _spawn(self, name: str, argv: list[str]) -> None:
        if name == "munged":
            super()._spawn(name, argv)
            return
        enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._root), str(self.directory)]
        super()._spawn(name, [*enter, *argv])


def _places(root: Path, program: str) -> tuple[Path, Path]:
    return root / "usr" / "bin" / program, root / "usr" / "sbin" / program
