"""GPU013: a kernel always runs on a GPU, but uses little of it."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.launched_with import int_parameter
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import WINDOW, GpuUse, gpu_uses
from coach.rules.from_numbers.training_windows import LOW_MFU, printed_mfu


class BusyAndUnderfed(Rule):
    """A kernel is always running but uses little of the GPU.

    What it sees
        Utilization is near 100 % over the newest window of training, but few of the multiprocessors were
        active (GPM, `coach run --gpm`). If that activity was not measured, the rule compares the power draw
        with its limit. The finding is then info, with less confidence. It is also info if the program itself
        reports a share of the GPU's peak (MFU) below `mfu`.
    Why it matters
        Utilization says that a kernel ran, not how much of the GPU it used: a kernel on one multiprocessor of
        132 gives 100 %. So a GPU that does little work looks well used.
    When it stays silent
        If neither SM activity nor power and its limit were measured (MIG instances report no power of their
        own). In start-up, evaluation, checkpoints and compilation.
    What to do
        Use a larger batch, and tensor sizes that are multiples of 64. If the program runs many small kernels,
        use torch.compile or CUDA graphs. If the job is small, request a MIG instance or a smaller GPU. Ranks
        that spin in a collective look the same: check if one rank is behind.
    Sources
        ML Engineering (Bekman), "GPU utilization"; jobscope's bands of SM activity (15 %); TraceML (power
        below 30 % of the limit).
    """

    code = "GPU013"
    name = "busy-and-underfed"
    cause = "gpu_underfed"
    severity = Severity.WARNING
    needs = (Need.GPU_TELEMETRY, Need.METRICS)
    keep_s = 10.0
    utilization_pct = Threshold(90, "percent", "a kernel runs all the time")
    sm_activity_pct = Threshold(15, "percent", "fewer than one multiprocessor in six is busy")
    power_share = Threshold(
        0.3, "of the power limit", "a GPU draws less while its kernels wait or use little of it"
    )
    mfu = Threshold(LOW_MFU, "of the peak", "trainings of Transformers reach 0.3 to 0.5 (PaLM: 0.46)")
    window_s, min_samples, startup_s = WINDOW

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        uses = gpu_uses(snapshot, history, self.values)
        low = [
            (use, activity, is_measured)
            for use in uses
            if use.mean_pct >= self.utilization_pct
            for activity, is_measured in self._low(use)
        ]
        if not low:
            yield from self._of_mfu(printed_mfu(history))
            return
        worst, value, is_measured = min(low, key=lambda item: (not item[2], item[1]))
        work = (
            f"uses {value:.0f} % of its multiprocessors"
            if is_measured
            else f"draws {100 * value:.0f} % of its power limit"
        )
        more = f" (and {len(low) - 1} more)" if len(low) > 1 else ""
        evidence = [Evidence.percent("utilization, mean", worst.mean_pct)]
        if is_measured:
            evidence.append(Evidence.percent("SM activity (GPM), mean", value))
        if worst.power_share is not None:
            evidence.append(
                Evidence("power, mean", value=round(worst.power_share, 2), unit="of the power limit")
            )
        batch = int_parameter(snapshot.run, "batch_size")
        has_room = (worst.memory_share or 0.0) < 0.5
        yield Hit(
            summary=(
                f"GPU {worst.gpu} on {worst.node}{more} is busy {worst.mean_pct:.0f} % of the time and {work}"
            ),
            evidence=tuple(evidence),
            confidence=0.85 if is_measured else 0.6,
            subject=Subject(node=worst.node, gpu=worst.gpu) if len(low) == 1 else Subject(),
            fixes=(
                *(
                    [
                        Fix(
                            f"Batch size {batch} → {batch * 2}",
                            {"batch_size": batch * 2},
                            changes_learning=True,
                        )
                    ]
                    if batch and has_room
                    else []
                ),
                Fix("Fewer and larger kernels: torch.compile, CUDA graphs, sizes that are multiples of 64"),
            ),
            severity=Severity.WARNING if is_measured else Severity.INFO,
            since_s=worst.first.time_s,
        )

    def _of_mfu(self, mfu: float | None) -> Iterable[Hit]:
        if mfu is not None and mfu < self.mfu:
            yield Hit(
                summary=f"The program reports that it uses {mfu:.2%} of the GPU's peak (MFU)",
                evidence=(Evidence("MFU, median of the newest steps", value=round(100 * mfu, 3), unit="%"),),
                confidence=0.7,
                fixes=(
                    Fix("Profile some steps (torch.profiler): what takes the time between the kernels?"),
                    Fix("Check for which GPU and precision the program computes its MFU"),
                ),
                severity=Severity.INFO,
            )

    def _low(self, use: GpuUse) -> Iterable[tuple[float, bool]]:
        newest = use.newest
        if newest.sm_activity_pct is not None:
            activity = use.mean("sm_activity_pct")
            if activity is not None and activity < self.sm_activity_pct:
                yield activity, True
            return
        # Shortcut: if a GPU now draws more than twice the threshold, its mean is taken as above it.
        if newest.power_w is None or newest.power_w > 2 * self.power_share * (newest.power_limit_w or 0.0):
            return
        share = use.power_share
        if share is not None and share < self.power_share:
            yield share, False
