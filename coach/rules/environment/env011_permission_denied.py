"""ENV011: the job lacks permission to read or write a file; most often its node cannot write to the run
directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import on_a_node, without_node
from coach.rules.from_logs.aftermath import was_outlived, was_passed_by
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of

_NOT_RUN = re.compile(r": (?:line )?\d+: |trying to connect to the [Dd]ocker")
_LINES_WITHOUT = 10
"""A script that prints fewer lines than this after a refused command had nothing else to run."""


class PermissionDenied(EndingRule):
    """The job was not allowed to read or write a file that it needs.

    What it sees
        A gated model or a service that refuses the account (GatedRepoError, "401 Client Error"), or for which
        no key is set (wandb's "api_key not configured", the Hub's LocalTokenNotFoundError); Python's
        PermissionError and "Read-only file system", the same words of shell commands; or the result of the
        job's own check at its start: the run directory is not writable from that node.
        As a cause of its own: a gated repository of the Hugging Face Hub, or one that wants a token.
    Why it matters
        Compute nodes do not always see the same file systems as the login node, or see them read-only, often
        home. A command that works in the terminal then fails in the job.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the error was caught and the
        program went on, as with a cache in /tmp that belongs to somebody else. On a failed shell command in a
        script that went on.
    What to do
        If a program could not be started (execve), make its file executable: `chmod +x FILE`. Else see from
        a compute node which folder of the path forbids it: `srun namei -l PATH`. Put runs on a file
        system that compute nodes may write to (`runs_root`, often $SCRATCH).
    Sources
        errno(3) EACCES, EPERM, EROFS; Python's OSError.
    """

    code = "ENV011"
    name = "permission-denied"
    cause = "permission_denied"
    sentences = by_field(
        asks="The program asks wandb for a key that it does not have: {line:.160}",
        remote="The model or service does not let this account in: {line:.160}",
        program="The program may not be started: {program}: Permission denied",
        path="{what}: {path}",
        what="{what}",
        otherwise="Permission denied",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.text.startswith("wandb: ERROR"):  # the exception below it says more
            return not any("asks" in other.fields for other in hits_of(snapshot, self.code, "remote"))
        if hit.signature != "shell":
            return True
        num_lines = _LINES_WITHOUT if _NOT_RUN.search(hit.text) else 1
        return not (was_passed_by(hit, snapshot) or was_outlived(hit, snapshot, num_lines))

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        program = hit.fields.get("program")
        if program is not None:
            with_python = f", or start it with python: python {program}" if program.endswith(".py") else ""
            yield Fix(f"Make the file executable{with_python}", command=f"chmod +x {shlex.quote(program)}")
            yield from on_a_node(
                "If it is executable, see on a node which folder on its path forbids it or is mounted noexec",
                f"namei -l {shlex.quote(program)}",
            )
            return
        path = hit.fields.get("path")
        if path and path.startswith("/") and not _is_below(path, snapshot):
            yield from on_a_node(
                "See on a node which folder on its path forbids it, and who owns that",
                f"namei -l {shlex.quote(path)}",
            )
            yield Fix("If another user owns it, ask for access, or use a copy of your own")
            return
        yield Fix(
            "Put runs, data and caches where compute nodes may write: runs_root and cache_dir in the config"
        )
        yield from without_node(snapshot, "which sees the file system differently")


def _is_below(path: str, snapshot: TargetSnapshot) -> bool:
    """True if the path lies in the run's own folder."""
    return snapshot.run is not None and path.startswith(f"{snapshot.run.run_dir}/")
