"""All texts that explain columns, job states and GPU values: the meaning, the source, and what to do.

`queueing/` parses Slurm's reasons and node states and explains them. Each rule has a page of its own. A text
is (meaning, source, what to do); the last may be empty.
"""

from __future__ import annotations

Text = tuple[str, str, str]

_SQUEUE = "squeue"
_NODES = "scontrol show nodes"
_RUN = "run.json of the run's directory"
_METRICS = "metrics/rank-*.jsonl of the run's directory"
_JUDGED = "coach's rules, on the logs, metrics and telemetry that were read"
_ENDED = "sacct, else the run's directory, else coach's last view of the job in the queue"
_SAMPLER = "the sampler beside the training, by"

TABLES: dict[str, str] = {
    "queue": "jobs",
    "nodes": "nodes",
    "runs": "runs",
    "job": "jobs",
    "node": "nodes",
}
"""Table → the source of its values. The screen shows the age of that source."""

COLUMNS: dict[str, Text] = {
    # The queue.
    "queue.own": ("a mark beside each job of yours", f"{_SQUEUE}, field UserName", ""),
    "queue.job_id": (
        "the job's number in Slurm; 17_3 is task 3 of array 17, 20+1 is a component of heterogeneous job 20",
        f"{_SQUEUE}, field JobArrayID",
        "give it to scancel, scontrol and coach",
    ),
    "queue.name": ("the job's name, from --job-name or its script", f"{_SQUEUE}, field Name", ""),
    "queue.short_name": ("the job's name, from --job-name or its script", f"{_SQUEUE}, field Name", ""),
    "queue.user": ("the user who submitted it", f"{_SQUEUE}, field UserName", ""),
    "queue.state": ("the job's state in Slurm", f"{_SQUEUE}, field State", ""),
    "queue.reason": (
        "why a pending job waits, in a few words; empty for a running job",
        f"{_SQUEUE}, field Reason",
        "Enter explains it in full",
    ),
    "queue.partition": (
        "the partition that the job requested: a set of nodes with its own limits",
        f"{_SQUEUE}, field Partition",
        "W compares the partitions",
    ),
    "queue.nodes": ("the job's nodes; empty for a pending job", f"{_SQUEUE}, field NodeList", ""),
    "queue.gpus": (
        "GPUs that are allocated, or requested; allocated does not mean used; – for shards and MPS, which "
        "are parts of a GPU",
        f"{_SQUEUE}, fields tres-alloc and tres-per-job, -node, -task",
        "the job's GPU screen shows their use, if it is measured",
    ),
    "queue.used": ("how long the job has run", f"{_SQUEUE}, field TimeUsed", ""),
    "queue.left": (
        "time left until the limit; for a pending job, Slurm's estimate of its start, which changes with the "
        "queue",
        f"{_SQUEUE}, fields TimeLeft and StartTime",
        "T lowers the limit, for an earlier start",
    ),
    "queue.account": ("the account that is charged for the job", f"{_SQUEUE}, field Account", ""),
    "queue.qos": (
        "the quality of service: a set of limits and a priority",
        f"{_SQUEUE}, field QOS",
        "sacctmgr show qos lists them",
    ),
    "queue.class": (
        "the class of a pending job's reason: wait, limit, never, held",
        "coach, from Slurm's reason",
        "",
    ),
    "queue.cpus": ("the job's CPUs, allocated or requested", f"{_SQUEUE}, field NumCPUs", ""),
    "queue.limit": (
        "the job's time limit: Slurm ends the job then",
        f"{_SQUEUE}, field TimeLimit",
        "a user may lower it; only the site may raise it",
    ),
    "queue.wait": ("how long a pending job has waited", f"{_SQUEUE}, field SubmitTime", ""),
    "queue.priority": (
        "the job's priority: of two pending jobs, Slurm considers the one with the larger number first",
        f"{_SQUEUE}, field PriorityLong",
        "Enter shows its parts, where the site reports them",
    ),
    "queue.submit": ("when the job was submitted", f"{_SQUEUE}, field SubmitTime", ""),
    "queue.progress": (
        "progress of the training: steps done, and steps planned",
        f"{_METRICS}, step; the number of steps from run.json or the lines of its log",
        "",
    ),
    "queue.doing": (
        "progress of the training, else how long the job has run; for a pending job, Slurm's estimate of its "
        "start",
        f"{_METRICS}, step; {_SQUEUE}, fields TimeUsed and StartTime",
        "",
    ),
    "queue.to_go": (
        "time that the remaining steps will take at the present pace",
        f"{_METRICS}, step_time_s",
        "longer than the time left: a longer limit at the next launch, and checkpoints",
    ),
    "queue.loss": (
        "a curve of the newest losses, and the last loss",
        f"{_METRICS}, loss, of rank 0",
        "it should fall over hundreds of steps; NaN never recovers",
    ),
    "queue.rate": (
        "samples of all ranks per second, over the newest steps",
        f"{_METRICS}, num_samples_global and step_time_s",
        "c compares it with another run: the effect of a change",
    ),
    "queue.use": (
        "mean utilization of its GPUs: the share of time in which at least one kernel ran",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "low: the GPUs wait, mostly for data",
    ),
    "queue.memory": (
        "device memory in use on its GPUs, and in all",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "room left: a larger batch",
    ),
    "queue.power": (
        "power that its GPUs draw",
        f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage",
        "low beside high use: the kernels are small, or wait for memory",
    ),
    "queue.why": (
        "the job's most severe finding, or that it has none; else Slurm's reason",
        f"{_JUDGED}; {_SQUEUE}, field Reason",
        "Enter opens it",
    ),
    # Nodes.
    "nodes.name": ("the node's name", f"{_NODES}, NodeName", "Enter opens it"),
    "nodes.state": ("the node's state in Slurm", f"{_NODES}, State", ""),
    "nodes.cpus": (
        "allocated CPUs, and all CPUs; allocated does not mean busy",
        f"{_NODES}, CPUAlloc and CPUTot",
        "",
    ),
    "nodes.memory": ("allocated memory, and all memory", f"{_NODES}, AllocMem and RealMemory", ""),
    "nodes.gpus": (
        "allocated GPUs, also by shards or MPS, and all GPUs, by type; allocated does not mean busy",
        f"{_NODES}, Gres and GresUsed",
        "Enter shows which job has which GPU",
    ),
    "nodes.partitions": ("the partitions that the node is in", f"{_NODES}, Partitions", ""),
    "nodes.reason": (
        "the note of an administrator, or of Slurm, when the node was taken out of service",
        f"{_NODES}, Reason",
        "ask the administrators if it lasts",
    ),
    "nodes.use": (
        "mean utilization of the node's measured GPUs; an allocated GPU may be idle",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "coach measures only the GPUs of jobs that it follows",
    ),
    "nodes.gpu_memory": (
        "device memory in use on the measured GPUs, and in all",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "",
    ),
    "nodes.power": ("power that the measured GPUs draw", f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage", ""),
    # Runs.
    "runs.mark": (
        "a mark beside each run that you chose to compare",
        "you",
        "c compares two marked runs",
    ),
    "runs.run": ("the run's id: launch time, recipe, four random hexadecimal digits", _RUN, ""),
    "runs.state": ("Slurm's state of its job", "the queue, else the run's own exit.json", ""),
    "runs.recipe": ("the recipe that was launched", _RUN, "R shows its lesson"),
    "runs.job": ("the job's number in Slurm; local: the run trained without Slurm", _RUN, ""),
    "runs.size": ("nodes and GPUs (2n 4gpu), or nodes and CPU ranks (1n 2cpu)", _RUN, ""),
    "runs.lr": ("the learning rate at launch", _RUN, ""),
    "runs.rate": (
        "samples of all ranks per second, over the newest steps; – if coach has not read them yet",
        f"{_METRICS}, num_samples_global and step_time_s",
        "Enter reads it",
    ),
    "runs.age": ("time since the launch", _RUN, ""),
    "runs.finding": (
        "the most severe finding, or the result of the check",
        _JUDGED,
        "Enter, then E on the finding",
    ),
    "runs.parent": (
        "the run that was relaunched to make this one, or its parameter value in a sweep",
        _RUN,
        "c compares them",
    ),
    # Findings.
    "findings.severity": (
        "critical: the cause ended the run, will end it, or wastes most of it; warning: it costs time or "
        "quality; info: worth knowing",
        _JUDGED,
        "",
    ),
    "findings.rule": ("the rule that made the finding", _JUDGED, "E opens its page"),
    "findings.job": ("the job or run of the finding", _JUDGED, "Enter opens it"),
    "findings.name": ("the job's name", f"{_SQUEUE}, field Name", ""),
    "findings.state": ("the job's state", f"{_SQUEUE}, field State", ""),
    "findings.summary": ("the summary of the finding", _JUDGED, "Enter shows its proof, F its fix"),
    "findings.lost": (
        "an upper bound of the GPU-hours lost so far: time since the cause began, times the GPUs",
        "times in the metrics, logs and telemetry; the job's GPUs",
        "",
    ),
    "findings.since": ("time since the cause began, by the times in the data", _JUDGED, ""),
    # Jobs that have ended.
    "past.job_id": ("the job's number", _ENDED, "Enter opens it"),
    "past.name": ("the job's name", _ENDED, ""),
    "past.state": ("the job's final state; after –, the last state that coach saw in the queue", _ENDED, ""),
    "past.exit": ("the exit status of the job's script", _ENDED, "0: success; above 128: a signal ended it"),
    "past.ended": ("time since the job ended", _ENDED, ""),
    "past.used": ("how long the job ran", _ENDED, ""),
    "past.use_time": (
        "run time as a percentage of the time limit",
        _ENDED,
        "far below 100 %: with a shorter --time a job may start sooner",
    ),
    "past.use_cpu": (
        "CPU time used, as a percentage of run time times allocated CPUs",
        f"{_ENDED}; jobstats where the site has it",
        "far below 100 %: fewer --cpus-per-task",
    ),
    "past.use_mem": (
        "peak memory, as a percentage of the requested memory",
        f"{_ENDED}; jobstats where the site has it",
        "far below 100 %: less --mem; near 100 %: more",
    ),
    "past.use_gpu": (
        "mean utilization of its GPUs: the share of time in which at least one kernel ran",
        "the run's sampler, else the last sample of accounting",
        "far below 100 %: the GPUs may wait for data, or the batch may be too small",
    ),
    "past.gpus": ("the job's GPUs", _ENDED, ""),
    "past.partition": ("the job's partition", _ENDED, ""),
    "past.source": (
        "the source of the row: `sacct` is Slurm's accounting, `run` the run's directory, `seen` the queue "
        "when coach last saw the job there",
        "coach",
        "",
    ),
    # GPUs.
    "gpus.utilization": (
        "the share of the last sample period in which a kernel ran, not how much of the GPU it used",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "low: the GPU waits, mostly for data; high beside low power: small kernels",
    ),
    "gpus.sm": (
        "mean share of the multiprocessors that were busy: how much of the GPU is used",
        f"{_SAMPLER} NVML's GPM counters, if a launch requests them (--gpm)",
        "low beside high utilization: larger batches, compile, mixed precision",
    ),
    "gpus.memory": (
        "device memory in use by all processes, and the GPU's memory",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "room left: a larger batch; nearly full: activation checkpointing, or sharding",
    ),
    "gpus.power": (
        "power drawn, as a share of the power limit: how hard the GPU works",
        f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage and nvmlDeviceGetEnforcedPowerLimit",
        "low beside high utilization: the kernels are small, or wait for memory",
    ),
    "gpus.temperature": (
        "temperature of the GPU's core",
        f"{_SAMPLER} NVML's nvmlDeviceGetTemperature",
        "if heat lowers the clocks, tell the administrators",
    ),
    "gpus.clock": (
        "the clock of the multiprocessors, in MHz",
        f"{_SAMPLER} NVML's nvmlDeviceGetClockInfo",
        "far below the maximum at full load: see the clocks event reasons",
    ),
    "gpus.reasons": (
        "the reason for lower clocks: idle, the power cap (usual at full load), heat, hardware",
        f"{_SAMPLER} NVML's nvmlDeviceGetCurrentClocksEventReasons",
        "heat or hardware: tell the administrators which GPU",
    ),
    # A training's own numbers.
    "steps.loss": (
        "the loss of rank 0 in its newest recorded step",
        f"{_METRICS}, loss",
        "it should fall over hundreds of steps; NaN never recovers",
    ),
    "steps.rate": (
        "samples of all ranks per second, in the newest steps",
        f"{_METRICS}, num_samples_global and step_time_s",
        "compare it with another run (c): the effect of a change",
    ),
    "steps.data": (
        "the share of step time that rank 0 waits for the next batch, over its newest steps",
        f"{_METRICS}, data_time_s over step_time_s",
        "above a tenth: more num_workers, or data nearer to the node",
    ),
    "steps.time": (
        "mean step time of rank 0, over its newest steps",
        f"{_METRICS}, step_time_s",
        "",
    ),
    # What can be launched.
    "launchables.origin": (
        "the origin of the program: coach.toml, an earlier command, a file of this directory, or a recipe",
        "this directory and coach's own records",
        "",
    ),
    "launchables.name": ("the program that Enter plans", "this directory and coach's own records", ""),
    "launchables.about": (
        "the recipe's description, or the file's path",
        "the recipe, or the file's path",
        "",
    ),
    "launchables.launched": ("time since the last launch from this directory", "coach's own records", ""),
    "ladder.key": (
        "the digit key that plans the recipe from any screen",
        "the recipe, or [keys] of the config",
        "",
    ),
    "ladder.recipe": ("the recipe's name", "its TOML file", "Enter makes a plan of it"),
    "ladder.devices": ("the number of devices that the recipe trains on", "its TOML file", ""),
    # Drills and courses.
    "drills.drill": ("the drill's name, which does not reveal the fault", "its TOML file", ""),
    "drills.title": ("the symptom that a user would report", "its TOML file", "Enter plans it"),
    "drills.standing": ("your progress with the drill", "answers in the runs' directories", ""),
    "cohort.user": ("the owner of the run", "the summary that a run shares", ""),
    "cohort.thing": ("the recipe or drill of the run", "the summary that a run shares", ""),
    "cohort.state": ("the state of the newest run's job", "the summary that a run shares", ""),
    "cohort.rate": ("samples of all ranks per second", "the summary that a run shares", ""),
    "cohort.finding": ("the newest run's most severe finding", "the summary that a run shares", ""),
    "cohort.best": (
        "the best result of all runs of this recipe or drill",
        "the summaries that the runs share",
        "",
    ),
    "cohort.step": ("time since the run's last step", "the summary that a run shares", ""),
    "cohort.progress": (
        "the run's last step, and the number of steps planned",
        "the summary that a run shares",
        "",
    ),
    "cohort.job": ("the job's number in Slurm", "the summary that a run shares", ""),
}
"""`table.column` → its text."""

JOB_STATES: dict[str, tuple[str, str]] = {
    "PENDING": ("the job waits to start", "its reason says why"),
    "CONFIGURING": ("its nodes are being booted or prepared", "wait: booting takes minutes"),
    "RUNNING": ("it runs", "Enter shows how it goes"),
    "COMPLETING": (
        "it has ended, and Slurm is cleaning up its nodes",
        "wait; if it lasts, a process cannot be killed: tell the administrators",
    ),
    "SUSPENDED": (
        "it is suspended; other jobs may use its CPUs meanwhile",
        "it continues when Slurm or an administrator resumes it",
    ),
    "STOPPED": ("it was stopped by SIGSTOP, and keeps its CPUs", "scancel --signal=CONT continues it"),
    "SIGNALING": ("it is being sent a signal", "nothing to do"),
    "STAGE_OUT": ("it has ended, and Slurm is copying its files out of the burst buffer", "wait"),
    "RESIZING": ("it is changing its number of nodes", "wait"),
    "REQUEUED": (
        "it ended and goes back to the queue",
        "it starts again by itself; it resumes only if its program loads a checkpoint",
    ),
    "REQUEUE_FED": ("its sibling job in another cluster was requeued", "nothing to do"),
    "REQUEUE_HOLD": ("it went back to the queue and is held", "find out why it ended, then scontrol release"),
    "SPECIAL_EXIT": (
        "it went back to the queue and is held, because of its exit status",
        "find out why it ended, then scontrol release",
    ),
    "RESV_DEL_HOLD": ("it is held: its reservation was deleted", "scontrol release, or submit it again"),
    "REVOKED": ("its sibling job in another cluster started instead", "look there"),
    "COMPLETED": ("it ended by itself, with exit status 0", "compare it with an earlier run"),
    "FAILED": ("it ended with an exit status other than 0", "open it: coach says why if it can"),
    "CANCELLED": (
        "somebody cancelled it: you, an administrator, or Slurm",
        "submit it again if that was a mistake",
    ),
    "TIMEOUT": ("Slurm ended it at its time limit", "a longer --time, or checkpoints and --until-done"),
    "DEADLINE": (
        "Slurm ended it, because it could not be done before its --deadline",
        "submit it with a later --deadline",
    ),
    "OUT_OF_MEMORY": (
        "it used more memory than it had requested, and the kernel killed it",
        "more --mem, or use less",
    ),
    "NODE_FAIL": ("one of its nodes failed", "submit it again; coach can leave that node out"),
    "BOOT_FAIL": ("one of its nodes did not boot", "submit it again; tell the administrators"),
    "PREEMPTED": ("Slurm ended it for a job of higher priority", "checkpoints, and --requeue"),
    "LAUNCH_FAILED": ("it could not be started on its nodes", "tell the administrators"),
    "RECONFIG_FAIL": ("its nodes could not be set up as requested", "tell the administrators"),
    "POWER_UP_NODE": ("its nodes are being powered up", "wait: minutes"),
    "UPDATE_DB": ("Slurm is writing its end to the accounting database", "wait"),
    "EXPEDITING": ("it was requeued with the highest priority", "wait"),
}
"""Slurm's job state → (meaning, what to do). `it` is the job."""
