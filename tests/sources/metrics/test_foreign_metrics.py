from __future__ import annotations

import itertools
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from coach.model.reading import MetricsChunk
from coach.model.training.metrics import Counter, MetricEvent, Step
from coach.sources.io import SystemIo
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.metrics.quantities import Course, quantity_of
from coach.sources.metrics.tensorboard_events import EventsDecoder

FIXTURES = Path(__file__).parents[2] / "fixtures" / "foreign_metrics"
EVENTS = FIXTURES / "torch" / "events.out.tfevents.1800000000.node1.1.0"


def look(source: ForeignMetricsSource) -> tuple[list[Step], list[MetricEvent]]:
    (reading,) = source.poll()
    assert reading.error is None
    assert isinstance(reading.payload, MetricsChunk)
    return list(reading.payload.steps), list(reading.payload.events)


def follow(paths: Sequence[Path]) -> ForeignMetricsSource:
    return ForeignMetricsSource(SystemIo({}), "17", lambda: paths)


def files_of(folder: str) -> list[Path]:
    return sorted(path for path in (FIXTURES / folder).rglob("*") if path.is_file())


def evaluations(events: Sequence[MetricEvent]) -> list[int | None]:
    return [event.step for event in events if event.event == "eval"]


def test_tensorboard_events_are_read_with_times_and_evaluations_past_a_histogram() -> None:
    steps, events = look(follow(files_of("torch")))
    assert [step.step for step in steps] == list(range(40))
    assert steps[0].loss == 2.0
    assert math.isnan(steps[39].loss or 0.0)
    assert steps[0].lr == pytest.approx(0.1)
    assert (steps[0].time_s or 0) > 1.7e9
    assert evaluations(events) == [9, 19, 29, 39]


def test_the_newer_tensorboard_layout_with_tensors_is_read() -> None:
    steps, _ = look(follow(files_of("keras")))
    assert [(step.step, step.loss) for step in steps] == [(0, 2.0), (1, 1.75), (2, 1.5), (3, 1.25), (4, 1.0)]


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_events_come_out_the_same_in_whatever_pieces_they_are_read(size: int) -> None:
    data = EVENTS.read_bytes()
    decoder = EventsDecoder()
    scalars = [
        scalar for place in range(0, len(data), size) for scalar in decoder.feed(data[place : place + size])
    ]
    assert len(scalars) == 84
    assert decoder.num_bad == 0


def test_a_file_that_only_calls_itself_events_is_counted_as_bad(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.node.1.0"
    path.write_bytes(b"this is no event file at all, but text")
    decoder = EventsDecoder()
    assert decoder.feed(path.read_bytes()) == []
    assert decoder.num_bad == 1
    assert look(follow([path])) == ([], [])


def test_a_record_that_is_huge_is_passed_over_without_being_kept() -> None:
    decoder = EventsDecoder()
    huge = (5 << 20).to_bytes(8, "little") + bytes(4)
    decoder.feed(huge)
    for _ in range(5):
        decoder.feed(bytes(1 << 20))
    assert len(decoder.feed(bytes(4) + EVENTS.read_bytes())) == 84


def test_lightnings_csv_is_read_without_its_means_of_epochs() -> None:
    steps, events = look(follow(files_of("lightning")))
    assert [step.step for step in steps] == list(range(20))
    assert {step.epoch for step in steps} == {0, 1}
    assert evaluations(events) == [9, 19]


RESULTS = {
    # https://github.com/1527171/HandRaisingDetector-YOLO12n/blob/main/runs/detect/train/results.csv
    "ultralytics": """
epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),\
metrics/mAP50(B),metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2
1,38.7726,1.92084,2.57206,1.82703,0.27642,0.34082,0.22955,0.09727,1.85976,2.58241,1.84569,0.000662037,\
0.000662037,0.000662037
2,70.743,1.94633,2.41126,1.9055,0.2067,0.32355,0.17712,0.0635,1.97485,3.27414,1.95913,0.00131555,0.00131555,\
0.00131555
""",
    # https://github.com/17kaushalsingh/yolov5/blob/master/runs/train/exp/results.csv
    "YOLOv5": """
               epoch,      train/box_loss,      train/obj_loss,      train/cls_loss,   metrics/precision,\
      metrics/recall,     metrics/mAP_0.5,metrics/mAP_0.5:0.95,        val/box_loss,        val/obj_loss,\
        val/cls_loss,               x/lr0,               x/lr1,               x/lr2
                   0,             0.10814,            0.068695,            0.038281,            0.013591,\
             0.55164,            0.032842,           0.0074838,            0.095048,             0.07896,\
            0.038661,            0.070789,           0.0032456,           0.0032456
                   1,            0.085349,            0.081915,            0.034195,             0.44085,\
               0.154,            0.072877,            0.021784,            0.083599,            0.082959,\
            0.039142,            0.040768,           0.0065572,           0.0065572
""",
}
SUMS = {
    "ultralytics": ([(1, 6.31993), (2, 6.26309)], [(6.28786, 0.09727), (7.20812, 0.0635)]),
    "YOLOv5": ([(0, 0.215116), (1, 0.201459)], [(0.212669, 0.0074838), (0.2057, 0.021784)]),
}


@pytest.mark.parametrize("program", RESULTS)
def test_the_parts_of_a_loss_in_results_csv_are_summed_beside_the_task_s_metric(
    tmp_path: Path, program: str
) -> None:
    path = tmp_path / "results.csv"
    path.write_text(RESULTS[program].lstrip("\n"))
    steps, events = look(follow([path]))
    losses, evaluated = SUMS[program]
    assert [(step.step, step.counter) for step in steps] == [(step, Counter.EPOCH) for step, _ in losses]
    assert [step.loss for step in steps] == pytest.approx([loss for _, loss in losses])
    fields = [event.fields for event in events if event.event == "eval"]
    assert [each["loss"] for each in fields] == pytest.approx([loss for loss, _ in evaluated])
    assert [each["accuracy"] for each in fields] == [accuracy for _, accuracy in evaluated]


def test_a_csv_rewritten_with_one_more_column_goes_on_at_its_last_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,3.0\n2,2.5\n")
    source = follow([path])
    assert len(look(source)[0]) == 2
    path.write_text("step,loss,val_loss\n1,3.0,\n2,2.5,\n2,,2.7\n3,2.0,\n")
    steps, events = look(source)
    assert [step.step for step in steps] == [3]
    assert evaluations(events) == [2]


def test_a_csv_of_another_attempt_under_the_same_name_is_taken_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n" + "".join(f"{step},3.5\n" for step in range(50)))
    source = follow([path])
    assert len(look(source)[0]) == 50
    path.write_text("step,loss\n" + "".join(f"{step},nan\n" for step in range(40, 60)))
    assert [step.step for step in look(source)[0]] == list(range(40, 60))
    path.write_text("step,loss,lr\n" + "".join(f"{step},nan,\n" for step in range(40, 61)))
    assert [step.step for step in look(source)[0]] == [60]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("metrics.csv", "step,loss\n1,3.0\n2,nan\n", "step,loss\n1,2.9\n2,2.8\n3,2.7\n"),
        (
            "metrics.jsonl",
            '{"step": 1, "loss": 3.0}\n{"step": 2, "loss": NaN}\n',
            '{"step": 1, "loss": 2.9}\n{"step": 2, "loss": 2.8}\n{"step": 3, "loss": 2.7}\n',
        ),
        (
            "trainer_state.json",
            '{"log_history": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": NaN}]}',
            '{"log_history": [{"step": 1, "loss": 2.9}]}',
        ),
    ],
)
def test_the_steps_of_an_attempt_whose_file_was_replaced_are_void(
    tmp_path: Path, name: str, first: str, second: str
) -> None:
    path = tmp_path / name
    path.write_text(first)
    source = follow([path])
    look(source)
    path.write_text(second)
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.is_restart
    assert reading.payload.steps[0].loss == 2.9
    (reading,) = source.poll()
    assert reading.payload == MetricsChunk("17", (), ())


def test_a_row_of_a_csv_that_cannot_be_read_does_not_take_those_before_it_along(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,loss\n1,3.0\n2,{'9' * 200_000}\n3,2.0\n")
    assert [step.step for step in look(follow([path]))[0]] == [1, 3]


def test_a_csv_that_is_growing_waits_for_the_end_of_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss\n0,3.0\n1,2.")
    source = follow([path])
    assert [step.loss for step in look(source)[0]] == [3.0]
    with path.open("a") as file:
        file.write("5\n")
    assert [step.loss for step in look(source)[0]] == [2.5]


def test_the_state_of_transformers_goes_on_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "transformers" / "checkpoint-20", tmp_path / "checkpoint-20")
    paths = [tmp_path / "checkpoint-20" / "trainer_state.json"]
    source = follow(paths)
    steps, events = look(source)
    assert [step.step for step in steps] == list(range(2, 21, 2))
    assert all(step.grad_norm is not None and step.lr is not None for step in steps)
    assert look(source) == ([], [])
    shutil.copytree(FIXTURES / "transformers" / "checkpoint-40", tmp_path / "checkpoint-40")
    newest = tmp_path / "checkpoint-40" / "trainer_state.json"
    os.utime(newest, (2e9, 2e9))
    paths.append(newest)
    more_steps, more_events = look(source)
    assert [step.step for step in more_steps] == list(range(22, 41, 2))
    assert evaluations([*events, *more_events]) == [10, 20, 30, 40]


def test_a_checkpoint_that_its_training_has_removed_is_no_error_and_no_step_comes_twice(
    tmp_path: Path,
) -> None:
    """The list of files is older than the files: transformers keeps only the last checkpoints."""
    shutil.copytree(FIXTURES / "transformers" / "checkpoint-20", tmp_path / "checkpoint-20")
    paths = [tmp_path / "checkpoint-20" / "trainer_state.json"]
    source = follow(paths)
    assert len(look(source)[0]) == 10
    shutil.copytree(FIXTURES / "transformers" / "checkpoint-40", tmp_path / "checkpoint-40")
    shutil.rmtree(tmp_path / "checkpoint-20")
    assert look(source) == ([], [])
    paths.clear()
    assert look(source) == ([], [])
    paths.append(tmp_path / "checkpoint-40" / "trainer_state.json")
    assert [step.step for step in look(source)[0]] == list(range(22, 41, 2))


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    (tmp_path / "metrics.csv").write_text("step,loss\n1,3.0\n")
    names = ("events.out.tfevents.gone", "metrics.jsonl", "metrics.csv")
    steps, _ = look(follow([tmp_path / name for name in names]))
    assert [step.loss for step in steps] == [3.0]


def test_only_one_of_several_files_with_the_same_numbers_is_followed() -> None:
    steps, _ = look(follow([*files_of("transformers"), *files_of("torch"), *files_of("lightning")]))
    assert len(steps) == 40
    assert steps[0].loss == 2.0


def test_the_followed_file_stays_until_it_is_gone_even_if_more_appear(tmp_path: Path) -> None:
    def rank(number: int, *lines: str) -> None:
        paths.append(tmp_path / f"rank{number}.csv")
        paths[-1].write_text("".join(f"{line}\n" for line in ("step,loss", *lines)))
        os.utime(paths[-1], (2e9 + number, 2e9 + number))

    paths: list[Path] = []
    source = follow(paths)
    rank(0, "1,3.0")
    assert [step.loss for step in look(source)[0]] == [3.0]
    rank(1, "1,4.0")
    assert look(source) == ([], [])
    with paths[0].open("a") as file:
        file.write("2,2.5\n")
    os.utime(paths[0], (2e9 + 2, 2e9 + 2))
    rank(2, "1,5.0")
    assert [step.loss for step in look(source)[0]] == [2.5]
    paths.pop(0).unlink()
    assert [step.loss for step in look(source)[0]] == [5.0]
    better = tmp_path / "scalars.jsonl"
    better.write_text('{"loss": 6.0, "step": 1}\n')
    paths.append(better)
    assert [step.loss for step in look(source)[0]] == [6.0]


def test_the_second_file_of_a_requeued_training_replaces_the_first(tmp_path: Path) -> None:
    clock = _Clock()
    paths: list[Path] = []
    source = ForeignMetricsSource(clock, "17", lambda: paths)

    def write(version: int, at_s: float, *rows: str) -> None:
        path = tmp_path / f"version_{version}" / "metrics.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in ("step,train_loss", *rows)))
        os.utime(path, (at_s, at_s))
        if path not in paths:
            paths.append(path)

    write(0, 2e9, "1,3.0", "2,nan")
    assert len(look(source)[0]) == 2
    write(1, 2e9 + 30)  # it may still be another rank's
    assert look(source) == ([], [])
    write(1, 2e9 + 300, "1,2.9")
    clock.now_s += 120.0
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert (reading.payload.is_restart, [step.loss for step in reading.payload.steps]) == (True, [2.9])
    write(1, 2e9 + 310, "1,2.9", "2,2.8")
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert (reading.payload.is_restart, [step.loss for step in reading.payload.steps]) == (False, [2.8])


class _Clock(SystemIo):
    """The real files, and a clock that the test sets."""

    def __init__(self) -> None:
        super().__init__({})
        self.now_s = 2e9

    def now(self) -> float:
        return self.now_s


def test_a_file_without_a_loss_is_followed_only_until_another_has_one(tmp_path: Path) -> None:
    paths = [tmp_path / "rates.csv"]
    paths[0].write_text("step,lr\n1,0.1\n")
    source = follow(paths)
    assert [step.lr for step in look(source)[0]] == [0.1]
    paths.append(tmp_path / "others.csv")
    paths[1].write_text("step,lr\n1,0.7\n")
    assert look(source) == ([], [])
    paths.append(tmp_path / "losses.csv")
    paths[2].write_text("step,loss\n1,3.0\n")
    assert [step.loss for step in look(source)[0]] == [3.0]


def test_json_lines_of_any_training_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scalars.json"
    path.write_text(
        '{"lr": 0.1, "loss": 2.5, "iter": 10, "step": 10}\n{"loss": NaN, "iter": 20, "step": 20}\n'
    )
    steps, _ = look(follow([path]))
    assert [step.step for step in steps] == [10, 20]
    assert steps[0].lr == 0.1


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_curve(tmp_path: Path) -> None:
    (reading,) = follow([tmp_path / "metrics.csv"]).poll()
    assert reading.payload is None
    assert "metrics.csv" in (reading.error or "")


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\xfe", b'"\n"\n', b"a,b\n1\n1,2,3\n", b"step,loss\nx,y\n,\n"]
)
def test_a_csv_of_rubbish_gives_no_steps_and_no_crash(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(data)
    assert look(follow([path]))[0] == []


@pytest.mark.parametrize(
    ("name", "field", "is_evaluation"),
    [
        ("loss", "loss", False),
        ("train/loss", "loss", False),
        ("train_loss_step", "loss", False),
        ("Loss/val", "loss", True),
        ("eval_loss", "loss", True),
        ("validation/epoch_loss", "loss", True),
        ("lr-AdamW", "lr", False),
        ("learning_rate", "lr", False),
        ("train/grad_norm", "grad_norm", False),
        ("val_acc", "accuracy", True),
    ],
)
def test_each_frameworks_name_of_a_quantity_is_recognized(name: str, field: str, is_evaluation: bool) -> None:
    quantity = quantity_of(name)
    assert quantity is not None
    assert (quantity.field, quantity.is_evaluation) == (field, is_evaluation)


@pytest.mark.parametrize(
    "name", ["best_loss", "d_loss", "loss_cls", "policy_loss", "epoch", "step", "flossy"]
)
def test_other_numbers_are_not_taken_for_the_loss(name: str) -> None:
    assert quantity_of(name) is None


def test_the_loss_is_recognized_after_any_number_of_other_names() -> None:
    course = Course()
    course.take({f"grads/layer{number}": 1.0 for number in range(200)})
    steps, _ = course.take({"loss": 3.0, "step": 1})
    assert [step.loss for step in steps] == [3.0]
    assert course.has_loss


def test_a_huge_csv_is_thinned_but_keeps_its_nan_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    values = ["nan" if step == 70_001 else "0.5" for step in range(200_000)]
    path.write_text("step,loss\n" + "".join(f"{step},{value}\n" for step, value in enumerate(values)))
    source, steps = follow([path]), []
    while True:
        (reading,) = source.poll()
        assert isinstance(reading.payload, MetricsChunk)
        steps += reading.payload.steps
        if reading.is_caught_up:
            break
    numbers = [step.step for step in steps]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert 70_001 in numbers
    assert numbers[-10_000:] == list(range(190_000, 200_000))
    assert max(after - before for before, after in itertools.pairwise(numbers)) < 1000
    assert len(numbers) < 120_000
