"""NUM006: the training loss rose far above what it had been, and stays there, or rises slowly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median

from coach.lookback.history import History, noise_of
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature
from coach.model.training.run import Run
from coach.rules.advice.remedies import begin_before, lower_learning_rate
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.quoted_evidence import hits_of, quote
from coach.rules.from_numbers.evaluations import accuracies, are_guesses, first_loss
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses, is_warming_up

_MAX_BLOCKS = 100
_FEWEST_AFTER = 20
"""A loss that stays above the first ones for this many steps does not come back by itself."""
_FEWEST_AFTER_GUESSES = 5
"""The same, if accuracies prove that nothing was learned."""
_FEWEST_BEFORE = 2
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
_NEAR_LOW = 0.1
"""A rise is over if the loss is this near to the lowest value before it, as a share of the rise."""
_NEAR_START = 0.25
"""Distance from the first losses, relative to them. A loss this near may belong to another run in the log, or
to the next fold."""

_STAGE, _OBJECTIVE, _RESUMED = "stage", "objective", "resumed"
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
    *(
        "teacher",
        "scheduled sampling",
        "scheduled_sampling",
        "sortagrad",
        "distill",
        "KD Loss",
        "kd loss",
        "kd_loss",
    ),
)
_OBJECTIVES = (
    r"kl[_ -]?(?:anneal|weight|coef|scale|beta|w\b)|beta[_ ]?anneal|anneal\w*[_ ](?:kl|beta|weight)"
    r"|(?<![\w.])beta[\"']?\s?[:=]\s?\d|byol|(?<![a-z])dino|jepa|(?<![a-z])moco|simsiam|ibot|data2vec"
    r"|teacher[_ -](?:temp|forc|momentum)|scheduled[_ ]sampling|sortagrad|(?:distill\w*|\bkd)[_ ]loss"
)
"""Words of objectives whose loss rises in a healthy training: a penalty whose weight grows, a target that
moves as the model learns, a teacher's loss beside it."""


_RESUMES = (
    r"(?:\bresum(?:ed|ing)\b|\bload(?:ed|ing) (?:\w+ ){0,2}checkpoint\b).{0,200}"
    r"\b(?:(?:global[ _])?step|iter(?:ation)?|epoch)s?\W{0,4}0*[1-9]"
)
"""A checkpoint of a training that had come to a step or epoch."""
_NUM_AFTER = 5
"""Number of losses after a resume that are compared with those before."""
_RESTORE = Fix(
    "Save and load the state of the optimizer and of the schedule with that of the model",
    changes_learning=True,
)


def _literals(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for word in words for form in (word, word.capitalize(), word.upper())))


@dataclass(frozen=True, slots=True)
class _Rise:
    """Where the loss left its course."""

    start: int
    """Index of the first value above the course; of the lowest one for a slow rise."""
    low: float
    """The lowest level before."""
    newest: float
    """The level that the newest values do not fall below."""
    is_slow: bool
    """True for a rise without a place at which it began."""


class LossDivergence(Rule):
    """The training loss rose far above what it had been, and stays there, or it rises slowly.

    What it sees
        A series of training losses, from metrics or log lines, that left its normal course: the lowest level
        that it had, its noise, and the rises from which it came back. First the single values, for a jump:
        all newest ones lie `rise` times above the lowest before, and `lost_share` of the progress since the
        beginning is lost. Then the medians of twenty equal stretches, for a slow rise: `worse` times, and
        half of that share. Either must be larger than the noise, and than three times any rise from which the
        loss came back, and must not be on its way back. Behind one or two first values only a rise to `steep`
        times them counts, or one from which the loss came down to a level far above them, after 20 steps; or
        one to `above_start` times them beside accuracies that are no better than a guess. In a run that
        ended: a loss that rose to `exploded` times its newest values, which lie `worse` times above the
        lowest before (or, if its accuracy never rose, above the loss of guessing). A jump in the five values
        after a line that says that the checkpoint of a step was resumed. Messages of Lightning and Tacotron
        that they stop for that reason. In the output of transformers' Trainer: a loss above `no_guess` from
        the first value on, at a learning rate above `max_rate`.
    Why it matters
        Such a run seldom recovers: its progress is gone, and the hours since the jump are lost.
    When it stays silent
        On spikes and on noise, however high, once the loss was nearly as low again as before. On restarts of
        a learning rate schedule, which lose little of the progress. If the steps restart (another run or fold
        in the same log). On a phase with another loss, whose values are of another size. On a slow rise while
        the learning rate still rises. On losses that are added up or begin at 0. If the log announces a new
        stage since the loss was low (a curriculum, longer sequences), or names an objective whose loss may
        rise (a penalty whose weight grows, a teacher that moves or is distilled). On reinforcement and
        adversarial training, recognized by its words. A loss that is not finite is NUM001.
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
    rise = Threshold(1.5, "times the lowest before", "schedules stay below it; divergence passes 2")
    consecutive = Threshold(3, "values", "a spike is one value, or two", at_least=1)
    lr_divisor = Threshold(3, "times", "OPT-175B and others went on with two thirds to a tenth", at_least=1)
    warmup_steps = Threshold(100, "steps", "long enough for the optimizer's statistics")
    lost_share = Threshold(0.5, "of the progress", "a restart of the schedule loses a tenth or two")
    max_rate = Threshold(1, "learning rate", "Prodigy and D-Adaptation need 1; no optimizer needs more")
    no_guess = Threshold(20, "loss", "guessing among a million words has a loss of 14")
    exploded = Threshold(100, "times the newest", "no classifier falls by that without learning")
    above_start = Threshold(3, "times the first", "a penalty beside a loss is seldom larger than it")
    worse = Threshold(1.2, "times the lowest before", "a loss that is learned comes back below it")
    exploded_divisor = Threshold(
        10, "times", "the rate was far too high, as it is where a loss becomes NaN", at_least=1
    )
    steep = Threshold(10, "times the lowest before", "in the first steps, where no noise is of that size")

    signatures = (
        Signature("NUM006", _STAGE, _literals(_STAGE_WORDS), rf"(?i:{_STAGES})"),
        Signature("NUM006", _OBJECTIVE, _literals(_OBJECTIVE_WORDS), rf"(?i:{_OBJECTIVES})"),
        Signature("NUM006", _RESUMED, _literals(("resum", "checkpoint")), rf"(?i:{_RESUMES})"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        stopped = [
            hit for hit in hits_of(snapshot, self.code) if hit.signature not in (_STAGE, _OBJECTIVE, _RESUMED)
        ]
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
        found = (self._of_course(points, snapshot, history) for points in courses(snapshot, history))
        hit = self._at_resume(snapshot) or next(filter(None, found), None)
        if hit is not None and not are_adversaries(snapshot):
            yield hit

    def _at_resume(self, snapshot: TargetSnapshot) -> Hit | None:
        """A hit for a loss that is far above its former values right after the training was resumed."""
        for resumed in hits_of(snapshot, self.code, _RESUMED):
            hits = [hit for hit in hits_of(snapshot, PROGRESS.rule) if hit.file == resumed.file]
            split = sum(hit.line < resumed.line for hit in hits)
            values = [float(hit.fields["value"]) for hit in hits[: split + _NUM_AFTER]]
            rise = self._above(values, _NUM_AFTER, self.rise, self.lost_share, 0.0)
            if rise is not None and 0 < split == rise.start:
                return Hit(
                    summary=f"The training loss jumped at a resume: from {rise.low:.4g} to {rise.newest:.4g}",
                    evidence=(quote(hits[split - 1]), quote(resumed), quote(hits[split])),
                    confidence=0.8,
                    fixes=(_RESTORE,),
                    since_s=resumed.time_s,
                )
        return None

    def _of_course(self, points: Sequence[Point], snapshot: TargetSnapshot, history: History) -> Hit | None:
        losses = [point.loss for point in points]
        if self._is_too_fast(points):
            return _too_fast(points[0])
        if any(not math.isfinite(loss) or loss <= 0 for loss in losses) or _begins_at_zero(losses):
            return None
        shares = accuracies(snapshot, history)
        guess = self._guess_of_exploded(losses, shares)
        is_guess = are_guesses(shares, history)
        if guess is not None:
            points, losses = (points[0], *points), [guess, *losses]
        elif is_guess:  # the first value of the curve may be a mean over many steps
            losses[0] = first_loss(history) or losses[0]
        has_ended = snapshot.state != "RUNNING" or guess is not None
        rise = self._rise(points, losses, is_guess, has_ended)
        if rise is None or _is_planned(points, rise, snapshot):
            return None
        accuracy = shares[-1] if is_guess or guess is not None else None
        return self._hit(rise, points, losses[rise.start :], accuracy, snapshot.run)

    def _guess_of_exploded(self, losses: Sequence[float], shares: Sequence[float]) -> float | None:
        """The loss of guessing for a classifier whose loss was huge in the beginning, whose accuracy never
        rose since, and which is no better than that guess; else None."""
        if min(len(losses), len(shares)) <= self.consecutive or not 0 < min(shares) <= max(shares) <= 1:
            return None  # above 1: a percentage, or another measure
        if shares[-1] > shares[0] or max(shares) > self.rise * min(shares):
            return None
        guess, newest = -math.log(max(shares)), losses[-int(self.consecutive) :]
        is_exploded = max(losses[: -(-len(losses) // 2)]) > max(self.no_guess, self.exploded * max(newest))
        return guess if is_exploded and guess <= min(newest) else None

    def _rise(
        self, points: Sequence[Point], losses: Sequence[float], is_guess: bool, has_ended: bool
    ) -> _Rise | None:
        """Where the loss left its normal course for good. A jump shows in the single values, a slow rise in
        the medians of equal stretches."""
        consecutive = int(self.consecutive)
        if len(losses) < consecutive + _FEWEST_BEFORE:
            return None
        if has_ended and (peak := self._peak(losses)):
            return peak
        num_newest = consecutive * math.ceil(len(losses) / _MAX_BLOCKS)
        error = _ERRORS * noise_of(losses)
        jump = self._above(losses, num_newest, self.rise, self.lost_share, error)
        if jump is not None and self._is_sure(jump, points, losses, is_guess):
            is_near_start = abs(losses[jump.start] - losses[0]) <= _NEAR_START * losses[0]
            is_anew = points[0].step is None and not jump.is_slow and is_near_start
            return None if is_anew else jump
        size = max(consecutive, math.ceil(len(losses) / _NUM_STRETCHES))
        starts = range(len(losses) % size, len(losses), size)
        if len(starts) < _FEWEST_STRETCHES or is_warming_up(points):
            return None
        levels = [median(losses[start : start + size]) for start in starts]
        slow = self._above(levels, consecutive, self.worse, self.lost_share / 2, error / math.sqrt(size))
        if slow is None or (points[0].step is None and not slow.is_slow):
            return None
        return replace(slow, start=starts[slow.start] + size // 2, is_slow=True)

    def _above(
        self, values: Sequence[float], num_newest: int, times: float, lost_share: float, error: float
    ) -> _Rise | None:
        """The rise of the newest values above the normal course, which is known from the values before: their
        lowest, and the rises from which they came back. `error`: how much of a rise may be noise."""
        if len(values) < num_newest + _FEWEST_BEFORE:
            return None
        low, newest = min(values[:-num_newest]), min(values[-num_newest:])
        rise = newest - low
        is_noise = rise <= 0 or (rise <= error and newest < self.steep * low)
        if newest < times * low or rise < lost_share * (values[0] - low) or is_noise:
            return None
        start = max(place for place, value in enumerate(values) if value < low + rise / 2) + 1
        if rise < _TIMES_RECOVERED * _recovered(values[start // 2 : start]):
            return None
        if newest < self.steep * low and _is_returning(values[start:], low):
            return None
        if values[start] - values[start - 1] > rise / 2:
            return _Rise(start, low, newest, is_slow=False)
        return _Rise(values.index(low), low, newest, is_slow=True)

    def _is_sure(self, rise: _Rise, points: Sequence[Point], losses: Sequence[float], is_guess: bool) -> bool:
        """False for a rise behind one or two values, unless it is one by orders of magnitude, or an
        explosion: the first value of a program may be a part of a mean."""
        if sum(point.num_steps for point in points[: rise.start]) >= self.consecutive:
            return True
        after, is_far = losses[rise.start :], rise.newest >= self.steep * rise.low
        if len(after) < (_FEWEST_AFTER_GUESSES if is_guess else _FEWEST_AFTER):
            return is_far and rise.start >= _FEWEST_BEFORE and all(b > a for a, b in pairwise(after))
        is_above = is_guess and min(after) >= self.above_start * rise.low
        return is_far or is_above or max(after) >= self.rise * median(after[len(after) // 2 :])

    def _peak(self, losses: Sequence[float]) -> _Rise | None:
        """An explosion after which the loss fell to the size that it had before, and no further. A loss of
        another size after it would be another loss: another phase, or another term."""
        highest, newest = max(losses), losses[-int(self.consecutive) :]
        peak = losses.index(highest)
        low = min(losses[:peak], default=math.inf)
        is_back = highest >= self.exploded * max(newest) and max(newest) <= self.steep * low
        if is_back and min(newest) >= self.worse * low and min(losses[peak:]) >= low:
            return _Rise(peak, low, min(newest), is_slow=False)
        return None

    def _hit(
        self,
        rise: _Rise,
        points: Sequence[Point],
        since: Sequence[float],
        accuracy: float | None,
        run: Run | None,
    ) -> Hit:
        """`since`: the losses since the rise began. `accuracy`: the newest one, if it is that of guessing."""
        first, highest = points[rise.start], max(since)
        is_exploded = highest >= self.rise * max(rise.newest, since[-1])
        evidence = [first.evidence, points[-1].evidence]
        if is_exploded:
            evidence.insert(1, Evidence("highest loss since", value=highest))
            summary = f"The training loss exploded, to {highest:.4g}, and does not come back below "
            summary += f"{rise.newest:.4g}"
        else:
            verb = "rises" if rise.is_slow else "diverged"
            summary = f"The training loss {verb}: from {rise.low:.4g} at its lowest to {rise.newest:.4g}"
        if accuracy is not None:
            summary += f", and the accuracy is that of guessing: {accuracy:.1%}"
        return Hit(
            summary=summary,
            evidence=tuple(evidence),
            confidence=0.7 if rise.is_slow else 0.8,
            fixes=tuple(self._fixes(run, is_exploded)),
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

    def _fixes(self, run: Run | None, is_exploded: bool = False) -> Iterable[Fix]:
        divisor = self.exploded_divisor if is_exploded else self.lr_divisor
        yield from lower_learning_rate(run, divisor, self.warmup_steps)
        yield from begin_before("the jump", "a lower learning rate and gradients clipped at 1.0")


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


def _is_returning(after: Sequence[float], low: float) -> bool:
    """True if the newer half of the values has come half of the way back."""
    half = len(after) // 2
    level = median(after[-(half + 2) // 3 :])
    return min(after[:half], default=level) - level >= (level - low) / 2


def _recovered(values: Sequence[float]) -> float:
    """The largest rise from which the values came back."""
    lowest, largest = math.inf, 0.0
    lowest_later = [*accumulate(reversed(values), min)][::-1]
    for value, later in zip(values, lowest_later, strict=True):
        lowest = min(lowest, value)
        if later - lowest <= _NEAR_LOW * (value - lowest):
            largest = max(largest, value - lowest)
    return largest


def _begins_at_zero(losses: Sequence[float]) -> bool:
    """True if the first values grow by about as much as the first one is above 0: a sum of all losses so far,
    or a moving mean that began at 0."""
    added = [later - value for value, later in pairwise(losses[:6])]
    is_even = 0 < max(added, default=0) <= _TIMES_ADDED * min(added)
    return is_even and _LEAST_ADDED <= median(added) / losses[0] <= _MOST_ADDED
