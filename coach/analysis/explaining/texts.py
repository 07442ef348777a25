"""All texts that explain columns, job states and GPU values: the meaning, the source, and what to do.

Slurm's reasons and node states are explained in `queueing/`, which parses them; rules on their own pages. A
text is (what it is, where it comes from, what to do); the last may be empty.
"""

from __future__ import annotations

Text = tuple[str, str, str]

_SQUEUE = "squeue"
_NODES = "scontrol show nodes"
_RUN = "run.json of the run's directory"
_METRICS = "metrics/rank-*.jsonl of the run's directory"
_JUDGED = "coach's rules, on the logs, metrics and telemetry that were read"
_ENDED = "sacct, else the run's directory, else the queue when it was last seen there"
_SAMPLER = "the sampler beside the training, by"

TABLES: dict[str, str] = {
    "queue": "jobs",
    "nodes": "nodes",
    "runs": "runs",
    "job": "jobs",
    "node": "nodes",
}
"""Table → the source of its values, whose age is shown."""

COLUMNS: dict[str, Text] = {
    # The queue.
    "queue.own": ("a mark beside each job of yours", f"{_SQUEUE}, field UserName", ""),
    "queue.job_id": (
        "the number that Slurm gave the job; 17_3 is task 3 of array 17, 20+1 a part of a heterogeneous job",
        f"{_SQUEUE}, field JobArrayID",
        "give it to scancel, scontrol and coach",
    ),
    "queue.name": ("its name, from its script or --job-name", f"{_SQUEUE}, field Name", ""),
    "queue.short_name": ("its name, from its script or --job-name", f"{_SQUEUE}, field Name", ""),
    "queue.user": ("the user who submitted it", f"{_SQUEUE}, field UserName", ""),
    "queue.state": ("how far the job is", f"{_SQUEUE}, field State", ""),
    "queue.reason": (
        "why it waits, in a few words; of a running job nothing",
        f"{_SQUEUE}, field Reason",
        "Enter explains it in full",
    ),
    "queue.partition": (
        "the set of nodes that it requested, with limits of its own",
        f"{_SQUEUE}, field Partition",
        "coach's screen of where a job could start compares the partitions",
    ),
    "queue.nodes": ("the nodes that it has; of a job that waits nothing", f"{_SQUEUE}, field NodeList", ""),
    "queue.gpus": (
        "GPUs that are allocated, or requested; allocated does not mean used",
        f"{_SQUEUE}, fields tres-alloc and tres-per-job, -node, -task",
        "what they do is on the screen of its GPUs, where they are measured",
    ),
    "queue.used": ("how long it has run", f"{_SQUEUE}, field TimeUsed", ""),
    "queue.left": (
        "the time left of its limit; of a job that waits Slurm's estimate of its start, which changes with "
        "the queue",
        f"{_SQUEUE}, fields TimeLeft and StartTime",
        "a shorter limit (T) may start it sooner",
    ),
    "queue.account": ("the account that is charged for it", f"{_SQUEUE}, field Account", ""),
    "queue.qos": (
        "the quality of service: a set of limits and a priority",
        f"{_SQUEUE}, field QOS",
        "sacctmgr show qos lists them",
    ),
    "queue.class": (
        "the kind of its reason: wait, limit, never, held",
        "coach, from Slurm's reason",
        "",
    ),
    "queue.cpus": ("CPUs that it has or requests", f"{_SQUEUE}, field NumCPUs", ""),
    "queue.limit": (
        "its time limit: Slurm ends it then",
        f"{_SQUEUE}, field TimeLimit",
        "a user may lower it; only the site may raise it",
    ),
    "queue.wait": ("how long it waited, or waits", f"{_SQUEUE}, fields SubmitTime and StartTime", ""),
    "queue.priority": (
        "its place in line: the larger, the sooner",
        f"{_SQUEUE}, field PriorityLong",
        "Enter shows its parts, where the site reports them",
    ),
    "queue.submit": ("when it was submitted", f"{_SQUEUE}, field SubmitTime", ""),
    "queue.progress": (
        "progress of the training: steps done of all steps",
        f"{_METRICS}, step; the number of steps from run.json or its log",
        "",
    ),
    "queue.doing": (
        "progress of the training; for a pending job, Slurm's estimate of its start",
        f"{_METRICS}, step; {_SQUEUE}, field StartTime",
        "",
    ),
    "queue.to_go": (
        "time that the remaining steps will take at the present pace",
        f"{_METRICS}, step_time_s",
        "longer than the time left of its limit: raise the limit, or make checkpoints",
    ),
    "queue.loss": (
        "the newest losses as a curve, and the last one",
        f"{_METRICS}, loss, of rank 0",
        "it should fall over hundreds of steps; NaN never recovers",
    ),
    "queue.rate": (
        "samples of all ranks per second, over the newest steps",
        f"{_METRICS}, num_samples_global and step_time_s",
        "c compares it with another run: the effect of a change",
    ),
    "queue.use": (
        "measured use of its GPUs: the mean share of the time in which some kernel ran",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "low: the GPUs wait, mostly for data",
    ),
    "queue.memory": (
        "device memory in use, of all memory of its GPUs",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "room left: a larger batch",
    ),
    "queue.power": (
        "power that its GPUs draw",
        f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage",
        "low beside high use: the kernels are small, or wait for memory",
    ),
    "queue.why": (
        "its most severe finding; of a job that waits its reason",
        f"{_JUDGED}; {_SQUEUE}, field Reason",
        "Enter opens it",
    ),
    # Nodes.
    "nodes.name": ("the node's name", f"{_NODES}, NodeName", "Enter opens it"),
    "nodes.state": ("the node's state in Slurm", f"{_NODES}, State", ""),
    "nodes.cpus": (
        "allocated CPUs, of all; allocated does not mean busy",
        f"{_NODES}, CPUAlloc and CPUTot",
        "",
    ),
    "nodes.memory": ("allocated memory, of all", f"{_NODES}, AllocMem and RealMemory", ""),
    "nodes.gpus": (
        "allocated GPUs, of all, by type; allocated does not mean busy",
        f"{_NODES}, Gres and GresUsed",
        "Enter shows which job has which",
    ),
    "nodes.partitions": ("the partitions that the node is in", f"{_NODES}, Partitions", ""),
    "nodes.reason": (
        "the note of an administrator, or of Slurm, when the node was taken out of service",
        f"{_NODES}, Reason",
        "ask the administrators if it lasts",
    ),
    "nodes.use": (
        "measured use of the node's GPUs by your jobs: an allocated GPU may be unused",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "only GPUs of jobs that are followed are measured",
    ),
    "nodes.gpu_memory": (
        "device memory in use, of all memory of the measured GPUs",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "",
    ),
    "nodes.power": ("power that the measured GPUs draw", f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage", ""),
    # Runs.
    "runs.mark": (
        "a mark beside each run that is to be compared",
        "you",
        "two marked runs are compared by c",
    ),
    "runs.run": ("the run's id: when it was launched, its recipe, four random letters", _RUN, ""),
    "runs.state": ("Slurm's state of its job", "the queue, else the run's own exit.json", ""),
    "runs.recipe": ("what was launched", _RUN, "R shows its lesson"),
    "runs.job": ("the number of its job; local: without Slurm", _RUN, ""),
    "runs.size": ("nodes and GPUs, or ranks on CPUs: 2n 4gpu", _RUN, ""),
    "runs.lr": ("the learning rate that it was launched with", _RUN, ""),
    "runs.rate": (
        "samples of all ranks per second, over the newest steps; – if it was not read yet",
        f"{_METRICS}, num_samples_global and step_time_s",
        "Enter reads it",
    ),
    "runs.age": ("how long ago it was launched", _RUN, ""),
    "runs.finding": (
        "the most severe finding, or the result of the check",
        _JUDGED,
        "Enter, then E on the finding",
    ),
    "runs.parent": ("the run that it was relaunched from, or its place in a sweep", _RUN, "c compares them"),
    # Findings.
    "findings.severity": (
        "critical: it ended, or will end, or wastes most of the run; warning: it costs; info: worth knowing",
        _JUDGED,
        "",
    ),
    "findings.rule": ("the rule that found it", _JUDGED, "E opens its page"),
    "findings.job": ("the job or run that it is about", _JUDGED, "Enter opens it"),
    "findings.name": ("the job's name", f"{_SQUEUE}, field Name", ""),
    "findings.state": ("the job's state", f"{_SQUEUE}, field State", ""),
    "findings.summary": ("the summary of the finding", _JUDGED, "Enter shows its proof, F its fix"),
    "findings.lost": (
        "GPU-hours that it has cost so far, at most: time since it began, times the GPUs",
        "the times in the data and the GPUs of the job",
        "",
    ),
    "findings.since": ("how long ago it began, by the data", _JUDGED, ""),
    # Jobs that have ended.
    "past.job_id": ("the job's number", _ENDED, "Enter opens it"),
    "past.name": ("its name", _ENDED, ""),
    "past.state": ("how it ended; after –, the state in which it was seen last", _ENDED, ""),
    "past.exit": ("the exit status of its script", _ENDED, "0 is well; above 128 a signal ended it"),
    "past.ended": ("how long ago it ended", _ENDED, ""),
    "past.used": ("how long it ran", _ENDED, ""),
    "past.use_time": (
        "the part of its time limit that it ran",
        _ENDED,
        "far below 100 %: a shorter --time starts sooner",
    ),
    "past.use_cpu": (
        "CPU time used, of the CPU time of its CPUs",
        f"{_ENDED}; jobstats where the site has it",
        "far below 100 %: fewer --cpus-per-task",
    ),
    "past.use_mem": (
        "peak memory, of the requested memory",
        f"{_ENDED}; jobstats where the site has it",
        "far below 100 %: less --mem; near 100 %: more",
    ),
    "past.use_gpu": (
        "the mean utilization of its GPUs: the share of the time in which some kernel ran",
        "the run's sampler, else the last sample of accounting",
        "far below 100 %: look for waits for data, or a batch that is too small",
    ),
    "past.gpus": ("the GPUs that it had", _ENDED, ""),
    "past.partition": ("its partition", _ENDED, ""),
    "past.source": (
        "the source of the row: sacct is accounting, run its directory, seen the queue when it was last "
        "seen there",
        "coach",
        "",
    ),
    # GPUs.
    "gpus.utilization": (
        "the share of the last moment in which at least one kernel ran: not how much of the GPU was used",
        f"{_SAMPLER} NVML's nvmlDeviceGetUtilizationRates",
        "low: the GPU waits, mostly for data; high beside low power: small kernels",
    ),
    "gpus.sm": (
        "the share of the multiprocessors that were busy, over time: how much of the GPU is used",
        f"{_SAMPLER} NVML's GPM counters, if a launch requests them (--gpm)",
        "low beside high utilization: larger batches, compile, mixed precision",
    ),
    "gpus.memory": (
        "device memory in use, by all processes, of all that the GPU has",
        f"{_SAMPLER} NVML's nvmlDeviceGetMemoryInfo",
        "room left: a larger batch; near the end: checkpointing of activations, sharding",
    ),
    "gpus.power": (
        "power drawn, as a share of the limit in force: how hard the GPU works",
        f"{_SAMPLER} NVML's nvmlDeviceGetPowerUsage and nvmlDeviceGetEnforcedPowerLimit",
        "low beside high utilization: the kernels are small, or wait for memory",
    ),
    "gpus.temperature": (
        "temperature of the GPU's core",
        f"{_SAMPLER} NVML's nvmlDeviceGetTemperature",
        "if it holds the clocks down, tell the administrators",
    ),
    "gpus.clock": (
        "the clock of the multiprocessors, in MHz",
        f"{_SAMPLER} NVML's nvmlDeviceGetClockInfo",
        "far below the maximum at full load: see the clock reasons",
    ),
    "gpus.reasons": (
        "the reason for lower clocks: idle, the power cap (usual at full load), heat, hardware",
        f"{_SAMPLER} NVML's nvmlDeviceGetCurrentClocksEventReasons",
        "heat or hardware: tell the administrators which GPU",
    ),
    # A training's own numbers.
    "steps.loss": (
        "the loss of the newest step that was written, of rank 0",
        f"{_METRICS}, loss",
        "it should fall over hundreds of steps; NaN never recovers",
    ),
    "steps.rate": (
        "samples of all ranks per second, in the newest steps",
        f"{_METRICS}, num_samples_global and step_time_s",
        "compare it with another run (c): the effect of a change",
    ),
    "steps.data": (
        "the part of each step that waits for the next batch, in the newest steps of rank 0",
        f"{_METRICS}, data_time_s over step_time_s",
        "above a tenth: more num_workers, or data nearer to the node",
    ),
    "steps.time": (
        "how long a step takes, in the newest steps of rank 0",
        f"{_METRICS}, step_time_s",
        "",
    ),
    # What can be launched.
    "launchables.origin": (
        "where it comes from: coach.toml, an earlier command, a file of this directory, a recipe",
        "this directory and coach's own records",
        "",
    ),
    "launchables.name": ("the program that Enter plans", "this directory and coach's own records", ""),
    "launchables.about": ("its description, or its path", "the recipe, or the file's path", ""),
    "launchables.launched": ("how long ago it was launched from here", "coach's own records", ""),
    "ladder.key": ("the digit that launches it from any screen", "the recipe, or [keys] of the config", ""),
    "ladder.recipe": ("the recipe's name", "its TOML file", "Enter makes a plan of it"),
    "ladder.devices": ("on how many devices it trains", "its TOML file", ""),
    # Drills and courses.
    "drills.drill": ("the drill's name, which does not reveal the fault", "its TOML file", ""),
    "drills.title": ("the symptom that a user would report", "its TOML file", "Enter plans it"),
    "drills.standing": ("your progress with it", "answers in the runs' directories", ""),
    "cohort.user": ("whose run it is", "the summary that a run shares", ""),
    "cohort.thing": ("the recipe or drill that runs", "the summary that a run shares", ""),
    "cohort.state": ("the state of the newest run's job", "the summary that a run shares", ""),
    "cohort.rate": ("samples of all ranks per second", "the summary that a run shares", ""),
    "cohort.finding": ("the newest run's most severe finding", "the summary that a run shares", ""),
    "cohort.best": ("the best result of all runs of it", "the summaries that the runs share", ""),
    "cohort.step": ("time since its last step", "the summary that a run shares", ""),
    "cohort.progress": ("its last step, and the number planned", "the summary that a run shares", ""),
    "cohort.job": ("its number in Slurm", "the summary that a run shares", ""),
}
"""`table.column` → its text."""

JOB_STATES: dict[str, tuple[str, str]] = {
    "PENDING": ("it waits to be started", "its reason says for what"),
    "CONFIGURING": ("it has nodes, which are booted or prepared for it", "wait: minutes, where nodes boot"),
    "RUNNING": ("it runs", "Enter shows how it goes"),
    "COMPLETING": (
        "it has ended, and its nodes are cleaned up",
        "wait; if it lasts, a process does not die: tell the administrators",
    ),
    "SUSPENDED": (
        "it is stopped, and keeps its nodes",
        "it continues when Slurm or an administrator resumes it",
    ),
    "STOPPED": ("it was sent SIGSTOP, and keeps its CPUs", "scontrol resume continues it"),
    "SIGNALING": ("it is being sent a signal", "nothing to do"),
    "STAGE_OUT": ("it has ended, and its files are copied out of the burst buffer", "wait"),
    "RESIZING": ("it is changing its number of nodes", "wait"),
    "REQUEUED": ("it ended and goes back to the queue", "it starts again by itself, from its checkpoint "
                 "if it has one"),
    "REQUEUE_FED": ("a sister of it in another cluster was requeued", "nothing to do"),
    "REQUEUE_HOLD": ("it went back to the queue and is held", "find out why it ended, then scontrol release"),
    "SPECIAL_EXIT": ("it went back to the queue, held, because of its exit status", "scontrol release"),
    "RESV_DEL_HOLD": ("it is held: its reservation was deleted", "scontrol release, or submit it again"),
    "REVOKED": ("a sister of it in another cluster was started instead", "look there"),
    "COMPLETED": ("it ended by itself, with exit status 0", "compare it with an earlier run"),
    "FAILED": ("it ended with an exit status other than 0", "open it: coach says why if it can"),
    "CANCELLED": ("somebody cancelled it: you, an administrator, or Slurm", "submit it again if it was not "
                  "meant"),
    "TIMEOUT": ("Slurm ended it at its time limit", "a longer --time, or checkpoints and --until-done"),
    "DEADLINE": ("it could not end before its --deadline any more", "submit it with another --deadline"),
    "OUT_OF_MEMORY": ("it used more memory than it had requested, and the kernel killed it", "more --mem, "
                      "or use less"),
    "NODE_FAIL": ("a node of it failed", "submit it again; coach can leave that node out"),
    "BOOT_FAIL": ("a node did not boot for it", "submit it again; tell the administrators"),
    "PREEMPTED": ("Slurm ended it for a job of higher priority", "checkpoints, and --requeue"),
    "LAUNCH_FAILED": ("it could not be started on its nodes", "tell the administrators"),
    "RECONFIG_FAIL": ("its nodes could not be set up as requested", "tell the administrators"),
    "POWER_UP_NODE": ("the nodes that it has are powered up", "wait: minutes"),
    "UPDATE_DB": ("Slurm writes its end to the accounting database", "wait"),
    "EXPEDITING": ("it was requeued with the highest priority", "wait"),
}  # fmt: skip
"""Slurm's job states → the meaning, and what to do."""
