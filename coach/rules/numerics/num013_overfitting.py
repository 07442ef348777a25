"""NUM013: the loss on held-out data rises while the training loss falls."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.model.training.metrics import MetricEvent
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import hits_of, quote
from coach.rules.from_numbers.loss_course import are_adversaries

_NUMBER = r"[\"']?\]?\s*+(?:[:=|]\s*+)?+[\"']?(?P<{name}>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.%])"
_BOTH = (
    rf"(?i:(?<![a-z_])(?:train(?:ing)?[ _/-])?loss{_NUMBER.format(name='train')}"
    rf".{{0,300}}?(?<![a-z_])(?:val(?:id(?:ation)?)?|eval)[ _/]loss{_NUMBER.format(name='value')})"
)
_LITERALS = tuple(
    f"{word}{between}{loss}"
    for word in ("val", "Val", "valid", "Valid", "validation", "Validation", "eval", "Eval")
    for between in "_ /"
    for loss in ("loss", "Loss")
)
_METRIC = re.compile(
    r"(?<![A-Za-z])(?:(?P<better>acc(?:uracy)?|top-?1|m?ap(?:50)?|m?iou|dice|f1|auc|auroc|bleu|rouge\w?"
    r"|recall|precision|psnr|ssim|r2|mrr|ndcg|score)|(?P<worse>wer|cer|per|eer|error|err|fid|mae|rmse))"
    r"(?:[@_-]?\w{1,8})?[\"']?\s{0,3}[:=\s]\s{0,3}(?P<value>\d{1,9}(?:\.\d{1,9})?)",
    re.IGNORECASE,
)
"""A metric of the task: `wer=0.42`, `Acc: 0.898`. A perplexity is the loss again."""
_NEAR = 5
"""Number of points of the curve before an evaluation whose mean is its training loss."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    loss: float
    train: float | None
    """A mean over the last steps before it, or the loss printed beside it."""
    time_s: float | None
    evidence: Evidence
    place: str = ""
    """`epoch 4` or `step 400`, if it is known."""
    accuracy: float | None = None
    metric: float | None = None
    """The first other metric in its line; larger is better."""


class Overfitting(Rule):
    """The loss on held-out data has risen since its best, while the training loss still falls.

    What it sees
        Evaluations, from metrics or from lines with both losses (`loss: 0.11 - val_loss: 0.62`, `train loss
        1.1, val loss 1.9`): the newest three all lie above the lowest by 15 % and by a twentieth of the
        progress, and the training loss fell by 3 % since the lowest one.
    Why it matters
        Since then the model only memorizes the training data. The best checkpoint is an earlier one, and the
        hours since then are wasted.
    When it stays silent
        On fewer than three evaluations after the best, on a rise that noise can cause (near zero a loss
        doubles easily), while the task's own metric (accuracy, WER, mAP) still gets better, if the training
        loss rises as well (that is divergence), and on reinforcement and adversarial training. It never
        counts as the cause of a failure.
    What to do
        Stop at the best evaluation and use its checkpoint. Then try more or augmented data, weight decay,
        dropout, or a smaller model.
    Sources
        SageMaker Debugger Overfit; Goodfellow et al., Deep Learning, 7.8 (early stopping).
    """

    code = "NUM013"
    name = "overfitting"
    cause = "overfitting"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.LOG)
    rise = Threshold(0.15, "of the lowest", "evaluations vary by some percent")
    lost_share = Threshold(0.05, "of the progress", "near zero a loss doubles by noise alone")
    train_fall = Threshold(0.03, "of the training loss", "else the model memorizes nothing")
    num_after = Threshold(3, "evaluations", "one or two above the best are noise", at_least=1)
    signatures = (Signature("NUM013", "both", _LITERALS, _BOTH),)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        told = hits_of(snapshot, self.code)
        measured = _measured(snapshot, history, told)
        can_save = any(event.event == "checkpoint" for event in snapshot.events)
        advice_of = partial(_advice, can_save=can_save, has_ended=snapshot.has_ended)
        starts = [point.loss for point in history.curve if point.loss is not None][:1]
        for evaluations in [measured] if measured else _told(told):
            first = [evaluations[0].loss, evaluations[0].train or 0.0]
            hit = self._judge(evaluations, max(first + starts), advice_of)
            if hit is not None and not are_adversaries(snapshot):
                yield hit
                return

    def _judge(
        self, evaluations: Sequence[_Evaluation], start: float, advice_of: Callable[..., str]
    ) -> Hit | None:
        num_after = int(self.num_after)
        losses = [evaluation.loss for evaluation in evaluations]
        if len(losses) <= num_after or not all(math.isfinite(loss) and loss > 0 for loss in losses):
            return None
        place = losses.index(min(losses))
        best, newest = evaluations[place], evaluations[-1]
        after = losses[-num_after:]
        needed = max(self.rise * best.loss, self.lost_share * (start - best.loss))
        if len(losses) - 1 - place < num_after or min(after) - best.loss < needed:
            return None
        if (
            best.train is None
            or newest.train is None
            or not newest.train <= (1 - self.train_fall) * best.train
        ):
            return None
        if _still_improve(evaluations[place:], num_after):
            return None
        return Hit(
            summary=f"The loss on held-out data has risen from {best.loss:.4g}"
            f"{f' at {best.place}' if best.place else ''} to {newest.loss:.4g}, while the training loss fell "
            f"from {best.train:.4g} to {newest.train:.4g}{_also_rose(best, newest)}",
            evidence=(best.evidence, newest.evidence),
            confidence=0.85,
            fixes=(Fix(advice_of(best, newest), changes_learning=True),),
            since_s=best.time_s,
        )


def _still_improve(since: Sequence[_Evaluation], num_after: int) -> bool:
    """True if a metric of the task has its best value in the newest of these evaluations."""
    for values in ([each.accuracy for each in since], [each.metric for each in since]):
        known = [value for value in values if value is not None]
        if len(known) > num_after and max(known[-num_after:]) > max(known[:-num_after]):
            return True
    return False


def _metric_of(text: str) -> float | None:
    """The first metric of the task that a line names, negative if smaller is better."""
    found = _METRIC.search(text)
    return None if found is None else float(found["value"]) * (1 if found["better"] else -1)


def _also_rose(best: _Evaluation, newest: _Evaluation) -> str:
    """Words about an accuracy that became better since the best loss; empty without one."""
    if best.accuracy is None or newest.accuracy is None or newest.accuracy <= best.accuracy:
        return ""
    form = ".1%" if newest.accuracy <= 1 else ".4g"  # above 1 it is in percent, or no share at all
    return f"; the accuracy rose from {best.accuracy:{form}} to {newest.accuracy:{form}}"


def _advice(best: _Evaluation, newest: _Evaluation, *, can_save: bool, has_ended: bool) -> str:
    """`can_save`: the training is known to write checkpoints."""
    place = best.place or "the best evaluation"
    if _also_rose(best, newest):
        return (
            f"Choose the checkpoint by what counts: {place} is best by loss, the newest by accuracy; a "
            "larger loss beside a better accuracy means too much certainty"
        )
    use = "Use" if has_ended else "Stop here and use"
    unless = "" if can_save else ", if the program saved one; else save the best one"
    return f"{use} the checkpoint of {place}{unless}"


def _measured(snapshot: TargetSnapshot, history: History, told: Sequence[LogHit]) -> list[_Evaluation]:
    """The evaluations in the metrics, each with the training loss since the one before, and with its log
    line if the log has one."""
    steps = {step.step: step for rank in history.ranks[:1] for step in history.steps(rank)}
    lines: dict[float, list[LogHit]] = {}
    for hit in told:
        lines.setdefault(float(hit.fields["value"]), []).append(hit)
    found: list[_Evaluation] = []
    last_step = -1
    for event in snapshot.events:
        loss, step = event.fields.get("loss"), event.step
        if event.event != "eval" or not isinstance(loss, (int, float)) or step is None:
            continue
        place = f"{event.counter.word} {step}"
        same = lines.get(float(loss), [])
        line = same.pop(0) if len(same) > 1 else next(iter(same), None)
        accuracy = event.fields.get("accuracy", steps[step].accuracy if step in steps else None)
        found.append(
            _Evaluation(
                float(loss),
                _train_loss(history, last_step, event, line),
                event.time_s,
                Evidence(f"evaluation at {place}", value=float(loss)) if line is None else quote(line),
                place,
                float(accuracy) if isinstance(accuracy, (int, float)) else None,
                None if line is None else _metric_of(line.text),
            )
        )
        last_step = step
    return found


def _train_loss(history: History, after: int, event: MetricEvent, line: LogHit | None) -> float | None:
    """The mean of the last training losses up to an evaluation, of those after the evaluation before if there
    are any.

    An evaluation that is numbered by its epoch, among losses that are numbered by steps, has the loss in its
    own line, else the last ones of its epoch.
    """
    until = event.step or 0
    before = [point for point in history.curve if point.loss is not None]
    if before and event.counter is not before[-1].counter:
        return _loss_of_epoch(history, until) if line is None else float(line.fields["train"])
    until_here = [(point.step, point.loss) for point in before if point.step <= until]
    near = [loss for step, loss in until_here if step > after]
    return _mean_of_last(near or [loss for _, loss in until_here[-1:]])


def _loss_of_epoch(history: History, epoch: int) -> float | None:
    """The mean of the last training losses of an epoch."""
    steps = history.steps(history.ranks[0]) if history.ranks else ()
    return _mean_of_last([step.loss for step in steps if step.epoch == epoch])


def _mean_of_last(losses: Iterable[float | None]) -> float | None:
    near = [loss for loss in losses if loss is not None][-_NEAR:]
    return fmean(near) if near else None


def _told(hits: Sequence[LogHit]) -> Iterable[list[_Evaluation]]:
    """The evaluations in the logs, one list for each log and rank."""
    places: dict[tuple[str, int | None], list[_Evaluation]] = {}
    for hit in hits:
        evaluation = _Evaluation(
            float(hit.fields["value"]),
            float(hit.fields["train"]),
            hit.time_s,
            quote(hit),
            metric=_metric_of(hit.text),
        )
        places.setdefault((hit.file, hit.rank), []).append(evaluation)
    return places.values()
