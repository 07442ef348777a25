"""NUM006: the training loss rose far above what it had been, and stays there, or rises slowly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature
from coach.model.training.run import Run
from coach.rules.advice.launched_with import float_parameter
from coach.rules.advice.remedies import begin_before, lower_learning_rate
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import hits_of, quote
from coach.rules.from_numbers.evaluations import accuracies, are_guesses, first_loss
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses, is_warming_up, noise_of

_MAX_BLOCKS = 100
_FEWEST_BEFORE = 2
_FEWEST_AFTER = 20
"""A loss that stays above the first ones for this many steps does not come back by itself."""
_FEWEST_AFTER_GUESSES = 5
"""The same, if accuracies prove that nothing was learned."""
_MOST_LOST = 9.99
"""A larger share of the progress says nothing: there was hardly any."""
_NUM_STRETCHES = 20
_FEWEST_STRETCHES = 6
_TIMES_RECOVERED = 3
_LEAST_ADDED = 0.4
_MOST_ADDED = 2.0
_TIMES_ADDED = 3
"""A sum grows evenly; a loss that diverges grows faster and faster."""
_ERRORS = 7.5
"""Six standard errors of a median, in standard deviations of a single value: the lowest of many medians lies
two of them below the others by chance."""
_SETTLED = 0.05
"""A loss that falls by less in the newer half of the values has stopped falling."""
_NEAR_START = 0.25
"""Distance from the first losses, relative to them. A loss this near may belong to another run in the log, or
to the next fold."""

_STAGE, _OBJECTIVE = "stage", "objective"
_STAGE_WORDS = (
    *("curricul", "stage", "phase", "task", "level", "unfreez", "unfroze", "resolution", "difficult"),
    *("sequence length", "sequences of", "seq_len", "seqlen", "context length", "prun", "sparsity"),
    *("mask ratio", "mask_ratio", "masking", "switch", "new dataset", "next dataset"),
)
_STAGES = (
    r"(?<!zero )(?<!zero_)(?<!zero-)(?<!pipeline )(?<![\w/])(?:stage|phase|(?<!: )task|level)[ _:=#]{0,3}"
    r"(?P<number>\d{1,4})\b"
    r"|(?P<word>curricul|unfreez|unfroze|(?<!name )(?<!dns )(?<![a-z])resolution|difficult"
    r"|sequence length|sequences of|seq_len|seqlen"
    r"|context length|\bprun|sparsity|mask[_ ]ratio|masking|switch(?:ed|ing)? (?:to|on|off)"
    r"|(?:new|next) dataset)"
)
"""Words by which a program announces harder samples or another loss."""
_OBJECTIVE_WORDS = (
    *("anneal", "kl_", "kl ", "kl-", "beta", "byol", "dino", "jepa", "moco", "simsiam", "ibot", "data2vec"),
    *("teacher", "scheduled sampling", "scheduled_sampling", "sortagrad"),
)
_OBJECTIVES = (
    r"kl[_ -]?(?:anneal|weight|coef|scale|beta|w\b)|beta[_ ]?anneal|anneal\w*[_ ](?:kl|beta|weight)"
    r"|(?<![\w.])beta[\"']?\s?[:=]\s?\d|byol|(?<![a-z])dino|jepa|(?<![a-z])moco|simsiam|ibot|data2vec"
    r"|teacher[_ -](?:temp|forc|momentum)|scheduled[_ ]sampling|sortagrad"
)
"""Words of objectives whose loss rises in a healthy training: a penalty whose weight grows, a target that
moves as the model learns."""


def _literals(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for word in words for form in (word, word.capitalize(), word.upper())))


@dataclass(frozen=True, slots=True)
class _Rise:
    """Where the loss left its course, as indices into the series."""

    start: int
    highest_before: float
    lowest_after: float
    lost_share: float | None = None
    """Lost share of the progress since the beginning; None if the loss lies orders of magnitude above it."""
    is_slow: bool = False
    """True for a rise without a place at which it began. `start` is then the lowest place."""


class LossDivergence(Rule):
    """The training loss rose far above what it had been, and stays there, or it rises slowly.

    What it sees
        A series of training losses, from metrics or log lines: all newest values lie by half above the
        highest value of the stretch before, and at least half of the progress since the beginning is lost. In
        metrics: a loss that rose to ten times its first one or two, or that came down from a peak to a level
        far above them and falls no longer, and was never lower in the 20 steps since. In metrics: a loss that
        rises, however slowly: the medians of the newest stretches lie `worse` times above the lowest one, by
        more than their noise, by a quarter of the progress, and by three times any rise from which the loss
        came back. In a series of five losses: three in a row that grow, from ten times the highest
        before. In metrics with accuracies: losses that were `exploded` times the newest ones, while the
        accuracy never rose and the newest losses are no better than a guess. In metrics with accuracies: a
        loss that lies `above_start` times above its first one since the first steps, while no accuracy was
        better than a guess. A loss that rose to `exploded`
        times the highest before, fell to its former size again, and stays above `worse` times the highest
        before. Messages of Lightning and Tacotron that they stop for that reason. In the output of
        transformers' Trainer: a loss above `no_guess` from the first value on, at a learning rate above
        `max_rate`.
    Why it matters
        Such a run seldom recovers: its progress is gone, and the hours since the jump are lost.
    When it stays silent
        On single spikes and on noise (the highest earlier value counts), however high, once the loss was as
        low again as before. On restarts of a learning rate schedule, which lose little of the progress. If
        the steps restart (another run or fold in the same log). On a phase with another loss, whose values
        are of another size. On a slow rise while the learning rate still rises. On losses that are added up
        or begin at 0. If the log announces a new stage since the loss was low (a curriculum, longer
        sequences), or names an objective whose loss may rise (a penalty whose weight grows, a teacher that
        moves). On reinforcement and adversarial training, recognized by its words. A loss that is not finite
        is NUM001.
    What to do
        Resume from a checkpoint before the jump, with a lower learning rate (a third is usual), longer
        warm-up or gradient clipping at 1.0. If the jump comes back at the same place, skip the batches around
        it.
    Sources
        OPT-175B and BLOOM training chronicles; Google deep learning tuning playbook: unstable training.
    """

    code = "NUM006"
    name = "loss-divergence"
    cause = "loss_divergence"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.LOG)
    rise = Threshold(
        1.5, "times the highest before", "noise and schedules stay below it; divergence passes 2"
    )
    consecutive = Threshold(3, "values", "a spike is one value, or two", at_least=1)
    lr_divisor = Threshold(3, "times", "OPT-175B and others went on with two thirds to a tenth", at_least=1)
    warmup_steps = Threshold(100, "steps", "long enough for the optimizer's statistics")
    lost_share = Threshold(0.5, "of the progress", "a restart of the schedule loses a tenth or two")
    max_rate = Threshold(1, "learning rate", "Prodigy and D-Adaptation need 1; no optimizer needs more")
    no_guess = Threshold(20, "loss", "guessing among a million words has a loss of 14")
    exploded = Threshold(100, "times the newest", "no classifier falls by that without learning")
    above_start = Threshold(3, "times the first", "a penalty beside a loss is seldom larger than it")
    worse = Threshold(1.2, "times the highest before", "a loss that is learned comes back below it")
    exploded_divisor = Threshold(
        10, "times", "the rate was far too high, as it is where a loss becomes NaN", at_least=1
    )
    steep = Threshold(10, "times the highest before", "in the first steps, where no noise is of that size")

    signatures = (
        Signature("NUM006", _STAGE, _literals(_STAGE_WORDS), rf"(?i:{_STAGES})"),
        Signature("NUM006", _OBJECTIVE, _literals(_OBJECTIVE_WORDS), rf"(?i:{_OBJECTIVES})"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        stopped = [hit for hit in hits_of(snapshot, self.code) if hit.signature not in (_STAGE, _OBJECTIVE)]
        if stopped:
            yield Hit(
                summary="The trainer stopped because the loss diverged",
                evidence=(quote(stopped[0]),),
                confidence=0.9,
                fixes=tuple(self._fixes(snapshot.run)),
                severity=Severity.CRITICAL,  # it ended the run, whichever exception the trainer raised
                since_s=stopped[0].time_s,
            )
            return
        exploded = self._exploded(snapshot, history) or self._above_start(snapshot, history)
        found = (self._of_course(points, snapshot) for points in courses(snapshot, history))
        hit = exploded or next(filter(None, found), None)
        if hit is not None and not are_adversaries(snapshot):
            yield hit

    def _of_course(self, points: Sequence[Point], snapshot: TargetSnapshot) -> Hit | None:
        losses = [point.loss for point in points]
        if self._is_too_fast(points):
            return _too_fast(points[0])
        if any(not math.isfinite(loss) or loss <= 0 for loss in losses):
            return None
        rise = self._rise_in(points, losses)
        if rise is None:
            peak = self._peak(losses, is_running=snapshot.state == "RUNNING")
            return None if peak is None else self._hit_of_peak(points, peak, snapshot.run)
        first = points[rise.start]
        is_anew = first.counter is None and not rise.is_slow and _starts_anew(losses, rise)
        if is_anew or _is_planned(points, rise, snapshot):
            return None
        return self._hit(rise, first, points[-1], snapshot.run)

    def _rise_in(self, points: Sequence[Point], losses: Sequence[float]) -> _Rise | None:
        is_whole = not points[0].line  # a log may hold several losses
        if is_whole and _begins_at_zero(losses):
            return None
        rise = self._rise(points, losses, is_whole)
        if rise is None and is_whole and not is_warming_up(points):
            return self._drift(losses, points[0].counter is not None)
        return rise

    def _exploded(self, snapshot: TargetSnapshot, history: History) -> Hit | None:
        """A hit for a classifier whose loss was huge in the beginning and whose accuracy never rose since."""
        points = [point for point in history.curve if point.loss is not None]
        losses = [point.loss for point in points if point.loss is not None]
        shares = accuracies(snapshot, history)
        consecutive = int(self.consecutive)
        if min(len(losses), len(shares)) <= consecutive:
            return None
        if not 0 < min(shares) <= max(shares) <= 1:  # above 1: a percentage, or another measure
            return None
        early, newest = losses[: -(-len(losses) // 2)], losses[-consecutive:]
        worst = max(early)
        if not worst > max(self.no_guess, self.exploded * max(newest)):
            return None
        guessing = -math.log(max(shares))
        if shares[-1] > shares[0] or max(shares) > self.rise * min(shares):
            return None
        if not all(guessing <= loss < math.inf for loss in newest):
            return None
        where = points[losses.index(worst)]
        return Hit(
            summary=(
                f"The training loss exploded, to {worst:.4g}, and ends no better than guessing: the "
                f"accuracy is {shares[-1]:.1%}, and was {shares[0]:.1%} at first"
            ),
            evidence=(
                Evidence(f"loss at {where.counter.word} {where.step}", value=worst),
                Evidence("newest loss", value=newest[-1]),
                Evidence("loss of a guess with the best accuracy", value=round(guessing, 3)),
            ),
            confidence=0.85,
            fixes=tuple(self._fixes_of_explosion(snapshot.run)),
            since_s=where.time_s,
        )

    def _above_start(self, snapshot: TargetSnapshot, history: History) -> Hit | None:
        """A hit for a classifier whose loss rose above its first one, never came back, and that only
        guesses."""
        shares = accuracies(snapshot, history)
        first, newest_start = first_loss(history), int(self.consecutive)
        points = [point for point in history.curve if point.loss is not None]
        after = [point.loss for point in points[newest_start:] if point.loss is not None]
        if first is None or len(after) < _FEWEST_AFTER_GUESSES or not are_guesses(shares, history):
            return None
        if not all(self.above_start * first <= loss < math.inf for loss in after):
            return None
        return Hit(
            summary=(
                f"The training loss rose from {first:.4g} to {min(after):.4g} and more and never came back, "
                f"and the accuracy is that of guessing: {shares[-1]:.1%}"
            ),
            evidence=(
                Evidence("first loss", value=first),
                Evidence("lowest loss since the first steps", value=min(after)),
                Evidence("newest loss", value=after[-1]),
            ),
            confidence=0.85,
            fixes=tuple(self._fixes_of_explosion(snapshot.run)),
            since_s=points[newest_start].time_s,
        )

    def _peak(self, losses: Sequence[float], is_running: bool) -> int | None:
        """The index of an explosion after which the loss fell to the size that it had before, and no further.

        A loss of another size after it would be another loss: another phase, or another term. A training that
        is running may still come back, so its loss must have stopped falling: none of the newer half of the
        values since the peak is the lowest.
        """
        consecutive = int(self.consecutive)
        newest = losses[-consecutive:]
        peak = max(range(len(losses)), key=losses.__getitem__, default=0)
        start = next(
            (place for place in range(1, peak + 1) if losses[place] >= self.exploded * max(losses[:place])),
            None,
        )
        num_since = len(losses) - 1 - peak
        if start is None or num_since < (_FEWEST_AFTER if is_running else consecutive):
            return None
        since = losses[peak + 1 :]
        if is_running and since.index(min(since)) >= num_since // 2:
            return None
        before = max(losses[:start])
        is_back = losses[peak] >= self.exploded * max(newest)
        is_same_size = max(newest) <= self.steep * before
        is_worse = min(newest) >= self.worse * before and min(losses[start:]) >= before
        return peak if is_back and is_same_size and is_worse else None

    def _hit_of_peak(self, points: Sequence[Point], peak: int, run: Run | None) -> Hit:
        highest, newest = points[peak], points[-1]
        return Hit(
            summary=(
                f"The training loss exploded, from {points[0].loss:.4g} to {highest.loss:.4g}, and ends at "
                f"{newest.loss:.4g}, worse than it began"
            ),
            evidence=(points[0].evidence, highest.evidence, newest.evidence),
            confidence=0.8,
            fixes=tuple(self._fixes_of_explosion(run)),
            since_s=highest.time_s,
        )

    def _fixes_of_explosion(self, run: Run | None) -> Iterable[Fix]:
        if float_parameter(run, "lr") is None:
            yield Fix(
                "Divide the learning rate by ten, warm it up, and clip gradients at 1.0",
                changes_learning=True,
            )
        yield from lower_learning_rate(run, self.exploded_divisor, self.warmup_steps)

    def _hit(self, rise: _Rise, first: Point, newest: Point, run: Run | None) -> Hit:
        evidence = [first.evidence, *([newest.evidence] if rise.is_slow else [])]
        if rise.lost_share is not None:
            lost_pct = min(100, round(100 * rise.lost_share))
            evidence.append(Evidence("of the progress since the beginning is lost", value=lost_pct, unit="%"))
        return Hit(
            summary=(
                f"The training loss rises: from {rise.highest_before:.4g} at its lowest to "
                f"{rise.lowest_after:.4g}"
                if rise.is_slow
                else f"The training loss diverged: {rise.highest_before:.4g} at most before, "
                f"{rise.lowest_after:.4g} at least since"
            ),
            evidence=tuple(evidence),
            confidence=0.7 if rise.is_slow else 0.8,
            fixes=tuple(self._fixes(run)),
            since_s=first.time_s,
        )

    def _is_too_fast(self, points: Sequence[Point]) -> bool:
        """True if the learning rate is far too high and every loss of the first half is worse than
        guessing."""
        early = points[: max(5, len(points) // 2)]
        return len(early) >= 5 and all(
            point.loss > self.no_guess
            and "'learning_rate': " in point.evidence.text
            and (point.rate or 0.0) > self.max_rate
            for point in early
        )

    def _fixes(self, run: Run | None) -> Iterable[Fix]:
        yield from lower_learning_rate(run, self.lr_divisor, self.warmup_steps)
        yield from begin_before("the jump", "a lower learning rate and gradients clipped at 1.0")

    def _rise(self, points: Sequence[Point], losses: Sequence[float], is_whole: bool) -> _Rise | None:
        """The latest position from which all values lie above the earlier ones. Behind one or two values only
        a rise by orders of magnitude counts, or an explosion: the first value of a program may be a part of
        a mean. `is_whole`: this is the loss of the training, no part of it."""
        consecutive = int(self.consecutive)
        if len(losses) < 2 * consecutive:
            return self._steep_rise(losses, len(losses) - consecutive)
        size = max(1, math.ceil(len(losses) / _MAX_BLOCKS))
        lowest_after = math.inf
        for start in range(len(losses) - 1, 0, -1):
            lowest_after, num_after = min(lowest_after, losses[start]), len(losses) - start
            half = (start // 2) * (start >= 2 * consecutive * size)
            highest = max(losses[half:start])
            if num_after < consecutive * size or lowest_after < self.rise * highest:
                continue
            is_lasting = num_after >= _FEWEST_AFTER
            if sum(point.num_values for point in points[:start]) < consecutive:
                if is_whole and is_lasting and self._is_far(losses[start:], highest):
                    return _Rise(start, highest, lowest_after)
                continue
            is_far = lowest_after >= self.above_start * highest
            if is_lasting and start < 2 * consecutive and not (is_far or _is_settled(losses[start:])):
                continue
            lost = _lost_share(max(losses[:size]), min(losses[:start]), lowest_after)
            if lost >= self.lost_share:
                return _Rise(start, highest, lowest_after, lost if lost < _MOST_LOST else None)
        return None

    def _is_far(self, losses: Sequence[float], before: float) -> bool:
        """True if the losses lie orders of magnitude above the value before, or came down from a peak to a
        level far above it and fall no longer, or have not come back for long."""
        if min(losses) >= self.steep * before:
            return True
        newer = losses[len(losses) // 2 :]
        level, highest = median(newer), max(losses)
        is_clear = min(highest - level, level - before) >= _ERRORS * noise_of(newer)
        is_late = len(losses) >= 2 * _FEWEST_AFTER and min(losses) >= self.above_start * before
        is_over = is_late or _is_settled(losses)
        return is_clear and highest >= self.rise * level and is_over

    def _drift(self, losses: Sequence[float], is_counted: bool) -> _Rise | None:
        """A rise since the lowest stretch that lasts, however slow it is.

        The medians of equal stretches are compared. A rise counts if it is larger than their error, a share
        of the progress, and several times any rise from which the loss came back. If the values are not
        counted, a rise at one place may be the start of another run."""
        consecutive = int(self.consecutive)
        size = max(consecutive, math.ceil(len(losses) / _NUM_STRETCHES))
        starts = range(len(losses) % size, len(losses), size)
        levels = [median(losses[start : start + size]) for start in starts]
        if len(levels) < _FEWEST_STRETCHES:
            return None
        newest, low = min(levels[-consecutive:]), min(levels[:-consecutive])
        place = levels.index(low)
        rise, lost = newest - low, _lost_share(levels[0], low, newest)
        if newest < self.worse * low or lost < self.lost_share / 2:
            return None
        if rise < max(_ERRORS * noise_of(losses) / math.sqrt(size), _TIMES_RECOVERED * _recovered(levels)):
            return None
        if not is_counted and max(b - a for a, b in pairwise(levels[place:])) > rise / 2:
            return None
        middle = starts[place] + size // 2
        return _Rise(middle, low, newest, lost if lost < _MOST_LOST else None, is_slow=True)

    def _steep_rise(self, losses: Sequence[float], start: int) -> _Rise | None:
        """The same for a short series: the newest values must grow by orders of magnitude."""
        before, after = losses[: max(0, start)], losses[max(0, start) :]
        if len(before) < _FEWEST_BEFORE or after[0] < self.steep * max(before):
            return None
        if any(later <= value for value, later in pairwise(after)):
            return None
        return _Rise(start, max(before), after[0])


def _too_fast(first: Point) -> Hit:
    return Hit(
        summary=(
            f"The training loss is {first.loss:.4g} from the first value on, at a learning rate of "
            f"{first.rate:.3g}"
        ),
        evidence=(first.evidence,),
        confidence=0.85,
        fixes=(
            Fix(
                f"Learning rate {first.rate:.3g} → 5e-05, the Trainer's default (1e-5 to 1e-3 is usual)",
                changes_learning=True,
            ),
        ),
        since_s=first.time_s,
    )


def _is_planned(points: Sequence[Point], rise: _Rise, snapshot: TargetSnapshot) -> bool:
    """True if the program announced a new stage since the loss was low, or names an objective whose loss may
    rise."""
    rule = LossDivergence.code
    before = points[: max(1, rise.start)]
    lowest = next((point.evidence.line for point in reversed(before) if point.evidence.line), 0)
    stages = hits_of(snapshot, rule, _STAGE)
    known = {hit.fields.get("number") for hit in stages if hit.line <= lowest}
    later = [hit for hit in stages if hit.line > lowest]
    is_new = any(hit.fields.get("word") or hit.fields.get("number") not in known for hit in later)
    return is_new or bool(hits_of(snapshot, rule, _OBJECTIVE))


def _lost_share(first: float, lowest: float, newest: float) -> float:
    return (newest - lowest) / (first - lowest) if first > lowest else math.inf


def _is_settled(losses: Sequence[float]) -> bool:
    """True if the loss does not fall in the newer half of the values."""
    later = losses[len(losses) // 2 :]
    third = -(-len(later) // 3)
    first = median(later[:third])
    return first - median(later[-third:]) < _SETTLED * first


def _recovered(levels: Sequence[float]) -> float:
    """The largest rise of which at least half was lost again."""
    lowest, largest = math.inf, 0.0
    for place, level in enumerate(levels):
        lowest = min(lowest, level)
        if level - min(levels[place:]) >= (level - lowest) / 2:
            largest = max(largest, level - lowest)
    return largest


def _begins_at_zero(losses: Sequence[float]) -> bool:
    """True if the first values grow by about as much as the first one is above 0: a sum of all losses so far,
    or a moving mean that began at 0."""
    added = [later - value for value, later in pairwise(losses[:6])]
    is_even = 0 < max(added, default=0) <= _TIMES_ADDED * min(added)
    return is_even and _LEAST_ADDED <= median(added) / losses[0] <= _MOST_ADDED


def _starts_anew(losses: Sequence[float], rise: _Rise) -> bool:
    first, after = losses[0], losses[rise.start]
    return abs(after - first) <= _NEAR_START * first
