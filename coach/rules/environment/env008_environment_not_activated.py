"""ENV008: the batch script could not activate its environment: conda is not set up in shells that are not
interactive, the environment is not there, or the shell has no `source`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import on_a_node
from coach.rules.from_logs.aftermath import is_below, losses_after
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of

_ABSENT = re.compile(r"(?:^|\s)(?P<file>[^\s:]{0,300}/[^\s:]{1,300}): No such file(?: or directory)?$")
"""The path of a file that activates an environment, but is not there."""
_OF_CONDA = re.compile(r"conda|mamba|forge")
_OF_A_PROGRAM = re.compile(
    r"/envs/[^/\s]{1,100}/lib/python|\d%\||\d(?:it/s|s/it)\b|\d/\d+ (?:\[|━)|━ +\d+/\d"
    r"|^(?:Killed|Terminated|Segmentation fault|Bus error)\b"
)
"""A file of a conda environment, a progress bar, or a signal that ended a program."""


class EnvironmentNotActivated(EndingRule):
    """The batch script could not activate its environment.

    What it sees
        "Your shell has not been properly configured to use 'conda activate'", "Run 'conda init' before 'conda
        activate'", "conda: command not found", and the same for a program of an environment ("torchrun:
        command not found"); conda's "invalid choice: 'activate'", mamba's "Shell not initialized", a conda.sh
        that is missing or fails because of an unbound variable, a conda whose Python does not start ("bad
        interpreter"), "Could not find conda environment" in the job's log; a `bin/activate` of a virtual
        environment that is not there; "source: not found" of a script that sh runs.
    Why it matters
        Unlike a terminal, a batch script does not read .bashrc. The script goes on with the first Python on
        the PATH, and later fails because of a missing module, or trains with unintended versions.
    When it stays silent
        If a file of a conda environment appears below it: then one is active. If a progress bar or "Killed"
        does, or if the job ran until its time limit: then some program did run. If losses follow or the job
        completed, another Python had the needed modules: then the finding is info. It is a warning if a
        virtual environment was not there or the shell has no `source`, and no loss shows a training.
    What to do
        Put `source CONDA/etc/profile.d/conda.sh` before `conda activate` in the script: `conda info --base`
        in a terminal names the folder CONDA. coach does it for you with `--env conda=NAME`. If the log says
        that this file is missing, correct its path. If the environment does not exist, `conda env list` has
        the right name. If a variable is unbound, put `set +u` before it. `sbatch --wrap` runs sh, which knows
        `. FILE` but not `source FILE`.
    Sources
        conda's shell integration (`conda init`, conda.sh); sbatch(1): a batch script is run by a shell that
        is not interactive, and --wrap by sh; POSIX, dot.
    """

    code = "ENV008"
    name = "environment-not-activated"
    cause = "conda_not_initialised"
    general = (
        Fix("Launch with --env conda=NAME: the script then activates it as a batch shell needs it"),
        Fix(
            "In the script, before conda activate, load the module that brings conda, or write source "
            "CONDA/etc/profile.d/conda.sh; `conda info --base` in a terminal names the folder CONDA",
            needs=("not run",),
        ),
    )

    sentences = by_field(
        command="No environment was activated: sh runs the script, not bash, and sh has no command `source`",
        unknown="The conda environment was not activated: no environment of this user has that name or path",
        unset=(
            "The conda environment was not activated: conda's script uses {unset}, which is not set, and the "
            "batch script forbids that (set -u)"
        ),
        python="The conda environment was not activated: conda needs {python}, which does not start",
        program=(
            "The environment was not activated, or lacks what the script starts: the shell finds no {program}"
        ),
        otherwise="The conda environment was not activated: conda is not set up in the batch shell",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        has_run = is_below(_OF_A_PROGRAM, hit, snapshot) or hits_of(snapshot, "JOB002")
        return snapshot.state != "TIMEOUT" and not has_run

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        has_trained = any(losses_after(hit, snapshot) for hit in hits)
        return Severity.WARNING if any(map(_is_of_no_conda, hits)) and not has_trained else Severity.INFO

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if absent := _absent_file(hit):
            which = "conda " if _OF_CONDA.search(absent) else ""
            return f"The {which}environment was not activated: the node has no {absent}"
        return super().summary(hit, snapshot)

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        absent = _absent_file(hit)
        return _find_it(absent) if absent else self.general


def _find_it(absent: str) -> Iterable[Fix]:
    """The fixes for a file that should activate the environment, and that the node does not have."""
    folder = shlex.quote(str(PurePosixPath(absent).parent))
    if absent.startswith("/"):
        yield from on_a_node(
            "See whether compute nodes have it, and what lies there", f"ls -ld {shlex.quote(absent)} {folder}"
        )
    if _OF_CONDA.search(absent):
        yield Fix(
            "If conda was moved or installed anew, correct that line of the script: `conda info --base` "
            "names its folder"
        )
        return
    full = "" if absent.startswith("/") else ", by its full path"
    yield Fix(f"Correct that line of the script: name an environment that is there{full}")
    yield Fix("If it was removed, create it anew, on a file system that compute nodes see")


def _is_of_no_conda(hit: LogHit) -> bool:
    """True if another way than conda's failed: no other start-up file can have made up for it."""
    absent = _absent_file(hit)
    return "command" in hit.fields or (absent is not None and not _OF_CONDA.search(absent))


def _absent_file(hit: LogHit) -> str | None:
    """The file that should have activated the environment, if the shell did not find it."""
    found = _ABSENT.search(hit.text.strip()) if "program" not in hit.fields else None
    return found["file"] if found is not None else None
