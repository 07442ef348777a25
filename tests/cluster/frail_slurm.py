"""A cluster whose parts fail: daemons that hang, a munge that is away, a node that gets another name, a
controller that has lost its memory.

It is separate from the cluster of the other tests, because its timeouts are short and some of its faults
cannot be undone.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.cluster.slurm import SlurmCluster
from tests.waiting import wait_until

_SHORT_TIMEOUTS = "MessageTimeout=3\nSlurmdTimeout=6\n"


class FrailSlurm(SlurmCluster):
    """`restore()` mends all but `rename_node` and `lose_memory`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, more_conf=_SHORT_TIMEOUTS)

    def freeze(self, daemon: str) -> None:
        """It still listens, and does nothing any more."""
        self._daemons[daemon].signal(signal.SIGSTOP)

    def thaw(self, daemon: str) -> None:
        self._daemons[daemon].signal(signal.SIGCONT)

    def end_munge(self) -> None:
        self._daemons["munged"].end()
        wait_until(lambda: not (self.directory / "munge" / "sock").exists(), 10, "its socket is gone")

    def start_munge(self) -> None:
        self._start_munged()

    def rename_node(self, old: str, new: str) -> None:
        """As an administrator does: in the files, and all daemons that read them are started again."""
        self.kill_controller()
        self.kill_node(old)
        for name in ("slurm.conf", "gres.conf", "hosts"):
            file = self.directory / "etc" / name
            file.write_text(file.read_text().replace(old, new))
        del self._daemons[old]
        self.node_names = [new if name == old else name for name in self.node_names]
        self.start_node(new)
        self.start_controller()

    def lose_memory(self, first_job_id: int) -> None:
        """Start the controller with an empty state, as after a lost disk: it knows no job, and job numbers
        start again."""
        self.kill_controller()
        shutil.rmtree(self.directory / "state")
        (self.directory / "state").mkdir()
        conf = self.directory / "etc" / "slurm.conf"
        lines = [line for line in conf.read_text().splitlines() if not line.startswith("FirstJobId=")]
        conf.write_text("\n".join([*lines, f"FirstJobId={first_job_id}\n"]))
        self.start_controller()
