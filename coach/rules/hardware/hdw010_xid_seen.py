"""HDW010: the driver reported an Xid to the sampler; no log of the job has it."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuEvent
from coach.rules.advice.remedies import without
from coach.rules.base import Rule
from coach.rules.hardware.xids import FIND_THE_KERNEL, OF_THE_PROGRAM, report


class XidSeen(Rule):
    """The NVIDIA driver reported an Xid of one of the job's GPUs while the sampler ran.

    What it sees
        NVML's Xid event, which the sampler receives beside the training. The kernel log, which often only
        root may read, is not needed.
    Why it matters
        An Xid is an error number of the driver. 48, 63, 64, 74, 79, 92, 94, 95, 119 and 120 mean faulty
        hardware or firmware. 8, 13, 31, 43, 45, 69 and 109 mostly mean an access out of range in a kernel of
        the program.
    When it stays silent
        Without an event. A remapped row (63) and a contained error (94) are only a warning, because the GPU
        goes on working.
    What to do
        For hardware errors: leave the node out (`--exclude=NODE`), resume from the last checkpoint, and
        report node, GPU and number to the site. For errors of the program: run once with
        CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer.
    Sources
        NVIDIA Xid catalogue; NVML, nvmlEventTypeXidCriticalError.
    """

    code = "HDW010"
    name = "xid-seen"
    cause = "xid_hw_error"
    severity = Severity.CRITICAL

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        by_gpu: dict[tuple[str, int], list[GpuEvent]] = {}
        for event in history.gpu_events:
            if event.xid is not None:
                by_gpu.setdefault((event.node, event.gpu), []).append(event)
        for (node, gpu), events in by_gpu.items():
            numbers = list(dict.fromkeys(event.xid for event in events if event.xid is not None))
            worst = next((number for number in numbers if number not in _MILD), numbers[0])
            yield Hit(
                summary=f"GPU {gpu} on {node}: the {report(worst)}",
                evidence=tuple(
                    Evidence(f"Xid {number}", value=sum(e.xid == number for e in events), unit="times")
                    for number in numbers[:8]
                ),
                confidence=0.95,
                subject=Subject(node=node, gpu=gpu),
                fixes=(
                    FIND_THE_KERNEL
                    if worst in OF_THE_PROGRAM
                    else Fix(
                        f"Leave {node} out, resume from the last checkpoint, and tell the site the number",
                        without(snapshot.run, node),
                    ),
                ),
                severity=Severity.WARNING if worst in _MILD else None,
                since_s=events[0].time_s,
            )


_MILD = OF_THE_PROGRAM | {63, 92, 94}
"""Errors of the program, and errors that the GPU handled itself."""
