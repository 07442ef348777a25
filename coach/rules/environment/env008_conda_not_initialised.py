"""ENV008: the batch script could not activate its conda environment, because conda is not set up in a shell
that nobody types into."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import lines_after, tail_of
from coach.rules.from_logs.ending_rule import EndingRule, ending_signatures
from coach.rules.from_logs.quoted_evidence import hits_of

_IN_ENVIRONMENT = re.compile(r"/envs/[^/\s]{1,100}/lib/python")


class CondaNotInitialised(EndingRule):
    """The batch script could not activate its conda environment.

    What it sees
        "Your shell has not been properly configured to use 'conda activate'", "Run 'conda init' before 'conda
        activate'", "conda: command not found", and the same of a program that comes with an environment
        ("torchrun: command not found"); conda's "invalid choice: 'activate'", mamba's "Shell not
        initialized", a conda.sh that is not there or that fails for an unbound variable, "Could not find
        conda environment" in the job's log.
    Why it matters
        A batch script does not read .bashrc as a terminal does. The script goes on with whatever Python is
        first on the PATH, and fails later for a module that is missing, or trains with versions that nobody
        chose.
    When it stays silent
        Where a file of a conda environment is named below it: then one is active. It is info when losses
        follow or the job completed: then another Python had what was needed. Nothing is said of it where the
        job ran until its time limit: then something did run.
    What to do
        Put `source "$(conda info --base)/etc/profile.d/conda.sh"` (or that file's full path) before `conda
        activate` in the script; with coach launch with `--env conda=NAME`, which does it.
    Sources
        conda's shell integration (`conda init`, conda.sh); sbatch(1): a batch script is run by a shell that
        is not interactive.
    """

    code = "ENV008"
    name = "conda-not-initialised"
    cause = "conda_not_initialised"
    signatures = ending_signatures(
        "ENV008",
        ("conda_not_initialised",),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        tail = tail_of(hit, snapshot)
        if tail is not None and any(map(_IN_ENVIRONMENT.search, lines_after(hit, tail))):
            return False
        return snapshot.state != "TIMEOUT" and not hits_of(snapshot, "JOB002")

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if re.search(r"NotFound(?:Error)?: (?:Could|Not)", hit.text):
            return "The conda environment was not activated: this user has none of that name or path"
        program = next((hit.fields[key] for key in ("program", "last", "started") if key in hit.fields), None)
        if program is not None:
            return (
                "The environment was not activated, or lacks what the script starts: the shell finds no "
                f"{program}"
            )
        return "The conda environment was not activated: conda is not set up in the batch shell"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Launch with --env conda=NAME: the script then activates it as a batch shell needs it")
        if snapshot.run is None:
            yield Fix(
                'In the script, before conda activate: source "$(conda info --base)/etc/profile.d/conda.sh"'
            )
