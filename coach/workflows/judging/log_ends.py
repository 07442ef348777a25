"""The last error of a target and the ends of its logs, as quoted lines, for somebody who has no access to the
files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coach.model.error_block import ErrorBlock
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.runs import SAID_OF_END

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
