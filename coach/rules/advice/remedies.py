"""Typed changes of a launch, each with what it takes and how far it may go: what rules offer where their
evidence calls for it.

One place, so that two rules that offer the same change also keep the same limits, and say alike what it does
to what is learned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from coach.lookback.history import History
from coach.model.judging.finding import Fix
from coach.model.training.run import Run
from coach.rules.advice.launched_with import float_parameter, int_parameter

_BF16_CAPABILITY = 8.0
"""Compute capability from which on a GPU computes in bf16."""
_BF16_NAMES = re.compile(
    r"\b(?:A(?:2|10G?|16|30|40|100|800)|[HB](?:20|100|200|300|800)|L(?:4|20|40S?)|G[HB][23]00"
    r"|(?<!Quadro )RTX (?:[345]0\d\d|A\d{4}))\b"
)
"""GPUs that have it, where only the name is known. A Quadro RTX is of the generation before."""
_WITHOUT_BATCH_NORM = ("gpt",)
_LEAD_S = 300
"""So long before the limit: time for a checkpoint of many GB."""
_MIN_LIMIT_S = 120
"""A shorter job is over before a signal would pay."""
_SAVE_EVERY_S = 600
"""No more than ten minutes are then lost, and a checkpoint of half a minute costs a twentieth."""


def smaller_micro_batch(run: Run | None) -> Iterable[Fix]:
    """Half the micro-batch, twice the accumulation; in words where the launch does not say what they are."""
    batch, accumulation = int_parameter(run, "batch_size"), int_parameter(run, "gradient_accumulation")
    if batch is None:
        yield Fix(
            "Halve the micro-batch and double gradient accumulation: the same global batch in less memory"
        )
    if run is None or batch is None or accumulation is None or batch < 2:
        return
    half = -(-batch // 2)
    is_same = half * 2 == batch
    is_without = run.parameters.get("model") in _WITHOUT_BATCH_NORM or "heads" in run.parameters
    yield Fix(
        f"Micro-batch {batch} → {half}, gradient accumulation {accumulation} → {accumulation * 2}: "
        + ("the same global batch" if is_same else "nearly the same global batch")
        + ("" if is_without else "; BatchNorm, where the model has it, then sees fewer samples at a time"),
        {"batch_size": half, "gradient_accumulation": accumulation * 2},
        changes_learning=not (is_same and is_without),
    )


def bf16(run: Run | None, title: str) -> Iterable[Fix]:
    """bf16 where the device is known to have it; advice where that is not known, nothing where it has not."""
    has_it = _has_bf16(run)
    if has_it:
        yield Fix(title, {"precision": "bf16"}, changes_learning=True)
    elif has_it is None:
        yield Fix(f"{title}; where the GPU has it: compute capability 8.0 and above", changes_learning=True)


def _has_bf16(run: Run | None) -> bool | None:
    """None: not known."""
    if run is None:
        return None
    capability = run.device.get("compute_capability")
    if isinstance(capability, (int, float)):
        return capability >= _BF16_CAPABILITY
    has_it = run.device.get("type") == "cpu" or _BF16_NAMES.search(str(run.device.get("name")))
    return True if has_it else None


def lower_learning_rate(run: Run | None, divisor: float, least_warmup_steps: float) -> Iterable[Fix]:
    """The learning rate divided, and twice the warm-up where the launch has one. Where a fix lowered the rate
    already and the same was found again, it is divided twice."""
    lr, warmup = float_parameter(run, "lr"), int_parameter(run, "warmup_steps")
    if run is None or lr is None:
        return
    was_lowered = run.fix is not None and "lr" in run.fix.changes
    divisor = divisor**2 if was_lowered else divisor
    changes: dict[str, float | int] = {"lr": float(f"{lr / divisor:.2g}")}
    title = f"Learning rate {lr:g} → {changes['lr']:g}"
    if warmup is not None:
        changes["warmup_steps"] = max(2 * warmup, int(least_warmup_steps))
        title += f", warm-up {warmup} → {changes['warmup_steps']} steps"
    if was_lowered:
        title += f": {lr:g} was a fix's, and was still too high"
    yield Fix(title, changes, changes_learning=True)


def sharding(run: Run | None) -> Iterable[Fix]:
    """Parameters, gradients and optimizer in shares, where each of several GPUs holds all of them now."""
    if run is None or (run.num_gpus or 0) < 2:
        return
    title = "Shard parameters, gradients and optimizer over the GPUs: each keeps its share alone"
    changes = declared(run, "shard")
    if not run.recipe:
        yield Fix(f"{title} (FSDP, or ZeRO stage 3)")
    elif "recipe" in changes:
        yield Fix(title, changes)
    elif changes:
        steps = ", ".join(f"{name} {run.parameters.get(name)} → {value}" for name, value in changes.items())
        yield Fix(f"{steps}: {title[0].lower()}{title[1:]}", changes)


def declared(run: Run | None, remedy: str) -> dict[str, Any]:
    """The changes by which the run's recipe carries out a remedy; empty where it declares none, or has made
    them already."""
    if run is None:
        return {}
    now = {**run.parameters, "recipe": run.recipe}
    changes = run.remedies.get(remedy, {})
    return {name: value for name, value in changes.items() if now.get(name) != value}


def workers(run: Run | None, wanted: int, cpus: int | None, why: str = "") -> Iterable[Fix]:
    """So many DataLoader workers per rank, but never more than each rank has CPUs; in words where it is not
    known how many that are."""
    now = int_parameter(run, "num_workers")
    if now is None:
        return
    if cpus is None and wanted > now:
        yield Fix(f"DataLoader workers {now} → {wanted} per rank, where each rank has so many CPUs")
        return
    possible = min(wanted, max(now, cpus)) if cpus is not None and wanted > now else wanted
    if possible != now:
        has = f" (each rank has {cpus} CPUs)" if cpus and wanted > now else ""
        yield Fix(f"DataLoader workers {now} → {possible} per rank{has}{why}", {"num_workers": possible})


def more_memory(run: Run | None, wanted_mib: float, why: str, history: History) -> Iterable[Fix]:
    """Host memory per node, never more than its nodes have as far as that was measured: then it is said."""
    totals = [
        sample.node_memory_total_mib for node in history.nodes for sample in list(history.host(node))[-1:]
    ]
    most = min((total for total in totals if total is not None), default=math.inf)
    if wanted_mib > most:
        wanted_mib, why = most, f"all that the node has; {why} would be more, so use less as well"
    spelt = spell_memory(wanted_mib, is_most=wanted_mib == most)
    if run is None:
        yield Fix(f"Ask for more host memory: {why}", command=f"sbatch --mem={spelt} …")
    else:
        yield Fix(f"Memory per node → {spelt}: {why}", {"mem": spelt})


def more_time(needed_s: float, why: str) -> Fix:
    """What the partition allows at most is known to the plan alone, which keeps to it."""
    minutes = math.ceil(needed_s / 60)
    spelt = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return Fix(f"Time limit → {spelt}: {why}", {"time": spelt})


def saved_before_limit(
    run: Run | None, limit_s: float | None, step_time_s: float | None, title: str
) -> Iterable[Fix]:
    """Checkpoints now and then, and a signal before the limit; in words where the launch has both, or does
    not know of them."""
    if run is None or limit_s is None or limit_s < _MIN_LIMIT_S:
        yield Fix(f"{title} (#SBATCH --signal=B:USR1@{_LEAD_S})")
        return
    changes: dict[str, Any] = {}
    every = int_parameter(run, "checkpoint_every")
    if every is not None and step_time_s:
        wanted = max(1, round(_SAVE_EVERY_S / step_time_s))
        if not 0 < every <= wanted:
            changes["checkpoint_every"] = wanted
    if not run.resources.get("signal"):
        changes["signal"] = f"USR1@{min(_LEAD_S, int(limit_s) // 4)}"
        if not run.recipe:
            title += (
                ". The signal reaches what srun starts, and ends a program that does not wait for it: "
                "Lightning and submitit do."
                " Without srun the script has to: B:USR1, and a trap that hands it on"
            )
    yield Fix(title, changes)


def spell_memory(mib: float, *, is_most: bool = False) -> str:
    """Slurm's spelling, rounded up: whole GiB from 4 GiB on, below that multiples of 64 MiB; what is the most
    there is, exactly."""
    if is_most:
        return f"{math.floor(mib)}M"
    return f"{math.ceil(mib / 1024)}G" if mib > 4096 else f"{math.ceil(mib / 64) * 64}M"


def without(run: Run | None, node: str) -> dict[str, Any]:
    """The change that leaves a node out beside those that are left out already; none where no scheduler has
    another one to take."""
    if run is None or run.backend != "slurm":
        return {}
    excluded = run.resources.get("exclude")
    return {"exclude": f"{excluded},{node}" if isinstance(excluded, str) and excluded else node}
