"""Fixes that change a launch, with their preconditions and limits. Rules offer them as their evidence
requires.

Two rules that offer the same change thus share its limits and its warning about the effect on training.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from typing import Any

from coach.lookback.history import History
from coach.model.judging.finding import Fix
from coach.model.slurm.memory import spell_memory
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.circumstances import NO_OTHER_SCHEDULER, OTHER_SCHEDULER, UNKNOWN_SCHEDULER
from coach.rules.advice.launched_with import (
    float_parameter,
    int_parameter,
    is_own_program,
    parameter_default,
    usual_range,
)

_BF16_CAPABILITY = 8.0
"""Lowest compute capability with bf16 arithmetic."""
_BF16_NAMES = re.compile(
    r"\b(?:A(?:2|10G?|16|30|40|100|800)|[HB](?:20|100|200|300|800)|L(?:4|20|40S?)|G[HB][23]00"
    r"|(?<!Quadro )RTX (?:[345]0\d\d|A\d{4}))\b"
)
"""Names of GPUs with bf16, used if the capability is unknown. A Quadro RTX is one generation too old."""
_WITHOUT_BATCH_NORM = ("gpt",)
_LEAD_S = 300
"""Seconds between the signal and the time limit: enough for a checkpoint of many GB."""
_MIN_LIMIT_S = 120
"""A job with a shorter time limit gets no signal: its lead would take too much of the limit."""
_SAVE_EVERY_S = 600
"""Seconds between checkpoints: at most ten minutes are lost, and a checkpoint of 30 s costs 5 %."""


def smaller_micro_batch(run: Run | None) -> Iterable[Fix]:
    """Half the micro-batch and twice the accumulation; advice in words if the launch lacks one of these
    values."""
    batch, accumulation = int_parameter(run, "batch_size"), int_parameter(run, "gradient_accumulation")
    if batch is None or (accumulation is None and batch > 1):
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
    """bf16 if the device has it, advice in words if that is unknown, nothing if it lacks it."""
    has_it = _has_bf16(run)
    if has_it:
        yield Fix(title, {"precision": "bf16"}, changes_learning=True)
    elif has_it is None:
        yield Fix(f"{title}; where the GPU has it: compute capability 8.0 and above", changes_learning=True)


def _has_bf16(run: Run | None) -> bool | None:
    """None if unknown."""
    if run is None:
        return None
    capability = run.device.get("compute_capability")
    if isinstance(capability, (int, float)):
        return capability >= _BF16_CAPABILITY
    has_it = run.device.get("type") == "cpu" or _BF16_NAMES.search(str(run.device.get("name")))
    return True if has_it else None


def lower_learning_rate(run: Run | None, divisor: float, least_warmup_steps: float) -> Iterable[Fix]:
    """The learning rate divided by `divisor`, and twice the warm-up if the launch has one. If a fix already
    lowered the rate and the fault came back, the rate is divided twice. A rate above the usual range becomes
    the recipe's default."""
    lr, warmup = float_parameter(run, "lr"), int_parameter(run, "warmup_steps")
    if run is None or lr is None or not 0 < lr < math.inf:
        return
    default, usual = parameter_default(run, "lr"), usual_range(run, "lr")
    if usual is not None and lr > usual[1] and isinstance(default, (int, float)):
        title = f"Learning rate {lr:g} → {default:g}: the recipe's default"
        title += f" ({usual[0]:g} to {usual[1]:g} is usual)"
        yield Fix(title, {"lr": default}, changes_learning=True)
        return
    was_lowered = run.fix is not None and "lr" in run.fix.changes
    divisor = divisor**2 if was_lowered else divisor
    changes: dict[str, float | int] = {"lr": float(f"{lr / divisor:.2g}")}
    title = f"Learning rate {lr:g} → {changes['lr']:g}"
    if warmup is not None:
        changes["warmup_steps"] = max(2 * warmup, int(least_warmup_steps))
        title += f", warm-up {warmup} → {changes['warmup_steps']} steps"
    if was_lowered:
        title += f": an earlier fix set {lr:g}, which was still too high"
    yield Fix(title, changes, changes_learning=True)


def sharding(run: Run | None) -> Iterable[Fix]:
    """Shard parameters, gradients and optimizer state, if each of several GPUs now holds all of them."""
    if run is None or (run.num_gpus or 0) < 2:
        return
    title = "Shard parameters, gradients and optimizer over the GPUs: each keeps only its share"
    changes = declared(run, "shard")
    if is_own_program(run):
        yield Fix(f"{title} (FSDP, or ZeRO stage 3)")
    elif "recipe" in changes:
        yield Fix(title, changes)
    elif changes:
        steps = ", ".join(f"{name} {run.parameters.get(name)} → {value}" for name, value in changes.items())
        yield Fix(f"{steps}: {title[0].lower()}{title[1:]}", changes)


def on_a_node(title: str, command: str) -> Iterable[Fix]:
    """A command that looks at something as a compute node sees it."""
    yield Fix(title, command=f"srun {command}", needs=(NO_OTHER_SCHEDULER,))
    yield Fix(f"{title}: run this in an interactive job", command=command, needs=(OTHER_SCHEDULER,))


def _in_words_of(title: str, **commands: str) -> Iterable[Fix]:
    """The fix with the command of the scheduler that is shown. `commands` has one by scheduler."""
    for scheduler, command in commands.items():
        yield Fix(title, command=command, needs=(f"scheduler:{scheduler}",))


def first_node_as_address(title: str) -> Iterable[Fix]:
    """MASTER_ADDR from the job's list of nodes, in the words of the scheduler that is shown."""
    slurm = 'scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1'
    yield Fix(title, command=f"export MASTER_ADDR=$({slurm})", needs=(NO_OTHER_SCHEDULER,))
    yield from _in_words_of(
        title,
        pbs='export MASTER_ADDR=$(head -1 "$PBS_NODEFILE")',
        lsf="export MASTER_ADDR=${LSB_HOSTS%% *}",
        sge="export MASTER_ADDR=$(head -1 \"$PE_HOSTFILE\" | cut -d' ' -f1)",
    )


def ask_slurm(job_id: str) -> Fix:
    """What the controller knows of a job, and after some minutes the accounting, where a site has one."""
    named, what = shlex.quote(job_id), "JobID,State,ExitCode,Elapsed,NodeList,Reason"
    command = f"scontrol show job {named} || sacct -j {named} -o {what}"
    return Fix("Ask Slurm what it knows", command=command)


def begin_before(moment: str, change: str) -> Iterable[Fix]:
    """Begin again before a training went wrong: from a checkpoint, where there is one."""
    title = f"Resume from a checkpoint before {moment}, with {change}"
    yield Fix(title, changes_learning=True, needs=("checkpoint",))
    yield Fix(f"Start again with {change}", changes_learning=True, needs=("not checkpoint",))


def ask_for_memory(why: str, size: str = "64G") -> Iterable[Fix]:
    """How to ask for host memory, in the words of the scheduler that is shown."""
    title = f"Ask for more host memory: {why}"
    yield from _in_words_of(
        title,
        slurm=f"sbatch --mem={size} SCRIPT",
        pbs=f"qsub -l mem={size.lower()}b SCRIPT",
        lsf=f'bsub -M {size}B -R "rusage[mem={size}B]" < SCRIPT',
        sge=f"qsub -l h_vmem={size} SCRIPT",
    )
    yield Fix(title, needs=("scheduler:none",))
    yield Fix(f"{title} (Slurm: --mem)", needs=(UNKNOWN_SCHEDULER,))


def ask_for_gpus() -> Iterable[Fix]:
    """How to ask for GPUs, in the words of the scheduler that is shown."""
    title = "Ask for GPUs, in a partition or queue that has them"
    yield from _in_words_of(
        title,
        slurm="sbatch --gpus-per-node=1 SCRIPT",
        pbs="qsub -l select=1:ngpus=1 SCRIPT",
        lsf='bsub -gpu "num=1" < SCRIPT',
        sge="qsub -l gpu=1 SCRIPT",
    )
    yield Fix(f"{title} (Slurm: --gpus-per-node)", needs=(UNKNOWN_SCHEDULER,))


def declared(run: Run | None, remedy: str) -> dict[str, Any]:
    """The parameter changes that the run's recipe declares for a remedy; empty if it declares none, or they
    are set already."""
    if run is None:
        return {}
    now = {**run.parameters, "recipe": run.recipe}
    changes = run.remedies.get(remedy, {})
    return {name: value for name, value in changes.items() if now.get(name) != value}


def workers(run: Run | None, wanted: int, cpus: int | None, why: str = "") -> Iterable[Fix]:
    """`wanted` DataLoader workers per rank, at most the CPUs of each rank; advice in words if their number is
    unknown."""
    now = int_parameter(run, "num_workers")
    if now is None:
        return
    if cpus is None and wanted > now:
        yield Fix(f"DataLoader workers {now} → {wanted} per rank, if each rank has that many CPUs")
        return
    possible = min(wanted, max(now, cpus)) if cpus is not None and wanted > now else wanted
    if possible != now:
        has = f" (each rank has {cpus} CPU{'s' if cpus > 1 else ''})" if cpus and wanted > now else ""
        yield Fix(f"DataLoader workers {now} → {possible} per rank{has}{why}", {"num_workers": possible})


def fewer_workers(run: Run | None) -> Iterable[Fix]:
    """Half the DataLoader workers of the launch, where it has several."""
    now = int_parameter(run, "num_workers")
    if now is not None and now > 1:
        half = now // 2
        yield Fix(f"DataLoader workers {now} → {half}: each holds its own copies", {"num_workers": half})


def more_memory(run: Run | None, wanted_mib: float, why: str, history: History) -> Iterable[Fix]:
    """More host memory per node, and no less than the recipe needs, capped at the measured memory of the
    nodes; the fix says so if it was capped."""
    need_mib = run.mem_need_mib if run is not None else None
    if need_mib is not None and need_mib > wanted_mib:
        wanted_mib, why = need_mib, f"what the recipe needs, more than {why}"
    totals = [
        sample.node_memory_total_mib for node in history.nodes for sample in list(history.host(node))[-1:]
    ]
    most = min((total for total in totals if total is not None), default=math.inf)
    if wanted_mib > most:
        wanted_mib, why = most, f"all that the node has; {why} would be more, so use less as well"
    spelt = spell_memory(wanted_mib, is_most=wanted_mib == most)
    if run is None:
        yield from ask_for_memory(why, spelt)
    else:
        yield Fix(f"Memory per node → {spelt}: {why}", {"mem": spelt})


def more_time(needed_s: float, why: str) -> Fix:
    """A longer time limit. The launch plan, not this function, caps it at the partition's maximum."""
    minutes = math.ceil(needed_s / 60)
    spelt = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return Fix(f"Time limit → {spelt}: {why}", {"time": spelt})


def saved_before_limit(
    run: Run | None, limit_s: float | None, step_time_s: float | None, title: str
) -> Iterable[Fix]:
    """Periodic checkpoints and a signal before the limit, where the launch lacks them; advice in words if it
    has both, or if the job is short or unknown to coach."""
    if run is None or limit_s is None or limit_s < _MIN_LIMIT_S:
        yield Fix(
            f"{title} (#SBATCH --signal=B:USR1@{_LEAD_S})",
            needs=(NO_OTHER_SCHEDULER,),
        )
        return
    changes: dict[str, Any] = {}
    every = int_parameter(run, "checkpoint_every")
    if every is not None and step_time_s:
        wanted = max(1, round(_SAVE_EVERY_S / step_time_s))
        if not 0 < every <= wanted:
            changes["checkpoint_every"] = wanted
    if not run.resources.get("signal"):
        changes["signal"] = f"USR1@{min(_LEAD_S, int(limit_s) // 4)}"
        if is_own_program(run):
            title += (
                ". srun passes the signal to the program, and it ends a program that does not handle it; "
                "Lightning and submitit do. Without srun, use B:USR1 and a trap in the script that passes "
                "the signal on"
            )
    yield Fix(title, changes)


def without(run: Run | None, node: str) -> dict[str, Any]:
    """The change that adds a node to the excluded ones; empty if no scheduler can choose another node."""
    if run is None or run.backend != "slurm":
        return {}
    excluded = run.resources.get("exclude")
    return {"exclude": f"{excluded},{node}" if isinstance(excluded, str) and excluded else node}


def without_node(snapshot: TargetSnapshot, why: str) -> Iterable[Fix]:
    """The fix that excludes the node that refused the job; empty if no node is named."""
    refusal = snapshot.exit.refused if snapshot.exit is not None else None
    return leave_out(snapshot.run, refusal.node if refusal is not None else None, why)


def leave_out(run: Run | None, node: str | None, why: str) -> Iterable[Fix]:
    """The fix that adds a node to the excluded ones; empty outside of Slurm, which alone can choose another
    node."""
    if node and (changes := without(run, node)):
        yield Fix(f"Leave out {node}, {why}", changes)
