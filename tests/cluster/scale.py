"""A real slurmctld with ten thousand nodes, fifty thousand jobs and no slurmd: the answers of a large site's
controller.

Nodes in the cloud can be allocated although nothing runs on them: their jobs stay CONFIGURING. The rest are
held. It is the controller's answers that coach is measured against, so this much is real; booting it takes
about a minute, most of that for the jobs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.slurm import SlurmCluster
from tests.cluster.slurm import why_not as why_no_slurm
from tests.waiting import wait_until

_SUBMIT_MANY = Path(__file__).with_name("submit_many.c")
_CONF = """\
SlurmctldDebug=error
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=default_queue_depth=10,sched_interval=600,partition_job_depth=10
SlurmdTimeout=0
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
ResumeTimeout=65000
SuspendTime=-1
SuspendTimeout=1
ResumeRate=0
MaxJobCount=500000
TreeWidth=65533
MessageTimeout=60
NodeName=big[00001-{num_nodes:05d}] NodeAddr=127.0.0.1 CPUs=128 Sockets=2 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=1000000 Gres=gpu:h100:8 State=CLOUD
"""


def why_not() -> str | None:
    """Why it cannot be booted here, or None when it can."""
    if (reason := why_no_slurm()) is not None:
        return reason
    return None if Path("/usr/include/slurm/slurm.h").exists() else "not installed: libslurm-dev"


class ScaleCluster(SlurmCluster):
    """One cluster of this size under `directory`, up when `start()` returns. It stops with its jobs in the
    queue."""

    def __init__(self, directory: Path, *, num_nodes: int = 10_000) -> None:
        super().__init__(directory, num_nodes=0, more_conf=_CONF.format(num_nodes=num_nodes))

    def wait_idle(self, timeout_s: float = 40.0) -> None:
        wait_until(lambda: "idle" in self.run(["sinfo", "-h", "-o", "%t"], as_root=True).stdout, timeout_s)

    def cancel_all(self, timeout_s: float = 20.0) -> None:
        """Nothing runs anywhere: the jobs end with the controller."""

    def submit_many(self, num_pending: int, num_allocated: int, *, is_own: bool = False) -> None:
        """Jobs of ten users, or with `is_own` of the cluster's ordinary user alone."""
        program = self.directory / "submit_many"
        subprocess.run(["gcc", "-O2", "-o", program, _SUBMIT_MANY, "-lslurm"], check=True)
        whose = (str(self.user.uid), "1") if is_own else ("1", "10")
        for count, kind in ((num_allocated, "allocated"), (num_pending, "pending")):
            done = self.run([program, str(count), kind, *whose], as_root=True, timeout_s=600)
            assert done.returncode == 0, done.stdout + done.stderr
