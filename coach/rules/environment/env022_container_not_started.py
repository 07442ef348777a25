"""ENV022: the container engine could not start the container, or the program in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.circumstances import fixes_of_wording
from coach.rules.advice.remedies import on_a_node, without_node
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of, quote

_MISSING = re.compile(r"[Nn]o such file or directory")
_NO_NAMESPACE = re.compile(r"user namespace|Failed to create container|setuid bit")
_LINES_WITHOUT = 10
"""A script that prints fewer lines than this after a failed container had nothing else to run."""


class ContainerNotStarted(EndingRule):
    """The container engine could not start the container, or the program in it.

    What it sees
        Apptainer's and Singularity's "FATAL:" (a missing or damaged image, user namespaces that the node does
        not allow, a bound path that is not there, "executable file not found in $PATH"), enroot's "[ERROR]",
        pyxis' "couldn't start container" in srun's output, and Docker's "Error response from daemon" about a
        missing image, or about GPUs that it cannot reach.
    Why it matters
        The training did not start. The same job fails again until the image, its path or the node is changed.
    When it stays silent
        Where the script went on without the container. A full disk (ENV010), an unreadable file (ENV011) and
        an unreachable registry (ENV021) have their own rules.
    What to do
        Start the same image by hand in a short job: `srun --pty apptainer exec IMAGE true`, or `srun
        --container-image=IMAGE true`. Pull images on the login node, to a file system that compute nodes
        see.
    Sources
        apptainer: pkg/sylog, cmd/starter/c/starter.c, internal/pkg/runtime; enroot: src/runtime.sh; pyxis:
        pyxis_slurmstepd.c.
    """

    code = "ENV022"
    name = "container-not-started"
    cause = "container_start"
    sentences = by_field(
        command="The container has no program {command} in its PATH",
        image="The container image {image} could not be started: {why:.200}",
        why="The container could not be started: {why:.200}",
        otherwise="The container could not be started: {line:.200}",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return not was_outlived(hit, snapshot, _LINES_WITHOUT)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return super().summary(self._telling(hit, snapshot), snapshot)

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        telling = self._telling(hit, snapshot)
        if telling is not hit:
            yield quote(telling)

    def _telling(self, hit: LogHit, snapshot: TargetSnapshot) -> LogHit:
        """The engine's own error line, if the hit is a plugin's line that only reports a failure."""
        if hit.signature != "plugin":
            return hit
        return next(iter(hits_of(snapshot, self.code, "engine")), hit)

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        telling = self._telling(hit, snapshot)
        known = fixes_of_wording(telling, snapshot)
        if known:
            yield from known
        elif _NO_NAMESPACE.search(telling.text):
            yield from without_node(snapshot, "which does not allow containers")
            yield Fix("Ask the site to allow user namespaces on its nodes, or to install the setuid starter")
        elif _MISSING.search(telling.text):
            image = hit.fields.get("image")
            yield from on_a_node(
                "Put the image, and all that is bound into it, where compute nodes see it",
                f"ls -l {shlex.quote(image or 'IMAGE')}",
            )
        else:
            yield from on_a_node(
                "Start the same image by hand, and build or pull it again if that fails",
                "apptainer exec IMAGE true",
            )
