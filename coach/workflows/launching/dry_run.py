"""Ask Slurm about a script without submitting it: would it be accepted, and when would it start?

`sbatch --test-only` also refuses what Slurm would queue, such as a job whose nodes are all drained now. So
its refusal is a warning to the person who asked for a dry run, and stops no launch.
"""

from __future__ import annotations

import re
import tempfile

from coach.launch.batch_file import faulty_line
from coach.launch.refusal import is_unanswered, sentence, slurms_words
from coach.launch.submit import check_command
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from coach.sources.io import CommandResult, Io, Query

_FUTURE_ID = re.compile(r"^Job \d+ (?=to start at)")
"""The id in the answer belongs to no job."""
_REFUSED = "allocation failure: "
_FOR_CERTAIN = re.compile(r"\binvalid\b|\(inactive or drain\)|permission denied", re.IGNORECASE)
"""Refusals of which the state of the nodes is not the reason (slurm_errno.h)."""


def ask_slurm(plan: Plan, io: Io) -> CommandResult:
    """The answer of `sbatch --test-only` for the exact script of the plan."""
    with tempfile.NamedTemporaryFile("w", prefix="coach-", suffix=".sh", encoding="utf-8") as script:
        script.write(plan.script)
        script.flush()
        return io.run(Query("test-only", check_command(script.name)))


def answer_words(plan: Plan, io: Io) -> str:
    """One line of the answer, for a dry run; empty on this machine, which has no Slurm to ask.

    Raises UserError if the launch would be refused for certain.
    """
    if plan.backend != "slurm":
        return ""
    result = ask_slurm(plan, io)
    lines = slurms_words(result.stderr)
    if result.error is not None or is_unanswered(lines):
        return f"not tested by Slurm: {result.error or '; '.join(lines)}"
    if result.returncode == 0:
        return f"Slurm would accept it: {'; '.join(_FUTURE_ID.sub('', line) for line in lines)}".removesuffix(
            ": "
        )
    said = " ".join(sentence(line.removeprefix(_REFUSED)) for line in lines).rstrip(";")
    if _FOR_CERTAIN.search(said):
        raise UserError(
            f"Slurm refuses the launch: {said}",
            faulty_line(plan.request.own, said) or "nothing was submitted: sbatch --test-only said so",
        )
    return f"warning: as the cluster is now, sbatch --test-only refuses it: {said or 'without a word'}"
