"""ENV016: versions of two packages, or of the program and its torch, are incompatible."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.environment.failed_import import is_below_a_failed_import, is_without_torch
from coach.rules.from_logs.aftermath import was_passed_by
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of

_PRINTED = "module compiled against"
"""numpy prints this, and the program may go on: then another error ends it, or one about the import."""


class VersionConflict(EndingRule):
    """Versions in the environment are incompatible: mostly torch is too old for the program.

    What it sees
        "operator torchvision::nms does not exist" (torchvision built for another torch), "X is required for a
        normal functioning of this module, but found Y", names that torch, transformers, numpy or another
        installed package does not have, a changed `numpy.dtype`, "MMCV==… is used but incompatible"; a model
        type that the installed transformers does not know; as a cause of its own, torch and torchvision (or
        torch_scatter …) for different CUDA versions, a CUDA older than JAX needs, and a cuDNN other than
        torch or TensorFlow was built with; a checkpoint with objects that torch.load refuses since 2.6
        ("Weights only load failed", "Unsupported global"); a package that was built against another torch (an
        undefined C++ symbol); packages of which conda finds no release. Or the result of the job's own check
        at its start: torch does not have the version that the recipe needs.
    Why it matters
        The program cannot run in this environment. The message names only the first missing name, not the
        required version.
    When it stays silent
        If the program caught the error and went on; on warnings of pip.
    What to do
        Use an environment with the required version: `coach recipes` lists the torch version that each recipe
        needs, `--env` selects the environment. torchvision and torchaudio must match the release of torch:
        install the three in one command.
    Sources
        torchvision's table of compatible versions; transformers' dependency_versions_check; setuptools'
        pkg_resources.
    """

    code = "ENV016"
    name = "version-conflict"
    cause = "version_conflict"
    general = (
        Fix(
            "Launch with an environment that has the version: --env NAME (coach recipes says which torch "
            "is needed)",
            needs=("recipe",),
        ),
        Fix(
            "Install the versions that the program was written for, in the environment of the job",
            needs=("not recipe",),
        ),
    )
    confidence = 0.85
    sentences = by_field(
        pickled=(
            "torch.load refuses {pickled} in the file: since torch 2.6 it loads weights only, unless it is "
            "told otherwise"
        ),
        words="Versions do not fit together: {words}",
        bare_name="Versions do not fit together: {bare_name}",
        otherwise="Versions do not fit together",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.signature == "disabled":
            return any(map(is_without_torch, hits_of(snapshot, "ENV007")))
        if hit.block is None and _PRINTED in hit.text and was_passed_by(hit, snapshot):
            return False
        return "bare_name" not in hit.fields or is_below_a_failed_import(hit, snapshot)
