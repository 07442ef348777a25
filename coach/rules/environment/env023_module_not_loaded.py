"""ENV023: the module command did not load an environment module, and the program lacks it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import bare, is_quiet, lines_after, tail_of
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of

_HAS_PYTHON = re.compile(r"python|conda|mamba|forge|torch|tensorflow|jax", re.IGNORECASE)
_IMPORT = re.compile(r"(?:Import|ModuleNotFound)Error: |(?:command )?not found$")
_OF_LMOD = re.compile(
    r"Lmod |\"|\$ module|Please check|It is also possible|Also make sure|Try: |[Yy]ou |While processing"
    r"|Module fullname|Executing this command|(?:Cannot|These|The following|without these) |Loading |#%Module"
    r"|[\w.+-]{1,80}/[\w.+-]{1,80}\W{0,20}$|.*(?:ERROR|HINT): "
)
_ENDED_FROM_OUTSIDE = ("TIMEOUT", "CANCELLED", "PREEMPTED")
_ENDED_BY_SLURM = ("JOB002", "JOB005", "JOB018")
"""Rules about ends by Slurm: if one fires, some program ran until then."""
_LINES_OF_A_PROGRAM = 3
"""A script that prints at least this many lines ran a program; one that only loads modules prints fewer."""


class ModuleNotLoaded(EndingRule):
    """The module command did not load an environment module that the batch script asks for.

    What it sees
        "Lmod has detected the following error" (modules that are unknown, or that need others first), Tcl
        modules' "Unable to locate a modulefile for", "Module cannot be loaded due to a conflict" and "Module
        ERROR", and a shell that does not know the command ("module: command not found").
    Why it matters
        A script goes on after a failed `module load`, with another Python or none. A module's name or version
        often changes with an update of the cluster, or differs between login and compute nodes.
    When it stays silent
        If a program ran after it, even if that program failed: it did not need the module. If Slurm ended the
        job: some program ran until then. If Python lacks a package and the module's name has nothing to do
        with Python (ENV007).
    What to do
        List the available versions on a node of the same partition: `srun --pty bash -lc 'module avail
        NAME'`; with Lmod `module spider NAME` also names the modules to load first. With `set -e` before
        `module load` a script ends at the first failed command.
    Sources
        Lmod: messageDir/en.lua; Modules: modulecmd.tcl.
    """

    code = "ENV023"
    name = "module-not-loaded"
    cause = "environment_module"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        is_ended = any(hits_of(snapshot, code) for code in _ENDED_BY_SLURM)
        return not is_ended and snapshot.state not in _ENDED_FROM_OUTSIDE and _was_needed(hit, snapshot)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "command" in hit.fields:
            return f"The batch script's shell does not know the command {hit.fields['command']}"
        name = _name_of(hit, snapshot)
        which = f" {name}" if name else ""
        why = hit.fields.get("why", "").strip()
        if not why or "unknown" in why:
            return f"The environment module{which} does not exist here"
        return f"The environment module{which} was not loaded: {why[:160]}"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        name = _name_of(hit, snapshot)
        plain = name.partition("/")[0].partition(" ")[0] or "NAME"
        yield Fix(
            f"See which versions the node has (module avail {plain}) and what must be loaded before "
            f"(Lmod: module spider {plain}); then name one of them: --env module=NAME"
        )


def _name_of(hit: LogHit, snapshot: TargetSnapshot) -> str:
    """The module's name. Lmod prints unknown modules on the line below, Tcl modules the one being loaded on
    the line above."""
    if "module" in hit.fields:
        return hit.fields["module"]
    tail = tail_of(hit, snapshot)
    at = hit.line - tail.first_line if tail is not None else 0
    around = tail.plain[max(0, at - 1) : at + 3] if tail is not None and at >= 0 else ()
    for line in (hit.text, *around):
        loading = re.match(r"Loading (\S{1,100})$", line)
        quoted = [loading[1]] if loading else re.findall(r'^(?!.*HINT).*?"([^"]{1,100})"', line)
        if quoted:
            return " ".join(quoted)
    return ""


def _was_needed(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if no program ran after the failed module command, or a program failed for lack of the module."""
    tail = tail_of(hit, snapshot)
    if tail is None:
        return True
    has_python = "command" in hit.fields or bool(_HAS_PYTHON.search(_name_of(hit, snapshot)))
    for block in tail.blocks:
        if block.is_traceback and block.first_line > hit.line and not _is_missed(block.type, has_python):
            return False
    said = [
        line for line in map(bare, lines_after(hit, tail)) if not (is_quiet(line) or _OF_LMOD.match(line))
    ]
    return sum(1 for line in said if not _IMPORT.search(line)) < _LINES_OF_A_PROGRAM


def _is_missed(error: str | None, has_python: bool) -> bool:
    return has_python and error in ("ImportError", "ModuleNotFoundError")
