"""ENV008: the batch script could not activate its conda environment, because conda is not set up in a shell
that nobody types into."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import EndingRule, ending_signatures
from coach.rules.from_logs.quoted_evidence import hits_of

_PROGRAM = (
    r"(?:torch_?run|python\d?(?:\.\d+)?|pip\d?|deepspeed|accelerate|horovodrun|colossalai|composer|litgpt"
    r"|axolotl|fairseq-\w+)"
)
"""What comes with an environment for training: a shell finds it only where that is active."""
_PATTERN = re.compile(
    r"CommandNotFoundError: Your shell has not been properly configured to use '(?:conda|mamba) activate'"
    r"|CondaError: Run 'conda init' before 'conda (?:de)?activate'"
    r"|(?:^|[ :/])(?:conda|mamba|micromamba): (?:[Cc]ommand )?not found|: command not found: (?:conda|mamba"
    r"|micromamba)$"
    r"|libmamba Shell not initialized|'\w*mamba' is running as a subprocess and can't modify the parent shell"
    r"|Run 'mamba init' to be able to run mamba activate"
    r"|/profile\.d/(?:conda|mamba)\.sh: line \d+: \w+: unbound variable"
    rf"|(?:^|: )(?P<program>{_PROGRAM}): (?:command not found|not found|Command not found\.)$"
    rf"|: command not found: (?P<last>{_PROGRAM})$"
    r"|conda: error: argument (?:COMMAND|command): invalid choice: '(?:de)?activate'"
    r"|CommandNotFoundError: (?:No command 'conda activate'|'activate')"
    r"|libmamba Cannot activate, prefix does not exist|DirectoryNotACondaEnvironmentError: |/(?:conda|mamba"
    r"|activate): \S+: bad interpreter: "
    r"|(?:nohup|timeout|env|nice|numactl): (?:failed to run command "
    rf")?['\u2018]?(?P<started>{_PROGRAM})['\u2019]?: No such file or directory"
    r"|(?:conda|mamba|forge)\S*/bin/(?:conda|mamba): No such file or directory"
    r"|CondaEnvironmentNotFoundError: |(?:conda|mamba|forge)\S*/(?:etc/profile\.d/(?:conda|mamba)\.sh"
    r"|bin/activate): No such file or directory"
    r"|EnvironmentNameNotFound: Could not find conda environment|EnvironmentLocationNotFound: Not a conda "
    r"environment"
    r"|(?:^|: )(?:activate: No such file or directory|source: activate: .*No such file)"
)


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
        It is info when losses follow or the job completed: then another Python had what was needed. Nothing
        is said of it where the job ran until its time limit: then something did run.
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
        Signature(
            "ENV008",
            "activate",
            (
                "conda activate'",
                "mamba activate'",
                "conda deactivate'",
                "not found",
                "activate: ",
                "NotFound: ",
                "argument COMMAND: ",
                "argument command: ",
                "prefix does not exist",
                "NotACondaEnvironmentError",
                ": bad interpreter",
                ": No such file or directory",
                "Shell not initialized",
                "can't modify the parent shell",
                "'mamba init'",
                "CommandNotFoundError: ",
                "CondaEnvironmentNotFoundError",
                "profile.d/",
                "bin/activate: No such",
            ),
            _PATTERN,
        ),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
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
