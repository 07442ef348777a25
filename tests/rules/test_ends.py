"""Ends from outside, crashes and file errors: real logs of each, every wording, consequences and their
causes, and silence where it is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.no_finding import Look, look_of, meaning_of
from coach.analysis.judging.outcome_words import outcome_text
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.model.training.metrics import Step
from coach.model.training.run import Segment
from coach.model.training.telemetry import HostSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import causes, diagnose_log, history, run, scan, steps, tail_of
from tests.rules.recorded import RECORDINGS, diagnose

ENDED = {
    "slurm/time-limit": ("JOB002", "slurm_timeout"),
    "slurm/cancelled": ("JOB005", "slurm_cancelled"),
    "slurm/cancelled-step": ("JOB005", "slurm_cancelled"),
    "slurm/preempted": ("JOB018", "slurm_preempted"),
    "slurm/node-failed": ("JOB003", "slurm_node_fail"),
    "slurm/invalid-request": ("JOB011", "slurm_invalid_request"),
    "slurm/task-failed": ("COD001", "code_error"),
    "ended/rank-terminated": ("JOB014", "sigterm_signal"),
    "ended/shell-terminated": ("JOB014", "sigterm_signal"),
    "ended/interrupted": ("JOB014", "user_interrupt"),
    "ended/rank-killed": ("MEM008", "host_oom"),
    "ended/shell-killed": ("MEM008", "host_oom"),
    "ended/rank-crashed": ("COD002", "segfault"),
    "ended/shell-crashed": ("COD002", "segfault"),
    "ended/segmentation-fault": ("COD002", "segfault"),
    "ended/worker-killed": ("DAT005", "dataloader_worker_killed"),
    "ended/worker-died": ("DAT005", "dataloader_worker_killed"),
    "ended/worker-crashed": ("DAT005", "dataloader_worker_killed"),
    "ended/worker-without-shared-memory": ("MEM011", "shm_bus_error"),
    "ended/worker-pickle": ("DAT012", "dataloader_pickle"),
    "ended/checkpoint-cut-short": ("DAT010", "checkpoint_corrupt"),
    "ended/checkpoint-is-empty": ("DAT010", "checkpoint_corrupt"),
    "ended/checkpoint-is-a-pointer": ("DAT010", "checkpoint_corrupt"),
    "ended/too-many-open-files": ("ENV012", "too_many_open_files"),
    "ended/stale-handle": ("ENV017", "stale_nfs"),
    "ended/library-missing": ("ENV006", "shared_library_missing"),
}
CAUGHT = [
    "checkpoint-cut-short",
    "checkpoint-is-empty",
    "checkpoint-is-a-pointer",
    "too-many-open-files",
    "stale-handle",
    "library-missing",
]
AT = "CANCELLED AT 2026-11-21T03:04:05"
DEADLY = {
    "slurm_timeout": [
        f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO TIME LIMIT ***",
        "slurmd[node1]: *** JOB 17 CANCELLED AT 2012-03-04T05:06:07 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 17 ON node1 CANCELLED DUE TO TIME LIMIT ***",
        "AT 2026-11-21T03:04:05 DUE TO TIME LIMIT ***",
        (
            f" 12%|# | 3/9 [00:01<00:02]slurmstepd-node1: error: *** STEP 17.0 ON node1 {AT} DUE TO TIME "
            "LIMIT ***"
        ),
        "submitit WARNING (2026-11-21 10:14:36,151) - Caught signal SIGUSR2 on node1: this job is timed-out.",
        "salloc: Job 17 has exceeded its time limit and its allocation has been revoked.",
        "64.012s: job.exception type=timeout severity=0 resource allocation expired",
    ],
    "slurm_cancelled": [
        f"slurmstepd: error: *** JOB 17 ON node1 {AT} ***",
        f"[2026-11-21T03:04:05.123] error: *** JOB 17 ON node1 {AT} DUE to SIGNAL Terminated ***",
        f"0: slurmstepd: error: *** STEP 17.0 ON node1 {AT} ***",
        "srun: Force Terminated StepId=17.0",
        "salloc: Job allocation 17 has been revoked.",
        "srun: Job allocation 17 has been revoked.",
    ],
    "slurm_preempted": [
        f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO PREEMPTION ***",
        "submitit WARNING (2026-11-21 10:14:36,151) - Caught signal SIGUSR2 on node1: this job is preempted.",
    ],
    "slurm_node_fail": [
        "srun: error: Node failure on node7",
        "srun: error: Task launch for 17.0 failed on node node7: Job credential expired",
        "srun: error: Task launch for StepId=17.0 failed on node node7: Communication connection failure",
        f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    ],
    "slurm_invalid_request": [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
            "specified"
        ),
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "srun: error: Only allocated 1 nodes asked for 2",
        "srun: error: Unable to create step for job 17: More processors requested than permitted",
        "srun: error: Unable to create job step: Requested node configuration is not available",
        "srun: error: Task launch for StepId=17.0 failed on node node7: Unable to satisfy cpu bind request",
        "sbatch: error: Invalid directive found in batch script: -gres",
        "ERROR: Command 'sbatch --gras=1 job.sh' failed with error 'sbatch: unrecognized option '--gras=1'",
        (
            "submitit.core.utils.FailedJobError: sbatch: error: Batch job submission failed: Invalid qos "
            "specification"
        ),
        (
            "Error: 101. Command 'sbatch' produced exit code 1. Output: 'sbatch: error: Batch job submission "
            "failed: Invalid qos'"
        ),
        "salloc: error: Job submit/allocate failed: Invalid qos specification",
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
        "sbatch: error: This does not look like a batch script.  The first",
    ],
    "user_interrupt": [
        "[mpiexec@node1] Sending Ctrl-C to processes as requested",
        "/venv/lib/lightning/call.py:53: Detected KeyboardInterrupt, attempting graceful shutdown ...",
        "KeyboardInterrupt",
    ],
    "sigterm_signal": [
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 17 got signal: 15",
        (
            "[2026-11-21 04:00:00,123] torch.distributed.elastic.agent.server.api: [WARNING] Received "
            "Signals.SIGHUP death signal, shutting down workers"
        ),
        "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers",
        "/var/spool/slurmd/job17/slurm_script: line 9: 4242 Terminated              python train.py",
        "  exitcode  : -15 (pid: 17)",
        "[rank: 0] Received SIGTERM: 15",
        "[exiting program after receiving SIGTERM.] datetime: 2026-11-21 04:00:00",
        "srun: error: node1: task 0: Exited with exit code 143",
        "ERROR:composer.cli.launcher:Rank 0 crashed with exit code -15.",
    ],
    "conda_not_initialised": [
        "critical libmamba Cannot activate, prefix does not exist at: '/home/user/envs/x'",
        "nohup: failed to run command 'python': No such file or directory",
    ],
    "nan_loss": [
        (
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: LossTensor is inf or nan. : "
            "Tensor had NaN values"
        ),
        "AssertionError: Box regression deltas become infinite or NaN!",
        (
            "train: 3%|# | 3/9 [00:04<02:12, 7.31it/s, train_loss=nan.0]\ntrain: 4%|# | 4/9 [00:05<02:12, "
            "7.31it/s, train_loss=nan.0]"
        ),
    ],
    "loss_divergence": [
        "\n".join(f"step {n} loss {x}" for n, x in enumerate((0.5, 0.4, 21.1, 912.5, 88123.0)))
    ],
    "amp_overflow": ["Found inf or nan, current scale is: 1.0, decrease to: 1.0*0.5\n" * 3],
    "host_oom": [
        "/var/spool/slurmd/job17/slurm_script: line 9: 4242 Killed              python train.py",
        "  traceback : Signal 9 (SIGKILL) received by PID 17",
        (
            "[2026-11-21 04:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits "
            "with return code = -9"
        ),
    ],
    "segfault": [
        "srun: error: node1: task 3: Segmentation fault (core dumped)",
        "[node1:17] Signal: Segmentation fault (11)",
        (
            "[node1:17:0:17] Caught signal 11 (Segmentation fault: address not mapped to object at address "
            "(nil))"
        ),
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGSEGV: 11>.",
        "!!!!!!! Segfault encountered !!!!!!!",
        "  traceback : Signal 11 (SIGSEGV) received by PID 17\n"
        "Traceback (most recent call last):\n"
        '  File "/home/user/launcher.py", line 115, in launch\n'
        "    process = subprocess.run(command)\n"
        "subprocess.CalledProcessError: Command '['torchrun', 'train.py']' returned non-zero exit status 1.",
    ],
    "shm_bus_error": [
        "RuntimeError: unable to write to file </torch_17_88_1>: No space left on device (28)",
        "RuntimeError: unable to mmap 136 bytes from file </torch_17_88_1>: Cannot allocate memory (12)",
        (
            "node1:88:120 [0] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment "
            "/dev/shm/nccl-lNPZ0f (size 7340384)"
        ),
        (
            "/var/spool/slurmd/job17/slurm_script: line 9: 4242 Bus error               (core dumped) python "
            "train.py"
        ),
    ],
    "too_many_open_files": ["node1:88:120 [0] NCCL WARN Call to socket failed : Too many open files"],
    "dataloader_worker_killed": [
        "RuntimeError: DataLoader worker (pid(s) 17, 18) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 17) is killed by signal: Aborted. ",
        "RuntimeError: DataLoader worker (pid 17) is killed by signal: Segmentation fault",
        "RuntimeError: Pin memory thread exited unexpectedly",
    ],
    "dataloader_pickle": [
        "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
        "AttributeError: Can't get local object 'main.<locals>.<lambda>'",
        "TypeError: cannot pickle 'module' object",
        "TypeError: h5py objects cannot be pickled",
        (
            "_pickle.PicklingError: Can't pickle <class '__main__.Samples'>: it's not the same object as "
            "__main__.Samples"
        ),
    ],
    "checkpoint_corrupt": [
        (
            "RuntimeError: PytorchStreamReader failed reading file data/27: invalid header or archive is "
            "corrupted"
        ),
        "RuntimeError: unexpected EOF, expected 3302200 more bytes. The file might be corrupted.",
        "_pickle.UnpicklingError: pickle data was truncated",
        "RuntimeError: Invalid magic number; corrupt file?",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
    ],
}
HARMLESS = [
    "Setting up a handler: when SIGTERM is received, a checkpoint is written",
    "SLURM auto-requeueing enabled. Setting signal handlers.",
    "srun: job 17 queued and waiting for resources",
    "srun: error: Task launch for StepId=17.0 failed on node node7: Job credential revoked",
    "srun: Job 17 step creation temporarily disabled, retrying (Requested nodes are busy)",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: Submitted batch job 17, time limit 1-00:00:00",
    f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO JOB REQUEUE ***",
    "GPUs are visible: 8; no device is busy",
    "Killed 0 stale processes; exit code 0",
    "DataLoader worker (pid 17) started",
    "unpickled 139 samples; loaded checkpoint step-137.pt",
    "shm_size: 64M, /dev/shm is 64 GiB",
    "checking checkpoints: none is corrupted",
    "detected 1 file in the cache, none truncated",
    "Segmentation faults of lung images: task 3 of the challenge",
]


@pytest.mark.parametrize(("log", "code", "cause"), [(name, *found) for name, found in ENDED.items()])
def test_programs_that_really_failed_get_their_cause(log: str, code: str, cause: str) -> None:
    finding = diagnose(f"{log}.log").findings[0]
    assert (finding.rule, finding.cause, finding.is_primary) == (code, cause, True)
    assert finding.severity >= Severity.WARNING
    assert finding.evidence[0].line
    assert finding.fixes


@pytest.mark.parametrize("name", CAUGHT)
def test_an_error_that_the_program_survived_is_info(name: str) -> None:
    assert [finding.severity for finding in diagnose(f"caught/{name}.log").findings] == [Severity.INFO]


@pytest.mark.parametrize(
    ("cause", "line"), [(cause, line) for cause, lines in DEADLY.items() for line in lines]
)
def test_every_wording_of_an_end_leads_to_its_cause(cause: str, line: str) -> None:
    assert causes(diagnose_log(f"loading\n{line}\n"))[0] == cause


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_only_sound_like_an_end_stay_silent(line: str) -> None:
    assert not causes(diagnose_log(f"{line}\nepoch 0\n"))


def test_the_task_that_failed_is_the_cause_of_the_step_that_srun_cancelled() -> None:
    findings = diagnose("slurm/task-failed.log").findings
    assert findings[0].subject.rank == 1
    assert "slurm_cancelled" not in {finding.cause for finding in findings}
    words = (
        "srun: error: node1: task 1: Exited with exit code 1\nslurmstepd: error: *** STEP 17.0 ON node1 "
        f"{AT} ***\n"
    )
    assert not causes(diagnose_log(words))


def test_a_rank_that_torchrun_ended_is_a_bystander_of_the_one_that_crashed() -> None:
    summary = (
        "Failures:\n[1]:\n  exitcode  : -15 (pid: 17)\n  traceback : Signal 15 (SIGTERM) received by PID 17\n"
        "Root Cause (first observed failure):\n[0]:\n  exitcode  : {code} (pid: 18)\n"
    )
    assert causes(diagnose_log(summary.format(code=-11))) == ["segfault"]
    assert causes(diagnose_log(summary.format(code=1))) == []


def test_an_error_printed_by_a_cancelled_job_is_a_consequence() -> None:
    log = (
        f"step 1\nslurmstepd: error: *** JOB 17 ON node1 {AT} ***\nTraceback (most recent call last):\n  "
        'File "/home/user/train.py", line 3, in <module>\n    train()\nValueError: interrupted\n'
    )
    findings = diagnose_log(log).findings
    assert [(f.cause, f.consequence_of) for f in findings] == [
        ("slurm_cancelled", None),
        ("code_error", "JOB005"),
    ]


def test_a_cancelled_job_and_the_last_output_of_its_tasks_are_no_trouble() -> None:
    log = (
        f"step 1\nslurmstepd: error: *** JOB 17 ON node1 {AT} ***\nTraceback (most recent call last):\n"
        '  File "/home/user/train.py", line 3, in <module>\n    train()\nValueError: interrupted\n'
    )
    cancelled = replace(run(), state="CANCELLED")
    first, *others = diagnose_log(log, cancelled).findings
    assert (first.cause, first.fixes) == ("slurm_cancelled", ())
    assert {f.severity for f in (first, *others)} == {Severity.INFO}
    assert diagnose_log(log, replace(run(), state=None)).findings[0].severity is Severity.WARNING


def test_an_error_that_left_the_others_waiting_is_the_cause_of_the_time_limit() -> None:
    log = (
        "RuntimeError: CUDA error: device-side assert triggered\nslurmstepd: error: *** JOB 17 ON node1 "
        f"{AT} DUE TO TIME LIMIT ***\n"
    )
    findings = diagnose_log(log).findings
    assert [(f.cause, f.consequence_of) for f in findings] == [
        ("device_side_assert", None),
        ("slurm_timeout", "CUD004"),
    ]


def test_a_rank_that_failed_by_itself_does_not_name_the_signal_of_another() -> None:
    log = (
        "E1121 04:00:02.000000 23 api.py:870] failed (exitcode: 1) local_rank: 0 (pid: 24) of binary: py\n"
        "E1121 04:00:03.000000 17 api.py:870] failed (exitcode: -15) local_rank: 0 (pid: 18) of binary: py\n"
    )
    (finding,) = diagnose_log(log).findings
    assert finding.summary == "The program was ended by SIGTERM from outside"
    assert finding.evidence[0].line == 2


def test_a_monitor_that_the_script_ended_does_not_name_the_signal_of_the_program() -> None:
    log = (
        "train.sh: line 3:  4242 Terminated              nvidia-smi -l 5 > smi.log\n"
        "[rank: 0] Received SIGINT: 2\n"
    )
    (finding,) = diagnose_log(log).findings
    assert finding.summary.startswith("The program was ended by SIGINT from outside")


def test_errors_of_the_threads_of_an_interrupted_program_are_no_cause() -> None:
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    '
        "time.sleep(9)\nKeyboardInterrupt\n"
        'Exception in thread Thread-3:\nTraceback (most recent call last):\n  File "train.py", line 9, in '
        "recv\n    raise EOFError\nEOFError\n"
    )
    assert causes(diagnose_log(log)) == ["user_interrupt"]


def test_processes_that_were_killed_with_their_job_say_nothing_of_memory() -> None:
    log = (
        f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO TIME LIMIT ***\nsrun: error: node1: task 1: "
        "Killed\n"
    )
    assert "host_oom" not in causes(diagnose_log(log))


def test_lack_of_memory_is_the_cause_of_the_cancelled_step_that_slurm_prints_before_it() -> None:
    log = (
        f"slurmstepd: error: *** STEP 17.0 ON node1 {AT} ***\nRuntimeError: DataLoader worker (pid 9) is "
        "killed by signal: Killed.\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM "
        "Killed.\n"
    )
    assert causes(diagnose_log(log))[0] == "host_oom"


def timed_out(series: list[Step], now_s: float) -> list[str]:
    times = (3600, 0, 3600, 1.0, 2.0, now_s)
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, *times)
    snapshot = TargetSnapshot(
        "17", now_s, run=run(state="TIMEOUT"), job=job, log_tails=(LogTail("a", 1, ("x",), 1, 1),)
    )
    diagnosis = Engine(build()).diagnose(snapshot, history(series))
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == "JOB002"]
    assert not any("time" in fix.changes for fix in finding.fixes)
    return [fix.title for fix in finding.fixes]


def test_more_time_is_never_advised_for_a_training_that_stood_still() -> None:
    titles = timed_out(steps([2.0, 1.9, 1.8]), 4600.0)
    assert len(titles) == 1
    assert "more time would not help" in titles[0]
    assert "Write checkpoints" in timed_out(steps([2.0, 1.9, 1.8]), 1002.0)[-1]
    assert "First check that it still made progress" in timed_out([], 1002.0)[0]


def test_a_time_limit_that_was_too_short_is_raised_to_the_time_of_all_steps() -> None:
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, 3600, 0, 3600, 1.0, 2.0, 150.0)
    launched = run(state="TIMEOUT", parameters={"max_steps": 6000})
    snapshot = TargetSnapshot("17", 150.0, run=launched, job=job)
    diagnosis = Engine(build()).diagnose(snapshot, history(steps([2.0] * 100, 0, 0.5)))
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == "JOB002"]
    assert finding.fixes[0].changes == {"time": "02:22:00"}
    assert ("steps done", 100, "of 6000") in [(e.text, e.value, e.unit) for e in finding.evidence]


def test_the_time_of_all_steps_of_a_resumed_training_has_the_steps_before_it_too() -> None:
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, 3600, 0, 3600, 1.0, 2.0, 150.0)
    launched = run(state="TIMEOUT", parameters={"max_steps": 6000})
    resumed = [replace(step, step=step.step + 5000) for step in steps([2.0] * 600, 0, 0.5)]
    snapshot = TargetSnapshot("17", 150.0, run=launched, job=job)
    findings = Engine(build()).diagnose(snapshot, history(resumed)).findings
    finding = next(finding for finding in findings if finding.rule == "JOB002")
    assert finding.fixes[0].title.endswith("at its pace all steps take 105.0 min")  # 60 min and 5400 × 0.5 s


def test_a_step_after_the_end_that_slurm_noted_leaves_no_negative_time() -> None:
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, 3600, 0, 3600, 1.0, 2.0, 150.0)
    snapshot = TargetSnapshot("17", 1000.0, run=run(state="TIMEOUT"), job=job)
    findings = Engine(build()).diagnose(snapshot, history(steps([2.0] * 10))).findings
    evidence = {each.text: each.value for finding in findings for each in finding.evidence}
    assert evidence["from the last step to the end"] == 0.0


@pytest.mark.parametrize(
    ("state", "exit_code", "ended"),
    [
        ("TIMEOUT", None, "ended"),
        ("FAILED", 143, "ended"),  # Slurm's state, which is known later
        ("COMPLETED", 0, "exited 0, so it may be incomplete"),
    ],
)
def test_a_missing_further_segment_is_the_named_reason_in_each_state(
    state: str, exit_code: int | None, ended: str
) -> None:
    why = "no newer checkpoint was written in /runs/a, /work"
    last = Segment(1.0, 80.0, "node1", None, None, None, "the time limit was near", why)
    job = Job("17", "mine", "user", state, None, "gpu", "node4", 1, 2, 0, 100, 0, 100, 1.0, 2.0, 150.0)
    job = replace(job, exit_code=exit_code)
    launched = replace(run(state=state), segments=(last,))
    tail = LogTail("a", 1, ("step 3 loss 0.5",), 1, 1)
    snapshot = TargetSnapshot("17", 150.0, run=launched, job=job, log_tails=(tail,))
    (finding,) = Engine(build()).diagnose(snapshot, history(steps([2.0] * 10))).findings
    assert finding.rule == "JOB002"
    assert (
        finding.summary == f"Signalled near its time limit, the training {ended}; no further segment: {why}"
    )
    assert "checkpoint-100" in finding.fixes[0].title


def _ranks_until(*last: int) -> Finding:
    """The finding of a job at its time limit whose ranks ended with these steps."""
    series = [step for rank, until in enumerate(last) for step in steps([2.0] * until, rank)]
    snapshot = TargetSnapshot("17", None, run=run(state="TIMEOUT"))
    findings = Engine(build()).diagnose(snapshot, history(series)).findings
    return next(finding for finding in findings if finding.rule == "JOB002")


def test_a_rank_that_stopped_long_before_the_others_is_named_at_the_time_limit() -> None:
    finding = _ranks_until(59, 59, 58, 19)
    assert [fix.title for fix in finding.fixes] == [
        "Look at rank 3 (coach stacks on the next attempt), whose last step is 19, that of the others 59: a "
        "rank that hangs reaches any limit, one that is far slower needs more time"
    ]
    told = [(item.text, item.value) for item in finding.evidence if item.text.startswith("last step of")]
    assert told == [("last step of rank 3", 19), ("last step of the other ranks", 59)]


@pytest.mark.parametrize("last", [(59, 59, 58, 57), (59, 19), (900, 1, 1, 1), (90, 60, 30, 10), (9, 9, 9, 2)])
def test_ranks_that_report_at_their_own_pace_are_not_said_to_lie_behind(last: tuple[int, ...]) -> None:
    assert not any("Look at rank" in fix.title for fix in _ranks_until(*last).fixes)


def limit_at(*lines: str, written_s: float | None = None, samples: tuple[HostSample, ...] = ()) -> Finding:
    """The finding of a job that ran 100 s and was ended at 200 s, with this log."""
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, 100, 0, 100, 90.0, 100.0, 200.0)
    tail = LogTail("a", 1, lines, 1, len(lines), written_s=written_s)
    snapshot = TargetSnapshot("17", 200.0, job=job, log_tails=(tail,))
    findings = Engine(build()).diagnose(snapshot, history((), samples)).findings
    return next(finding for finding in findings if finding.rule == "JOB002")


def test_a_printed_counter_says_how_much_time_the_whole_training_needs() -> None:
    finding = limit_at(*(f"[epoch {n}/40] train loss: {2 / n:.3f}" for n in range(1, 21)), written_s=199.0)
    assert finding.summary.endswith("ended by Slurm, at epoch 20 of 40")
    assert finding.fixes[0].changes == {"time": "00:05:00"}
    assert finding.fixes[0].title.endswith("20 of 40 epochs took 1.7 min, all 40 need about 3.3 min")
    unsure = limit_at(*(f"step {n:5}/1000  loss=2.0" for n in (0, 10, 20)), "srun: forcing job termination")
    assert "if it made progress to the end" in unsure.fixes[0].title


def ended_at_its_limit(*lines: str) -> Diagnosis:
    """A log of steps that ends with Slurm's line about the time limit, with the metrics that it prints."""
    end = (
        "slurmstepd-node3: error: *** JOB 17 ON node3 CANCELLED AT 2026-11-26T21:54:49 DUE TO TIME LIMIT ***"
    )
    text = "\n".join((*lines, end, ""))
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    printed = [replace(step, time_s=None, step_time_s=None) for step in steps([2.0] * len(lines))]
    return Engine(build()).diagnose(snapshot, history(printed))


def test_the_steps_since_the_checkpoint_that_a_log_reports_are_lost_at_the_time_limit() -> None:
    before = [f"step {n} loss 2.0" for n in range(1, 81)]
    diagnosis = ended_at_its_limit(
        *before, "saved checkpoint to a.pt", *(f"step {n} loss 2" for n in (81, 105))
    )
    assert diagnosis.outcome is not None
    assert outcome_text(diagnosis.outcome) == (
        "Slurm ended it at its time limit; 25 steps are lost since the last complete checkpoint"
    )
    (finding,) = diagnosis.findings
    assert finding.fixes[0].title.startswith("Resume from the newest checkpoint that it reports, in line 81")
    assert finding.fixes[-1].title.startswith("If it had printed its last step long before the end")
    in_epochs = [line.replace("step", "epoch 1 step") for line in before]
    diagnosis = ended_at_its_limit(
        *in_epochs, "saved checkpoint to a.pt", "epoch 2 step 90 loss 2", "step 91 x"
    )
    assert diagnosis.outcome is not None
    assert diagnosis.outcome.lost_steps is None


def test_a_job_that_reported_no_checkpoint_until_its_time_limit_is_told_so() -> None:
    diagnosis = ended_at_its_limit(*(f"step {n} loss 2.0" for n in range(1, 108)))
    (finding,) = diagnosis.findings
    assert finding.summary.endswith("ended by Slurm, at step 107; its log reports no checkpoint")
    assert finding.fixes[0].title.startswith("Write checkpoints, resume from the newest in the next job")
    assert diagnosis.outcome is not None
    assert diagnosis.outcome.lost_steps is None


@pytest.mark.parametrize(
    ("first", "interval", "minutes"),
    [(21, 1, "6.7 min"), (1, 1, "2.2 min"), (0, 1, "2.2 min"), (10, 10, "2.2 min"), (22, 2, "6.7 min")],
)
def test_the_pace_of_a_resumed_training_counts_what_it_did_itself(
    first: int, interval: int, minutes: str
) -> None:
    lines = [f"[epoch {n}/40] train loss: 0.5" for n in range(first, 31, interval)]
    title = limit_at(*lines, written_s=199.0).fixes[0].title
    assert minutes in title
    assert ("epochs 21 to 30 took 1.7 min" in title) == (first > 20)


def test_a_step_that_grows_from_epoch_to_epoch_says_how_far_the_whole_training_was() -> None:
    lines = [f"epoch {n // 40} step {n}/1000 loss 2.0" for n in range(0, 201, 10)]
    finding = limit_at(*lines, "epoch 5: train_loss 1.9 val_loss 2.0", written_s=199.0)
    assert finding.summary.endswith("ended by Slurm, at step 200 of 1000")
    assert next(fix.changes for fix in finding.fixes) == {"time": "00:11:00"}


def _completed(*lines: str, state: str = "COMPLETED") -> Diagnosis:
    text = "".join(f"{line}\n" for line in lines)
    tail = LogTail("a", 1, lines, len(text), len(lines))
    job = Job("17", "mine", "user", state, None, "gpu", "node4", 1, 2, 0, 100, 0, 100, 90.0, 100.0, 200.0)
    snapshot = TargetSnapshot("17", 200.0, job=job, log_hits=scan(text), log_tails=(tail,))
    return Engine(build()).diagnose(snapshot, history(steps([2.0 - step / 40 for step in range(40)])))


EPOCHS = [f"Epoch {n}/100 train loss {2 / n:.3f} val loss 2.0" for n in range(1, 51)]


def test_a_job_that_completed_half_way_without_a_word_is_not_simply_called_healthy() -> None:
    diagnosis = _completed(*EPOCHS)
    assert look_of(diagnosis) is Look.UNKNOWN
    assert meaning_of(diagnosis) == (
        "nothing wrong seen, but it COMPLETED at epoch 50 of 100, and its log does not say why"
    )


@pytest.mark.parametrize(
    "lines",
    [
        [*EPOCHS, "Early stopping: no improvement for 10 epochs"],
        [*EPOCHS, "val loss did not improve, patience exhausted"],
        [*EPOCHS, "test accuracy 0.91"],
        [*EPOCHS, "done"],
        [*EPOCHS, "max_time reached"],
        [*EPOCHS, "saved checkpoint ck.pt, resubmitting"],
        [f"epoch {epoch} step {n}/200 loss 2.0" for epoch in (0, 1) for n in range(0, 100, 10)],
        [f"Epoch {n}/100 loss 2.0" for n in range(100)],
        [f"step {n}/1000 loss 2.0" for n in range(0, 951, 50)],
    ],
)
def test_a_job_that_says_why_it_ends_or_that_is_through_is_healthy(lines: list[str]) -> None:
    assert look_of(diagnosis := _completed(*lines)) is Look.HEALTHY
    assert meaning_of(diagnosis).startswith("healthy")


def test_a_job_that_still_runs_is_in_the_middle_of_its_counter() -> None:
    assert _completed(*EPOCHS, state="RUNNING").early_end is None


def test_a_job_that_reports_its_checkpoints_is_told_to_resume_from_the_newest_one() -> None:
    steps = [f"step {n} loss 2.0" for n in range(9)]
    finding = limit_at(
        *steps, "saved checkpoint ck.pt at step 8", *steps, "slurmstepd: error: *** JOB 17 ***"
    )
    titles = [fix.title for fix in finding.fixes]
    assert "Resume from the newest checkpoint that it reports, in line 10 of its log" in titles
    assert not any("Write checkpoints" in title for title in titles)
    for line in (
        "could not save checkpoint: no space",
        "saves a checkpoint every 100 steps",
        "checkpoint: none",
    ):
        titles = [fix.title for fix in limit_at(*steps, line, *steps).fixes]
        assert any("Write checkpoints" in title for title in titles), line
    unfinished = [fix.title for fix in limit_at(*steps, "Saving checkpoint to ck.pt").fixes]
    assert any("Write checkpoints" in title for title in unfinished)


@pytest.mark.parametrize(
    "lines",
    [
        [f"ep {epoch} | step {n}/50 | loss 2.0" for epoch in (0, 1) for n in range(0, 50, 10)],
        [f"step {n}/50 loss 2.0" for _ in (0, 1) for n in range(0, 50, 10)],
        [f"epoch 3 step {n}/50 loss 2.0" for n in range(0, 50, 10)],
        [f"epoch {epoch} step 50/50 loss 2.0" for epoch in range(5)],
        [f"epoch step {n}/50 loss 2.0" for n in range(0, 50, 10)],
        ["loaded shard: batch 3/8", "loss 2.0"],
    ],
)
def test_a_counter_of_a_part_is_no_progress_of_the_whole(lines: list[str]) -> None:
    finding = limit_at(*lines, written_s=199.0)
    assert finding.summary.endswith("ended by Slurm")
    assert not any(fix.changes for fix in finding.fixes)


def test_a_silent_job_without_cpu_stood_still_also_under_five_minutes() -> None:
    lines = [f"step {n} loss 2.0" for n in range(20)]
    idle = tuple(HostSample("n1", 100.0 + n, cpu_pct=0.0, num_cpus=4) for n in range(100))
    assert "in its last 80 s it printed nothing and used no CPU" in (
        limit_at(*lines, written_s=120.0, samples=idle).fixes[0].title
    )
    busy = tuple(replace(sample, cpu_pct=25.0) for sample in idle)  # its output may only be buffered
    for finding in (
        limit_at(*lines, written_s=120.0, samples=busy),
        limit_at(*lines, written_s=195.0, samples=idle),
        limit_at(*lines, "slurmstepd: error: *** JOB 17 ***", written_s=120.0, samples=idle),
    ):
        assert "First check that it still made progress" in finding.fixes[0].title


@pytest.mark.parametrize(
    ("pause_s", "seen_s", "num_lines", "is_told"),
    [(480.0, 700.0, 20, True), (520.0, 740.0, 20, True), (200.0, 700.0, 20, False), (480.0, 700.0, 1, False)],
)
def test_a_silence_that_coach_saw_is_told_after_the_time_limit(
    pause_s: float, seen_s: float, num_lines: int, is_told: bool
) -> None:
    job = Job("17", "mine", "user", "TIMEOUT", None, "gpu", "node4", 1, 2, 0, 600, 0, 600, 90.0, 100.0, 700.0)
    lines = (*(f"step {n} loss 2.0" for n in range(num_lines)), "slurmstepd: error: *** JOB 17 ***")
    tail = LogTail("a", 1, lines, 1, len(lines), last_pause_s=pause_s, written_s=seen_s)
    snapshot = TargetSnapshot("17", 700.0, job=job, log_tails=(tail,))
    findings = Engine(build()).diagnose(snapshot, history(())).findings
    titles = [fix.title for finding in findings if finding.rule == "JOB002" for fix in finding.fixes]
    assert any("its log had not grown for 8 min when it was ended" in title for title in titles) is is_told


def test_an_attempt_that_was_preempted_and_followed_by_another_is_past() -> None:
    line = f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO PREEMPTION ***\n"
    text = line + "".join(f"step {step} loss: {2 / (step + 1):.3f}\n" for step in range(300))
    lines = tuple(text.splitlines())
    for shown, expected in ((text, []), (line, ["slurm_preempted"])):
        tail = LogTail(
            "train.log", 1, lines[-400:] if shown == text else (line,), len(shown), shown.count("\n")
        )
        snapshot = TargetSnapshot("train.log", None, log_hits=scan(shown), log_tails=(tail,))
        assert causes(Engine(build()).diagnose(snapshot, history())) == expected
    assert not causes(diagnose_log(line, run(state="RUNNING")))


def test_a_crash_is_shown_at_the_frame_of_the_users_own_code_that_the_fault_handler_printed() -> None:
    finding = diagnose("ended/segmentation-fault.log").findings[0]
    assert 'train.py", line 4, in forward' in finding.evidence[1].text


def test_a_log_into_which_torch_wrote_a_zero_is_still_read() -> None:
    assert b"\0" in (RECORDINGS / "ended" / "worker-without-shared-memory.log").read_bytes()
    findings = diagnose("ended/worker-without-shared-memory.log").findings
    assert [(f.cause, f.consequence_of) for f in findings] == [
        ("shm_bus_error", None),
        ("dataloader_worker_killed", "MEM011"),
    ]


def test_a_checkpoint_that_cannot_be_saved_is_a_mistake_of_the_program_and_no_workers() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/home/user/train.py", line 9, in <module>\n    '
        "torch.save(model, path)\nAttributeError: Can't pickle local object 'main.<locals>.<lambda>'\n"
    )
    assert causes(diagnose_log(log)) == ["code_error"]


def test_a_job_that_ran_until_its_time_limit_had_a_python_although_conda_was_not_set_up() -> None:
    conda = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."
    limit = f"slurmstepd: error: *** JOB 17 ON node1 {AT} DUE TO TIME LIMIT ***"
    assert causes(diagnose_log(f"{conda}\n22%|##| 11/50{limit}\n")) == ["slurm_timeout"]
