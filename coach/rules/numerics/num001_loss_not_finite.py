"""NUM001: the training loss is NaN or infinite. Only numbers count, never the word "nan" in a text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import MAX_LINE_BYTES, LogHit, Signature
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.rules.advice.launched_with import float_parameter, usual_range
from coach.rules.advice.remedies import bf16, lower_learning_rate
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs import loss_lines as losslines
from coach.rules.from_logs import other_objectives
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, own_frame, quote, ranks_text
from coach.rules.from_numbers.loss_course import are_adversaries, trained_on

_SUMMARY = re.compile(r"'train_runtime'|^\s*train_loss {2,}= ")
"""The Trainer's summary at the end: its value is the mean over the whole training."""
_LOSS = re.compile(r"loss|train|diverged", re.IGNORECASE)
_GRADIENTS = re.compile(r"\bgrad|Backward\d*' returned", re.IGNORECASE)
_HELD_OUT = re.compile(r"[Mm]onitored metric (?P<metric>\S*(?:val|eval|test)\S*) =")
"""Lightning's early stopping, which checks a metric on held-out data."""
_NORMS_BEFORE, _FEWEST_NORMS = 50, 5
_FINITE = (losslines.PROGRESS.rule, losslines.PROGRESS.name)
_FINITE_FUNCTIONS = (losslines.FUNCTION_PROGRESS.rule, losslines.FUNCTION_PROGRESS.name)
_COLUMNS = r"^\s*\d+/\d+ [ \d.G]* nan   *(?P<value>nan) |^(?: *\d+: )?-?(?P<darknet>nan), -?nan avg loss, "
"""YOLO's tables, which name the losses in the header, and darknet's lines, which put the name behind the
value."""


_FROM_START = (
    Fix(
        "Look at the first batch and at the weights that are loaded, before the learning rate: hardly "
        "anything was learned yet. Check both with torch.isfinite(x).all(), and labels or masks that leave a "
        "sample without a target"
    ),
    Fix(
        "Compute once in fp32, and with plain attention (eager or sdpa): values that leave the range of "
        "fp16, or a kernel, make NaN at once"
    ),
    Fix(
        "Let torch name the operation: torch.autograd.set_detect_anomaly(True) for the gradients",
    ),
)
"""The fixes for a value that is not finite in the first steps."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """The steps of one rank without a finite loss, up to its newest step."""

    first: Step
    last_finite: Step | None
    num_steps: int
    """Length of the series. A lower bound if older steps are no longer kept."""
    is_sudden: bool
    """True if the gradient norm just before was ordinary, so no large update preceded."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """The log lines about losses."""

    stopped: list[LogHit]
    """The program says that it stops because of a value that is not finite."""
    held_out: list[LogHit]
    """The same because of a metric on held-out data."""
    finite: list[LogHit]
    lasting: list[LogHit]
    """Training losses that are not finite, and are not finite again."""
    parts: list[LogHit]
    """The same of a part of the loss."""


class LossNotFinite(Rule):
    """The training loss is NaN or infinite: all further training is lost.

    What it sees
        In the metrics: a rank's loss is not finite in several steps in a row, or in the step at which the run
        ended. In a log: a NaN or infinity behind the key of a training loss (`loss: nan`, `'loss': nan`,
        `train_loss=nan`, `loss nan (nan)`) or, in a log without a finite `loss`, of a loss function (`mse`,
        `bce`, `nll`, `xent`, `elbo`, `CE`, `cross entropy`; `train_mae`, `train_rmse`, `train_objective`);
        rows of a table whose header names a loss; in a log that names no loss at all, five or more NaN at its
        end behind `objective`, `cost`, `nll`, `perplexity` or `ppl`, or in the column `train` of a table that
        had numbers before; YOLO's and darknet's tables, and the messages of trainers
        that stop because of it ("Loss is nan, stopping training", anomaly detection's "returned nan values").
        In the output of transformers' Trainer: a loss of exactly 0 beside a `grad_norm` of NaN; without
        norms, `zeros` losses of exactly 0 up to the end, right after a loss far from 0. The Trainer omits NaN
        from the mean that it prints, so 0 can hide it.
    Why it matters
        Once a parameter is NaN, every later step is NaN. The run goes on to its end for nothing, and its
        later checkpoints are worthless.
    When it stays silent
        On the bare word: `nan_to_num`, "no nan values found", `detect_anomaly`. Behind any other name: a
        metric without a value is NaN too. On a grad_norm that is not finite beside a finite loss: fp16
        produces it while its loss scale settles. On values that are no training loss, or have no value yet:
        `val_loss`, `best_loss`, accuracies. On a single step with a finite loss after it. On a loss that fell
        to 0 step by step, or is 0 with finite gradients. The finding is info if a longer series recovered, if
        only a part of the loss (`aux_loss`, `kl loss`) is not finite beside a finite `loss`, or if a term was
        never finite. Each loss counts by its own name: a finite `D_loss` does not hide `G_loss=nan`. On a
        message that the training stops, if it trains on below (another trial). If a trainer stops early
        because of a metric on held-out data beside a finite training loss, it is a warning that says so.
    What to do
        If the gradient norm grew before: lower the learning rate, warm it up, clip gradients, use bf16
        instead of fp16. If it was ordinary until then: look at the batch of that step, and at divisions,
        roots and logarithms. Resume from an earlier checkpoint. Clipping cannot repair a gradient that is
        already NaN, and no loss scale helps if the forward pass makes the NaN.
    Sources
        torch.autograd anomaly mode; torch GradScaler; Composer NaNMonitor; SageMaker Debugger
        ExplodingTensor; Megatron-LM.
    """

    code = "NUM001"
    name = "loss-not-finite"
    cause = "nan_loss"
    severity = Severity.CRITICAL
    needs = (Need.METRICS, Need.LOG)
    first_steps = Threshold(3, "steps", "a learning rate that is too high takes more updates to diverge")
    consecutive = Threshold(
        2,
        "values",
        "one bad batch may be skipped; two in a row mean that the parameters are broken",
        at_least=1,
    )
    zeros = Threshold(5, "values", "transformers prints one in each window without a finite loss", at_least=1)
    sudden = Threshold(
        0.1, "of the highest loss", "a loss that falls by learning passes all values down to 0"
    )
    lr_divisor = Threshold(
        10, "times", "one order of magnitude leaves the region of divergence in nearly all cases", at_least=1
    )
    warmup_steps = Threshold(
        100, "steps", "long enough for the optimizer's statistics, short against any real training"
    )
    signatures = (
        Signature(
            "NUM001",
            "not_finite",
            losslines.LITERALS,
            losslines.NOT_FINITE,
            reads_rows=True,
            max_chars=MAX_LINE_BYTES,
        ),
        Signature(
            "NUM001",
            "function_not_finite",
            losslines.FUNCTION_LITERALS,
            losslines.FUNCTION_NOT_FINITE,
            max_chars=MAX_LINE_BYTES,
        ),
        Signature("NUM001", "columns", (" nan  ", "nan avg loss"), _COLUMNS),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        measured = list(self._from_metrics(snapshot, history))
        found = measured or list(self._from_log(snapshot))
        yield from found or self._from_objective(snapshot, history)

    def _from_metrics(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        broken = {rank: found for rank in history.ranks if (found := _broken(history, rank))}
        enough = 1 if snapshot.has_ended else int(self.consecutive)
        ranks = [rank for rank, found in broken.items() if found.num_steps >= enough]
        if not ranks:
            hidden = [hit for rank in history.ranks if (hit := self._hidden(snapshot.run, history, rank))]
            yield from hidden[:1] or self._recovered(history)
            return
        worst = min((broken[rank] for rank in ranks), key=lambda found: (found.first.step, found.first.rank))
        yield Hit(
            summary=f"The loss is {_spell(worst.first.loss)} since {worst.first.place}"
            + (f" on {ranks_text(ranks)}" if len(history.ranks) > 1 else ""),
            evidence=tuple(_metric_evidence(worst)),
            confidence=0.99,
            subject=Subject(rank=ranks[0] if len(ranks) == 1 else None),
            fixes=tuple(self._fixes(snapshot.run, worst, worst.first.step <= self.first_steps)),
            since_s=worst.first.time_s,
        )

    def _hidden(self, run: Run | None, history: History, rank: int) -> Hit | None:
        """A hit for losses of exactly 0 with NaN gradients at the end of a series: the Trainer's state file
        keeps the printed means."""
        steps = history.steps(rank)
        start = len(steps)
        while start > 0 and steps[start - 1].loss == 0.0 and math.isnan(steps[start - 1].grad_norm or 0.0):
            start -= 1
        if len(steps) - start < self.consecutive:
            return None
        first = steps[start]
        return Hit(
            summary=(
                f"Loss 0.0 hides NaN since {first.place}: the gradients are NaN, and the Trainer "
                "writes 0 for a loss that is NaN"
            ),
            evidence=tuple(_metric_evidence(_Broken(first, steps[start - 1] if start else None, 1, False)))[
                :-1
            ],
            confidence=0.9,
            subject=Subject(rank=rank if len(history.ranks) > 1 else None),
            fixes=tuple(self._fixes(run, is_from_start=start <= self.first_steps)),
            since_s=first.time_s,
        )

    def _recovered(self, history: History) -> Iterable[Hit]:
        for rank in history.ranks:
            if history.first_not_finite(rank) is None:
                continue
            longest = _longest_stretch(history.steps(rank))
            if len(longest) >= self.consecutive:
                first, last = longest[0], longest[-1]
                yield Hit(
                    summary=(
                        f"The loss was not finite from {first.place} to {last.step} and is finite again"
                    ),
                    evidence=(
                        Evidence(
                            f"{first.counter.word}s of rank {rank} without a finite loss",
                            value=float(len(longest)),
                            unit=f"{first.counter.word}s",
                        ),
                    ),
                    confidence=0.9,
                    subject=Subject(rank=rank if len(history.ranks) > 1 else None),
                    severity=Severity.INFO,
                    since_s=first.time_s,
                )
                return

    def _from_log(self, snapshot: TargetSnapshot) -> Iterable[Hit]:
        lines = self._lines(snapshot)
        lasting, finite = lines.lasting, lines.finite
        confidence, hits = 0.95, [*lasting[:1], *lines.stopped] if lines.stopped else []
        if not lines.stopped:
            confidence, hits = self._of_numbers(snapshot, lasting)
        if not hits and not finite:
            lasting, finite = self._of_functions(snapshot), hits_of(snapshot, *_FINITE_FUNCTIONS)
            confidence, hits = 0.9, lasting
        if not hits:
            yield from self._beside_the_loss(lines, snapshot.run)
            return
        first = earliest(hits)
        value = first.fields.get("value", "NaN")
        yield Hit(
            summary=f"{_what(first, value)} (first in line {first.line} of the log)",
            evidence=tuple(_log_evidence(first, lines.stopped, finite, len(lasting))),
            confidence=confidence,
            subject=Subject(rank=first.rank),
            fixes=tuple(self._fixes(snapshot.run, is_from_start=self._is_from_start(first, finite))),
            since_s=first.time_s,
        )

    def _is_from_start(self, first: LogHit, finite: Sequence[LogHit]) -> bool:
        """True if the line names one of the first steps; without a number, if the log shows at most a few
        finite losses, and none that lasts after `first`."""
        if "iteration" in first.fields:
            return int(first.fields["iteration"]) <= self.first_steps
        before = [hit for hit in finite if hit.file != first.file or hit.line <= first.line]
        return len(before) <= self.first_steps

    def _from_objective(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """A hit for a log without a loss whose objective has another name."""
        if history.ranks or hits_of(snapshot, losslines.PROGRESS.rule) or are_adversaries(snapshot):
            return
        broken = other_objectives.broken_objective(snapshot.log_tails)
        if broken:
            yield Hit(
                summary=(
                    f"The training objective, called {broken[0].fields['key']}, is NaN in its newest "
                    f"{len(broken)} values"
                ),
                evidence=(quote(broken[0]), quote(broken[-1])),
                confidence=0.7,
                fixes=tuple(self._fixes(snapshot.run)),
            )

    def _lines(self, snapshot: TargetSnapshot) -> _Lines:
        not_finite = [hit for hit in hits_of(snapshot, self.code, "not_finite") if _is_training(hit)]
        finite = [hit for hit in hits_of(snapshot, *_FINITE) if _is_training(hit)]
        beside, terms = _lasting_beside_others(not_finite, finite, int(self.consecutive))
        lasting = _in_order(*_lasting(not_finite, finite), *beside)
        parts = [hit for hit in lasting if _is_of_a_part(hit, finite)]
        told = self._told(snapshot, finite)
        held_out = [hit for hit in told if _HELD_OUT.search(hit.text)]
        return _Lines(
            stopped=[hit for hit in told if hit not in held_out],
            held_out=held_out,
            finite=finite,
            lasting=[hit for hit in lasting if hit not in parts],
            parts=_in_order(*parts, *terms),
        )

    def _told(self, snapshot: TargetSnapshot, finite: Sequence[LogHit]) -> list[LogHit]:
        """The lines that say that the training stops, without those below which it trains on."""
        told = hits_of(snapshot, self.code, "stopped", "gave_up")
        later = {id(hit): [other for other in finite if _follows(other, hit)] for hit in told}
        return [hit for hit in told if not trained_on(hit, later[id(hit)], snapshot)]

    def _beside_the_loss(self, lines: _Lines, run: Run | None) -> Iterable[Hit]:
        """A hit for another quantity that is not finite, if the training loss is not known to be so."""
        if lines.held_out:
            yield self._held_out(lines.held_out[0], bool(lines.finite), run)
        elif lines.parts:
            yield _other_series(lines.parts[0])

    def _held_out(self, hit: LogHit, has_finite: bool, run: Run | None) -> Hit:
        """A hit for a trainer that stopped early because of a metric on held-out data."""
        found = _HELD_OUT.search(hit.text)
        metric = found["metric"] if found is not None else "The monitored metric"
        of_samples = Fix(
            "Look at the held-out samples for values that are not finite, empty or constant, and at "
            "divisions, roots and logarithms in the metric"
        )
        return Hit(
            summary=f"{metric} is not finite, and the trainer stopped early"
            + ("; the training loss is finite" if has_finite else ""),
            evidence=(quote(hit),),
            confidence=0.9,
            subject=Subject(rank=hit.rank),
            fixes=(of_samples,) if has_finite else (*self._fixes(run), of_samples),
            severity=Severity.WARNING if has_finite else None,
            since_s=hit.time_s,
        )

    def _of_numbers(self, snapshot: TargetSnapshot, lasting: list[LogHit]) -> tuple[float, list[LogHit]]:
        """The confidence, 0 to 1, and the log lines that prove it."""
        if len(lasting) >= self.consecutive:
            return 0.95, lasting
        if any(_SUMMARY.search(hit.text) for hit in lasting):
            return 0.9, lasting
        if lasting and snapshot.state != "RUNNING":  # while it runs, a finite one may follow
            return 0.75, lasting
        hits = self._said_otherwise(snapshot)
        return (0.9, hits) if hits else (0.75, self._sudden_zeros(snapshot))

    def _of_functions(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """The lines from which on a loss is not finite that is called by its function: `train_mse: nan`.

        Only for a log without a finite `loss`: beside one, it may be a metric.
        """
        found = [hit for hit in hits_of(snapshot, self.code, "function_not_finite") if _is_training(hit)]
        finite = [hit for hit in hits_of(snapshot, *_FINITE_FUNCTIONS) if _is_training(hit)]
        lasting = _lasting(found, finite)
        same = [hit for hit in lasting if hit.fields["key"] == lasting[0].fields["key"]]
        return same if len(same) >= self.consecutive else []

    def _said_otherwise(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """Lines that prove a loss that is not finite without naming it: skipped iterations, table columns,
        gradients."""
        skipped = hits_of(snapshot, self.code, "nan_iterations")
        columns = hits_of(snapshot, self.code, "columns")
        filtered = hits_of(snapshot, self.code, "filtered")
        if len({int(hit.fields["num"]) for hit in skipped}) >= self.consecutive:
            return skipped
        for hits in (columns, filtered):
            if len(hits) >= self.consecutive:
                return hits
        return []

    def _sudden_zeros(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """Losses of exactly 0 at the end of the Trainer's lines without gradient norms, right after a loss
        far from 0."""
        printed = [
            hit
            for hit in hits_of(snapshot, losslines.PROGRESS.rule)
            if hit.text.lstrip().startswith("{'loss': ") and "'learning_rate': " in hit.text
        ]
        losses = [float(hit.fields["value"]) for hit in printed]
        start = len(losses)
        while start > 0 and losses[start - 1] == 0.0:
            start -= 1
        if not 0 < start <= len(losses) - self.zeros:
            return []
        if any("'grad_norm': " in hit.text for hit in printed[start:]) or are_adversaries(snapshot):
            return []
        is_sudden = losses[start - 1] >= self.sudden * max(losses[:start])
        return printed[start:] if is_sudden else []

    def _fixes(
        self, run: Run | None, broken: _Broken | None = None, is_from_start: bool = False
    ) -> Iterable[Fix]:
        lr = float_parameter(run, "lr")
        usual = usual_range(run, "lr") if run is not None else None
        is_usual = lr is None or usual is None or lr <= usual[1]
        if broken is not None and broken.is_sudden and is_usual:
            yield Fix(
                f"Look at the samples of {broken.first.place} for values that are not finite, empty or "
                "constant, and at divisions, roots and logarithms: gradients were normal until then, so "
                "a learning rate that is too high is not the cause"
            )
        if run is not None and run.parameters.get("precision") == "fp16":
            yield from bf16(
                run, "bf16 instead of fp16: it has the range of fp32, fp16 ends at 65504 and at 6e-8"
            )
        if is_from_start and lr is None:
            yield from _FROM_START
            return
        if run is None or lr is None:
            yield Fix(
                "Divide the learning rate by ten and warm it up",
                changes_learning=True,
            )
            yield Fix("Resume from a checkpoint of before the first NaN", needs=("checkpoint",))
            return
        yield from lower_learning_rate(run, self.lr_divisor, self.warmup_steps)


def _what(first: LogHit, value: str) -> str:
    if first.signature == "filtered" and "'loss'" in first.text:
        return "Loss 0.0 hides NaN: the gradients are NaN, and the Trainer prints 0 for a loss that is NaN"
    if first.signature == "filtered":
        return "The gradients are NaN, and the loss is not shown: it was not finite"
    if first.rule == losslines.PROGRESS.rule:
        return "Loss 0.0 hides NaN: it fell to exactly 0 at once, and the Trainer prints 0 for a loss of NaN"
    if first.signature == "function_not_finite":
        return f"The loss {first.fields['key']} is {_spell_text(value)}"
    if first.signature in ("stopped", "gave_up") and not _LOSS.search(first.text):
        what = "The gradients are" if _GRADIENTS.search(first.text) else "A value of the model is"
        return f"{what} not finite, and the program stopped"
    label = losslines.label_of(first) if first.signature == "not_finite" else "The training loss"
    return f"{label} is {_spell_text(value)}"


def _is_finite(step: Step) -> bool:
    return step.loss is None or math.isfinite(step.loss)


def _broken(history: History, rank: int) -> _Broken | None:
    """The steps without a finite loss at the end of a rank's series; None if its newest loss is finite."""
    if history.first_not_finite(rank) is None:
        return None
    steps = [step for step in history.steps(rank) if step.loss is not None]
    start = len(steps)
    while start > 0 and not _is_finite(steps[start - 1]):
        start -= 1
    if start == len(steps):
        return None
    first = steps[start]
    if start == 0:
        first = history.first_not_finite(rank) or first
    return _Broken(first, steps[start - 1] if start else None, len(steps) - start, _is_sudden(steps[:start]))


def _is_sudden(before: Sequence[Step]) -> bool:
    norms = [step.grad_norm for step in before[-_NORMS_BEFORE:] if step.grad_norm is not None]
    return len(norms) >= _FEWEST_NORMS and norms[-1] <= 2 * median(norms)


def _longest_stretch(steps: Sequence[Step]) -> list[Step]:
    told = (step for step in steps if step.loss is not None)
    stretches = [list(group) for is_finite, group in groupby(told, _is_finite) if not is_finite]
    return max(stretches, key=len, default=[])


def _log_evidence(
    first: LogHit, stopped: Sequence[LogHit], finite: Sequence[LogHit], num_lasting: int
) -> Iterable[Evidence]:
    yield quote(first)
    if stopped and stopped[0] is not first:
        yield quote(stopped[0])
        frame = own_frame(stopped[0])
        if frame is not None:
            yield frame
    name = next(iter(losslines.not_finite_names(first.named)), losslines.WHOLE)
    before = (hit for hit in reversed(finite) if hit.file == first.file and hit.line < first.line)
    found = ((losslines.value_of(hit.named, name), hit.line) for hit in before)
    value, line = next((each for each in found if each[0] is not None), (None, None))
    if value is not None:
        yield Evidence(f"last finite loss before it: {value}", first.file, line)
    if num_lasting > 1:
        yield Evidence(
            "values in a row that are not finite, at least", value=float(num_lasting), unit="values"
        )


def _metric_evidence(broken: _Broken) -> Iterable[Evidence]:
    first, before, unit = broken.first, broken.last_finite, broken.first.counter.word
    yield Evidence(
        f"first {unit} of rank {first.rank} without a finite loss", value=float(first.step), unit=unit
    )
    if before is not None and before.loss is not None:
        yield Evidence(f"last finite loss, at {before.place}", value=before.loss)
    if first.lr is not None:
        yield Evidence(f"learning rate at that {unit}", value=first.lr)
    if before is not None and before.grad_norm is not None:
        yield Evidence(f"gradient norm just before, at {before.place}", value=before.grad_norm)
    yield Evidence(
        f"{unit}s in a row without a finite loss, at least",
        value=float(broken.num_steps),
        unit=f"{unit}s",
    )


def _lasting(not_finite: Sequence[LogHit], finite: Sequence[LogHit]) -> list[LogHit]:
    """The hits after which no line has a finite loss, or only one beside another NaN of the same name:
    `G_loss=nan D_loss=0.7`."""
    places = {(hit.file, hit.line, hit.fields["key"].casefold()) for hit in not_finite}
    return [
        hit
        for hit in not_finite
        if not any(
            _follows(later, hit) and (later.file, later.line, hit.fields["key"].casefold()) not in places
            for later in finite
        )
    ]


def _lasting_beside_others(
    not_finite: Sequence[LogHit], finite: Sequence[LogHit], consecutive: int
) -> tuple[list[LogHit], list[LogHit]]:
    """The hits of losses that are never finite again, beside other losses that are: `G_loss=nan` and
    `D_loss=0.7` in lines of their own; and those that may be terms which the program never computes.

    A loss that was finite before, or that has the name of an adversary's, is no such term.
    """
    last: dict[tuple[str, int | None, str], int] = {}
    for hit in finite:
        for name in losslines.finite_names(hit.named):
            last[hit.file, hit.rank, name] = max(hit.line, last.get((hit.file, hit.rank, name), 0))
    series: dict[tuple[str, int | None, str], list[LogHit]] = {}
    for hit in not_finite:
        for name in losslines.not_finite_names(hit.named):
            if hit.line > last.get((hit.file, hit.rank, name), 0):
                series.setdefault((hit.file, hit.rank, name), []).append(hit)
    lost: list[LogHit] = []
    terms: list[LogHit] = []
    for key, hits in series.items():
        if len(hits) >= consecutive:
            (lost if key in last or losslines.is_of_adversaries(key[2]) else terms).extend(hits)
    return lost, terms


def _in_order(*hits: LogHit) -> list[LogHit]:
    """The hits by line, each once."""
    each_once = {id(hit): hit for hit in hits}.values()
    return sorted(each_once, key=lambda hit: (hit.file, hit.line))


def _follows(finite: LogHit, hit: LogHit) -> bool:
    """True if `finite` stands below `hit` in the same log and is of the same rank."""
    return finite.file == hit.file and finite.rank == hit.rank and finite.line > hit.line


def _is_of_a_part(hit: LogHit, finite: Sequence[LogHit]) -> bool:
    """True if the NaN belongs to another series, and the total loss is finite beside or after it."""
    return losslines.WHOLE not in losslines.not_finite_names(hit.named) and any(
        (_follows(other, hit) or (other.file, other.line) == (hit.file, hit.line))
        and losslines.WHOLE in losslines.finite_names(other.named)
        for other in finite
    )


def _other_series(hit: LogHit) -> Hit:
    name, value = hit.fields["key"], _spell_text(hit.fields["value"])
    return Hit(
        summary=f"{name} is {value} (first in line {hit.line} of the log), the training loss is not",
        evidence=(quote(hit),),
        confidence=0.7,
        subject=Subject(rank=hit.rank),
        severity=Severity.INFO,
        since_s=hit.time_s,
    )


def _is_training(hit: LogHit) -> bool:
    """False for a line about validation, where NaN may only mean "no value yet"."""
    before = hit.named[: hit.named.casefold().rfind(hit.fields["value"].casefold())]
    return not re.search(
        r"\b(?:val(?:id(?:ation)?)?|eval(?:uation|uating)?|test(?:ing)?)\b", before, re.IGNORECASE
    ) or bool(re.search(r"\btrain", before, re.IGNORECASE))


def _spell(value: float | None) -> str:
    return "NaN" if value is None or math.isnan(value) else "infinite"


def _spell_text(value: str) -> str:
    return "infinite" if value.casefold().lstrip("+-").startswith("inf") else "NaN"
