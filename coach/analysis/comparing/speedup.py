"""The speed of one run against that of another, also on another number of ranks. Pure.

`compare`, the table of a group and a ladder share this judgement, so they never tell two figures for the same
pair of runs. A ratio needs the noise of both speeds: of too few steps there is none, and the reason is told.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from coach.analysis.comparing.scaling_laws import STRONG, WEAK
from coach.analysis.comparing.steady_state import MIN_STEADY, Estimate

SAME = "same"


@dataclass(frozen=True, slots=True)
class Measured:
    """Quantities of one run's steady part; None if not measured."""

    world_size: int | None
    throughput: Estimate | None
    step_time: Estimate | None
    data_time: Estimate | None
    memory_peak: Estimate | None
    global_batch: int | None = None
    """Samples of one step of all ranks."""
    setting: Mapping[str, object] = field(default_factory=dict)
    """Name → value of the hardware, data and model; runs with other values did other work. Without the
    unknown ones."""
    num_threads: int | None = None
    """Compute threads of one rank on CPUs; None on GPUs, or if not known."""
    num_gpus: int | None = None

    @property
    def num_devices(self) -> int | None:
        """The ranks, or the GPUs where one rank uses several, as nn.DataParallel does."""
        return max(self.world_size, self.num_gpus or 0) if self.world_size else None


@dataclass(frozen=True, slots=True)
class Speedup:
    """The throughput of a run over that of a base run."""

    ratio: Estimate | None
    """`num_values`: steady steps of the run that has fewer. None: see `because`."""
    times_ranks: float | None
    """Number of ranks over that of the base, or of GPUs where one rank uses several; None if not known."""
    efficiency: Estimate | None
    """Throughput per rank over that of the base: `ratio` over `times_ranks`."""
    scaling: str | None
    """`same`: as many ranks; `strong`: other ranks share the same global batch; `weak`: each rank keeps its
    batch; None: neither, or not known. GPUs count where one rank uses several."""
    because: str | None = None
    """Why there is no ratio, or no efficiency."""
    devices: str = "ranks"
    """`ranks`, or `GPUs` where one rank uses several."""

    @property
    def words(self) -> str | None:
        """`1.70 ± 0.05 × on 2 × the ranks: efficiency 85 ± 3 %, weak scaling, over 54 steps`; None without a
        ratio."""
        if self.ratio is None:
            return None
        said = f"{ratio_words(self.ratio)} ×"
        if self.scaling != SAME and self.times_ranks is not None:
            said += f" on {self.times_ranks:.3g} × the {self.devices}: "
            said += f"efficiency {efficiency_words(self.efficiency)}" if self.efficiency else "no efficiency"
            said += (
                f", {self.scaling or 'neither strong nor weak'} scaling{'' if self.scaling else ' is known'}"
            )
        said += f", over {self.ratio.num_values} steps"
        return f"{said}: {self.because}" if self.because else said


def ratio_words(ratio: Estimate) -> str:
    """`1.70 ± 0.05`; without noise for the run that others are compared with."""
    return f"{ratio.value:.2f} ± {ratio.noise:.2f}" if ratio.noise else f"{ratio.value:.2f}"


def efficiency_words(efficiency: Estimate) -> str:
    """`85 ± 3 %`"""
    noise = f" ± {100 * efficiency.noise:.0f}" if efficiency.noise else ""
    return f"{100 * efficiency.value:.0f}{noise} %"


def speedup_of(base: Measured, run: Measured, varied: Collection[str] = ()) -> Speedup:
    """The speed of a run over that of the base. `varied`: names of `setting` that may differ, because a group
    of runs varies them on purpose."""
    times = run.num_devices / base.num_devices if run.num_devices and base.num_devices else None
    is_by_rank = all(each.num_devices == each.world_size for each in (base, run))
    speed = Speedup(None, times, None, _scaling(base, run), devices="ranks" if is_by_rank else "GPUs")
    ratio = _ratio(base, run, varied)
    if isinstance(ratio, str):
        return replace(speed, because=ratio)
    because = None if times else "the number of ranks is not known"
    if speed.scaling != SAME:
        because = because or _other_threads(base, run)
    if times is None or because is not None:
        return replace(speed, ratio=ratio, because=because)
    noise = None if ratio.noise is None else ratio.noise / times
    return replace(speed, ratio=ratio, efficiency=Estimate(ratio.value / times, noise, ratio.num_values))


def differs(what: str, old: object, new: object) -> str | None:
    """Why two runs cannot be compared: `other device (A100 → H100)`. An unknown value is no obstacle."""
    return None if old is None or new is None or old == new else f"other {what} ({old} → {new})"


def other_setting(base: Measured, run: Measured, varied: Collection[str] = ()) -> str | None:
    """The first difference in hardware, data or model; None if they are alike as far as known."""
    names = (name for name in base.setting if name not in varied)
    return next(filter(None, (differs(n, base.setting[n], run.setting.get(n)) for n in names)), None)


def too_few_steps(num_steps: int) -> str:
    """Words in place of a ratio."""
    return f"too few steps ({num_steps} steady, {MIN_STEADY} are needed)"


def _ratio(base: Measured, run: Measured, varied: Collection[str]) -> Estimate | str:
    """Throughput over that of the base, or why there is no ratio."""
    a, b = base.throughput, run.throughput
    if b is None:
        return "its speed was not measured"
    if a is None or a.value <= 0:
        return "the speed of the first run was not measured"
    if (obstacle := other_setting(base, run, varied)) is not None:
        return obstacle
    num_steps = min(a.num_values, b.num_values)
    if a.noise is None or b.noise is None:
        return too_few_steps(num_steps)
    if run is base:
        return Estimate(1.0, 0.0, num_steps)
    # Relative half widths of independent intervals add in quadrature.
    ratio = b.value / a.value
    noise = math.hypot(ratio * a.noise / a.value, b.noise / a.value)
    return Estimate(ratio, noise, num_steps)


def _other_threads(base: Measured, run: Measured) -> str | None:
    other = differs("threads per rank", base.num_threads, run.num_threads)
    return other and f"{other}: set --cpus-per-task in proportion to the ranks"


def _scaling(base: Measured, run: Measured) -> str | None:
    if base.num_devices is None or run.num_devices is None:
        return None
    if base.num_devices == run.num_devices:
        return SAME
    if base.global_batch is None or run.global_batch is None:
        return None
    if base.global_batch == run.global_batch:
        return STRONG
    is_weak = base.global_batch * run.num_devices == run.global_batch * base.num_devices
    return WEAK if is_weak else None
