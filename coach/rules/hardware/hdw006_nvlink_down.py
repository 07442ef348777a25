"""HDW006: a GPU has fewer NVLinks up than the other GPUs of its node."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.remedies import without
from coach.rules.base import Need, Rule


class NvlinkDown(Rule):
    """A GPU has fewer NVLinks up than the other GPUs of its node.

    What it sees
        The number of links that are up, compared with the GPUs of the same kind on the same node.
    Why it matters
        Collectives are as slow as the slowest link; NCCL may even fall back to PCIe or host memory.
    When it stays silent
        If all GPUs of the node have the same number: on cards without a bridge all links are rightly down.
        With a single GPU there is nothing to compare.
    What to do
        Leave the node out (`--exclude=NODE`), and report node and GPU to the site. `nvidia-smi nvlink -s` on
        the node lists the links.
    Sources
        NVML, nvmlDeviceGetNvLinkState; NVIDIA fabric manager user guide.
    """

    code = "HDW006"
    name = "nvlink-down"
    cause = "nvlink_down"
    severity = Severity.WARNING
    needs = (frozenset({Need.GPU_TELEMETRY, Need.GPU_LINKS}),)
    keep_s = 30.0

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        up: dict[tuple[str, int], dict[int, int]] = {}
        since: dict[tuple[str, int], float] = {}
        for node, gpu in history.gpus:
            looks = history.gpu_link(node, gpu)
            if looks is not None and looks[1].num_nvlinks and looks[1].num_active_nvlinks is not None:
                up.setdefault((node, looks[1].num_nvlinks), {})[gpu] = looks[1].num_active_nvlinks
                is_since_start = looks[0].num_active_nvlinks == looks[1].num_active_nvlinks
                since[node, gpu] = looks[0 if is_since_start else 1].time_s
        for (node, num_links), counts in up.items():
            most = max(counts.values())
            for gpu, count in counts.items():
                if count < most:
                    yield Hit(
                        summary=f"GPU {gpu} on {node} has {count} NVLinks up, other GPUs there have {most}",
                        evidence=(
                            Evidence("NVLinks that are up", value=count, unit=f"of {num_links}"),
                            Evidence(
                                "other GPUs of the node: "
                                + ", ".join(f"GPU {g}: {n}" for g, n in sorted(counts.items()) if g != gpu)
                            ),
                        ),
                        confidence=0.9,
                        subject=Subject(node=node, gpu=gpu),
                        fixes=(
                            Fix(
                                f"Leave {node} out, and tell the site node and GPU",
                                without(snapshot.run, node),
                            ),
                        ),
                        since_s=since[node, gpu],
                    )
