"""ENV025: a script cannot be run as it is written: it has Windows line ends, no `#!` line, or a wrong one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import REFUSED, EndingRule

_CONVERT = "Give the script, and the files that it reads, Unix line ends"

_IS_A_COPY = re.compile(r"(?:^|/)(?:slurm_script|-?(?:ba)?sh)$")
"""Names that stand before a shell's message, but are not the user's file: Slurm's copy of the batch script,
and the shell itself."""


class ScriptFormat(EndingRule):
    r"""The system or the shell cannot run a script as it is written.

    What it sees
        Signs of Windows line ends (CRLF): "/bin/bash^M: bad interpreter", "env: ‘bash\r’: No such file",
        "$'\r': command not found", names of commands, folders and files in a shell's messages that end in
        "\r". bash 5's "cannot execute: required file not found": the program that the first line names does
        not exist, most often because that line ends in "\r". srun's "bad interpreter(FILE)", bash's "FILE:
        bad interpreter" and "/usr/bin/env: ‘NAME’: No such file": the first line names a program that does
        not exist. "Exec format error": the file has no `#!` line,
        or is a program for another type of CPU.
    Why it matters
        Nothing was started, or the script ran with names that do not exist.
    When it stays silent
        On a "\r" in data that a Python program reads. On names of files that a Python program does not find:
        DAT011 tells of "\r" there. The finding is info if the program went on.
    What to do
        `sed -i 's/\r$//' FILE`, or `dos2unix FILE`; tell the editor, and git (`core.autocrlf input`), to keep
        Unix line ends. If its first line names a program that is not there, correct it, or load what brings
        that program. A script without a `#!` line gets `#!/bin/bash` as its first line. `file FILE` names
        the format of a file.
    Sources
        execve(2), ENOEXEC and ENOENT; bash's execute_cmd.c; env(1); slurmstepd's execve().
    """

    code = "ENV025"
    name = "script-format"
    cause = "script_format"

    def confidence_of(self, hit: LogHit) -> float:
        return 0.7 if hit.signature == "interpreter" else self.confidence

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        script = hit.fields.get("script", "a script")
        if hit.signature == "line_ends":
            return r"The script has Windows line ends: each of its lines ends in \r (^M)"
        if hit.signature == "interpreter":
            return (
                f"The program that the first line of {script} names does not exist: most likely the file has "
                "Windows line ends"
            )
        if "interpreter" in hit.fields:
            return (
                f"The first line of {script} names a program that the node lacks: {hit.fields['interpreter']}"
            )
        if "binary" in hit.fields:
            return f"{script} is a program for another type of CPU, or a damaged one"
        return f"{script} was not started: it has no #! line, or is a program for another type of CPU"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        script = hit.fields.get("script")
        if script is not None and _IS_A_COPY.search(script):
            script = None
        file = shlex.quote(script) if script is not None else "FILE"
        convert = Fix(_CONVERT, command=rf"sed -i 's/\r$//' {file}")
        look = Fix("See the format of the file", command=f"file {file}")
        if hit.signature in (REFUSED.rule, "line_ends"):
            yield convert
            yield Fix("See which files have them", command=r"grep -lr $'\r' --include='*.sh' .")
        elif hit.signature == "interpreter":
            yield Fix(
                "Look at its first line: ^M at its end is a Windows line end",
                command=f"head -n 1 {file} | cat -A",
            )
            yield convert
        else:
            yield Fix("If it is a script, make #!/bin/bash its first line, or start it by `bash FILE`")
            yield look
