"""HDW004: the PCIe link of a working GPU has fewer lanes or a lower generation than card and slot allow."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuLink
from coach.rules.advice.remedies import without
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import mean


class PcieDegraded(Rule):
    """The PCIe link of a GPU runs with fewer lanes or at a lower generation than card and slot allow.

    What it sees
        Width and generation of the link, compared with the maximum of this GPU in this slot. Fewer lanes must
        have been seen twice; a lower generation counts only while the GPU worked in the seconds before.
    Why it matters
        With half of the lanes, the bandwidth from the host is halved, and between GPUs without NVLink too.
        The cause is a badly seated card or riser, or a broken slot, not the program.
    When it stays silent
        On a lower generation at rest, by which every GPU saves power. On MIG instances and virtual GPUs,
        which do not report their link.
    What to do
        Leave the node out (`--exclude=NODE`) if the input or the communication is slow, and report node and
        GPU to the site.
    Sources
        NVML, nvmlDeviceGetCurrPcieLinkWidth and …MaxPcieLinkWidth (the largest of GPU and system together).
    """

    code = "HDW004"
    name = "pcie-degraded"
    cause = "pcie_degraded"
    severity = Severity.WARNING
    needs = (frozenset({Need.GPU_TELEMETRY, Need.GPU_LINKS}),)
    keep_s = 30.0
    working_pct = Threshold(50, "percent", "a GPU that does less may have lowered its link to save power")
    working_s = Threshold(10, "seconds", "the GPU must have worked for this long before its link counts")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for node, gpu in history.gpus:
            looks = history.gpu_link(node, gpu)
            if looks is None:
                continue
            first, newest = looks
            is_narrow = first.time_s < newest.time_s and _is_narrow(first) and _is_narrow(newest)
            if is_narrow:
                what = f"{newest.pcie_width} of {newest.max_pcie_width} lanes"
            elif _is_slow(newest) and self._worked(history, newest):
                what = f"generation {newest.pcie_generation} of {newest.max_pcie_generation} under load"
            else:
                continue
            yield Hit(
                summary=f"The PCIe link of GPU {gpu} on {node} runs with {what}",
                evidence=(
                    Evidence(
                        f"PCIe now: generation {newest.pcie_generation or '–'}, width "
                        f"{newest.pcie_width or '–'}; possible here: "
                        f"generation {newest.max_pcie_generation or '–'}, width "
                        f"{newest.max_pcie_width or '–'}"
                    ),
                ),
                confidence=0.9 if is_narrow else 0.75,
                subject=Subject(node=node, gpu=gpu),
                fixes=(
                    Fix(f"Leave {node} out, and tell the site node and GPU", without(snapshot.run, node)),
                ),
                since_s=first.time_s if is_narrow else newest.time_s,
            )

    def _worked(self, history: History, link: GpuLink) -> bool:
        start = link.time_s - self.working_s
        before = [
            sample.utilization_pct
            for sample in history.gpu(link.node, link.gpu)
            if start <= sample.time_s <= link.time_s and sample.utilization_pct is not None
        ]
        return len(before) >= 2 and (mean(before) or 0.0) >= self.working_pct


def _is_narrow(link: GpuLink) -> bool:
    return bool(link.pcie_width and link.max_pcie_width and link.pcie_width < link.max_pcie_width)


def _is_slow(link: GpuLink) -> bool:
    return bool(
        link.pcie_generation and link.max_pcie_generation and link.pcie_generation < link.max_pcie_generation
    )
