"""After a refused submission: what Slurm says there is to choose from.

Between the pure reading of Slurm's words and the front ends: both need the same look at the cluster.
"""

from __future__ import annotations

from coach.launch.refusal import Refused, explain, fields_in_question
from coach.model.launch import Plan
from coach.sources.allowed import read_allowed
from coach.sources.io import Io
from coach.sources.user import user_name


def explained(refused: Refused, plan: Plan, io: Io) -> Refused:
    """The refusal with the field to set, and what Slurm says there is to choose from."""
    fields = fields_in_question(refused.lines, plan)
    field = next((name for name in fields if name not in plan.locked), None)
    allowed = read_allowed(io, field, user_name()) if field is not None else ()
    return explain(refused.lines, plan, fields, {field: allowed} if field and allowed else {})
