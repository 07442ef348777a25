"""Two Slurm clusters with restrictions of real sites: one hides everything from its users, one has hidden
partitions and forbids requeue.

They are two, because a site that hides all partitions cannot hide single ones.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.slurm import SlurmCluster

_PRIVATE = """\
PrivateData=jobs,nodes,partitions,reservations,usage,accounts
"""
_CLOSED = """\
JobRequeue=0
PartitionName=hidden Nodes=ALL Hidden=YES MaxTime=1:00:00 DefaultTime=10 State=UP
PartitionName=staff Nodes=ALL AllowGroups=root MaxTime=1:00:00 DefaultTime=10 State=UP
"""


def private_cluster(directory: Path) -> SlurmCluster:
    """A user sees his own jobs there, and nothing else."""
    return SlurmCluster(directory, num_nodes=2, more_conf=_PRIVATE)


def closed_cluster(directory: Path) -> SlurmCluster:
    """Partitions that `squeue` and `sinfo` show with `-a` only, one for root's group; no job is requeued
    unless it asks for that."""
    return SlurmCluster(directory, num_nodes=2, more_conf=_CLOSED)


def forget_script(cluster: SlurmCluster, job_id: str) -> None:
    """Take a job's batch script from the controller, which then refuses `scontrol write batch_script`."""
    (script,) = (cluster.directory / "state").glob(f"hash.*/job.{job_id}/script")
    script.unlink()
