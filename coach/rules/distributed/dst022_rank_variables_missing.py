"""DST022: the environment variables with a process's rank are not set."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.library_exceptions import is_of_a_table, unset_variable

_OF_A_RANK = re.compile(r"RANK|WORLD_SIZE|MASTER_|SLURM_|OMPI_|PMI_|^$")


class RankVariablesMissing(EndingRule):
    """The environment variables with a process's rank are not set.

    What it sees
        "environment variable MASTER_ADDR expected, but not set", `KeyError: 'LOCAL_RANK'` and similar, any
        other variable that `os.environ[…]` did not find, ColossalAI's "Could not find 'RANK' in the torch
        environment", a shell's "unbound variable", `int(os.environ.get(…))` of an unset variable, and
        variables that jax.distributed did not find.
    Why it matters
        `init_process_group` reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; torchrun sets them, `python`
        and `srun` do not.
    When it stays silent
        When a logger reports it only as a warning, and when the traceback shows a key of a data frame or
        another mapping. The finding is info if the program used a default and went on.
    What to do
        Start the program with one torchrun per node. With plain srun set RANK=$SLURM_PROCID,
        LOCAL_RANK=$SLURM_LOCALID and WORLD_SIZE=$SLURM_NTASKS inside the task (in the batch script the ranks
        would all be 0), and MASTER_ADDR and MASTER_PORT for all tasks. SLURM_ variables exist in a job's
        steps only, and some only where the option was given.
    Sources
        torch/distributed/rendezvous.py `_env_rendezvous_handler`; torchrun's environment variables; srun(1),
        output environment.
    """

    code = "DST022"
    name = "rank-variables-missing"
    cause = "env_vars_missing"
    confidence = 0.95

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return not is_of_a_table(hit)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "jax" in hit.fields:
            return f"jax.distributed found nothing of the job in its environment: {hit.fields['jax']}"
        return f"The environment variable {_name(hit)} is not set"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if "jax" not in hit.fields and not _OF_A_RANK.search(_name(hit)):
            yield Fix("Set it in the job's script, above the command that starts the program")
            return
        yield Fix(
            "Start it with torchrun, which sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
        yield Fix(
            "With srun alone, set them inside each task from SLURM_PROCID, SLURM_LOCALID and SLURM_NTASKS"
        )


def _name(hit: LogHit) -> str:
    return hit.fields.get("name") or unset_variable(hit) or hit.text.rpartition("KeyError: ")[2].strip("'")
