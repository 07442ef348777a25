"""MEM008: a process was killed by SIGKILL without an explanation; most likely the host ran out of memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.circumstances import NO_OTHER_SCHEDULER
from coach.rules.from_logs.aftermath import is_monitor, was_outlived
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.outcome import (
    explains_a_kill,
    first_failure,
    is_first_failure,
    proof_of,
)

_KILLED_BY_SLURM = frozenset({"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"})

_ENDS_OF_JOBS = ("JOB002", "JOB003", "JOB005", "JOB018")

_UNPROVEN = (
    "host memory that ran out is the most frequent sender, but nothing here measured it; a person, a script "
    "or a launcher can send it too"
)
_OF_RAY = ("Worker unexpectedly exits", "worker died or was killed while executing a task")
_RAY_CONFIDENCE = 0.4
"""Ray's message names three possible causes; lack of memory comes first."""
_RAY_LOGS = "tail -n 40 /tmp/ray/session_latest/logs/worker-*.err"
"""Run it on the worker's node (Ray, Configuring Logging)."""


class KilledSilently(EndingRule):
    """A process was killed by SIGKILL without an explanation.

    What it sees
        "Signal 9 (SIGKILL) received by PID", exit codes -9 and 137 of ranks, "Killed" from a shell, srun or
        mpirun, a Ray worker that "unexpectedly exits" (it may also have crashed), and no other cause.
        torchrun's Root Cause block names the rank; the lost connections of other ranks are its consequences.
    Why it matters
        A program cannot catch SIGKILL and prints nothing. If no person and no scheduler sent it, the kernel
        did, because the memory of the node or of the job's cgroup ran out.
    When it stays silent
        If another finding explains it, which is then the cause; if Slurm ended the job (cancelled, time
        limit, preempted, node failure); if the program went on.
    What to do
        Measure before asking for more: `sacct -j JOB -o MaxRSS,ReqMem,State`, the kernel's log on the node
        (`dmesg | grep -i oom`), or coach's own samples. Then request 1.3 times the peak, or use fewer
        DataLoader workers.
    Sources
        signal(7); torch.distributed.elastic's exit codes; Linux, mm/oom_kill.c; Ray's list of potential root
        causes of SYSTEM_ERROR (SIGKILL, `ray stop --force`, SIGSEGV).
    """

    code = "MEM008"
    name = "killed-silently"
    cause = "host_oom"
    severity = Severity.WARNING
    confidence = 0.6

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        first = first_failure(snapshot)
        for hit in super().check(snapshot, history):
            told = replace(hit, consequence_of=explains_a_kill(snapshot))
            if first is None or first.exit_code != -9:
                yield told
                continue
            summary = self.summary_of(f"Rank {first.rank} was killed")
            yield replace(
                told,
                summary=summary,
                subject=Subject(rank=first.rank),
                evidence=(*filter(None, (proof_of(first),)), *hit.evidence),
            )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a rank that torchrun ended, for a monitor that a script ended, and for a job that Slurm
        ended."""
        if snapshot.state in _KILLED_BY_SLURM or any(
            each.rule in _ENDS_OF_JOBS and each.fields.get("what") == "JOB" for each in snapshot.log_hits
        ):
            return False
        if is_monitor(hit) or (hit.text.strip() == "Killed" and was_outlived(hit, snapshot, 2)):
            return False
        is_told_by_torchrun = "exit_code" in hit.fields or "received by PID" in hit.text
        return not is_told_by_torchrun or is_first_failure(hit, snapshot, -9)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if _is_told_by_ray(hit):
            return (
                "A Ray worker died without an exception: it was killed, most likely for lack of host memory, "
                "or it crashed in native code. Ray cannot tell which"
            )
        return self.summary_of("A process was killed")

    def confidence_of(self, hit: LogHit) -> float:
        return _RAY_CONFIDENCE if _is_told_by_ray(hit) else self.confidence

    def summary_of(self, event: str) -> str:
        return f"{event} (signal 9) without a message: {_UNPROVEN}"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _is_told_by_ray(hit):
            yield Fix("Read the last lines of the dead worker", command=_RAY_LOGS)
        yield Fix(
            "Measure how much memory it uses, before asking for more: `coach run -- COMMAND` samples it"
        )
        yield Fix(
            "Where the site keeps accounting, see how much it had used",
            command=f"sacct -j {snapshot.job_id or 'JOB'} -o JobID,State,MaxRSS,ReqMem",
            needs=(NO_OTHER_SCHEDULER,),
        )


def _is_told_by_ray(hit: LogHit) -> bool:
    return any(words in hit.text for words in _OF_RAY)
