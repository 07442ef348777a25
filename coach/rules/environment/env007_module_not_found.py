"""ENV007: a Python module is missing in the environment that the job ran in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.environment.failed_import import is_below_a_failed_import, is_without_torch
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.hidden_package import PACKAGES, hiding_file, rename
from coach.rules.from_logs.library_exceptions import is_at_imports_of_coach
from coach.rules.from_logs.quoted_evidence import hits_of, is_library

_LAUNCH = (
    "Launch with the environment that has it: --env NAME, or --env venv=PATH, conda=NAME, "
    "modules=NAME/VERSION"
)
_FOREIGN = (
    "Activate the environment that has it in the batch script, before the program: source VENV/bin/activate, "
    "conda activate NAME, or module load NAME"
)
_NUMPY_2 = "numpy._core"
"""numpy 2 has this package, numpy 1 has not. Programs do not import it: pickles of numpy 2's arrays do."""


class ModuleNotFound(EndingRule):
    """A Python module is missing in the environment that the job ran in.

    What it sees
        "ModuleNotFoundError: No module named …" that ended the program, `python -m` of a missing module,
        messages of libraries about a missing optional module; or the result of the job's own check at its
        start: no torch in the interpreter. Any other exception that ends the imports of one of coach's own
        trainers. If the folder of the program can be read, a file or folder there
        with a near name is named: `from modle import Net` beside model.py.
    Why it matters
        The job nearly always ran in the wrong environment: not activated in the batch script, another Python
        first on the PATH, or packages under home for another version. After its wait in the queue, the job
        ends in seconds.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on without the
        module.
    What to do
        Name the environment in the launch (`--env NAME`), or activate it in the batch script: the environment
        of your terminal is not active in the job. If the module really is missing, `python -m pip install
        PACKAGE` with that environment's python installs it. Some packages have another name than their module
        (cv2 is opencv-python, yaml is pyyaml, PIL is pillow).
    Sources
        Python's import system; runpy; transformers' `requires_backends`.
    """

    code = "ENV007"
    name = "module-not-found"
    cause = "module_not_found"
    confidence = 0.95

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if is_without_torch(hit) and hits_of(snapshot, "ENV016", "disabled"):
            return False
        return "bare_module" not in hit.fields or is_below_a_failed_import(hit, snapshot)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "words" in hit.fields:
            return f"coach's trainer could not import what it needs: {hit.fields['words'][:200]}"
        module = _module(hit)
        if module is not None and module.startswith(_NUMPY_2):
            return f"The file was written by numpy 2, and the numpy that reads it is older: no {module}"
        other = {"r_package": "R", "julia_package": "Julia"}
        if language := next((key for key in other if key in hit.fields), None):
            return f"The {other[language]} package {hit.fields[language]} is missing in the job's environment"
        named = f"The Python module {module}" if module is not None else "A Python module that it needs"
        near = _near(hit)
        if near is not None:
            return f"There is no Python module {module}, but {near} lies in {hit.fields['near_in']}"
        return f"{named} is missing in the job's environment"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        hides = hiding_file(hit)
        if hides is not None:
            yield rename(*hides)
            return
        module = _module(hit) if hit.signature == "missing" else None
        package = module.partition(".")[0] if module is not None else None
        own = _own_importer(hit, package, snapshot)
        yield from _corrected(hit, own)
        yield Fix(_FOREIGN if snapshot.run is None and snapshot.job is not None else _LAUNCH)
        if package is not None and own is None:
            known = PACKAGES.get(package)
            unless = "" if known else ", if its package is called so"
            yield Fix(f"Or install it there{unless}: python -m pip install {known or package}")


def _own_importer(hit: LogHit, package: str | None, snapshot: TargetSnapshot) -> str | None:
    """The user's own file that imports a module which is no well-known package."""
    is_coachs = is_at_imports_of_coach(hit, snapshot)
    return None if package in PACKAGES or is_coachs else _importer(hit)


def _corrected(hit: LogHit, own: str | None) -> Iterable[Fix]:
    """The fix of a misspelt import in the user's own file."""
    module = _module(hit) if hit.signature == "missing" else None
    if own is None or module is None:
        return
    near = _near(hit)
    if near is not None:
        yield Fix(f"Import {PurePosixPath(near).stem} instead of {module} in {own}")
        return
    package = module.partition(".")[0]
    yield Fix(f"If {package} is a file of yours, correct its name in {own}: compare it with the files there")


def _near(hit: LogHit) -> str | None:
    """The file or folder of the program with a near name; None for a well-known package."""
    is_package = (_module(hit) or "").partition(".")[0] in PACKAGES
    return hit.fields.get("near") if not is_package and _importer(hit) else None


def _importer(hit: LogHit) -> str | None:
    """The user's own file whose line imports the module."""
    frames = hit.frames
    return frames[-1].file if frames and not is_library(frames[-1].text) else None


def _module(hit: LogHit) -> str | None:
    fields = hit.fields
    return fields.get("module") or fields.get("bare_module") or fields.get("package")
