"""The progress of a training, from its metrics or from a progress bar in its log."""

from __future__ import annotations

import pytest

from coach.analysis.jobs.progress import Progress, progress_in_log, progress_of, progress_told
from coach.lookback.history import CurvePoint
from coach.model.training.log import LogTail
from coach.model.training.metrics import Counter, MetricEvent


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
    assert found == Progress(100, 150, pytest.approx(100.0))  # type: ignore[arg-type]


def test_epochs_that_ended_tell_how_many_steps_all_of_them_have() -> None:
    found = progress_of(curve(100, 1.0), {"max_steps": 0, "epochs": 5}, [epoch_end(0, 41), epoch_end(1, 80)])
    assert found is not None
    assert found.num_steps == 200


def test_before_the_first_epoch_has_ended_the_whole_is_unknown() -> None:
    found = progress_of(curve(100, 1.0), {"epochs": 5}, ())
    assert found == Progress(100, None, None)


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
    assert progress_told(curve(112, 0.6), {}, (), download) == Progress(112, None, None)
    assert progress_told((), {}, (), download) == Progress(12, 50, 24.0, is_bar=True)


def test_epochs_are_counted_as_epochs() -> None:
    point = CurvePoint(3, 1, None, 0.5, None, None, None, Counter.EPOCH)
    assert progress_of([point], {"epochs": 6, "max_steps": 900}, ()) == Progress(
        3, 6, None, counter=Counter.EPOCH
    )
