"""JOB003: a node of the job, or the machine of a local run, failed."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote as shell_quote

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.slurm.cluster import (
    LAUNCH_INTERRUPTED,
    MACHINE_RESTARTED,
    NOT_RECORDED,
    SUPERVISOR_DIED,
    is_final,
)
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.remedies import leave_out
from coach.rules.base import Need, Rule
from coach.rules.from_logs.outcome import given_reason, state_evidence
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, quote

_STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
_LEFT_ALONE = frozenset({SUPERVISOR_DIED, LAUNCH_INTERRUPTED})


class NodeFailed(Rule):
    """The machine failed, not the training.

    What it sees
        The state NODE_FAIL or BOOT_FAIL: the controller lost a node of the job, or could not boot it; the
        words "Node failure on …" of srun, its "Step … missing from node(s)", "DUE TO NODE FAILURE" of
        slurmstepd, and "Task launch for … failed on node …" if the node is at fault. On the local backend
        NODE_FAIL means that the run's end was not recorded. Either the machine was restarted (the kernel's
        boot id has changed), or, with the reason SupervisorDied, the supervisor or `coach run` was killed: by
        a person, for lack of memory, or at the end of a session. FAILED with the reason LaunchInterrupted
        means that `coach launch` was killed before it had started a supervisor.
    Why it matters
        The program needs no change, and its log does not explain the end: it just stops.
    When it stays silent
        On every other end. A local run of another login node is not judged, because its processes are visible
        only there.
    What to do
        Launch it again. If the site requeues such jobs, Slurm does so itself, and the run resumes from its
        newest checkpoint. Report a node that fails again to the site's administrators, and leave it out
        meanwhile. On a login node, check whether processes are killed at the end of the session (logind's
        KillUserProcesses), and train under Slurm.
    Sources
        squeue(1), JOB STATE CODES; proc(5), /proc/sys/kernel/random/boot_id; logind.conf(5).
    """

    code = "JOB003"
    name = "node-failed"
    cause = "slurm_node_fail"
    severity = Severity.WARNING
    needs = (Need.JOB_STATE, Need.LOG)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        job, run = snapshot.job, snapshot.run
        reason = given_reason(snapshot)
        left_alone = _left_alone(snapshot.state, reason)
        lines = (
            hits_of(snapshot, self.code)
            if snapshot.state is None or (is_final(snapshot.state) and snapshot.state != "COMPLETED")
            else []
        )
        if snapshot.state not in _STATES and left_alone is None and not lines:
            return
        is_local = run is not None and run.backend == "local"
        nodes = run.host if run is not None and is_local else job.nodes if job is not None else None
        said = next((hit.fields["node"] for hit in lines if "node" in hit.fields), None)
        yield Hit(
            summary=_summary(
                is_local,
                left_alone,
                said or nodes,
                snapshot.state,
                is_restart_known=reason == MACHINE_RESTARTED,
            ),
            evidence=(
                *([quote(earliest(lines))] if lines else []),
                *_facts(said or nodes, snapshot),
            ),
            confidence=0.95,
            cause="node_failure" if is_local else None,
            subject=Subject(
                node=said or (nodes if is_local or (job is not None and job.num_nodes == 1) else None)
            ),
            fixes=tuple(_fixes(snapshot, is_local, said or nodes)),
        )


def _facts(node: str | None, snapshot: TargetSnapshot) -> Iterable[Evidence]:
    """The state, and the reason that Slurm has for the node now."""
    if snapshot.state is not None:
        yield state_evidence(snapshot)
    told = snapshot.node_reasons.get(node) if node is not None else None
    if told is not None:
        yield Evidence(f"Slurm's reason for {node}: {told}")


def _left_alone(state: str | None, reason: str | None) -> str | None:
    """The reason of a local run that lost its supervisor; None for any other run."""
    return reason if state in ("FAILED", NOT_RECORDED) and reason in _LEFT_ALONE else None


def _summary(
    is_local: bool, left_alone: str | None, nodes: str | None, state: str | None, *, is_restart_known: bool
) -> str:
    """`left_alone` is the reason of a local run that lost its supervisor."""
    if left_alone == LAUNCH_INTERRUPTED:
        return "The launch of this local run was interrupted before the training was started: nothing ran"
    if left_alone is not None:
        return "The supervisor of this local run was killed, and how the run ended was not recorded"
    if is_local:
        killed = "" if is_restart_known else ", or the supervisor was killed,"
        return f"The machine restarted{f' ({nodes})' if nodes else ''}{killed} while the run was going on"
    if state == "BOOT_FAIL":
        return "A node of the job could not be booted"
    return f"A node of the job failed{f' (of {nodes})' if nodes else ''}, and the job ended with it"


def _fixes(snapshot: TargetSnapshot, is_local: bool, nodes: str | None) -> Iterable[Fix]:
    if is_local:
        yield Fix("See when the machine was restarted", command="last -x reboot shutdown")
        return
    if nodes is not None:
        yield Fix("See what Slurm says of the node now", command=f"scontrol show node {shell_quote(nodes)}")
    is_one = snapshot.job is not None and snapshot.job.num_nodes == 1
    yield from leave_out(snapshot.run, nodes if is_one else None, "if it fails again")
