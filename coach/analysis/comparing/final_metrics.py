"""The last value of each metric of a run, to rank the runs of a group. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from statistics import fmean

from coach.analysis.comparing.time_to_target import time_to_target
from coach.analysis.comparing.two_runs import Measured
from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot

_LAST_STEPS = 10
"""The loss of one step depends on its batch: the mean over this many steps is reported, but over no more than
the last tenth, because a loss for each epoch has few values."""
_LESS_IS_BETTER = re.compile(
    r"loss|time|memory|steps_to|norm|error|perplexity|wer|cer|mse|mae|rmse", re.IGNORECASE
)
_NO_METRICS = frozenset({"event", "time_s", "step", "epoch", "seconds"})


def final_metrics(snapshot: TargetSnapshot, history: History, measured: Measured) -> Mapping[str, float]:
    """Name → value: `loss` and `grad_norm` of the last steps, `eval_…` of the last evaluation that has it,
    `samples_per_s`, `step_time_s`, `memory_mib`; for a run that reached its `target_accuracy`,
    `time_to_target_s` (without start-up) and `steps_to_target`. Values that are missing or not finite are
    left out."""
    found: dict[str, float | None] = {}
    steps = list(history.steps(history.ranks[0])) if history.ranks else []
    for name in ("loss", "grad_norm", "accuracy"):
        values = [value for step in steps if (value := getattr(step, name)) is not None]
        found[name] = fmean(values[-max(1, min(_LAST_STEPS, len(values) // 10)) :]) if values else None
    for event in snapshot.events:
        if event.event == "eval":
            found |= {
                f"eval_{name}": _number(value)
                for name, value in event.fields.items()
                if name not in _NO_METRICS
            }
    estimates = (
        ("samples_per_s", measured.throughput),
        ("step_time_s", measured.step_time),
        ("memory_mib", measured.memory_peak),
    )
    found |= {name: estimate.value if estimate else None for name, estimate in estimates}
    found |= _to_target(snapshot)
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def loss_words(history: History) -> str | None:
    """`NaN from step 12` if the newest loss is not finite, with the first step of that stretch; None if it is
    finite or not known."""
    steps = history.steps(history.ranks[0]) if history.ranks else ()
    words, since = None, None
    for step in reversed(list(steps)):
        if step.loss is None:
            continue
        if math.isfinite(step.loss):
            break
        words, since = ("NaN" if math.isnan(step.loss) else "inf"), step.step
    return None if words is None else f"{words} from step {since}"


def _to_target(snapshot: TargetSnapshot) -> dict[str, float | None]:
    target = time_to_target(snapshot)
    return {} if target is None else {"time_to_target_s": target.training_s, "steps_to_target": target.step}


def is_less_better(metric: str) -> bool:
    """True for losses, times, memory and errors; for other metrics more counts as better."""
    return _LESS_IS_BETTER.search(metric) is not None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
