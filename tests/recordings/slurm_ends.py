"""Make the logs of `slurm/` again, by jobs that a real Slurm really ends: a time limit, scancel, a
preemption, a lost node, a refusal.

    python tests/recordings/slurm_ends.py [NAME…]

Needs root and Slurm's programs; boots the tests' own cluster. The time limit takes more than a minute, which
is Slurm's least.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from tests.cluster.slurm import SlurmCluster
from tests.ordinary_user import make_open_directory
from tests.waiting import wait_until

HERE = Path(__file__).parent
PREEMPTION = """PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=low Nodes=node1 PriorityTier=1 GraceTime=0 PreemptMode=CANCEL State=UP
PartitionName=high Nodes=node1 PriorityTier=10 State=UP"""
TRAINING = """#!/bin/bash
step=0
while true; do
  step=$((step + 1))
  echo "step $step loss: 2.$((1000 - step))"
  sleep 1
done
"""
IN_A_STEP = "#!/bin/bash\nsrun --ntasks=2 --label python3 -u train.py\n"
PYTHON = """import time
for step in range(1, 1000):
    print(f"step {step} loss: {2.3 / step ** 0.5:.4f}")
    time.sleep(0.5)
"""
FAILING = PYTHON.replace(
    "    time.sleep(0.5)",
    (
        "    time.sleep(0.5)\n    if step == 4 and __import__('os').environ['SLURM_PROCID'] == '1':\n        "
        "raise ValueError('labels of 11 classes, 10 expected')"
    ),
)
REFUSALS = (
    ("--partition=gpu", "--gres=gpu:h100:1"),
    ("--partition=nowhere",),
    ("--nodes=99",),
    ("--mem=900G",),
    ("--time=tomorrow",),
    ("--no-such-option",),
)


class Maker:
    """Jobs on one cluster, and the logs they leave."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm

    def submit(self, name: str, script: str, *options: str) -> str:
        home = self.slurm.user.home
        (home / "train.py").write_text(FAILING if name == "task-failed" else PYTHON)
        return self.slurm.submit(script, f"--output={home}/{name}.log", f"--chdir={home}", *options)

    def wait_steps(self, name: str) -> None:
        log = self.slurm.user.home / f"{name}.log"
        wait_until(lambda: log.exists() and "step 5" in log.read_text(), 30, f"{name} gets on")

    def keep(self, name: str) -> None:
        time.sleep(3)  # the last lines of slurmstepd and srun come after the job's end
        text = (self.slurm.user.home / f"{name}.log").read_text()
        (HERE / "slurm" / f"{name}.log").write_text(text.replace(str(self.slurm.user.home), "/home/user"))

    def cancelled(self, name: str, script: str) -> None:
        job = self.submit(name, script, "--nodes=1", "--ntasks=2")
        self.wait_steps(name)
        self.slurm.run(["scancel", job])
        self.slurm.wait_state(job, "CANCELLED")

    def time_limit(self) -> None:
        job = self.submit("time-limit", IN_A_STEP, "--time=1", "--ntasks=2")
        self.slurm.wait_state(job, "TIMEOUT", timeout_s=150)

    def preempted(self) -> None:
        job = self.submit("preempted", TRAINING, "--partition=low", "--nodelist=node1", "--exclusive")
        self.wait_steps("preempted")
        other = self.submit("other", TRAINING, "--partition=high", "--nodelist=node1", "--exclusive")
        self.slurm.wait_state(job, "PREEMPTED")
        self.slurm.run(["scancel", other])

    def node_failed(self) -> None:
        script = "#!/bin/bash\nsrun --nodes=2 --ntasks=2 --label --no-kill python3 -u train.py\n"
        job = self.submit("node-failed", script, "--nodes=2", "--nodelist=node2,node3", "--no-requeue")
        self.wait_steps("node-failed")
        self.slurm.kill_node("node3")
        self.slurm.run(["scontrol", "update", "nodename=node3", "state=down", "reason=lost"], as_root=True)
        self.slurm.wait_state(job, "NODE_FAIL")

    def task_failed(self) -> None:
        job = self.submit(
            "task-failed", IN_A_STEP.replace("--label", "--label --kill-on-bad-exit"), "--ntasks=2"
        )
        self.slurm.wait_state(job, "FAILED")

    def refused(self) -> None:
        script = self.slurm.user.home / "job.sh"
        script.write_text(TRAINING)
        script.chmod(0o755)
        said = [self.slurm.run(["sbatch", *options, str(script)]).stderr for options in REFUSALS]
        (HERE / "slurm" / "invalid-request.log").write_text("".join(said))


def main() -> None:
    wanted = set(sys.argv[1:])
    (HERE / "slurm").mkdir(exist_ok=True)
    slurm = SlurmCluster(make_open_directory("slurm-ends"), more_conf=PREEMPTION)
    slurm.start()
    try:
        maker = Maker(slurm)
        for name, make in {
            "cancelled": lambda: maker.cancelled("cancelled", TRAINING),
            "cancelled-step": lambda: maker.cancelled("cancelled-step", IN_A_STEP),
            "preempted": maker.preempted,
            "task-failed": maker.task_failed,
            "node-failed": maker.node_failed,
            "time-limit": maker.time_limit,
            "invalid-request": maker.refused,
        }.items():
            if not wanted or name in wanted:
                make()
                if name != "invalid-request":
                    maker.keep(name)
    finally:
        slurm.stop()
        shutil.rmtree(slurm.directory)


if __name__ == "__main__":
    main()
