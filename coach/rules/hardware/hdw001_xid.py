"""HDW001: the NVIDIA driver reported an Xid; the finding explains the number and its usual cause."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.hardware.xids import FIND_THE_KERNEL, OF_THE_PROGRAM, report


class Xid(EndingRule):
    """The NVIDIA driver reported an Xid on this node.

    What it sees
        "NVRM: Xid (PCI:…): N" in a kernel log, or in a log that quotes one, and "GPU … has fallen off the
        bus".
    Why it matters
        An Xid is an error number of the driver. 48, 63, 64, 74, 79, 92, 94, 95, 119 and 120 mean faulty
        hardware or firmware: no change in the program helps, and the next job on that GPU fails as well. 8,
        13, 31, 43, 45, 69 and 109 mostly mean an access out of range in a kernel of the program.
    When it stays silent
        Without such a line. On many sites only root may read the kernel log.
    What to do
        For hardware errors: leave the node out (`--exclude=NODE`), resume from the last checkpoint, and
        report node, GPU and number to the site. For errors of the program: run once with
        CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; suspect the GPU only if the error recurs on that GPU
        alone.
    Sources
        NVIDIA Xid catalogue; NVIDIA GPU deployment and management: health checks.
    """

    code = "HDW001"
    name = "xid"
    cause = "xid_hw_error"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for an error of the program after which it went on."""
        return _number(hit) not in OF_THE_PROGRAM or not was_outlived(hit, snapshot)

    def severity_of(self, hit: LogHit) -> Severity | None:
        return Severity.WARNING if _number(hit) in OF_THE_PROGRAM else None

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        number = _number(hit)
        if number is None:
            return (
                "The driver could not take a GPU into use"
                if "Rm" in hit.fields.get("words", "")
                else "A GPU has fallen off the bus"
            )
        return f"The {report(number)}"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _number(hit) in OF_THE_PROGRAM:
            yield FIND_THE_KERNEL
            yield Fix("If it comes back on this node alone, leave the node out and tell the site")
        else:
            yield Fix(
                "Leave this node out (--exclude=NODE), resume from the last checkpoint, and tell the site "
                "the number"
            )


def _number(hit: LogHit) -> int | None:
    text = hit.fields.get("xid")
    return int(text) if text else None
