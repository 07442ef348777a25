"""DST009: the GPUs of one job do unequal work, although each does some."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.launched_with import has_uneven_ranks
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import MIN_SAMPLES, STARTUP_S, WINDOW_S, GpuUse, gpu_uses
from coach.rules.from_numbers.training_windows import share_samples


class UnevenGpus(Rule):
    """One GPU of the job is far less busy than the others, or far busier.

    What it sees
        The mean utilization of each GPU over ten minutes of training, in a run that has ended over all kept
        samples: the least busy and the busiest one differ by `spread_points`. The one further from the median
        is named.
    Why it matters
        In data-parallel training all GPUs wait for the slowest in each step. A GPU that works less has less
        to do, or waits more.
    When it stays silent
        If a GPU is idle most of the time (GPU003). If the ranks differ by design (pipeline, 3-D,
        DataParallel). In start-up, evaluation, checkpoints and compilation, when one rank may work alone.
    What to do
        Look for work that one rank does for all (logging, evaluation, saving), and for shards of unequal
        size. Compare clocks and temperatures.
    Sources
        SageMaker Debugger's LoadBalancing; TraceML's rank imbalance.
    """

    code = "DST009"
    name = "uneven-gpus"
    cause = "uneven_gpus"
    severity = Severity.WARNING
    needs = (Need.GPU_TELEMETRY,)
    keep_s = 10.0
    spread_points = Threshold(30, "percentage points", "smaller differences come and go", at_least=1)
    idle_pct = Threshold(30, "percent", "below it GPU003 reports the GPU")
    window_s = Threshold(
        600, "seconds", "in a shorter time one evaluation or checkpoint makes the difference"
    )
    min_samples = MIN_SAMPLES
    startup_s = STARTUP_S

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if len(history.gpus) < 2 or has_uneven_ranks(snapshot.run) or share_samples(history):
            return
        uses = gpu_uses(snapshot, history, {**self.values, "window_s": WINDOW_S.default})
        if not self._is_uneven(uses):
            return  # the shorter window, which other rules compute anyway, already rules it out
        uses = gpu_uses(snapshot, history, self.values)
        if not self._is_uneven(uses):
            return
        least, most = min(uses, key=lambda u: u.mean_pct), max(uses, key=lambda u: u.mean_pct)
        middle = median(use.mean_pct for use in uses)
        odd = least if middle - least.mean_pct >= most.mean_pct - middle else most
        spread = most.mean_pct - least.mean_pct
        yield Hit(
            summary=(
                f"GPU {odd.gpu} on {odd.node} is busy {odd.mean_pct:.0f} % of the time, the {len(uses)} of "
                f"the job {middle:.0f} % (median)"
            ),
            evidence=tuple(
                Evidence.percent(
                    f"utilization of GPU {use.gpu} on {use.node}, mean of {use.num_samples} samples",
                    use.mean_pct,
                )
                for use in (least, most)
            ),
            confidence=round(0.6 + 0.2 * min(1.0, spread / self.spread_points - 1), 2),
            subject=Subject(node=odd.node, gpu=odd.gpu),
            fixes=(
                Fix(
                    "Look for work of one rank alone (logging, evaluation, saving), and for unequal shards "
                    "of the data"
                ),
            ),
            since_s=odd.first.time_s,
        )

    def _is_uneven(self, uses: list[GpuUse]) -> bool:
        if len(uses) < 2:
            return False
        means = [use.mean_pct for use in uses]
        return min(means) >= self.idle_pct and max(means) - min(means) >= self.spread_points
