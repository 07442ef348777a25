"""Trainings that coach knows by their printed losses alone: what the findings call an epoch, and which cause
they give."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable

import pytest

from coach.analysis.judging.no_finding import Look, look_of
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.sources.logs.printed_numbers import LineNumbers
from coach.sources.metrics.quantities import Course
from tests.rules.examples import run, scan, tail_of


def judged(
    lines: Iterable[str], state: str = "COMPLETED", lr: float | None = None, *, is_log_alone: bool = False
) -> Diagnosis:
    """The diagnosis of a run with this output, from its log and the numbers in it, or from its log alone."""
    text = "".join(f"{line}\n" for line in lines)
    history, course, events = History(), Course(), list[MetricEvent]()
    numbers = [] if is_log_alone else LineNumbers().records(re.split(r"[\r\n]+", text))
    for record in numbers:
        steps, new = course.take(record)
        history.add_steps(steps)
        events += new
    parameters = {} if lr is None else {"lr": lr}
    snapshot = TargetSnapshot(
        "run",
        None,
        run=run(parameters, state=state, device={"type": "cpu"}),
        events=tuple(events),
        log_hits=scan(text),
        log_tails=(tail_of(text),),
    )
    return Engine(build()).diagnose(snapshot, history)


def said(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    assert not [gap for gap in diagnosis.not_measured if gap.what.startswith("rule ")]
    return [(finding.rule, finding.summary) for finding in diagnosis.findings]


EPOCHS = {
    "[epoch {}/6] train loss: nan | val loss: nan | acc: 11.6% (0.8s)": "epoch 1",
    "Epoch {}: 100%|#####| 50/50 [00:03<00:00, 15.0it/s, loss=nan]": "step 50",
    "{{'loss': nan, 'epoch': {}.25}}": "step 0",
    "train loss: nan": "step 0",
}


@pytest.mark.parametrize("line", EPOCHS)
def test_a_loss_after_many_updates_accuses_the_rate_not_the_first_batch(line: str) -> None:
    diagnosis = judged((line.format(epoch) for epoch in range(1, 7)), lr=3000.0)
    assert said(diagnosis) == [("NUM001", f"The loss is NaN since {EPOCHS[line]}")]
    assert diagnosis.findings[0].fixes[0].changes == {"lr": 300.0}


def test_a_loss_that_is_nan_at_the_first_step_accuses_the_first_batch() -> None:
    rules = [rule for rule, _ in said(judged(f"ep 0 | it {step}/50 | loss nan" for step in range(9)))]
    assert rules == ["NUM002", "NUM001"]


def test_evaluations_of_epochs_are_called_by_the_epoch() -> None:
    losses = [(1.3, 0.7), (0.5, 0.6), (0.36, 0.59), (0.25, 0.5), (0.2, 0.65), (0.15, 0.7), (0.1, 0.8)]
    lines = [
        f"[epoch {epoch}/7] train loss: {train} | val loss: {val}"
        for epoch, (train, val) in enumerate(losses, 1)
    ]
    (finding,) = judged(lines).findings
    assert (finding.rule, finding.summary) == (
        "NUM013",
        "The loss on held-out data has risen from 0.5 at epoch 4 to 0.8, while the training loss fell from "
        "0.25 to 0.1",
    )
    assert [(item.line, item.text) for item in finding.evidence] == [
        (4, "train loss: 0.25 | val loss: 0.5"),
        (7, "train loss: 0.1 | val loss: 0.8"),
    ]
    assert "of epoch 4, if the program saved one" in finding.fixes[0].title
    more = [f"[epoch {epoch}/10] train loss: 0.09 | val loss: 0.9" for epoch in (8, 9, 10)]
    accuracies = [80.5, 81.5, 82.5, 83.5, 84.5, 85.5, 85.5, 85.5, 85.5, 85.5]
    (better,) = judged(
        f"{line} | acc: {share}%" for line, share in zip(lines + more, accuracies, strict=True)
    ).findings
    assert better.summary.endswith("to 0.09; the accuracy rose from 83.5% to 85.5%")
    assert "epoch 4 is best by loss, the newest by accuracy" in better.fixes[0].title


@pytest.mark.parametrize(
    ("metric", "is_told"),
    [
        ("acc: {}%", False),
        ("mAP@50: {}", False),
        ("wer: {}", True),
        ("error: {}", True),
        ("ppl: {}", True),
    ],
)
def test_a_held_out_loss_may_rise_while_the_metric_of_the_task_gets_better(
    metric: str, is_told: bool
) -> None:
    losses = [(1.3, 0.7), (0.5, 0.6), (0.36, 0.59), (0.25, 0.5), (0.2, 0.65), (0.15, 0.7), (0.1, 0.8)]
    lines = [
        f"[epoch {epoch}/7] train loss: {train} | val loss: {val} | {metric.format(60 + epoch)}"
        for epoch, (train, val) in enumerate(losses, 1)
    ]
    assert bool(judged(lines).findings) is is_told


def _steps_and_epochs(evaluation: str, last: float = 0.1) -> list[str]:
    """Losses numbered by steps, and an evaluation after each epoch that tells the epoch alone. The training
    loss falls from 2 to 1 in the first epoch, then to `last`; the other one rises from the second on."""
    lines = []
    for epoch in range(8):
        train = 1.0 + (last - 1.0) * epoch / 7
        for step in (0, 10, 20):
            lines.append(f"epoch {epoch} step {32 * epoch + step}/256 loss {train + 1 / (1 + step):.4f}")
        lines.append(evaluation.format(epoch=epoch, train=train, value=0.5 + 0.1 * abs(epoch - 1)))
    return lines


def test_the_training_loss_of_an_epoch_is_not_that_of_the_step_with_its_number() -> None:
    line = "epoch {epoch}: train_loss {train:.4f} val_loss {value:.4f} val_acc 0.8"
    ((rule, summary),) = said(judged(_steps_and_epochs(line)))
    assert (rule, summary.partition(", while ")[2]) == ("NUM013", "the training loss fell from 0.8714 to 0.1")


def test_an_evaluation_without_a_training_loss_is_judged_by_the_steps_of_its_epoch() -> None:
    ((rule, summary),) = said(judged(_steps_and_epochs("epoch {epoch}: val_loss {value:.4f} val_acc 0.8")))
    assert (rule, summary.partition(", while ")[2]) == (
        "NUM013",
        "the training loss fell from 1.251 to 0.4795",
    )


def test_a_lucky_batch_of_an_evaluation_is_no_best_evaluation() -> None:
    lines = []
    for epoch in range(1, 11):
        batch = 0.5 if epoch == 4 else 1.5
        for step in (0, 50):
            lines.append(f"epoch {epoch} train step {step} loss {2 / (epoch + step / 100):.4f}")
        lines.append(f"epoch {epoch} val step 0 val_loss {batch}")
        lines.append(f"epoch {epoch} mean val_loss {1.6 - epoch / 20:.3f}")
    assert said(judged(lines)) == []


def test_a_training_loss_that_rose_since_the_best_epoch_is_no_overfitting() -> None:
    line = "epoch {epoch}: train_loss {train:.4f} val_loss {value:.4f} val_acc 0.8"
    assert [rule for rule, _ in said(judged(_steps_and_epochs(line, last=1.2)))] == []


def test_a_loss_of_forty_digits_is_the_last_finite_one() -> None:
    lines = [f"step {step} loss {2.3 * 300.0**step:.4f}" for step in range(16)]
    (finding,) = judged([*lines, *(f"step {step} loss nan" for step in range(16, 30))]).findings
    assert (finding.rule, finding.evidence[1].text) == ("NUM001", "last finite loss, at step 15")
    assert finding.evidence[1].value == pytest.approx(2.3 * 300.0**15)


def test_the_first_line_with_a_nan_is_named_though_another_loss_stays_finite() -> None:
    lines = [f"step {step}: G_loss={'nan' if step > 19 else 2.5} D_loss=0.7" for step in range(40)]
    (finding,) = judged(lines).findings
    assert finding.summary == "G_loss is NaN (first in line 21 of the log)"
    assert [item.line for item in finding.evidence] == [21, 20, None]
    assert finding.evidence[1].text == "last finite loss before it: 2.5"


def test_a_loss_that_is_finite_again_is_forgotten_though_the_other_one_was_finite_all_the_time() -> None:
    lines = [f"step {step}: G_loss={'nan' if step in (5, 6) else 2.5} D_loss=0.7" for step in range(40)]
    assert said(judged(lines)) == []


ADVERSARIES = {
    "G_loss={nan}|D_loss={fine}": "G_loss",
    "step {step} Generator loss: {nan}|step {step} Discriminator loss: {fine}": "The generator loss",
    "[0/25][{step}/782]\tLoss_D: {fine}\tLoss_G: {nan}\tD(x): 0.5": "Loss_G",
    "iter {step} loss_D {fine}|iter {step} loss_G {nan}": "loss_G",
}


@pytest.mark.parametrize("line", ADVERSARIES)
@pytest.mark.parametrize("first", [20, 0])
def test_an_adversary_that_is_nan_is_found_in_lines_of_its_own(line: str, first: int) -> None:
    lines = [
        part.format(step=step, nan="nan" if step >= first else 2.5, fine=0.7 - step / 100)
        for step in range(40)
        for part in line.split("|")
    ]
    (finding,) = judged(lines, is_log_alone=True).findings
    number = next(number for number, each in enumerate(lines, 1) if "nan" in each)
    assert finding.summary == f"{ADVERSARIES[line]} is NaN (first in line {number} of the log)"
    assert finding.severity.word == "critical"
    assert len(finding.evidence) == 2 + bool(first)
    assert not first or finding.evidence[1].text == "last finite loss before it: 2.5"


@pytest.mark.parametrize(
    "lines",
    [
        ["epoch {step} aux_loss nan", "epoch {step} ce_loss 0.5"],  # a term that is never computed
        ["epoch {step} g_loss {once}", "epoch {step} d_loss 0.5"],  # finite again
    ],
)
def test_a_term_that_is_not_computed_or_finite_again_does_not_make_the_loss_nan(lines: list[str]) -> None:
    printed = [
        part.format(step=step, once="nan" if step == 5 else 0.4) for step in range(20) for part in lines
    ]
    found = judged(printed, is_log_alone=True).findings
    assert [finding.severity.word for finding in found] == (["info"] if "aux" in lines[0] else [])


FUNCTIONS = {
    "ep 0 | it {}/50 | mse {} | lr 0.3": "mse",
    "Epoch {}/8 - train_mse: {} - val_mse: 0.5": "train_mse",
    "Epoch {} | Train CE {} | Val CE nan | Acc 50%": "Train CE",
    "epoch={} elbo={} kl=0.5": "elbo",
    "[epoch {}] cross entropy = {}": "cross entropy",
    "{}: train rmse {}": "train rmse",
}


@pytest.mark.parametrize("line", FUNCTIONS)
def test_a_loss_that_is_called_by_its_function_is_followed_into_nan(line: str) -> None:
    lines = [line.format(place, "0.5" if place < 4 else "nan") for place in range(1, 9)]
    (finding,) = judged(lines).findings
    assert (finding.rule, finding.severity.word) == ("NUM001", "critical")
    (from_log,) = judged(lines, is_log_alone=True).findings
    assert from_log.summary == f"The loss {FUNCTIONS[line]} is NaN (first in line 4 of the log)"


@pytest.mark.parametrize(
    "line",
    [
        "step {} loss 0.5 mse nan",  # a metric beside the loss
        "step {} loss 0.5 train_mae: nan",
        "epoch {} val mse nan",
        "epoch {} test CE: nan",
        "epoch {} std nan",
        "epoch {} train_auc: nan",
        "nan_to_num(mse) in step {}",
        "step {}: GradScaler found inf, skipping",
        "the mse of step {} was nan before the repair",
        "epoch {} accuracy nan",
        "epoch {} mse 0.5",
    ],
)
def test_a_nan_that_is_no_training_loss_is_left_alone(line: str) -> None:
    lines = [line.format(place) for place in range(1, 9)]
    assert said(judged(lines)) == []
    assert said(judged(lines, is_log_alone=True)) == []


def test_a_function_whose_values_are_finite_again_is_left_alone() -> None:
    lines = [f"step {step} nll {'nan' if step in (3, 4) else 2.5}" for step in range(40)]
    assert said(judged(lines, is_log_alone=True)) == []
    assert [finding.severity.word for finding in judged(lines).findings] == ["info"]


def test_a_training_without_a_loss_that_can_be_read_is_healthy_only_by_its_end() -> None:
    unread = judged(f"{epoch}\t0.5\t0.4" for epoch in range(9))
    assert (look_of(unread), unread.ground.endswith("its loss is not known")) == (Look.HEALTHY, True)
    read = judged(f"epoch {epoch} mse {0.5 - epoch / 20}" for epoch in range(9))
    assert (look_of(read), read.ground) == (Look.HEALTHY, "its loss falls")
    assert look_of(judged(f"epoch {epoch} mse 0.5" for epoch in range(9))) is Look.UNKNOWN


EXPLODED = (
    (42921669933.6578, 7.2150, 11.6),
    (2189.1360, 2.6328, 10.8),
    (3.7272, 4.9369, 11.6),
    (4.1443, 3.7721, 11.6),
    (3.2357, 3.1340, 9.5),
    (3.1367, 4.2872, 9.8),
)


def _printed(epochs: Iterable[tuple[float, float, float]]) -> list[str]:
    return [
        f"[epoch {epoch}/6] train loss: {train:.4f} | val loss: {val:.4f} | acc: {accuracy}% (0.8s)"
        for epoch, (train, val, accuracy) in enumerate(epochs, 1)
    ]


def test_a_classifier_that_exploded_and_then_only_guesses_is_named() -> None:
    (finding,) = judged(_printed(EXPLODED), lr=10.0).findings
    assert (finding.rule, finding.summary) == (
        "NUM006",
        "The training loss exploded, to 4.292e+10, and does not come back below 3.137, and the accuracy is "
        "that of guessing: 9.8%",
    )
    assert finding.fixes[0].changes == {"lr": 1.0}


@pytest.mark.parametrize(
    "epochs",
    [
        [(train, val, 10.0 + 15 * place) for place, (train, val, _) in enumerate(EXPLODED)],  # it recovered
        [(train / 1e10, val, accuracy) for train, val, accuracy in EXPLODED[:1]] + list(EXPLODED[2:]),
        [(2.4 - 0.01 * place, 2.4, 10.0) for place in range(6)],  # it never exploded
        [(230.0 / 4**place, 0.2, 95.0 + place / 2) for place in range(6)],  # a sum, of rare classes
    ],
)
def test_a_classifier_that_learns_or_did_not_explode_is_not_said_to_guess(
    epochs: list[tuple[float, float, float]],
) -> None:
    assert not [summary for rule, summary in said(judged(_printed(epochs))) if rule == "NUM006"]


def test_accuracies_that_are_no_shares_say_nothing_about_a_guess() -> None:
    accuracies = (95.0, 95.1, 94.9, 95.2, 95.0, 94.99)
    lines = [
        f"[epoch {epoch}/6] train loss: {230.0 / 6**epoch:.4f} | acc: {accuracy} (0.8s)"
        for epoch, accuracy in enumerate(accuracies)
    ]
    assert "NUM006" not in [rule for rule, _ in said(judged(lines))]


@pytest.mark.parametrize("num_after", [3, 40])
def test_a_rise_by_orders_of_magnitude_is_told_by_its_first_value_and_its_newest(num_after: int) -> None:
    losses = [2.3, 2.2, *(900.0 + place for place in range(num_after))]
    lines = [f"step {10 * place} loss {loss}" for place, loss in enumerate(losses)]
    (finding,) = judged(lines, lr=10.0).findings
    assert [each.text for each in finding.evidence] == ["step 20 loss 900.0", lines[-1]]


WITHOUT_ACCURACY = [2.3, 4e10, 2189.0, 3.7, 4.1, 3.2, 3.1]


@pytest.mark.parametrize("is_log_alone", [False, True])
def test_a_loss_that_exploded_and_ends_worse_than_it_began_is_named_without_accuracies(
    is_log_alone: bool,
) -> None:
    lines = [f"step {10 * place} loss {loss}" for place, loss in enumerate(WITHOUT_ACCURACY)]
    (finding,) = judged(lines, lr=10.0, is_log_alone=is_log_alone).findings
    assert (finding.rule, finding.severity.word) == ("NUM006", "warning")
    assert finding.summary == ("The training loss exploded, to 4e+10, and does not come back below 3.1")
    assert finding.fixes[0].changes == {"lr": 1.0}


@pytest.mark.parametrize(
    ("losses", "state"),
    [
        ([2.3, 4e10, 2189.0, 3.7, 2.9, 2.4, 1.9], "COMPLETED"),  # it came back
        ([2.3, 2.1, 4e3, 3.1, 2.2, 2.5, 2.4, 2.6, 2.5], "COMPLETED"),  # it was as low as before once
        ([0.7, 0.6, 0.5, 80.0, 20.0, 6.0, 1.2, 1.1, 1.0], "COMPLETED"),  # another loss in a second phase
        ([2.0, 1e5, 4e4, 2e3, 900.0, 620.0, 510.0, 505.0], "COMPLETED"),  # the same, of another size
        ([2.3, 180.0, 9.0, 4.1, 3.2, 3.1], "COMPLETED"),  # a jump that a bad batch may make
        (WITHOUT_ACCURACY, "RUNNING"),  # it may still come back
    ],
)
def test_a_loss_that_came_back_or_is_another_one_is_not_said_to_have_exploded(
    losses: list[float], state: str
) -> None:
    lines = [f"step {10 * place} loss {loss}" for place, loss in enumerate(losses)]
    for is_log_alone in (False, True):
        assert said(judged(lines, state, is_log_alone=is_log_alone)) == []


def _of_a_classifier(
    loss: Callable[[int], float],
    evaluation: Callable[[int], tuple[float, float]],
    line: str = "epoch {epoch}: train_loss 9.9 val_loss {value:.4f} val_acc {accuracy:.4f}",
    num_epochs: int = 40,
) -> list[str]:
    """Three losses an epoch of 32 steps with noise, and an evaluation behind each epoch."""
    noise, lines = random.Random(3), list[str]()
    for epoch in range(num_epochs):
        for step in range(32 * epoch, 32 * epoch + 30, 10):
            value = loss(step) * (1 + noise.gauss(0, 0.02 if step else 0))
            lines.append(f"epoch {epoch} step {step}/{32 * num_epochs} loss {value:.4f} lr 1e-3")
        value, accuracy = evaluation(epoch)
        lines.append(line.format(epoch=epoch, value=value, accuracy=accuracy, step=32 * epoch + 31))
    return lines


def test_a_classifier_whose_loss_stays_above_its_start_and_that_guesses_has_diverged() -> None:
    lines = _of_a_classifier(
        lambda step: 40.0 if step else 2.34, lambda epoch: (50.0, 0.09 + epoch % 3 / 100)
    )
    ((rule, summary),) = said(judged(lines, lr=30.0))
    assert rule == "NUM006"
    assert re.fullmatch(
        r"The training loss diverged: from 2.34 at its lowest to 3\d.\d\d, and the accuracy is that of "
        r"guessing: 9.0%",
        summary,
    )


@pytest.mark.parametrize(
    ("start", "later", "accuracy"),
    [
        (2.34, 20.0, 0.3),  # it learns, its loss has a penalty that grows
        (2.34, 5.0, 0.1),  # a penalty of the size of the loss
        (0.05, 0.4, 0.93),  # it had learned before
        (0.69, 2.5, 0.7),  # two classes of unequal size
        (150.0, 460.0, 0.1),  # a sum tells no number of classes
    ],
)
def test_a_loss_above_its_start_is_left_alone_where_the_accuracy_proves_nothing(
    start: float, later: float, accuracy: float
) -> None:
    lines = _of_a_classifier(lambda step: later if step else start, lambda _: (later, accuracy))
    assert "NUM006" not in [rule for rule, _ in said(judged(lines))]


@pytest.mark.parametrize("change", [0.0, 0.00002])
def test_evaluations_that_all_have_one_loss_and_guess_show_that_nothing_is_learned(change: float) -> None:
    lines = _of_a_classifier(lambda _: 2.36, lambda epoch: (2.364 - change * epoch, 0.092))
    assert said(judged(lines)) == [
        ("NUM008", "The loss on held-out data is 2.364 in each of 40 evaluations: nothing is learned")
    ]


UNCHANGED = "epoch {epoch}: train_loss 9.9 val_loss {value:.4f}"
LEARNING_SLOWLY = {
    "a trained model that is trained on": _of_a_classifier(
        lambda _: 1.1, lambda epoch: (1.1 - 0.00002 * epoch, 0.74)
    ),
    "the training loss falls": _of_a_classifier(
        lambda step: 2.36 - step / 10_000, lambda _: (2.364, 0.092), UNCHANGED
    ),
    "the last evaluation is printed beside each step": [
        f"step {step} loss {1.1 + math.sin(step) / 20:.4f} val_loss 1.1020" for step in range(0, 900, 10)
    ],
    "few evaluations": _of_a_classifier(
        lambda _: 1.1, lambda epoch: (1.1 - 0.001 * (epoch >= 4), 0.74), UNCHANGED
    ),
    "few digits": _of_a_classifier(
        lambda _: 1.1, lambda _: (1.1, 0.7), "epoch {epoch}: val_loss {value:.1f} val_acc {accuracy:.1f}"
    ),
}


@pytest.mark.parametrize("name", LEARNING_SLOWLY)
def test_evaluations_that_do_not_prove_that_nothing_is_learned_are_left_alone(name: str) -> None:
    severities = [
        finding.severity.word
        for finding in judged(LEARNING_SLOWLY[name]).findings
        if finding.rule == "NUM008"
    ]
    assert "warning" not in severities
