"""A run as a row of the queue: for lists of jobs, where Slurm has forgotten the job or there was none."""

from __future__ import annotations

from coach.model.slurm.cluster import Job
from coach.model.training.run import Run


def run_as_job(run: Run) -> Job:
    """What its own file tells. Its number is the run's id where it had no job."""
    limit = run.resources.get("time_limit_s")
    limit_s = int(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    used_s = None
    if run.started_time_s is not None and run.ended_time_s is not None:
        used_s = max(0, round(run.ended_time_s - run.started_time_s))
    num_nodes = run.resources.get("num_nodes")
    partition = run.resources.get("partition")
    return Job(
        job_id=run.job_id or run.run_id,
        name=run.recipe,
        user=run.user or "",
        state=run.state or "",
        reason=None,
        partition=partition if isinstance(partition, str) else "",
        nodes=None,
        num_nodes=num_nodes if isinstance(num_nodes, int) else None,
        num_cpus=None,
        num_gpus=run.num_gpus,
        time_used_s=used_s,
        time_left_s=None,
        time_limit_s=limit_s,
        submit_time_s=run.created_time_s,
        start_time_s=run.started_time_s,
        end_time_s=run.ended_time_s,
        work_dir=run.run_dir,
        host=run.host,
        cluster=run.cluster,
    )
