"""A ladder as one table: each rung against the first one, the one before it, and its document's figure. Pure.

The verdict is the answer to a claim. It never calls a figure reached or missed that this run could not test:
the run failed, has too few steps, trained on other hardware, or on fewer ranks than the document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from coach.analysis.comparing.speedup import Measured, Speedup, speedup_of, too_few_steps
from coach.analysis.comparing.steady_state import Estimate, estimate_independent
from coach.analysis.comparing.sweep_table import Member
from coach.analysis.comparing.time_to_target import short_words
from coach.model.launching.ladder import Ladder, Rung
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run

_WAITING_SHARE = 0.1
"""Share of a step from which waiting for data is a cause: GPU005 warns from here on."""
_FAR_ABOVE = 1.5
"""Times the document's upper figure."""
_UNTESTED = "cannot be tested here: "


@dataclass(frozen=True, slots=True)
class Climbed:
    """One line of the table: a rung with its result."""

    rung: Rung
    run_ids: tuple[str, ...]
    """Its runs, one for each repeat; empty if it was not started."""
    state: str | None
    """Slurm's state; of several runs, that of the first one that has not COMPLETED."""
    ranks: int | None
    throughput: Estimate | None
    """Samples per second of all ranks; `num_values`: steady steps of all its runs."""
    over_first: Speedup
    over_previous: Speedup
    """Against the rung before it that was measured."""
    memory_mib: float | None
    target: str | None
    """`0.9: 12.3 s, 120 steps`; None without a target accuracy."""
    gpu_hours: float | None
    """Of all its runs; None while one is going, and on CPUs."""
    verdict: str

    @property
    def stated(self) -> str | None:
        """The document's figure: `6–7 ×`, `1000–1200/s` for samples per second."""
        figure = self.rung.ratio or self.rung.samples_per_s
        span = "–".join(f"{value:.10g}" for value in dict.fromkeys(figure or ()))
        return None if figure is None else f"{span} ×" if self.rung.ratio else f"{span}/s"

    @property
    def is_result(self) -> bool:
        """True if all its runs completed, or it was rightly not started."""
        return not self.run_ids or self.state == "COMPLETED"


Trial = tuple[Run, Member]
"""One run of a ladder, as it was read."""


def ladder_table(ladder: Ladder, trials: Sequence[Trial]) -> tuple[Climbed, ...]:
    """The table, in the order of the rungs."""
    rows: list[Climbed] = []
    first = before = None
    for rung in ladder.rungs:
        own = [trial for trial in trials if trial[1].value == rung.name]
        measured = _together([member.measured for _, member in own])
        first = first or measured  # a document's ratio is one over the first rung, never over another
        row = _row(rung, own, measured, first, before or measured)
        rows.append(replace(row, verdict=_verdict(ladder, row, own)))
        if measured.throughput is not None and measured.throughput.noise is not None:
            before = measured
    return tuple(rows)


def _row(
    rung: Rung, trials: Sequence[Trial], measured: Measured, first: Measured, before: Measured
) -> Climbed:
    states = [member.state for _, member in trials]
    target = trials[0][1].target if trials else None
    hours = [_gpu_hours(run) for run, _ in trials]
    return Climbed(
        rung,
        tuple(run.run_id for run, _ in trials),
        next((state for state in states if state != "COMPLETED"), states[0] if states else None),
        measured.world_size,
        measured.throughput,
        speedup_of(first, measured),
        speedup_of(before, measured),
        measured.memory_peak.value if measured.memory_peak else None,
        None if target is None else short_words(target),
        None if None in hours else sum(filter(None, hours)) or None,
        "",
    )


def _together(repeats: Sequence[Measured]) -> Measured:
    """The repeats of a rung as one measurement. The ± is that of a mean of independent runs; of three or
    more it is at least their own scatter, which a single run cannot show."""
    rates = [each.throughput for each in repeats if each.throughput is not None]
    noises = [rate.noise for rate in rates if rate.noise is not None]
    if len(rates) < 2 or len(noises) < len(rates):
        return repeats[0] if repeats else Measured(None, None, None, None, None)
    values = [rate.value for rate in rates]
    scatter = estimate_independent(values)
    noise = max(math.hypot(*noises) / len(noises), (scatter and scatter.noise) or 0.0)
    rate = Estimate(fmean(values), noise, sum(rate.num_values for rate in rates))
    return replace(repeats[0], throughput=rate)


def _gpu_hours(run: Run) -> float | None:
    if run.started_time_s is None or run.ended_time_s is None or run.num_gpus is None:
        return None
    return max(0.0, run.ended_time_s - run.started_time_s) * run.num_gpus / 3600


def _verdict(ladder: Ladder, row: Climbed, trials: Sequence[Trial]) -> str:
    """The answer to the document's figure; without a figure, why there is no measurement."""
    if not trials:
        return f"{_UNTESTED}{row.rung.why_not or 'it was not launched'}"
    if (problem := _no_measurement(row, trials)) is not None:
        return problem
    figure = row.rung.ratio or row.rung.samples_per_s
    if figure is None:
        return "measured: no figure is stated"
    if ladder.is_for_gpus and any(run.device.get("type") == "cpu" for run, _ in trials):
        return f"{_UNTESTED}the figure is for GPUs, this trained on CPUs"
    if row.rung.why_not is not None:
        return f"{_UNTESTED}{row.rung.why_not}; measured on {row.ranks}"
    return _answer(row, figure, trials[0][1])


def _answer(row: Climbed, figure: tuple[float, float], member: Member) -> str:
    """The answer to a figure that the rung could test."""
    found = row.over_first.ratio if row.rung.ratio else row.throughput
    if found is None or found.noise is None:
        return f"not comparable: {row.over_first.because}"
    least, most = figure
    if found.value >= _FAR_ABOVE * most > 0:
        return f"reached: {found.value / most:.3g} × the figure"
    if found.value >= least:
        return "reached"
    if found.value + found.noise >= least:
        return "within the noise: --set repeats=3 makes the ± smaller"
    return _why_missed(row, member)


def _no_measurement(row: Climbed, trials: Sequence[Trial]) -> str | None:
    """Why the rung has no usable speed; None if it has."""
    if not is_final(row.state):
        return (row.state or "not started").lower()
    if row.state != "COMPLETED":
        found = next((member.finding for _, member in trials if member.state == row.state), None)
        return f"not tested: {row.state}{f': {found.rule} {found.summary}' if found is not None else ''}"
    if row.throughput is None:
        return "not tested: its speed was not measured"
    steps = row.throughput.num_values
    return f"not tested: {too_few_steps(steps)}" if row.throughput.noise is None else None


def _why_missed(row: Climbed, member: Member) -> str:
    """What held the rung back, by the diagnosis of its run; else what is known of the figure itself."""
    step, data, finding = member.measured.step_time, member.measured.data_time, member.finding
    share = data.value / step.value if step and data and step.value > 0 else 0.0
    if share >= _WAITING_SHARE and (finding is None or finding.cause == "input_bound"):
        return f"not reached: {100 * share:.0f} % of a step waits for data, see gpu_data"
    if finding is not None:
        return f"not reached: {finding.summary}, see coach explain {finding.rule}"
    if row.rung.wrong_because:
        return f"wrong because {row.rung.wrong_because}"
    efficiency = row.over_first.efficiency
    if efficiency is None or row.over_first.times_ranks == 1:
        return "not reached: no cause was found"
    return f"not reached: each of {row.ranks} ranks does {100 * efficiency.value:.0f} % of the first rung's"
