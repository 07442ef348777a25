"""Build a ticket: the facts that a help desk asks for about one job, collected once and without secrets.

The ticket is one plain object, and secrets are struck from all of it, so that a part added later cannot be
missed. Facts that are unknown or hidden by the site are marked as such.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coach import installed
from coach.analysis.comparing.earlier_runs import past_run
from coach.analysis.comparing.fix_chain import family
from coach.analysis.comparing.tried_words import Tried, attempt, found_in, how_made, measured_words
from coach.analysis.comparing.two_runs import compare
from coach.analysis.judging.verdict_object import is_withheld
from coach.config import Settings
from coach.model.error_block import ErrorBlock
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis
from coach.model.judging.verdict import PastRun
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.model.training.run import Run
from coach.node.secret_words import MASK, mask_command, mask_values
from coach.render.why import why_lines
from coach.runs import SAID_OF_END
from coach.sources.io import Io
from coach.sources.runs.verdict_files import verdict_of_run
from coach.workflows.judging import ticket_facts as facts
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.earlier_runs import PastRuns
from coach.workflows.judging.targets import known_runs


def ticket(named: str, settings: Settings, io: Io, backend: str | None) -> dict[str, Any]:
    """The ticket of a job, a run, a directory or a log. Raises UserError if it cannot be read, and for an
    open drill. At most 8 RPCs more than `coach check`."""
    checked = Checker(settings, io, backend).target(named)
    verdict = checked.verdict()
    if is_withheld(verdict):
        raise UserError(
            f"{named}: an open drill: its planted fault is yours to find", "`coach drill` says more"
        )
    subject = facts.subject_of(checked.snapshot, settings, io, backend)
    worst = checked.parts[0] if checked.parts else checked  # of an array, the task that failed worst
    script = facts.script(subject, io)
    tried = what_was_tried(checked, settings, io, subject.backend)
    told: dict[str, Any] = {
        "schema": 1,
        "target": named,
        "state": checked.snapshot.state,
        "written": facts.moment(io.now()),
        "written_by": f"coach {installed.version()}",
        "verdict": why_lines(verdict, io.now()),
        "findings": verdict["findings"],
        "not_measured": verdict["not_measured"],
        "times": facts.times(subject, io.now()),
        "job": facts.job_facts(subject),
        "parts": [f"{part.diagnosis.target}: {part.snapshot.state}" for part in checked.parts],
        "nodes": facts.nodes(subject, checked, io),
        "modules": facts.modules(subject, script["text"] or ""),
        "environment": facts.environment(subject, script["text"] or ""),
        **error_and_ends(worst.snapshot, worst.diagnosis),
        "logs": facts.logs(checked),
        "tried": [{**asdict(each), "ended": facts.moment(each.ended_s)} for each in tried],
        "script": script,
        "slurm_record": facts.slurm_record(subject, worst.snapshot.job, io),
    }
    command = script["command"] and shlex.join(mask_command(script["command"]))
    struck: dict[str, Any] = mask_values({**told, "script": {**script, "command": command}})
    return {**struck, **shortened(struck), "num_struck": _num_marks(struck) - _num_marks(told)}


def _num_marks(value: Any) -> int:
    if isinstance(value, str):
        return value.count(MASK)
    if isinstance(value, Mapping):
        return sum(map(_num_marks, (*value, *value.values())))
    return sum(map(_num_marks, value)) if isinstance(value, list | tuple) else 0


def struck_words(num_struck: int) -> tuple[str, str]:
    """Warnings to show before the user passes the ticket on."""
    number = "1 secret was struck" if num_struck == 1 else f"{num_struck} secrets were struck"
    return (
        f"{number if num_struck else 'no secret was found'}: only secrets of known forms are recognized",
        "nothing is sent; your name, your paths and your jobs stay in it: read it before you pass it on",
    )


# The last error of a target and the ends of its logs, as quoted lines, for somebody who has no access to the
# files.

_MAX_ERROR_LINES = 80
_MAX_END_LINES = 20
_MAX_LOGS = 4


def error_and_ends(snapshot: TargetSnapshot, diagnosis: Diagnosis) -> dict[str, Any]:
    """`error`: the error that ended the target, which is the rank's own below torchrun's summary; else the
    last error in any of its logs; else the lines that prove the root cause; None if no log shows one.
    `log_ends`: the ends of its newest logs. Lines are not cut yet: `shortened` cuts them after secrets are
    struck, because a private key is recognized by its first and last line."""
    tails = [tail for tail in snapshot.log_tails if not tail.is_binary and any(map(str.strip, tail.lines))]
    tails.sort(key=lambda tail: tail.written_s or 0.0, reverse=True)
    block = _block(diagnosis, tails)
    told = _proof(diagnosis)
    if block is not None:
        lines = [*block.lines, *block.message.splitlines()[1:]]
        told = {"file": block.file, "line": block.error_line, "rank": block.rank, "lines": lines}
    return {"error": told, "log_ends": [_end(tail, block) for tail in tails[:_MAX_LOGS]]}


def shortened(told: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `error_and_ends`, after secrets were struck, cut to a length that a person reads."""
    error = told["error"]
    if error is not None:
        left_out = len(error["lines"]) - _MAX_ERROR_LINES
        if left_out > 0:  # the exception stands at the end
            error = {**error, "lines": [f"… {left_out} lines", *error["lines"][left_out:]]}
    ends = ({**end, "lines": _last(end["lines"])} for end in told["log_ends"])
    return {"error": error, "log_ends": [end for end in ends if end["lines"]]}


def _last(lines: Sequence[str]) -> list[str]:
    """Drop coach's own verdict, which is shown elsewhere, and empty lines at the end."""
    kept = [line for line in lines if not line.startswith(SAID_OF_END)]
    while kept and not kept[-1].strip():
        kept.pop()
    return kept[-_MAX_END_LINES:]


def _proof(diagnosis: Diagnosis) -> dict[str, Any] | None:
    for finding in diagnosis.findings:
        lines = [item for item in finding.evidence if item.file is not None]
        if finding.is_primary and lines:
            texts = [item.text for item in lines]
            return {
                "file": lines[0].file,
                "line": lines[0].line,
                "rank": finding.subject.rank,
                "lines": texts,
            }
    return None


def _block(diagnosis: Diagnosis, tails: Sequence[LogTail]) -> ErrorBlock | None:
    outcome = diagnosis.outcome
    blocks = [block for tail in tails for block in reversed(tail.blocks)]
    if outcome is not None and outcome.first is not None and outcome.first.block is not None:
        # torchrun's summary says only which rank ended; the root cause stands in that rank's own error.
        own = _of_root_cause(diagnosis, blocks) if outcome.first.is_told_by_launcher else None
        return own or outcome.first.block
    return next((block for block in blocks if not block.is_ignored), None)


def _of_root_cause(diagnosis: Diagnosis, blocks: Iterable[ErrorBlock]) -> ErrorBlock | None:
    """The block that ends in the line which proves the root cause."""
    primary = (finding for finding in diagnosis.findings if finding.is_primary)
    proofs = {(item.file, item.line) for finding in primary for item in finding.evidence[:1]}
    return next((block for block in blocks if (block.file, block.error_line) in proofs), None)


def _end(tail: LogTail, error: ErrorBlock | None) -> dict[str, Any]:
    """Leave out the error, which is shown elsewhere."""
    lines = list(tail.lines)
    if error is not None and error.file == tail.file and error.last_line >= tail.first_line:
        behind = lines[error.last_line + 1 - tail.first_line :]
        lines = behind if len(behind) < _MAX_END_LINES else lines
    return {"file": tail.file, "num_lines": tail.num_lines if tail.is_counted else None, "lines": lines}


# The fixes and other attempts before: runs are read again to be compared.

MAX_FAMILY = 8
"""Runs of a chain of fixes that are read and compared at most, the newest."""
MAX_ATTEMPTS = 8


def what_was_tried(checked: Checked, settings: Settings, io: Io, backend: str) -> tuple[Tried, ...]:
    """The chain of fixes in the order of its launches, without the target if it is alone in it; then other
    attempts, newest first."""
    if checked.parts:
        return ()
    this = past_run(checked.snapshot, checked.history, checked.diagnosis, ())
    if this is None:
        return ()
    others = PastRuns(settings).attempts(this)
    judged = {past.target: past for past in others} | {this.target: this}
    run = checked.snapshot.run
    members = () if run is None else family(run, known_runs(settings, io))[-MAX_FAMILY:]
    chain: tuple[Tried, ...] = ()
    if len(members) > 1:
        checker = Checker(settings, io, backend, is_alone=True)
        chain = tuple(_chain(members, judged, {run.run_id: _read(run, checker) for run in members}))
    told = {each.target for each in chain}
    rest = [attempt(past, this) for past in others if past.target not in told]
    return (*chain, *rest[:MAX_ATTEMPTS])


def _read(run: Run, checker: Checker) -> Checked | None:
    """The run by its files alone; None if they are gone or cannot be read."""
    try:
        return checker.ended_run(Path(run.run_dir))
    except UserError:
        return None


def _chain(
    members: Sequence[Run], judged: Mapping[str, PastRun], read: Mapping[str, Checked | None]
) -> Iterator[Tried]:
    for run in members:
        past, verdict = judged.get(run.run_id), verdict_of_run(Path(run.run_dir))
        found = _first_finding(verdict) if verdict is not None else found_in(past)
        is_judged = verdict is not None or (past is not None and past.is_judged)
        before, after = read.get(run.parent_run_id or ""), read[run.run_id]
        measured: list[str] = []
        if before is not None and after is not None:
            rows = compare(before.snapshot, before.history, after.snapshot, after.history).rows
            measured = measured_words(rows)
        yield Tried(run.run_id, run.state, run.ended_time_s, found, is_judged, how_made(run), measured)


def _first_finding(verdict: Mapping[str, Any]) -> str | None:
    findings = verdict.get("findings")
    first = next(iter(findings), None) if isinstance(findings, list) else None
    return f"{first.get('rule')} {first.get('summary')}" if isinstance(first, dict) else None
