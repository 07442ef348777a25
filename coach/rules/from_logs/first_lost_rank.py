"""The rank that ended first, as torchrun's summary names it, and the connections that the other ranks lost by
that.

A killed rank says nothing, and its peers say "Connection reset by peer". The summary's Root Cause block tells
the two apart, so the kill explains the connection and never the reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from coach.model.judging.finding import Evidence, Hit, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.causes import REGISTER
from coach.rules.from_logs.quoted_evidence import hits_of

KILL = "MEM008"
"""The rule about SIGKILL. Its signatures read the summary for all rules."""
_SYMPTOMS = ("DST003", "DST004", "DST005", "DST019", "DST020")
"""Rules about what ranks say when they wait for one that is gone."""
_SIGTERM = -15
_SIGKILL = -9
_LINES_OF_A_BLOCK = 8
_LOST = re.compile(
    r"(?:closed|reset) by (?:remote )?peer|remote process (?:exited|exiting)|ncclRemoteError"
    r"|[Bb]roken pipe|Socket closed"
)

_ENDS_THE_REST = re.compile(r"[Ee]xited with exit code [1-9]|CANCELLED AT ")


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The first failure that torchrun observed. A negative code is a signal."""

    rank: int
    exit_code: int
    said: LogHit


def summary_signatures() -> tuple[Signature, ...]:
    """The lines of torchrun's summary that tell the first failure, beside the exit codes."""
    return (
        Signature(
            KILL,
            "root_cause",
            ("Root Cause (first observed",),
            r"^Root Cause \(first observed failure\):",
        ),
        Signature(
            KILL,
            "failed_rank",
            ("(local_rank: ",),
            r"^\s+rank +: (?P<failed>\d+) \(local_rank: \d+\)",
        ),
    )


def first_failure(snapshot: TargetSnapshot) -> FirstFailure | None:
    """The first failure of the job: of several nodes' summaries the one that tells of no end by torchrun
    itself."""
    told = list(_first_failures(snapshot))
    return next((each for each in told if each.exit_code != _SIGTERM), next(iter(told), None))


def _first_failures(snapshot: TargetSnapshot) -> Iterable[FirstFailure]:
    ranks, codes = hits_of(snapshot, KILL, "failed_rank"), hits_of(snapshot, KILL, "exit_code")
    for head in hits_of(snapshot, KILL, "root_cause"):
        rank, code = (
            next(
                (
                    hit
                    for hit in hits
                    if hit.file == head.file and head.line < hit.line <= head.line + _LINES_OF_A_BLOCK
                ),
                None,
            )
            for hits in (ranks, codes)
        )
        if rank is not None and code is not None:
            yield FirstFailure(int(rank.fields["failed"]), int(code.fields["exit_code"]), code)


def is_lost_peer(hit: LogHit) -> bool:
    """True if a rank only says that another one is gone."""
    return bool(_LOST.search(hit.text))


def explains_a_kill(snapshot: TargetSnapshot) -> tuple[str, ...] | None:
    """What explains a kill, where a launcher killed the rank because others had failed.

    None where the kill came first: the register says what explains it.
    """
    first = first_failure(snapshot)
    symptoms = [hit for hit in snapshot.log_hits if hit.rule in _SYMPTOMS]
    if first is not None and first.exit_code == _SIGKILL:
        return None
    if not symptoms or any(_follows_a_kill(symptom, snapshot) for symptom in symptoms):
        return None
    return (*(edge.cause for edge in REGISTER.explaining(KILL)), *_SYMPTOMS)


def told_of_the_dead(hit: Hit, snapshot: TargetSnapshot) -> Hit:
    """A symptom with the rank that was gone, where torchrun names it."""
    first = first_failure(snapshot)
    said = {(evidence.file, evidence.line) for evidence in hit.evidence}
    symptoms = [
        each for each in snapshot.log_hits if each.rule in _SYMPTOMS and (each.file, each.line) in said
    ]
    if first is None or first.exit_code < 0 or not _is_of_others(first, symptoms, snapshot):
        return hit
    how = f"with exit code {first.exit_code} and without a word"
    proof = Evidence(f"torchrun's first failure: rank {first.rank}, {how}", first.said.file, first.said.line)
    return replace(
        hit,
        summary=f"{hit.summary}; rank {first.rank} had ended first, {how}",
        evidence=(*hit.evidence, proof),
        subject=Subject(rank=first.rank),
    )


def _follows_a_kill(symptom: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if the log tells of a kill above it, or of one below by which a rank lost its peer and that no
    launcher did after another rank had failed."""
    kills = [kill for kill in hits_of(snapshot, KILL, "killed") if kill.file == symptom.file]
    return any(
        kill.line < symptom.line or (is_lost_peer(symptom) and not _was_ended(kill, snapshot))
        for kill in kills
    )


def _was_ended(kill: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if the lines above a kill say that another task had failed, after which a launcher ends all of
    them."""
    return any(
        _ENDS_THE_REST.search(line)
        for tail in snapshot.log_tails
        if tail.file == kill.file
        for line in tail.plain[: max(0, kill.line - tail.first_line)]
    )


def _is_of_others(first: FirstFailure, symptoms: list[LogHit], snapshot: TargetSnapshot) -> bool:
    """True if the symptoms are those of other ranks than the first that failed, which has no error of its own
    in the log."""
    ranks = {hit.rank for hit in symptoms}
    # An exception ends a rank with 1: without prefixes this one may be the first rank's own.
    if not symptoms or first.rank in ranks or (None in ranks and first.exit_code == 1):
        return False
    return not any(hit.rank == first.rank and hit.traceback for hit in snapshot.log_hits)
