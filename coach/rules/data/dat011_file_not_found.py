"""DAT011: a file or folder that the program needs does not exist on the node where it ran."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import on_a_node
from coach.rules.from_logs.aftermath import tail_of, was_outlived, was_passed_by
from coach.rules.from_logs.ending_rule import REFUSED, EndingRule, by_field

_CD = re.compile(
    r"(?:^|: )(?:line )?\d{0,6}:? ?cd: (?P<folder>\S{1,300}): (?:No such file or directory|Not a directory)$"
)
"""Bash's line about a failed `cd`."""


class FileNotFound(EndingRule):
    """A file that the program needs does not exist on the node where it ran.

    What it sees
        Python's FileNotFoundError with its path, "can't open file", a model path that is not a folder
        ("Incorrect path_or_model_id"), torchvision's "Dataset not found", an assertion or a ValueError about
        a path that does not exist; a file or a command that srun does not find; or the message of the job's
        own check at its start, or of coach's trainers, that the data directory is missing and compute nodes
        do not download.
    Why it matters
        Nothing was trained. If the path exists on the login node, the compute node does not see that file
        system.
    When it stays silent
        On missing programs (nvcc, ninja) and sockets of worker processes, which have other causes, and on
        downloads without internet access (ENV021). The finding is info if the error was caught and the
        program went on.
    What to do
        Look from a compute node: `srun ls PATH`. Relative paths start at the directory of submission.
        Download data on a login node, to a file system that all nodes see, and give the full path. Without
        `data_dir`, coach's recipes train on generated data. A command that srun does not find is misspelt, or
        of an environment that is not active.
    Sources
        Python's OSError; slurmstepd's execve(); transformers' hub utilities; torchvision.datasets.
    """

    code = "DAT011"
    name = "file-not-found"
    cause = "file_not_found"
    sentences = by_field(
        dataset="The data set does not exist, and the program was told not to download it",
        asserted="A file or folder that the program requires does not exist",
        command="The node has no command {command}: srun looks for it on the PATH",
        called="The job finds no command {called} on its PATH",
        path="Not there, seen from the job: {path}",
        mpirun="Not there, seen from the job: a file",
        missing="Not there, seen from the job: {missing}",
        otherwise="Not there, seen from the job: a file",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.signature in ("shell", "copy") and (
            was_passed_by(hit, snapshot) or was_outlived(hit, snapshot)
        ):
            return False
        return hit.signature != "asserted" or any("AssertionError" in line for line in hit.traceback[-1:])

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        if cd := _failed_cd(hit, snapshot):
            yield Evidence(f"before it, the batch script could not change into {cd[0]}", hit.file, cd[1])

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if cd := _failed_cd(hit, snapshot):
            yield Fix(
                f"Correct the line `cd {cd[0]}` of the batch script: it failed, so the job ran elsewhere"
            )
        missing = hit.fields.get("path") or hit.fields.get("missing") or ""
        if missing.endswith(r"\r"):
            yield Fix(
                r"Give the script or the list that holds this name Unix line ends: \r is a Windows line end",
                command=r"sed -i 's/\r$//' FILE",
            )
            return
        yield from _where_it_should_be(hit, missing if "path" in hit.fields or " " not in missing else "")
        if snapshot.run is not None:
            yield Fix(
                "Fetch data on a login node, never in the job; without data_dir coach's recipes train on "
                "generated data"
            )


def _where_it_should_be(hit: LogHit, path: str) -> Iterable[Fix]:
    """The fixes for a file that compute nodes lack; `path` is as the log names it."""
    if hit.signature == REFUSED.name:
        yield Fix("Put it on a file system that compute nodes see, and name it by its full path")
    elif path.startswith("/"):
        yield from on_a_node(
            "See whether compute nodes have it, and put it on a file system that they all see",
            f"ls -ld {shlex.quote(path)}",
        )
        yield Fix("If it was moved, removed or misspelt, correct the path where the job names it")
    else:
        yield Fix("Name it by its full path, on a file system that compute nodes see")


def _failed_cd(hit: LogHit, snapshot: TargetSnapshot) -> tuple[str, int] | None:
    """The folder of a failed `cd` above the line, and its line in the log. What is missing then may lie
    there."""
    tail = tail_of(hit, snapshot)
    if tail is None or hit.signature == "shell":
        return None
    above = tail.plain[: max(0, hit.line - tail.first_line)]
    found = ((_CD.search(line), number) for number, line in enumerate(above, tail.first_line))
    return next(((match["folder"], number) for match, number in found if match is not None), None)
