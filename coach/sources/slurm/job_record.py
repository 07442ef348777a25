"""Read Slurm's own description of one job and its nodes, for a person who is asked to help.

Except for the nodes, the text is not parsed, because a person reads it. Slurm forgets a job minutes after its
end; then the accounting is asked, which many sites have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coach.model.errors import hidden_by_site
from coach.model.slurm.cluster import Node
from coach.sources.io import CommandResult, Io, Query
from coach.sources.slurm.configuration import is_denied
from coach.sources.slurm.node_sets import expand_nodes, fold_nodes
from coach.sources.slurm.nodes import parse_nodes
from coach.sources.slurm.text import failure_words

MAX_NODES = 32
_COLUMNS = (
    *("JobID", "JobName", "State", "ExitCode", "DerivedExitCode", "Submit", "Eligible", "Start", "End"),
    *("Elapsed", "Timelimit", "Partition", "Account", "QOS", "NodeList", "ReqTRES", "AllocTRES", "MaxRSS"),
)
_EXCLUDED = re.compile(r"^ +ReqNodeList=\S+ ExcNodeList=(\S+)$", re.MULTILINE)
"""A whole line: a job's name may hold any text."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """`text` is the output of `command`; None if no command has it, for the reason in `problem`."""

    text: str | None
    command: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class JobNodes:
    """The current state of a job's nodes. `problem` says why some or all of them are missing."""

    nodes: tuple[Node, ...]
    problem: str | None = None


def job_record(io: Io, job_id: str) -> JobRecord:
    """The job from Slurm's queue, else from the accounting. At most 3 RPCs."""
    whys = []
    asked = (
        ("scontrol", "show", "job", job_id),
        ("sacct", "-P", "-j", job_id, "-o", ",".join(_COLUMNS)),
    )
    for argv in asked:
        answer = io.run(Query("job-record", argv))
        text = answer.text.strip("\n")
        is_told = len(text.split("\n")) > 1 if argv[0] == "sacct" else bool(text.strip())
        if answer.returncode == 0 and is_told:
            return JobRecord(text, " ".join(argv))
        whys.append(f"{argv[0]}: {_failure(answer)}")
    return JobRecord(None, "", "; ".join(whys))


def job_nodes(io: Io, expression: str | None) -> JobNodes:
    """The nodes of a node set expression. 2 RPCs."""
    names = expand_nodes(expression)
    if not names:
        return JobNodes((), "the job has no node yet, or Slurm has forgotten it")
    asked = fold_nodes(names[:MAX_NODES])
    answer = io.run(Query("job-nodes", ("scontrol", "-a", "-d", "-o", "show", "nodes", asked)))
    if is_denied(answer.stderr):
        return JobNodes((), hidden_by_site("nodes"))
    if answer.returncode != 0:
        return JobNodes((), _failure(answer))
    nodes = parse_nodes(answer.text)[0]
    more = len(names) - MAX_NODES
    return JobNodes(nodes, f"{more} more nodes are left out" if more > 0 else None)


def excluded_nodes(io: Io, job_id: str) -> str | None:
    """The nodes that the job's own --exclude leaves out, as a node set expression; None if it leaves out
    none, or Slurm does not answer. 1 RPC."""
    answer = io.run(Query("job-excludes", ("scontrol", "show", "job", job_id)))
    found = _EXCLUDED.search(answer.text)
    if answer.returncode != 0 or found is None or found[1] == "(null)":
        return None
    return found[1]


def _failure(answer: CommandResult) -> str:
    """The error in the client's words."""
    words = answer.error or failure_words(answer.stderr) or "it knows no such job"
    return words.strip()
