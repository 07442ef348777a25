"""A Slurm with a site's habits: it refuses in its own words, and its nodes do not see the submitter's home.

It is separate from the plain cluster, because a site's demands decide whether the first launch works. Some
real site makes each of these demands: an account, a type of GPU, a reservation, a limit of a partition. Real
accounts need an accounting database (slurmdbd and a SQL server); here job_submit.lua knows two accounts and
names them in its refusal, as such scripts do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.slurm import SlurmCluster

ACCOUNTS = ("lab", "teaching")
RESERVATION = "workshop"
SHORT_MINUTES = 10

_CONF = f"""\
JobSubmitPlugins=lua
EnforcePartLimits=ALL
PartitionName=short Nodes=ALL MaxTime={SHORT_MINUTES} DefaultTime=5 State=UP OverSubscribe=NO
"""

_JOB_SUBMIT_LUA = """\
local accounts = { lab = true, teaching = true }

function slurm_job_submit(job, partitions, uid)
   if not accounts[job.account] then
      slurm.log_user("Who pays for this job? Your accounts: lab, teaching.")
      return slurm.ESLURM_INVALID_ACCOUNT
   end
   if job.partition == "gpu" then
      local gpus = job.tres_per_node or job.gres or ""
      if not string.find(gpus, "gpu:%a") then
         slurm.log_user("Partition gpu: name the type of GPU that you need, for example --gres=gpu:TYPE:1.")
         return slurm.ERROR
      end
      if job.reservation == nil then
         slurm.log_user("Partition gpu is kept for the workshop this week: submit with --reservation=NAME.")
         return slurm.ERROR
      end
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
"""


_EXAM_WEEK_LUA = """\
function slurm_job_submit(job, partitions, uid)
   slurm.log_user("Exam week: no new jobs before Monday.")
   slurm.log_user("Questions: help@hpc.example.org")
   return slurm.ERROR
end

function slurm_job_modify(job, record, partitions, uid)
   if uid == 0 then return slurm.SUCCESS end
   slurm.log_user("Jobs are not changed in exam week.")
   return slurm.ERROR
end

return slurm.SUCCESS
"""


@contextlib.contextmanager
def exam_week(cluster: SlurmCluster) -> Iterator[None]:
    """The site refuses every new job and every change of a job. slurmctld reads the file again when its time
    has changed."""
    file = cluster.directory / "etc" / "job_submit.lua"
    usual, written_s = file.read_text(), file.stat().st_mtime
    try:
        file.write_text(_EXAM_WEEK_LUA)
        os.utime(file, (written_s + 10, written_s + 10))
        yield
    finally:
        file.write_text(usual)
        os.utime(file, (written_s + 20, written_s + 20))


def why_not() -> str | None:
    """The reason why this site cannot boot here although a plain cluster can, or None."""
    folders = (
        "usr/lib/*/slurm-wlm",
        "usr/lib*/slurm",
        "usr/lib/*/slurm",
        "usr/local/lib*/slurm",
        "opt/slurm/lib*/slurm",
    )
    if any(found for folder in folders for found in Path("/").glob(f"{folder}/job_submit_lua.so")):
        return None
    return "not installed: Slurm's job_submit_lua (Debian: slurm-wlm-basic-plugins)"


def site_cluster(directory: Path, *, is_detached: bool = False) -> SlurmCluster:
    """The cluster, not yet started. Its reservation is made by `open_reservation`, once it runs."""
    return SlurmCluster(
        directory,
        num_nodes=2,
        more_conf=_CONF,
        more_files={"job_submit.lua": _JOB_SUBMIT_LUA},
        is_home_hidden=True,
        is_detached=is_detached,
    )


def open_reservation(cluster: SlurmCluster) -> None:
    """Reserve one node for the cluster's user, who has to name the reservation to get it."""
    options = ["starttime=now", "duration=infinite", f"users={cluster.user.name}", "nodes=node2"]
    created = cluster.run(
        ["scontrol", "create", "reservation", f"reservationname={RESERVATION}", *options], as_root=True
    )
    assert created.returncode == 0, created.stderr
