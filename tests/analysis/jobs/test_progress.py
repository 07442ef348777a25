"""The progress of a training, from its metrics or from a progress bar in its log."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from coach.analysis.jobs.progress import (
    Pace,
    Progress,
    loss_trend,
    progress_in_log,
    progress_of,
    progress_told,
    speed_ratio,
)
from coach.lookback.history import CurvePoint, History, is_early
from coach.model.training.log import LogTail
from coach.model.training.metrics import Counter, MetricEvent
from coach.sources.logs.printed_metrics import PrintedNumbers


def curve(num_steps: int, seconds_per_step: float, stride: int = 1) -> list[CurvePoint]:
    return [
        CurvePoint(step, stride, 1000.0 + step * seconds_per_step, 1.0, None, None, None)
        for step in range(stride, num_steps + 1, stride)
    ]


def epoch_end(epoch: int, step: int) -> MetricEvent:
    return MetricEvent(0, "epoch_end", None, step, {"epoch": epoch})


def test_nothing_is_said_before_the_first_step() -> None:
    assert progress_of([], {"max_steps": 100}, ()) is None


def test_steps_that_were_asked_for_are_the_whole_and_the_newest_pace_tells_the_time_left() -> None:
    slow_then_fast = [
        *curve(50, 10.0),
        *(CurvePoint(50 + i, 1, 1500.0 + i * 2.0, 1.0, None, None, None) for i in range(1, 51)),
    ]
    found = progress_of(slow_then_fast, {"max_steps": 150, "epochs": 1}, ())
    assert found is not None
    assert (found.step, found.num_steps, found.left_s) == (100, 150, pytest.approx(100.0))
    assert found.pace == Pace(pytest.approx(0.5), 20)  # type: ignore[arg-type]


def test_epochs_that_ended_tell_how_many_steps_all_of_them_have() -> None:
    found = progress_of(curve(100, 1.0), {"max_steps": 0, "epochs": 5}, [epoch_end(0, 41), epoch_end(1, 80)])
    assert found is not None
    assert found.num_steps == 200


def test_before_the_first_epoch_has_ended_the_whole_is_unknown() -> None:
    found = progress_of(curve(100, 1.0), {"epochs": 5}, ())
    assert found == Progress(100, None, None, pace=Pace(1.0, 30))


@pytest.mark.parametrize(("num_steps", "pace_s"), [(10, 60.0), (1000, 0.01)])
def test_a_few_steps_or_a_moment_tell_no_pace(num_steps: int, pace_s: float) -> None:
    found = progress_of(curve(num_steps, pace_s), {"max_steps": 5000}, ())
    assert found is not None
    assert found.left_s is None


def test_it_ends_late_only_if_more_time_is_needed_than_is_left() -> None:
    assert Progress(1, 10, 90.0).ends_late_by_s(60.0) == 30.0
    assert Progress(1, 10, 60.0).ends_late_by_s(60.0) is None
    assert Progress(1, 10, None).ends_late_by_s(60.0) is None
    assert Progress(1, 10, 90.0).ends_late_by_s(None) is None
    assert Progress(19, 100, 90.0, is_bar=True).ends_late_by_s(60.0) is None, "a bar's first guess"
    assert Progress(20, 100, 90.0, is_bar=True).ends_late_by_s(60.0) == 30.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Epoch 1:  40%|####      | 188/469 [00:31<00:46,  6.06it/s]", Progress(188, 469, 46.0, is_bar=True)),
        ("  3%|3| 12/400 [1:00:31<19:40:07, 180s/it, loss=2.1]", Progress(12, 400, 70807.0, is_bar=True)),
        (" 0/10 [00:00<?, ?it/s] 4/10 [00:02<00:03,  2.0it/s]", Progress(4, 10, 3.0, is_bar=True)),
        ("date 11/23 [12:00<ok] saved to out/12/40", None),
        ("loss 1.5", None),
    ],
)
def test_the_newest_progress_bar_of_a_log_counts(text: str, expected: Progress | None) -> None:
    tail = LogTail("slurm-1.out", 1, ("start", text, "a warning"), 100, 3)
    assert progress_in_log([tail]) == expected


def test_a_bar_that_shows_the_loss_tells_a_length_that_the_steps_do_not() -> None:
    bar = "Epoch 2:  24%|##4  | 12/50 [00:07<00:24,  1.5it/s, loss=0.5]"
    tails = (LogTail("train.log", 1, (bar,), 64, 1),)
    assert progress_told(curve(112, 0.6), {}, (), tails) == Progress(12, 50, 24.0, is_bar=True)
    assert progress_told(curve(112, 0.6), {"max_steps": 150}, (), tails) == progress_of(
        curve(112, 0.6), {"max_steps": 150}, ()
    )
    download = (LogTail("train.log", 1, (bar.replace("loss", "files"),), 64, 1),)
    found = progress_told(curve(112, 0.6), {}, (), download)
    assert found is not None
    assert (found.step, found.num_steps, found.left_s) == (112, None, None)
    assert progress_told((), {}, (), download) == Progress(12, 50, 24.0, is_bar=True)


def test_epochs_are_counted_as_epochs() -> None:
    point = CurvePoint(3, 1, None, 0.5, None, None, None, Counter.EPOCH)
    assert progress_of([point], {"epochs": 6, "max_steps": 900}, ()) == Progress(
        3, 6, None, counter=Counter.EPOCH
    )


def printed(lines: list[str], used_s: float | None = None) -> Progress | None:
    """The progress of a foreign job by the lines of its log."""
    history = History()
    history.add_steps(PrintedNumbers().take("".join(f"{text}\n" for text in lines).encode())[0])
    return progress_told(history.curve, {}, (), [LogTail("slurm-1.out", 1, (*lines,), 1, 1)], used_s)


@pytest.mark.parametrize(
    ("line_of", "total"),
    [
        (lambda n: f"step {n}/5000 loss 1.23 tokens/s 40946 data_time 0.2 step_time 0.5", 5000),
        (
            lambda n: (
                f" iteration {n:8}/  500000 | lm loss: 5.0E-01 | elapsed time per iteration (ms): 100.1 |"
            ),
            500_000,
        ),
        (lambda n: f"global_step: {n}/4491, loss: 2.1", 4491),
        (lambda n: f"{n}/400 loss 2.1", 400),
        (lambda n: f"Epoch {1 + n // 50}/10, step {n % 50}/50, loss 0.5", 500),
        (lambda n: f"epoch {1 + n // 50}/10, batch {n % 50}/50, loss 0.5", 500),
        (lambda n: f"Batch {n}/1000, loss 0.5", None),
        (lambda n: f"Epoch: [{n // 50}][ {n % 50}/50]\tTime  0.519 ( 0.900)\tLoss 6.9e+00 (7.0e+00)", None),
        (lambda n: f"Epoch {1 + n // 50}, step {n % 50}/50, loss 0.5", None),
        (lambda n: f"step {n} loss 0.5", None),
    ],
)
def test_the_printed_lines_of_a_foreign_job_tell_how_long_it_is(
    line_of: Callable[[int], str], total: int | None
) -> None:
    """A count within an epoch is the whole only if the number of epochs is printed too."""
    for last in (30, 60, 90):
        found = printed([line_of(n) for n in range(last + 1)])
        assert found is not None
        assert (found.step, found.num_steps) == (last, total), last


def test_epochs_of_a_foreign_job_have_their_own_pace() -> None:
    found = printed([f"Epoch {n}/80 loss {2 / n:.3f} epoch_time 60.0" for n in range(1, 6)])
    assert found is not None
    assert (found.step, found.num_steps, found.left_s) == (5, 80, pytest.approx(4500.0))
    assert found.pace is not None
    assert found.pace.num_steps < 5


def test_lines_of_something_else_tell_no_length() -> None:
    lines = [f"step {n} loss 0.5" for n in range(100)]
    found = printed([*lines, "step 2/3: writing the checkpoint", "Step 3/3 done"])
    assert found is not None
    assert found.num_steps is None


def test_steps_without_a_time_are_paced_since_the_start_and_never_called_late() -> None:
    lines = [f"step {n}/5000 loss 1.23" for n in range(101)]
    found = printed(lines, used_s=50.0)
    assert found is not None
    assert found.pace == Pace(2.0, 100, is_since_start=True)
    assert found.left_s == pytest.approx(2450.0)
    assert found.ends_late_by_s(60.0) is None, "its start-up is in the pace"
    assert printed(lines) == Progress(100, 5000, None), "the time of the job is not known"
    early = printed(lines[:17], used_s=50.0)
    assert early is not None
    assert early.left_s is None


def course(losses: list[float]) -> list[CurvePoint]:
    return [CurvePoint(step, 1, None, loss, None, None, None) for step, loss in enumerate(losses, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_the_trend_of_a_loss_is_named_with_its_turn(seed: int) -> None:
    random = Random(seed)
    falls = [0.5 + 2 * math.exp(-n / 100) + random.gauss(0, 0.05) for n in range(400)]
    rises = [falls[-1] + n / 100 + random.gauss(0, 0.05) for n in range(200)]
    level = [0.5 + random.gauss(0, 0.05) for _ in range(800)]
    for losses, word, since in [
        (falls[:200], "falls", 1),
        ([*falls, *rises], "rises", 400),
        ([*falls, *level], "is flat", 400),
        (level, "is flat", 1),
    ]:
        trend = loss_trend(course(losses))
        assert trend is not None
        assert trend.word == word
        assert trend.since.step == pytest.approx(since, abs=150)


def test_the_trend_is_that_of_the_newest_run_in_a_log() -> None:
    first, second = course([1.0] * 100), course([2.0 - n / 50 for n in range(50)])
    found = loss_trend([*first, *second])
    assert found is not None
    assert (found.word, found.since.step) == ("falls", 1)
    assert loss_trend([*first, *second[:10]]) is None


def test_lines_without_a_number_have_no_pace() -> None:
    found = printed(["loss 0.5"] * 100, used_s=50.0)
    assert found is not None
    assert found.pace is None


def test_it_is_too_early_for_a_trend_of_few_steps() -> None:
    losses = [2.3 - 0.05 * n for n in range(30)]
    assert is_early(course(losses[:17]))
    assert loss_trend(course(losses[:17])) is None
    assert loss_trend(course([])) is None
    found = loss_trend(course(losses))
    assert found is not None
    assert (found.word, found.since.step) == ("falls", 1)


def test_the_speed_of_few_points_has_no_change() -> None:
    assert speed_ratio([1.0] * 7) is None
    assert speed_ratio([*[1.0] * 10, *[2.0] * 10]) == 2.0
