"""Compare two runs: what changed, by how much, and whether that is more than noise. Pure.

A fix has to show a measured difference; and runs that did different work are reported as not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean, median, quantiles

from coach.analysis.comparing.same_program import other_program
from coach.analysis.comparing.same_steps import says_difference, speedup
from coach.analysis.comparing.scaling_laws import STRONG, WEAK
from coach.analysis.comparing.speedup import (
    SAME,
    Measured,
    Speedup,
    differs,
    other_setting,
    speedup_of,
    too_few_steps,
)
from coach.analysis.comparing.steady_state import (
    MIN_INDEPENDENT,
    Estimate,
    estimate,
    estimate_independent,
    estimate_rate,
    steady,
)
from coach.analysis.comparing.time_to_target import (
    TimeToTarget,
    not_reached_words,
    steps,
    time_to_target,
    total_time,
    training_time,
)
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.judging.verdict import PAST_FAMILY
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step

BETTER = "better"
WORSE = "worse"
NO_DIFFERENCE = "no difference measured"
NOT_COMPARABLE = "not comparable"

MIN_RATIO = 0.01
"""A difference below 1 % is never reported: placement and clocks alone cause as much between runs."""
_LOSS_WINDOW_SHARE = 0.1
_MIN_LOSS_WINDOW = 20
_ORDER_OF_MAGNITUDE = 10.0
_LOST = {"nan_loss": "finite", "loss_divergence": "no divergence"}
"""Cause of a loss that is useless, whatever its last values are → the opposite."""
BOTH, AFTER, BEFORE = "both", "after", "before"
"""The runs that have a finding."""
_DRIVER, _HOST = "the driver", "the host"
_EITHER = "either run"
_DEVICE, _DATA, _LENGTH = "device", "data set", "tokens per sample"
_MODEL = ("model", "width", "layers", "heads", "embedding", "image_size")
"""Parameters that set the size of the model; of coach's recipes, and common in own programs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of both runs."""

    quantity: str
    unit: str
    before: float | None
    before_noise: float | None
    """Half the width of the 95 % interval; None if not known."""
    after: float | None
    after_noise: float | None
    ratio: float | None
    """After over before."""
    verdict: str
    """`better`, `worse`, `no difference measured` or `not comparable`."""
    because: str | None = None
    """Why it is not comparable, or a remark that the numbers do not show: `NaN from step 2 → finite`."""

    @property
    def is_unmeasured(self) -> bool:
        """True if neither run has a value."""
        return self.because == f"not measured in {_EITHER}"


@dataclass(frozen=True, slots=True)
class FoundIn:
    """A finding at warning or above, and the runs that have it."""

    rule: str
    name: str
    where: str
    """`both`, or the only run that has it: `after` or `before`."""

    @property
    def where_words(self) -> str:
        return "in both" if self.where == BOTH else f"{self.where} only"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The effect of a change: one row per quantity, and the differences of the set-up that explain or forbid
    the comparison."""

    before: str
    after: str
    changes: tuple[str, ...]
    """Parameters and resources that differ, as `name: old → new`."""
    rows: tuple[Row, ...]
    speedup: Speedup
    """Throughput of the second run over that of the first, with the efficiency per rank."""
    findings: tuple[FoundIn, ...] | None = None
    """None if a run was not judged, or its diagnosis is withheld."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One run, with the values that the comparison needs."""

    snapshot: TargetSnapshot
    history: History
    findings: tuple[Finding, ...] = ()

    @property
    def lead(self) -> list[Step]:
        """All kept steps of the lowest rank."""
        return list(self.history.steps(self.history.ranks[0])) if self.history.ranks else []

    @property
    def steady(self) -> list[Step]:
        return [step for step in steady(self.lead) if step.step_time_s]

    @property
    def global_batch(self) -> int | None:
        return next((s.num_samples_global for s in self.lead if s.num_samples_global is not None), None)

    @property
    def world_size(self) -> int | None:
        return self._at_start("world_size") or len(self.history.ranks) or None

    @property
    def num_threads(self) -> int | None:
        """Compute threads of one rank; None on a GPU, where they hardly matter."""
        return self._at_start("num_threads") if self._named("device", "type") == "cpu" else None

    @property
    def num_gpus(self) -> int | None:
        resources = self.snapshot.run.resources if self.snapshot.run is not None else {}
        nodes, gpus = resources.get("num_nodes"), resources.get("gpus_per_node")
        return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None

    @property
    def setting(self) -> Mapping[str, object]:
        """The hardware, data and model as far as known; see Measured."""
        run = self.snapshot.run
        parameters = run.parameters if run is not None else {}
        known = {_DEVICE: self.device, _DATA: self.dataset, _LENGTH: self.tokens_per_sample}
        known |= {name: parameters.get(name) for name in _MODEL}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def device(self) -> str | None:
        return self._named("device", "name") or self._named("device", "type")

    @property
    def dataset(self) -> str | None:
        run = self.snapshot.run
        name = self._named("dataset", "name")
        return f"{name} (generated)" if name and run and run.dataset.get("is_synthetic") is True else name

    @property
    def tokens_per_sample(self) -> int | None:
        run = self.snapshot.run
        return run.tokens_per_sample if run is not None else None

    def _at_start(self, name: str) -> int | None:
        values = (event.fields.get(name) for event in self.snapshot.events if event.event == "start")
        return next((value for value in values if isinstance(value, int)), None)

    def _named(self, table: str, key: str) -> str | None:
        run = self.snapshot.run
        value = getattr(run, table).get(key) if run is not None else None
        return value if isinstance(value, str) else None


def measure(snapshot: TargetSnapshot, history: History) -> Measured:
    """The quantities of one run that `compare` shows."""
    return _measured(_Side(snapshot, history))


def _measured(side: _Side) -> Measured:
    return Measured(
        side.world_size,
        _throughput(side),
        _step_time(side),
        _data_time(side),
        _memory_peak(side),
        side.global_batch,
        side.setting,
        side.num_threads,
        side.num_gpus,
    )


def throughput(snapshot: TargetSnapshot, history: History) -> Estimate | None:
    """Samples per second of all ranks together, in the run's steady part."""
    return _throughput(_Side(snapshot, history))


def world_size(snapshot: TargetSnapshot, history: History) -> int | None:
    """Number of ranks that trained; None if not known."""
    return _Side(snapshot, history).world_size


def compare(
    before: TargetSnapshot,
    before_history: History,
    after: TargetSnapshot,
    after_history: History,
    diagnoses: tuple[Diagnosis, Diagnosis] | None = None,
) -> Comparison:
    """Compare two runs, the older or parent one first. `diagnoses` are those of both, if they were judged."""
    judged = None if diagnoses is None else _without_withheld(diagnoses)
    findings_of_old, findings_of_new = judged or ((), ())
    old = _Side(before, before_history, findings_of_old)
    new = _Side(after, after_history, findings_of_new)
    measured_old, measured_new = _measured(old), _measured(new)
    speed = speedup_of(measured_old, measured_new)
    device = differs(_DEVICE, old.device, new.device)
    dataset = differs(_DATA, old.dataset, new.dataset)
    world = differs("world size", old.world_size, new.world_size)
    batch = differs("global batch", old.global_batch, new.global_batch)
    setting = other_setting(measured_old, measured_new)
    # A rank keeps its batch in weak scaling, and all ranks together do in strong scaling.
    step = setting or (None if speed.scaling in (STRONG, WEAK) else world or batch)
    is_paced = old.steady and new.steady
    rows = [
        *(() if is_paced else _run_time_rows(old, new, setting or world)),
        *_throughput_rows(old, new, speed, other_setting(measured_old, measured_new, (_LENGTH,))),
        _row("step time", "s", old, new, _step_time, False, step, too_few_steps),
        _row("data time", "s", old, new, _data_time, False, step, too_few_steps),
        _row("time per epoch", "s", old, new, _epoch_time, False, setting),
        _memory_row(old, new, device, world),
        _loss_row(old, new, other_program(before.run, after.run), dataset or batch),
        *_target_rows(old, new, device, dataset),
    ]
    findings = None if judged is None else _found_in(*judged)
    return Comparison(before.target, after.target, tuple(_changes(old, new)), tuple(rows), speed, findings)


def _without_withheld(
    diagnoses: tuple[Diagnosis, Diagnosis],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]] | None:
    """The findings of both runs at warning or above, without those that another finding caused, and those
    about other runs: they are no effect of the change. None if a diagnosis of a drill is withheld."""
    if any(why_withheld(each) is not None for each in diagnoses):
        return None
    before, after = (
        tuple(
            finding
            for finding in each.findings
            if finding.severity >= Severity.WARNING
            and finding.consequence_of is None
            and not finding.rule.startswith(PAST_FAMILY)
        )
        for each in diagnoses
    )
    return before, after


def _found_in(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[FoundIn, ...]:
    """First the findings in both runs, then the new ones, then those that went."""
    old, new = ({each.rule: each.name for each in findings} for findings in (before, after))
    both = [FoundIn(rule, name, BOTH) for rule, name in new.items() if rule in old]
    came = [FoundIn(rule, name, AFTER) for rule, name in new.items() if rule not in old]
    gone = [FoundIn(rule, name, BEFORE) for rule, name in old.items() if rule not in new]
    return (*both, *came, *gone)


def _too_few_values(num_values: int) -> str:
    return f"too few values to know the noise ({num_values})"


def _row(
    quantity: str,
    unit: str,
    old: _Side,
    new: _Side,
    measure: Callable[[_Side], Estimate | None],
    is_more_better: bool,
    obstacle: str | None,
    too_few: Callable[[int], str] = _too_few_values,
) -> Row:
    a, b = measure(old), measure(new)
    verdict, because = _verdict(a, b, is_more_better, obstacle, too_few)
    return _filled(quantity, unit, a, b, verdict, because)


def _throughput_rows(old: _Side, new: _Side, speed: Speedup, obstacle: str | None) -> list[Row]:
    """Throughput in samples; if both runs' samples are token sequences, also in tokens, whose rate is
    comparable for any sequence length."""
    length = differs(_LENGTH, old.tokens_per_sample, new.tokens_per_sample)
    samples = _throughput_row(old, new, speed, obstacle or length)
    if old.tokens_per_sample is None or new.tokens_per_sample is None:
        return [samples]
    tokens = _row("tokens", "tokens/s", old, new, _tokens, True, obstacle, too_few_steps)
    if length is None:  # the same rate in another unit, and the same verdict
        tokens = replace(tokens, ratio=samples.ratio, verdict=samples.verdict, because=samples.because)
    return [samples, tokens]


def _throughput_row(old: _Side, new: _Side, speed: Speedup, obstacle: str | None) -> Row:
    """On as many ranks, compare over the common steps, if there are enough: the cost of special steps is then
    the same in both."""
    row = _row("throughput", "samples/s", old, new, _throughput, True, obstacle, too_few_steps)
    if speed.scaling != SAME:
        return replace(row, because=row.because or speed.words)
    paired = speedup(old.lead, new.lead) if obstacle is None else None
    if paired is None or paired.noise is None:
        return row
    verdict = NO_DIFFERENCE
    if says_difference(paired, MIN_RATIO):
        verdict = BETTER if paired.value > 1.0 else WORSE
    because = f"× {paired.value:.2f} ± {paired.noise:.2f} over the same {paired.num_values} steps"
    return replace(row, ratio=paired.value, verdict=verdict, because=because)


def _filled(
    quantity: str, unit: str, a: Estimate | None, b: Estimate | None, verdict: str, because: str | None
) -> Row:
    return Row(
        quantity,
        unit,
        a.value if a else None,
        a.noise if a else None,
        b.value if b else None,
        b.noise if b else None,
        b.value / a.value if a and b and a.value > 0 and None not in (a.noise, b.noise) else None,
        verdict,
        because,
    )


def _verdict(
    a: Estimate | None,
    b: Estimate | None,
    is_more_better: bool,
    obstacle: str | None,
    too_few: Callable[[int], str] = _too_few_values,
) -> tuple[str, str | None]:
    if a is None or b is None:
        which = _EITHER if a is None and b is None else "the first run" if a is None else "the second run"
        return NOT_COMPARABLE, f"not measured in {which}"
    if obstacle is not None:
        return NOT_COMPARABLE, obstacle
    if a.noise is None or b.noise is None:
        few = min(side.num_values for side in (a, b) if side.noise is None)
        return NOT_COMPARABLE, too_few(few)
    difference = b.value - a.value
    # Half widths of independent intervals add in quadrature.
    noise = math.hypot(a.noise, b.noise)
    if abs(difference) <= max(noise, MIN_RATIO * abs(a.value)):
        return NO_DIFFERENCE, None
    return (BETTER if (difference > 0) == is_more_better else WORSE), None


def _throughput(side: _Side) -> Estimate | None:
    steps = [step for step in side.steady if step.num_samples_global is not None]
    if not steps:
        return estimate([rate for step in steady(side.lead) if (rate := step.samples_per_s) is not None])
    return estimate_rate(
        [float(s.num_samples_global or 0) for s in steps], [s.step_time_s or 0.0 for s in steps]
    )


def _tokens(side: _Side) -> Estimate | None:
    rate, length = _throughput(side), side.tokens_per_sample or 0
    if rate is None:
        return None
    noise = None if rate.noise is None else rate.noise * length
    return replace(rate, value=rate.value * length, noise=noise)


def _step_time(side: _Side) -> Estimate | None:
    return estimate([step.step_time_s or 0.0 for step in side.steady])


def _data_time(side: _Side) -> Estimate | None:
    """Of the rank that waits longest: the others wait for it."""
    series = [
        [step.data_time_s for step in steady(side.history.steps(rank)) if step.data_time_s is not None]
        for rank in side.history.ranks
    ]
    return estimate(max((s for s in series if s), key=fmean, default=[]))


def _epoch_time(side: _Side) -> Estimate | None:
    lead = side.history.ranks[0] if side.history.ranks else None
    seconds = [
        float(event.fields["seconds"])
        for event in side.snapshot.events
        if event.event == "epoch_end"
        and event.rank == lead
        and isinstance(event.fields.get("seconds"), (int, float))
    ]
    # The first epoch includes start-up and cold caches.
    return estimate_independent(seconds[1:] or seconds)


def _memory_peak(side: _Side) -> Estimate | None:
    """The peak memory: on the device as torch counts it, else as the driver does, else of the host."""
    return next(iter(_memory_peaks(side).values()), None)


def _memory_peaks(side: _Side) -> dict[str, Estimate]:
    """Measure → peak, the best measure first. A maximum has no interval.

    Empty before the first step: memory used until then is not yet the training's.
    """
    if not side.lead:
        return {}
    measures = {
        "torch": [s.memory_reserved_mib for rank in side.history.ranks for s in side.history.steps(rank)],
        _DRIVER: [s.memory_used_mib for key in side.history.gpus for s in side.history.gpu(*key)],
        _HOST: [s.memory_used_mib for node in side.history.nodes for s in side.history.host(node)],
    }
    known = {name: list(filter(None, values)) for name, values in measures.items()}
    return {
        name: Estimate(max(values), 0.05 * max(values) if name == _HOST else 0.0, len(values))
        for name, values in known.items()
        if values
    }


def _memory_row(old: _Side, new: _Side, device: str | None, world: str | None) -> Row:
    """Compare only peaks of one measure: the driver counts CUDA's own memory too, and a host that of all its
    ranks."""
    peaks = [_memory_peaks(old), _memory_peaks(new)]
    names = [next(iter(each), None) for each in peaks]
    if all(_DRIVER in each for each in peaks) and names[0] != names[1]:
        names = [_DRIVER, _DRIVER]
    a, b = (each.get(name) if name else None for each, name in zip(peaks, names, strict=True))
    obstacle = device or differs("measure of memory", *names) or (world if _HOST in names else None)
    verdict, because = _verdict(a, b, False, obstacle)
    return _filled("memory peak", "MiB", a, b, verdict, because)


def _run_time_rows(old: _Side, new: _Side, obstacle: str | None) -> list[Row]:
    """The total time of each run, if both did all of the same work; the only measure for a program that
    prints no rate."""
    if any(side.snapshot.state != "COMPLETED" for side in (old, new)) or _do_other_work(old, new):
        return []
    parts = "a run was requeued or resumed, and only its last part is timed"
    obstacle = obstacle or (parts if any(map(_has_parts, (old, new))) else None)
    return [_row("run time", "s", old, new, _run_time, False, obstacle)]


def _has_parts(side: _Side) -> bool:
    """True if the run was started more than once: its record has the newest start."""
    run, job = side.snapshot.run, side.snapshot.job
    return bool((run and len(run.segments) > 1) or (job and job.num_requeues))


def _run_time(side: _Side) -> Estimate | None:
    """Seconds from start to end. One value has no interval: a tenth of it is assumed, and two seconds for the
    start-up."""
    run = side.snapshot.run
    if run is None or run.started_time_s is None or run.ended_time_s is None:
        return None
    seconds = run.ended_time_s - run.started_time_s
    return Estimate(seconds, 0.1 * seconds + 2.0, 1) if seconds > 0 else None


_WORK = frozenset({"epochs", "max_steps", "steps", "num_samples", "train_samples"})
"""Parameters that set the amount of training."""


def _do_other_work(old: _Side, new: _Side) -> bool:
    a, b = old.snapshot.run, new.snapshot.run
    if a is None or b is None or a.recipe != b.recipe:
        return True
    return any(a.parameters.get(name) != b.parameters.get(name) for name in _WORK)


def _target_rows(old: _Side, new: _Side, device: str | None, dataset: str | None) -> list[Row]:
    """The cost of reaching an accuracy, if a target was set. Changes of batch, precision or model may change
    how a run gets there, so they do not prevent the comparison."""
    targets = [time_to_target(side.snapshot) for side in (old, new)]
    asked = [told.target_accuracy for told in targets if told is not None]
    if not asked:
        return []
    is_same = asked[0] == asked[-1]
    of_steps = _no_target(targets) or dataset
    if of_steps is None and not is_same:
        of_steps = f"other target ({asked[0]:g} → {asked[-1]:g})"
    of_times = of_steps or device

    def row(quantity: str, unit: str, of: _OfTarget, obstacle: str | None) -> Row:
        a, b = map(of, targets)
        verdict = (NOT_COMPARABLE, obstacle) if obstacle else _verdict(a, b, False, None)
        return _filled(quantity, unit, a, b, *verdict)

    name = f"to accuracy {asked[0]:g}" if is_same else "to accuracy"
    return [
        row(name, "s", training_time, of_times),
        row("with start-up", "s", total_time, of_times),
        row("steps to it", "", steps, of_steps),
    ]


_OfTarget = Callable[[TimeToTarget | None], Estimate | None]


def _no_target(targets: Iterable[TimeToTarget | None]) -> str | None:
    """The run that did not reach its target, and the accuracy that it reached."""
    for told, which in zip(targets, ("first", "second"), strict=True):
        if told is None:
            return f"no target_accuracy was set in the {which} run"
        if not told.is_reached:
            return f"{not_reached_words(told)} in the {which} run"
    return None


def _loss_row(old: _Side, new: _Side, program: str | None, obstacle: str | None) -> Row:
    """A loss that broke in one run alone, and a change by orders of magnitude, decide before the noise."""
    last, place, other_counter = _last_of_both(old, new)
    breaks = _break_of(old), _break_of(new)
    windows = _last_losses(old, last), _last_losses(new, last)
    a, b = map(estimate, windows)
    verdict: str
    because: str | None
    if program is not None and all(map(any, zip(breaks, windows, strict=True))):
        verdict, because = NOT_COMPARABLE, program
    elif not any(breaks):
        verdict, because = _verdict_of_losses(*windows, other_counter or obstacle)
        because = because or place
    elif all(breaks):
        is_measured = all(windows) and (other_counter or obstacle) is None
        verdict = _verdict_of_losses(*windows, None)[0] if is_measured else NO_DIFFERENCE
        useless = _after_useless_fix(old, new) if verdict == NO_DIFFERENCE else ""
        because = " → ".join(found[0] for found in breaks if found) + useless
    else:
        verdict, because = _verdict_of_break(old, new, breaks, windows, is_one_counter=other_counter is None)
    return _filled("loss", "", a, b, verdict, because)


_Break = tuple[str, str, int]
"""How a loss became useless, the opposite of that, and the first such step."""


def _verdict_of_break(
    old: _Side,
    new: _Side,
    breaks: tuple[_Break | None, _Break | None],
    windows: tuple[Sequence[float], Sequence[float]],
    *,
    is_one_counter: bool,
) -> tuple[str, str]:
    """The verdict if the loss broke in one of the two runs. The other run has to have come as far."""
    is_gone = breaks[0] is not None
    found = breaks[0] or breaks[1]
    assert found is not None
    words, opposite, step = found
    sound, losses = (new, windows[1]) if is_gone else (old, windows[0])
    if not losses:
        return NOT_COMPARABLE, "not measured in the other run"
    because = f"{words} → {opposite}" if is_gone else f"{opposite} → {words}"
    newest = sound.lead[-1]
    if is_one_counter and newest.step < step:
        which = "second" if is_gone else "first"
        return NOT_COMPARABLE, f"{because}, but the {which} run has only come to {newest.place}"
    return (BETTER if is_gone else WORSE), because


def _break_of(side: _Side) -> _Break | None:
    """`NaN from step 2` if the newest losses are not finite, else the finding of a lost loss; None if there
    is neither."""
    since = _not_finite_since(side)
    if since is not None:
        word = "NaN" if since.loss is None or math.isnan(since.loss) else "infinite"
        return f"{word} from {since.place}", "finite", since.step
    found = next((finding for finding in side.findings if finding.cause in _LOST), None)
    if found is None:
        return None
    later = (step.step for step in side.lead if (step.time_s or 0.0) >= (found.since_s or math.inf))
    newest = side.lead[-1].step if side.lead else 0
    return f"{found.rule} {found.name}", _LOST[found.cause], next(later, newest)


def _verdict_of_losses(
    before: Sequence[float], after: Sequence[float], obstacle: str | None
) -> tuple[str, str | None]:
    if obstacle is None and _are_far_apart(before, after):
        return (BETTER if median(after) < median(before) else WORSE), "by orders of magnitude"
    return _verdict(estimate(before), estimate(after), False, obstacle)


def _are_far_apart(before: Sequence[float], after: Sequence[float]) -> bool:
    """True if three quarters of the losses of one run are ten times as large as three quarters of the
    other's. Of a loss that explodes, the noise is as large as the loss."""
    if min(len(before), len(after)) < MIN_INDEPENDENT:
        return False
    sizes = (quantiles(map(abs, losses), n=4, method="inclusive") for losses in (before, after))
    small, large = sorted(sizes, key=lambda quartiles: quartiles[1])
    return large[0] > 0.0 and large[0] >= _ORDER_OF_MAGNITUDE * small[2]


def _after_useless_fix(old: _Side, new: _Side) -> str:
    """The next step if a fix left the loss not finite; empty if the second run is no fix of the first."""
    parent, child = old.snapshot.run, new.snapshot.run
    if parent is None or child is None or child.fix is None or child.parent_run_id != parent.run_id:
        return ""
    return f"; the fix did not help, {child.fix.rule} is still there: coach fix {child.run_id}"


def _last_of_both(old: _Side, new: _Side) -> tuple[int, str | None, str | None]:
    """The last step that both runs reached, its name if one run went on, and why there is no such step."""
    counters = {step.counter.word for side in (old, new) for step in side.lead[-1:]}
    last = [max((step.step for step in side.lead), default=0) for side in (old, new)]
    if len(counters) > 1:
        return max(last), None, "one run prints a loss per epoch, the other at steps"
    return min(last), f"both at {''.join(counters)} {min(last)}" if last[0] != last[1] else None, None


def _not_finite_since(side: _Side) -> Step | None:
    """The first of the newest losses if none of them is finite; a single bad step before finite ones does not
    count."""
    lead = [step for step in side.lead if step.loss is not None]
    stretch = list(takewhile(lambda step: not math.isfinite(step.loss or 0.0), reversed(lead)))
    if not stretch:
        return None
    first = stretch[-1]
    if len(stretch) == len(lead):  # it may have begun before the kept steps
        first = side.history.first_not_finite(first.rank) or first
    return first


def _last_losses(side: _Side, last_step: int) -> list[float]:
    """The last tenth of a run's losses, up to the last step that both runs reached; none if the loss was not
    finite any more."""
    since = _not_finite_since(side)
    if since is not None and since.step <= last_step:
        return []
    losses = [
        s.loss for s in side.lead if s.step <= last_step and s.loss is not None and math.isfinite(s.loss)
    ]
    return losses[-max(_MIN_LOSS_WINDOW, int(len(losses) * _LOSS_WINDOW_SHARE)) :]


def _changes(old: _Side, new: _Side) -> Iterable[str]:
    a, b = old.snapshot.run, new.snapshot.run
    if a is None or b is None:
        return
    if a.recipe != b.recipe:
        yield f"recipe: {a.recipe} → {b.recipe}"
    for before, after in ((a.parameters, b.parameters), (a.resources, b.resources)):
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield f"{name}: {_shown(before.get(name))} → {_shown(after.get(name))}"


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
