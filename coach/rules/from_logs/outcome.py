"""Decide how a run ended, which rank ended first, and which errors it survived: once, before the rules run.

A killed rank prints nothing, while its peers print "Connection reset by peer". torchrun's Root Cause,
exit.json and the order of the exceptions show which came first, so the kill explains the lost connection and
never the reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from coach.lookback.history import History
from coach.model.error_block import ErrorBlock
from coach.model.judging.finding import Evidence, Fix, Hit, Subject
from coach.model.judging.outcome import End, LogSigns, Outcome, RankEnd
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.launched_with import saves_in_run_dir
from coach.rules.causes import REGISTER
from coach.rules.from_logs.aftermath import signs_of, tail_of, went_on
from coach.rules.from_logs.loss_lines import PROGRESS, last_losses
from coach.rules.from_logs.printed_progress import lost_steps
from coach.rules.from_logs.quoted_evidence import hits_of

KILL = "MEM008"
"""The rule about SIGKILL."""
TIME_LIMIT = "JOB002"
"""The rule about Slurm's time limit."""
LOST_PEER = ("DST003", "DST004", "DST005", "DST019", "DST020")
"""Rules about messages of ranks that wait for a rank that has ended."""
REFUSED = "BadConstraints"
"""Slurm's reason for a job that no node can take."""
EXIT_CODE = "exit_code"
"""The signature of torchrun's exit codes. They say that a rank ended, but not why."""
_SIGTERM, _SIGKILL = -15, -9
_FROM_SIGNAL, _MAX_SIGNAL = 128, 64
"""A shell reports signal N as exit status 128 + N, N up to 64."""
_NO_FAULT = frozenset({"FAILED", "COMPLETED", None})
"""Final states that Slurm does not cause itself."""
_NO_BAD_END = frozenset({End.UNKNOWN, End.RUNNING, End.COMPLETED})
_SIGNALLED = re.compile(r"RaisedSignal:(\d{1,3})")
"""Slurm's reason for a job whose script ended by a signal."""
_LOST = re.compile(
    r"(?:closed|reset) by (?:remote )?peer|remote process (?:exited|exiting)|ncclRemoteError"
    r"|[Bb]roken pipe|Socket closed"
)
"""Words that only report that another rank is gone."""
_ENDS_THE_REST = re.compile(r"[Ee]xited with exit code [1-9]|CANCELLED AT ")

_END_WITH_STATUS = Fix(
    "Let the batch script fail with its program: put `set -e` and `set -o pipefail` at its top; to collect "
    "the failures of a loop, remember each exit status and end with it"
)
"""A batch script ends with the status of its last command: an `echo` behind a program that crashed makes the
job COMPLETED."""


def judge(snapshot: TargetSnapshot, history: History) -> Outcome:
    """The outcome of a target by its present data."""
    losses = last_losses(snapshot.log_hits)
    signs = _signs_in(snapshot)
    seen = replace(snapshot, outcome=Outcome(End.UNKNOWN, signs=signs, last_losses=losses))
    survived, deadly = _divided(seen)
    first = _first_end(snapshot, deadly)
    end, reason = _end_of(seen, first)
    newest = [steps[-1] for rank in history.ranks if (steps := history.steps(rank))]
    last_s = max((step.time_s for step in newest if step.time_s is not None), default=None)
    saved = max(snapshot.checkpoints, key=lambda each: each.step, default=None)
    lost = max(0, max(step.step for step in newest) - saved.step) if saved and newest else None
    if saved is None and end not in _NO_BAD_END:
        lost = lost_steps(snapshot)
    return Outcome(
        end=end,
        reason=reason,
        exit_code=exit_status(snapshot),
        first=first,
        survived=tuple(survived),
        lost_steps=lost,
        lost_s=max(0.0, last_s - saved.time_s) if saved and last_s is not None else None,
        can_resume=_can_resume(snapshot),
        signs=signs,
        last_losses=losses,
    )


def _can_resume(snapshot: TargetSnapshot) -> bool | None:
    """None for a run without a checkpoint in its directory that may have saved one elsewhere."""
    if snapshot.checkpoints:
        return True
    return False if snapshot.run is not None and saves_in_run_dir(snapshot.run) else None


def _divided(snapshot: TargetSnapshot) -> tuple[list[ErrorBlock], list[ErrorBlock]]:
    """Error blocks in two lists: those after which the program went on, and the others."""
    survived: list[ErrorBlock] = []
    deadly: list[ErrorBlock] = []
    for block in (block for tail in snapshot.log_tails for block in tail.blocks):
        is_survived = block.is_traceback and went_on(_hit_of(block), snapshot)
        (survived if is_survived else deadly).append(block)
    return survived, deadly


def _signs_in(snapshot: TargetSnapshot) -> dict[str, LogSigns]:
    """File → signs of its end. Only logs with an error are read, or all logs if nothing else shows the
    end."""
    files = {hit.file for hit in snapshot.log_hits if hit.rule != PROGRESS.rule}
    return {
        tail.file: signs_of(tail)
        for tail in snapshot.log_tails
        if snapshot.state is None or tail.blocks or tail.file in files
    }


def exit_status(snapshot: TargetSnapshot) -> int | None:
    """The exit status of the job, not of a rank."""
    if snapshot.exit is not None and snapshot.exit.exit_code is not None:
        return snapshot.exit.exit_code
    return snapshot.job.exit_code if snapshot.job is not None else None


def was_never_started(snapshot: TargetSnapshot) -> bool:
    """True for a job that Slurm refused after it had given it an id: it has no nodes and no log. Its exit
    code is made up."""
    job = snapshot.job
    if job is None or job.state != "FAILED" or job.nodes or job.time_used_s:
        return False
    return (job.reason or "").startswith(REFUSED)


def given_reason(snapshot: TargetSnapshot) -> str | None:
    """Slurm's reason for the job's state, if it gives one."""
    reason = snapshot.job.reason if snapshot.job is not None else None
    return None if reason in ("", "None") else reason


def state_evidence(snapshot: TargetSnapshot) -> Evidence:
    """The state with its reason."""
    reason = given_reason(snapshot)
    return Evidence(f"state {snapshot.state}{f', reason {reason}' if reason else ''}")


def time_evidence(snapshot: TargetSnapshot) -> Iterable[Evidence]:
    """How long the job ran, if Slurm tells it."""
    if snapshot.job is not None and snapshot.job.time_used_s is not None:
        yield Evidence("ran for", value=float(snapshot.job.time_used_s), unit="s")


def signal_of(snapshot: TargetSnapshot) -> int | None:
    """Number of the signal that ended the job's script, from Slurm's reason or the shell's exit status."""
    job, status = snapshot.job, exit_status(snapshot)
    told = _SIGNALLED.search(job.reason or "") if job is not None else None
    if told is not None:
        return int(told[1])
    is_signal = status is not None and _FROM_SIGNAL < status <= _FROM_SIGNAL + _MAX_SIGNAL
    return status - _FROM_SIGNAL if is_signal and status is not None else None


def _hit_of(block: ErrorBlock) -> LogHit:
    return LogHit("", "block", block.file, block.error_line, block.lines[-1], {}, block.rank, block=block)


def _first_end(snapshot: TargetSnapshot, blocks: list[ErrorBlock]) -> RankEnd | None:
    """The rank that ended first: from exit.json, else from torchrun's summary, else by the earliest
    exception."""
    for rank in snapshot.exit.ranks if snapshot.exit is not None else ():
        if not rank.is_bystander and (rank.signal or rank.exit_code):
            return RankEnd(rank.rank, None, -rank.signal if rank.signal else rank.exit_code)
    failures = [block for block in blocks if block.exit_code is not None and block.rank is not None]
    # With summaries of several nodes, prefer a rank that torchrun did not end itself (SIGTERM).
    told = min(failures, key=lambda block: block.exit_code == _SIGTERM, default=None)
    if told is not None:
        return RankEnd(told.rank, told.node, told.exit_code, told, is_told_by_launcher=True)
    raised = [block for block in blocks if block.may_end_process]
    is_ordered = len({block.file for block in raised}) == 1
    return RankEnd(raised[0].rank, None, None, _raised_last(raised)) if is_ordered else None


def _raised_last(raised: list[ErrorBlock]) -> ErrorBlock:
    """The exception to which the earliest one led: that one ended the program."""
    places = [[each.first_line for each in block.chain] for block in raised]
    later = [block for block, chain in zip(raised, places, strict=True) if raised[0].first_line in chain]
    return later[-1] if later else raised[0]


def _end_of(snapshot: TargetSnapshot, first: RankEnd | None) -> tuple[End, str | None]:
    state = snapshot.state
    if state is not None and not snapshot.has_ended:
        return End.RUNNING, None
    if state == "COMPLETED":
        return End.COMPLETED, None
    if state not in _NO_FAULT:
        return End.SLURM, state
    if was_never_started(snapshot):
        return End.SLURM, REFUSED
    if first is not None and first.exit_code is None:
        return End.EXCEPTION, first.block.type if first.block is not None else None
    return _end_by_status(snapshot, first.exit_code if first is not None else None)


def _end_by_status(snapshot: TargetSnapshot, code: int | None) -> tuple[End, str | None]:
    """`code` is the exit code of the first rank."""
    signal = -code if code is not None and code < 0 else signal_of(snapshot)
    status = code or exit_status(snapshot)
    if signal is not None:
        return End.SIGNAL, str(signal)
    if status:
        return End.STATUS, str(status)
    if status is None and any(hit.fields.get("what") == "JOB" for hit in hits_of(snapshot, TIME_LIMIT)):
        return End.SLURM, "TIMEOUT"
    return (End.COMPLETED if status == 0 or has_good_end(snapshot) else End.UNKNOWN), None


def has_good_end(snapshot: TargetSnapshot) -> bool:
    """True if a log reports a successful end, or that all tests passed."""
    signs = snapshot.outcome.signs.values() if snapshot.outcome is not None else ()
    return any(each.has_good_end for each in signs)


def first_failure(snapshot: TargetSnapshot) -> RankEnd | None:
    """The first failure of a rank that torchrun observed."""
    first = snapshot.outcome.first if snapshot.outcome is not None else None
    return first if first is not None and first.is_told_by_launcher else None


def proof_of(first: RankEnd) -> Evidence | None:
    """The log line with the exit code of torchrun's first failure."""
    block = first.block
    if block is None:
        return None
    return Evidence(
        f"torchrun's first failure: rank {first.rank}, {block.message}", block.file, block.error_line
    )


def is_first_failure(hit: LogHit, snapshot: TargetSnapshot, *codes: int) -> bool:
    """True if torchrun's first failure ended with one of these codes.

    torchrun itself ended the other ranks, by SIGTERM and then SIGKILL, so their codes say nothing.
    """
    told = [each for each in hits_of(snapshot, hit.rule, EXIT_CODE) if each.file == hit.file]
    return not told or int(told[-1].fields["exit_code"]) in codes


def left_silently(others: Iterable[LogHit], snapshot: TargetSnapshot) -> RankEnd | None:
    """The first failed rank, if it left no error of its own and all errors come from ranks that lost it.

    `others` are the hits of all rules except the caller's.
    """
    lost = [hit for hit in snapshot.log_hits if hit.rule in LOST_PEER]
    places = {(hit.file, hit.line) for hit in lost}
    are_lost = all(
        hit.signature == EXIT_CODE or "received by PID" in hit.text or (hit.file, hit.line) in places
        for hit in others
    )
    first = _left_before(lost, snapshot)
    # Exit code 1 means a Python exception, which may stand in another log.
    return first if first is not None and first.exit_code != 1 and are_lost else None


def _left_before(lost: list[LogHit], snapshot: TargetSnapshot) -> RankEnd | None:
    """The first failure, if it has an exit code and all errors in the log are those of other ranks."""
    first, ranks = first_failure(snapshot), {hit.rank for hit in lost}
    if first is None or (first.exit_code or 0) <= 0 or not lost:
        return None
    # An exception ends a rank with code 1. Without rank prefixes, this exception may be the first rank's own.
    is_of_first = first.rank in ranks or (None in ranks and first.exit_code == 1)
    has_words = any(hit.rank == first.rank and hit.traceback for hit in snapshot.log_hits)
    return None if is_of_first or has_words else first


def explains_a_kill(snapshot: TargetSnapshot) -> tuple[str, ...] | None:
    """Codes that explain a kill if a launcher killed the rank because others had failed.

    None if the kill came first; then the register's edges apply.
    """
    symptoms = [hit for hit in snapshot.log_hits if hit.rule in LOST_PEER]
    first = first_failure(snapshot)
    if (first is not None and first.exit_code == _SIGKILL) or not symptoms:
        return None
    if any(_follows_a_kill(symptom, snapshot) for symptom in symptoms):
        return None
    return (*(edge.cause for edge in REGISTER.explaining(KILL)), *LOST_PEER)


def told_of_the_dead(hit: Hit, snapshot: TargetSnapshot) -> Hit:
    """The hit of a symptom, extended by the rank that was gone if torchrun names it."""
    said = {(evidence.file, evidence.line) for evidence in hit.evidence}
    lost = [each for each in snapshot.log_hits if each.rule in LOST_PEER and (each.file, each.line) in said]
    first = _left_before(lost, snapshot)
    if first is None:
        return hit
    return replace(
        hit,
        summary=f"{hit.summary}; rank {first.rank} had ended first, with exit code {first.exit_code} and "
        "without a message",
        evidence=(*hit.evidence, *filter(None, (proof_of(first),))),
        subject=Subject(rank=first.rank),
    )


def told_as_hidden(hit: Hit, snapshot: TargetSnapshot) -> Hit:
    """The hit of an error that ended a program, as a warning if the job COMPLETED nevertheless."""
    if snapshot.state != "COMPLETED":
        return hit
    return replace(
        hit,
        summary=f"{hit.summary}; it ended a program of the job, and the script's exit status 0 hides that",
        is_hidden=True,
        confidence=min(hit.confidence, 0.8),
        fixes=(*hit.fixes, _END_WITH_STATUS),
    )


def _follows_a_kill(symptom: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if the log reports a kill above the symptom. For a lost peer a kill below counts too, unless a
    launcher did it because another rank had failed."""
    kills = [kill for kill in hits_of(snapshot, KILL, "killed") if kill.file == symptom.file]
    return any(
        kill.line < symptom.line or (_LOST.search(symptom.text) and not _was_ended(kill, snapshot))
        for kill in kills
    )


def _was_ended(kill: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if the lines above a kill report that another task had failed: the launcher then ends all
    tasks."""
    tail = tail_of(kill, snapshot)
    above = tail.plain[: max(0, kill.line - tail.first_line)] if tail is not None else ()
    return any(map(_ENDS_THE_REST.search, above))
