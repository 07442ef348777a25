"""Numbers that trainings print: the form of every framework, and lines that only look similar."""

from __future__ import annotations

import math

import pytest

from coach.sources.logs.columns import Columns
from coach.sources.logs.printed_numbers import ANEW, LineNumbers, record_of_line
from coach.sources.logs.printed_speeds import FORMS, Form
from coach.sources.metrics.quantities import Course

LINES = {
    "epoch 0 step 10 loss 0.5": {"epoch": 0, "step": 10, "loss": 0.5},
    "Epoch: [2][ 10/391]\tTime  0.1 ( 0.2)\tLoss 6.9e+00 (7.0e+00)":
        {"epoch": 2, "loss": 6.9, "position": 10, "length": 391},
    "{'eval_loss': 2.1, 'eval_runtime': 1.0, 'epoch': 1.0}": {"eval_loss": 2.1, "epoch": 1.0},
    "[2026-01-01 10:00:00,123] Step 1,010: Train loss = 2.3, val loss = 2.5":
        {"step": 1010, "train loss": 2.3, "val loss": 2.5},
    "step 3 loss 1.5 lr 1e-4 samples/s 1234.5": {"step": 3, "loss": 1.5, "lr": 1e-4, "samples_per_s": 1234.5},
    "loss: 0.5 (640 img/s, 0.1 s/it)": {"loss": 0.5, "samples_per_s": 640, "step_time_s": 0.1},
    "[1,  2000] loss: 2.170": {"loss": 2.17},
    "step 10 loss 2.31 120.5 samples/s data_time 0.58":
        {"step": 10, "loss": 2.31, "samples_per_s": 120.5, "data_time_s": 0.58},
    "loss 1.5, step time 120.0 ms, data time 80.0 ms":
        {"loss": 1.5, "step_time_s": 0.12, "data_time_s": 0.08},
    "step 3 loss 2.0 data time 0.05 step time 0.95":
        {"step": 3, "loss": 2.0, "step_time_s": 0.95, "data_time_s": 0.05},
    "step 3 loss 2.0 load time 0.9 data 0.05 time 0.95":
        {"step": 3, "loss": 2.0, "step_time_s": 0.95, "data_time_s": 0.9},
    "step 3 loss 2.0 data time 0.05": {"step": 3, "loss": 2.0, "data_time_s": 0.05},
    "loss 0.5 on data 12.5 GB": {"loss": 0.5},
    "ep 1 | it 6/50 | loss 2.5 | lr 0.3": {"epoch": 1, "loss": 2.5, "lr": 0.3, "position": 6, "length": 50},
    "Epoch 1/4, Batch 100/1000, Loss: 2.1": {"epoch": 1, "loss": 2.1, "position": 100, "length": 1000},
    "50% done, loss 0.5, acc: 84.7%, 3 % left": {"loss": 0.5, "acc": 0.847},
    "[epoch 3/6] train loss: 0.5 | val loss: 0.6": {"epoch": 3, "train loss": 0.5, "val loss": 0.6},
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.1": {"epoch": 1, "loss": 2.1},
    "loss 0.5 in batch 7/1/2026": {"loss": 0.5},
    "epochs:  20%|##   | 2/10 [00:10<00:40, 5.0s/it, loss=0.5]":
        {"epoch": 2, "loss": 0.5, "position": 2, "is_bar": 1, "step_time_s": 5},
    "epoch3: loss 0.9 acc 0.3": {"epoch": 3, "loss": 0.9, "acc": 0.3},
    "[step200] loss: 0.9": {"step": 200, "loss": 0.9},
    "Ep02 | loss 0.9": {"epoch": 2, "loss": 0.9},
    "step1 loss: 0.2 of two models": {"loss": 0.2},
    "loss 0.5, total time 0.5, data 0.9": {"loss": 0.5, "data_time_s": 0.9},
    "[rank2] step 56 loss 0.5872 step_time 0.613": {"step": 56, "loss": 0.5872, "step_time_s": 0.613},
    "step 5 loss 0.5, iter time: 120.5 ms": {"step": 5, "loss": 0.5, "step_time_s": 0.1205},
    "step 5 loss 0.5 batch_time 120.5": {"step": 5, "loss": 0.5},
    "step 5 loss 0.5 avg_step_time 0.5, train_time 0.9": {"step": 5, "loss": 0.5, "step_time_s": 0.5},
    "step 5 loss 0.5 data time 1.9 step time 0.9": {"step": 5, "loss": 0.5, "step_time_s": 0.9},
    "step 5 loss 0.5 forward time 0.9 data wait 0.1": {"step": 5, "loss": 0.5, "data_time_s": 0.1},
    "step 5 loss 0.5 time 0.9 tokens/s 40,946 mfu 41.2":
        {"step": 5, "loss": 0.5, "tokens_per_s": 40946, "mfu": 0.412},
    "step 5 loss 0.5 (1.2 it/s, 8000 tok/s)":
        {"step": 5, "loss": 0.5, "tokens_per_s": 8000, "step_time_s": 1 / 1.2},
    "step 3 loss 2555167166416551936.0000": {"step": 3, "loss": 2555167166416551936},
    "step 3 loss 0.00034567890123456789": {"step": 3, "loss": 0.00034567890123456789},
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_the_numbers_of_a_line_get_their_names(line: str) -> None:
    record = record_of_line(line)
    assert record is not None
    assert {name: value for name, value in record.items() if name != "time_s"} == pytest.approx(LINES[line])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.of)
def test_each_form_of_the_table_gives_what_it_says(form: Form) -> None:
    record = record_of_line(form.example) or record_of_line(form.example, needs_loss=False)
    assert record is not None
    assert {name: value for name, value in record.items() if name != "time_s"} == pytest.approx(form.gives)


@pytest.mark.parametrize(
    "line",
    [
        "no loss here",
        "loss is NaN at step 3",
        "using loss scale 65536",
        "CrossEntropyLoss(weight=1.0)",
        "lossless 3 of 5 files",
        "File train.py, line 12, in loss",
        "Validation:  50%|#####     | 5/10 [00:01<00:01, 5.0it/s, loss=0.5]",
    ],
)
def test_a_line_that_only_speaks_of_a_loss_counts_for_nothing(line: str) -> None:
    assert record_of_line(line) is None


def test_a_loss_of_nan_or_infinity_is_kept() -> None:
    record = record_of_line("step 4 loss nan")
    assert record is not None
    assert math.isnan(record["loss"])


def test_a_rate_without_a_step_time_is_the_throughput() -> None:
    record = record_of_line("step 4 loss 0.5 812.5 samples/s")
    assert record is not None
    ((step,), _) = Course().take(record)
    assert (step.samples_per_s, step.num_samples_global, step.step_time_s) == (812.5, None, None)


def test_step_numbers_that_restart_in_each_epoch_are_continued() -> None:
    lines = [f"epoch {epoch} step {step} loss 1.0" for epoch in (0, 1, 2) for step in (10, 20)]
    assert [record["step"] for record in LineNumbers().records(lines)] == [10, 20, 30, 40, 50, 60]


def test_lines_without_a_step_are_numbered() -> None:
    assert places("Loss: 2.0", "saved", "Loss: 1.0") == [("line", 0, 2.0), ("line", 1, 1.0)]


def test_a_log_with_a_loss_per_epoch_is_numbered_by_epochs() -> None:
    lines = [f"[epoch {epoch}/3] train loss: 0.{epoch} | val loss: 0.9" for epoch in (1, 2, 3)]
    assert places(*lines) == [("epoch", 1, 0.1), ("epoch", 2, 0.2), ("epoch", 3, 0.3)]


def test_two_lines_with_one_epoch_show_that_each_is_a_part_of_it() -> None:
    lines = [f"epoch {epoch} [{sample}/640 (1%)] Loss: 1.0" for epoch in (1, 2) for sample in (0, 64, 128)]
    assert [place[:2] for place in places(*lines)[1:]] == [("line", number) for number in (2, 3, 4, 5, 6)]


def test_steps_of_an_epoch_are_added_to_the_epochs_before() -> None:
    lines = [f"ep {epoch} | it {step}/50 | loss 1.0" for epoch in (0, 1, 2) for step in (9, 29)]
    assert [place[:2] for place in places(*lines)] == [("step", step) for step in (9, 29, 59, 79, 109, 129)]
    begun_again = [*lines, *lines[:3]]
    assert [place[1] for place in places(*begun_again)][-3:] == [9, 29, 59]


def test_a_batch_of_an_evaluation_is_neither_the_evaluation_nor_a_step_of_the_training() -> None:
    lines = [
        line
        for epoch in (1, 2, 3)
        for line in (
            f"epoch:[ {epoch}/3 ] train step:0 loss: 1.0",
            f"epoch:[ {epoch}/3 ] train step:50 loss: 1.0",
            f"epoch:[ {epoch}/3 ] val step:0 loss: 0.1",
            f"END epoch:{epoch} val loss_avg: 2.0",
        )
    ]
    records = LineNumbers().records(lines)
    assert [record["step"] for record in records if "loss" in record] == [0, 50, 51, 101, 102, 152]
    evaluations = [record for record in records if "loss" not in record]
    assert [sorted(each.items()) for each in evaluations] == [
        [("epoch", epoch), ("val loss_avg", 2.0)] for epoch in (1, 2, 3)
    ]


def test_an_evaluation_at_the_newest_step_of_the_training_is_read() -> None:
    lines = ["step 50 loss 1.0", "Eval step 50: loss 2.0", "step 100 loss 0.9", "Eval step 100: loss 1.9"]
    read = [(record["step"], record.get("val loss")) for record in LineNumbers().records(lines)]
    assert read == [(50, None), (50, 2.0), (100, None), (100, 1.9)]


def test_numbers_that_grow_over_all_epochs_are_left_alone() -> None:
    lines = [f"epoch {step // 10} step {step}/30 loss 1.0" for step in range(0, 30, 5)]
    assert [place[1] for place in places(*lines)] == [0, 5, 10, 15, 20, 25]


def test_another_run_in_the_same_log_begins_another_curve() -> None:
    def lines(form: str, losses: list[float]) -> list[str]:
        return [form.format(step, loss) for step, loss in enumerate(losses)]

    falls = [2.4, 1.9, 1.4, 0.9, 0.4]
    for form in ("step {} loss {}", "{}/400 loss {}", "epoch 1 step {} loss {}"):
        anew = [ANEW in record for record in LineNumbers().records(lines(form, falls) + lines(form, falls))]
        assert anew == [False] * 5 + [True] + [False] * 4, form
        goes_on = lines(form, falls) + lines(form, [0.45, 0.4, 0.3])
        assert not any(ANEW in record for record in LineNumbers().records(goes_on)), form


@pytest.mark.parametrize("description", ["Epoch {}: ", "", "Training: "])
def test_a_redrawn_progress_bar_counts_each_of_its_steps_once(description: str) -> None:
    lines = [
        f"{description.format(epoch)} 50%|#####     | {drawn}/4 [00:01<00:01, 5.0it/s, loss={loss}]"
        for epoch in (0, 1)
        for loss in range(1, 5)
        for drawn in (loss - 1, loss)
    ]
    found = places(*lines)
    assert [step for _, step, _ in found] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [loss for _, _, loss in found] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_a_progress_bar_that_tells_another_step_than_its_place_is_read_by_that_step() -> None:
    lines = [
        f"Epoch: 1/1, step {step}/4500 completed (loss: 1.5):  22%|██▏  | {step + 1}/4500 [9:19<2:46, 2s/it]"
        for step in (1000, 1000, 1100)
    ]
    assert places(*lines) == [("step", 1000, 1.5), ("step", 1100, 1.5)]


def test_steps_go_on_where_a_program_tells_its_place_in_the_epoch_beside_them() -> None:
    # https://github.com/open-mmlab/OpenPCDet/blob/master/tools/train_utils/train_utils.py
    line = (
        "Train:    {}/80 (  1%) [{:>4}/100 (  5%)]  Loss: 0.6912 (0.683)  LR: 1.001e-03  Time cost: "
        "01:10/20:12 "
        "[01:10/27:21:11]  Acc_iter {:<10}  Data time: 0.05(0.50)  Batch time: 0.97(1.20)"
    )
    lines = [line.format(epoch, at, 100 * (epoch - 1) + at) for epoch in (1, 2, 3) for at in (0, 50, 99)]
    assert places(*lines) == [("step", step, 0.6912) for step in (0, 50, 99, 100, 150, 199, 200, 250, 299)]


def test_a_rounded_counter_in_a_bar_gives_way_to_the_bar_s_place() -> None:
    # https://github.com/NVIDIA/NeMo/blob/main/nemo/lightning/pytorch/callbacks/progress_bar.py
    bar = "Epoch 0: : 90%|███ | {}/2600 [43:24:54<00:00, reduced_train_loss=0.{}, global_step={}]"
    lines = [bar.format(at, at, f"{float(at):.3g}".replace("e+0", "e+")) for at in (998, 2341, 2345)]
    assert [step for _, step, _ in places(*lines)] == [998, 2341, 2345]


def test_a_table_of_parts_with_a_bar_gives_their_sum_at_each_place_of_the_bar() -> None:
    # https://github.com/ultralytics/ultralytics/issues/7653, and the newer bar of issues/22209
    header = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
    rows = [
        "    70/1000      6.73G      1.081     0.4706      1.084         10        640: 100%|███| 16/16 "
        "[00:05<00:00,  2.78it/s]",
        "    71/1000      6.73G      1.038     0.4686      1.064         12        640: 100% ━━━ 16/16 "
        "3.1it/s 2.6s",
    ]
    columns = Columns()
    assert columns.read(header) is None
    lines = [columns.read(row) or "" for row in rows]
    assert places(*lines) == [("step", 16, 2.6356), ("step", 32, 2.5706)]
    assert (record_of_line(lines[0]) or {})["step_time_s"] == pytest.approx(1 / 2.78)


def test_an_evaluation_in_a_progress_bar_counts_once() -> None:
    bar = "Epoch {}: 50%|#####     | {}/4 [00:01<00:01, 5.0it/s, loss=1.0, val_loss={}]"
    lines = [bar.format(epoch, step, val) for epoch, val in ((1, 0.9), (2, 0.7)) for step in (1, 2, 3, 4, 4)]
    course = Course()
    events = [
        event for record in LineNumbers().records(lines) for event in course.take(record)[1] if event.fields
    ]
    assert [event.fields["loss"] for event in events if event.event == "eval"] == [0.9, 0.7]


def places(*lines: str) -> list[tuple[str, int, float | None]]:
    """What each training loss is counted by, its number, and the loss."""
    course = Course()
    steps = [step for record in LineNumbers().records(lines) for step in course.take(record)[0]]
    return [(str(step.counter), step.step, step.loss) for step in steps]


def test_a_line_s_own_time_is_the_time_of_its_numbers() -> None:
    first, later = (record_of_line(f"[2026-01-01 10:0{minute}:00,500] step 3 loss 1.0") for minute in (0, 2))
    assert first is not None
    assert later is not None
    assert later["time_s"] - first["time_s"] == 120
    assert "time_s" not in (record_of_line("step 3 loss 1.0") or {"time_s": 0})
    # MMEngine's form: https://github.com/open-mmlab/mmengine/blob/main/mmengine/logging/logger.py
    with_slashes = record_of_line("2026/01/01 10:02:00 - mmengine - INFO - Iter(train) [3/9]  loss: 1.0")
    assert with_slashes is not None
    assert later["time_s"] - with_slashes["time_s"] == 0.5


def test_two_losses_with_a_word_before_them_are_not_mixed_into_one_curve() -> None:
    lines = [f"step {step} {who} loss: {value}" for step in range(3) for who, value in (("D", 7), ("G", 2))]
    records = LineNumbers().records(lines)
    assert [record["loss"] for record in records if record is not None] == [7, 7, 7]


def test_a_plain_loss_takes_the_place_of_the_part_that_was_read_first() -> None:
    lines = [
        f"step {step} {who} loss {value}" for step in range(2) for who, value in (("kl", 7), ("total", 2))
    ]
    first, *others = LineNumbers().records(lines)
    assert first["loss"] == 7
    assert [(record["total loss"], ANEW in record) for record in others] == [(2, True), (2, False)]


def test_the_only_loss_of_a_log_is_read_whatever_stands_before_it() -> None:
    records = LineNumbers().records(["step 1 ctc loss 0.5", "step 2 ctc loss 0.4"])
    assert [(record["step"], record["loss"]) for record in records] == [(1, 0.5), (2, 0.4)]


@pytest.mark.parametrize(
    "line",
    [
        "loaded data in 3.2s",
        "data loading took 12.5 s",
        "#5 [3/10] RUN pip install data==1.0",
        "Epoch(test) [50/100]  eta: 0:00:05  time: 0.0500  data_time: 0.0030  memory: 500",
        "Test: [  3/30]  Time 0.593 (0.593)  Data 0.400 (0.400)  Acc@1 71.000 (70.500)",
        "step 3 of 10 took 5 minutes",
    ],
)
def test_a_time_outside_a_training_step_is_no_speed_of_a_step(line: str) -> None:
    assert record_of_line(line, needs_loss=False) is None


def test_speeds_before_the_first_loss_are_another_curve() -> None:
    lines = ["step 90 data 0.86s step 1.0s", "step 100 data 0.86s step 1.0s", "step 10 loss 2.5"]
    records = LineNumbers().records(lines)
    assert [record["step"] for record in records] == [90, 100, 10]
    assert [ANEW in record for record in records] == [False, False, True]
