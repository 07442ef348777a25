"""Remarks on a trace, in words, each with advice. A remark is a hint to look, not a finding."""

from __future__ import annotations

from coach.model.training.trace import TraceReport

_IDLE, _EXPOSED, _WAITS, _PAGEABLE = 0.3, 0.1, 0.2, 0.05
"""Smallest shares of the window that are worth a remark: smaller ones are within the variation between
runs."""
_SHORT_KERNEL_S = 20e-6
"""Seconds. A launch costs the host 5 to 10 microseconds: kernels not much longer than that leave gaps."""
_LOADER = "enumerate(DataLoader)"


def remarks(report: TraceReport) -> tuple[str, ...]:
    """The remarks, the largest share first; a single one that says so if nothing stands out."""
    found = [*_of_idle(report), *_of_communication(report), *_of_host(report)]
    told = tuple(text for _, text in sorted(found, reverse=True))
    if told or not report.top:
        return told
    first = report.top[0]
    return (f"nothing stands out: {first.name} is the largest part of the work, {first.share:.0%} of it",)


def _of_idle(report: TraceReport) -> list[tuple[float, str]]:
    loader = report.idle_share * sum(gap.share for gap in report.gaps if gap.name.startswith(_LOADER))
    what = "device" if report.is_gpu else "step"
    if loader >= _EXPOSED:
        return [
            (
                loader,
                f"the {what} waits for data {loader:.0%} of the time: more num_workers (recipe "
                "sweep_workers), or data on the device (gpu_data)",
            )
        ]
    if not report.is_gpu or report.idle_share < _IDLE:
        return []
    kernel = report.median_kernel_s
    if kernel is not None and kernel < _SHORT_KERNEL_S:
        text = (
            f"the device is idle {report.idle_share:.0%} of the time, and half of the kernels take less "
            f"than {kernel * 1e6:.3g} us: the host cannot launch them fast enough. A larger batch "
            "(sweep_batch), or fewer kernels (compile)"
        )
    else:
        text = f"the device is idle {report.idle_share:.0%} of the time: look at what the host does meanwhile"
    return [(report.idle_share, text)]


def _of_communication(report: TraceReport) -> list[tuple[float, str]]:
    told = report.communication
    if told is None or told.exposed_share < _EXPOSED:
        return []
    return [
        (
            told.exposed_share,
            f"collectives that do not overlap with computing take {told.exposed_share:.0%} of the time: a "
            "larger batch, gradient_accumulation, or another bucket_cap_mb of ddp",
        )
    ]


def _of_host(report: TraceReport) -> list[tuple[float, str]]:
    found = []
    waits = report.waits
    if waits is not None and report.idle_share >= _IDLE and waits.share >= _WAITS:
        found.append(
            (
                waits.share,
                f"the host waits for the device {waits.share:.0%} of the time, in {waits.num_calls} calls, "
                "and then the device for the host: look for .item(), .cpu() and print in the step",
            )
        )
    pageable = sum(kind.time_s for kind in report.copies if kind.name.endswith("pageable")) / report.window_s
    if pageable >= _PAGEABLE:
        found.append(
            (
                pageable,
                f"copies from ordinary memory take {pageable:.0%} of the time: pin_memory=True in the "
                "loader, and non_blocking=True in .to()",
            )
        )
    return found
