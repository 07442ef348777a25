"""GPU011: the batch is so small that the fixed costs of a step make up most of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_high

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.rules.advice.launched_with import int_parameter, parameter_default, usual_range
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import WINDOW, GpuUse, gpu_uses
from coach.rules.from_numbers.training_windows import newest_steady_steps


class BatchTooSmall(Rule):
    """The batch is so small that the fixed costs of a step make up most of it.

    What it sees
        Short steps that do not wait for data, and one of two signs: a micro-batch below the usual range of
        its recipe; or GPUs that are idle for at least a third of the time, with most of their memory free. A
        step then consists of small kernels, and most of its time goes into launching them.
    Why it matters
        Kernel launches, Python, the optimizer and the exchange of gradients take as long for two samples as
        for two hundred. A larger batch often makes several times the samples per second.
    When it stays silent
        On long steps, and on steps that wait for data (GPU005). If the GPU's memory is well used: a larger
        batch would not fit. If it draws half of its power limit: then it works, whatever its utilization. If
        the batch is within the recipe's usual range and no GPU was measured. With an idle GPU such a batch is
        info, because the recipe's model is small. The finding is also info if the batch is unknown and the
        GPU is busy for at least a third of the time: there are good reasons to train small models.
    What to do
        Double the batch until samples per second no longer rise, then tune the learning rate again, because a
        larger batch changes the training. If the batch must stay small: use torch.compile and CUDA graphs.
    Sources
        SageMaker Debugger's BatchSize rule (below 70 %); Google's tuning playbook, "Choosing the batch size".
    """

    code = "GPU011"
    name = "batch-too-small"
    cause = "batch_too_small"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    keep_s = 10.0
    step_s = Threshold(0.1, "seconds", "in longer steps the fixed costs, some milliseconds, are small")
    gpu_step_s = Threshold(0.05, "seconds", "the same on a GPU, which computes faster")
    gpu_pct = Threshold(70, "percent", "SageMaker's bound")
    warning_gpu_pct = Threshold(30, "percent", "below it GPU003 warns, and this says why")
    power_share = Threshold(0.5, "of the power limit", "as GPU003: a GPU that draws this much is working")
    memory_share = Threshold(0.3, "of the GPU's memory", "so much room is left that the batch can grow")
    data_share = Threshold(0.10, "of step time", "then fix the wait for data first")
    min_steps = Threshold(40, "steady steps", "fewer vary too much", at_least=1)
    window_s, min_samples, startup_s = WINDOW

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        steps = newest_steady_steps(snapshot, history, history.ranks[0], 200, 3).steps
        if len(steps) < max(1, self.min_steps):
            return
        # The fastest steps show the machine's own pace, even while others use it.
        pace_s = sorted(step.step_time_s or 0.0 for step in steps)[len(steps) // 10]
        if pace_s > self.step_s or self._waits_for_data(steps):
            return
        uses = gpu_uses(snapshot, history, self.values)
        if any((use.memory_share or 0.0) >= self.memory_share for use in uses):
            return
        batch = _micro_batch(snapshot.run, steps)
        usual = usual_range(snapshot.run, "batch_size") if snapshot.run is not None else None
        signs = tuple(self._idle(uses, pace_s))
        is_small = batch is not None and usual is not None and batch < usual[0]
        is_usual = batch is not None and usual is not None and not is_small
        is_idle = any(use.mean_pct < self.warning_gpu_pct for use in uses)
        if usual is not None and is_small:
            signs = (
                Evidence("smallest batch that is usual for this recipe", value=usual[0], unit="samples"),
                *signs,
            )
        if not signs:
            return
        size = "Few" if batch is None else f"{batch:g}"
        yield Hit(
            summary=(
                f"{size} samples in each step of {1000 * pace_s:.0f} ms: most of it is the fixed cost of a "
                "step"
            ),
            evidence=(
                *([Evidence("samples of a micro-batch on a rank", value=batch)] if batch is not None else []),
                Evidence(
                    f"step time, a tenth of the {len(steps)} steady steps is faster",
                    value=round(pace_s, 4),
                    unit="s",
                ),
                *signs,
            ),
            confidence=0.9 if len(signs) > 1 else 0.8,
            fixes=(_fix(snapshot.run),),
            severity=None if is_small or (is_idle and not is_usual) else Severity.INFO,
        )

    def _waits_for_data(self, steps: Sequence[Step]) -> bool:
        waited_s = sum(step.data_time_s or 0.0 for step in steps)
        return waited_s >= self.data_share * sum(step.step_time_s or 0.0 for step in steps)

    def _idle(self, uses: list[GpuUse], pace_s: float) -> Iterable[Evidence]:
        """Evidence that the GPUs wait for their next kernel."""
        shares = [share for use in uses if (share := use.memory_share) is not None]
        busy = max((use.mean_pct for use in uses), default=100.0)
        power = max((use.power_share or 0.0 for use in uses), default=0.0)
        if power >= self.power_share:
            return
        if shares and busy < self.gpu_pct and pace_s <= self.gpu_step_s:
            yield Evidence.percent("utilization of the busiest GPU, mean", busy)
            yield Evidence(
                "share of GPU memory in use, the fullest of them",
                value=round(max(shares), 3),
                unit="of memory",
            )


def _micro_batch(run: Run | None, steps: Sequence[Step]) -> float | None:
    """The usual number of samples per step of a rank; the last batch of an epoch is smaller."""
    known = [step.num_samples for step in steps if step.num_samples]
    return median_high(known) / (int_parameter(run, "gradient_accumulation") or 1) if known else None


def _fix(run: Run | None) -> Fix:
    batch = int_parameter(run, "batch_size")
    if run is None or not batch:
        return Fix("Double the batch until samples per second stop rising", changes_learning=True)
    default = parameter_default(run, "batch_size")
    wanted = default if isinstance(default, int) and default > batch else 4 * batch
    return Fix(f"Batch size {batch} → {wanted}", {"batch_size": wanted}, changes_learning=True)
