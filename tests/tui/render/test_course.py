"""The charts of one run: one axis for loss, GPUs and events, and the stretch of a finding."""

from __future__ import annotations

import math
import re

import pytest

from coach.lookback.history import History
from coach.model.training.metrics import MetricEvent, Step
from coach.render.text import line_width, plain
from coach.tui.render.axis import XAxis, duration
from coach.tui.render.chart import NO_NOTES
from coach.tui.render.course import CourseView, axis_of, course_lines, notes_of
from tests.tui.driving import opened
from tests.tui.fake_session import NOW_S, make_history, nan_diagnosis
from tests.tui.gpu_jobs import make_gpu, make_gpu_job

SIZES = [(50, 9), (78, 16), (118, 24), (198, 34)]


def drawn(history: History, width: int, height: int, view: CourseView | None = None) -> list[str]:
    axis = axis_of(history, None, NOW_S, is_live=True)
    assert axis is not None
    rows = course_lines(history, axis, NO_NOTES, width, height, view or CourseView(), next_key="M")
    assert [plain(row) for row in rows if line_width(row) > width] == []
    return [plain(row) for row in rows]


@pytest.mark.parametrize("size", SIZES)
def test_loss_and_gpus_share_one_axis_at_every_size(size: tuple[int, int]) -> None:
    rows = drawn(make_gpu_job(1, 2), *size)
    assert len(rows) <= size[1]
    text = "\n".join(rows)
    for part in ("loss", "GPU", "╵0 s"):
        assert part in text
    # Both edges of every scale are one column.
    edges = {row.index(sign) for row in rows for sign in "┤│" if sign in row}
    assert len(edges) == 1


def test_charts_without_room_are_named_with_the_key_that_shows_them() -> None:
    history = make_gpu_job(1, 1)
    assert drawn(history, 78, 9)[-1].strip().startswith("M: ")
    second = drawn(history, 78, 12, CourseView(first=1))
    assert "GPU utilization" in second[0]


def test_of_many_gpus_the_middle_one_and_the_ends_are_shown_by_name() -> None:
    rows = drawn(make_gpu_job(2, 8), 118, 40)
    assert "least node01:3" in rows[0]
    assert "median" in rows[0]


def test_steps_without_a_time_have_an_axis_of_steps() -> None:
    history = History()
    history.add_steps(Step(0, step, None, None, 2.0 / step) for step in range(1, 101))
    assert "╵step 50" in drawn(history, 78, 12)[-1]
    assert axis_of(History(), None, NOW_S, is_live=True) is None


def test_tokens_per_second_are_a_chart_and_steps_per_second_are_the_step_time() -> None:
    def history(tokens_per_s: float | None) -> History:
        made = History()
        for step in range(100):
            made.add_steps([Step(0, step, None, loss=2.0, step_time_s=0.5, tokens_per_s=tokens_per_s)])
        return made

    assert "throughput 41,000 tokens/s" in "\n".join(drawn(history(41_000.0), 78, 34))
    shown = "\n".join(drawn(history(None), 78, 34))
    assert "throughput" not in shown
    assert "step time 500 ms" in shown


def test_a_loss_that_is_not_finite_is_named_in_the_title() -> None:
    assert "loss NaN ✖ not finite from step 150" in drawn(make_history(lost_at=150), 78, 9)[0]


@pytest.mark.parametrize(("last_step", "words"), [(1490, "from step 1490"), (9000, "at step 1490")])
def test_a_loss_that_was_finite_again_is_not_said_to_be_lost_and_its_step_is_exact(
    last_step: int, words: str
) -> None:
    """A point of a long curve holds several steps: the step of the first NaN is not the last of its point."""
    history = History()
    steps = range(1, last_step + 1)
    losses = (math.nan if step == 1490 else 2.0 for step in steps)
    history.add_steps(Step(0, step, None, None, loss) for step, loss in zip(steps, losses, strict=True))
    assert f"✖ not finite {words} " in drawn(history, 78, 9)[0]


def test_all_gpus_of_a_chart_have_one_unit_also_if_one_gpu_was_lost() -> None:
    """NVML tells neither the limit nor the memory of a GPU that has fallen off the bus."""
    history = History()
    for second in range(60):
        is_lost = second > 50
        history.add_samples(
            make_gpu("node01", gpu, NOW_S - 60 + second, power_w=350.0)
            if gpu == 0 or not is_lost
            else make_gpu("node01", gpu, NOW_S - 60 + second, power_w=None, power_limit_w=None)
            for gpu in range(2)
        )
    title = next(row for row in drawn(history, 78, 40) if "GPU power" in row)
    assert "GPU power 350 W" in title


def test_the_loss_on_held_out_data_is_a_second_line_with_its_value_in_the_title() -> None:
    """A training that overfits: its own loss falls to 0.1, that on held-out data rises to 4."""
    history = History()
    history.add_steps(Step(0, step, None, None, 10.0 / step) for step in range(1, 101))
    axis = axis_of(history, None, NOW_S, is_live=False)
    assert axis is not None
    told = [
        MetricEvent(0, "eval", None, step, {"loss": step / 25, "accuracy": 0.5}) for step in (50, 75, 100)
    ]
    told += [MetricEvent(0, "eval", None, 80, {"accuracy": 0.5}), MetricEvent(0, "epoch_end", None, 80, {})]
    plain_rows, rows = (
        [plain(row) for row in course_lines(history, axis, NO_NOTES, 78, 12, CourseView(), events=events)]
        for events in ((), told)
    )
    assert re.match(r"─ loss 0\.1 · ⠒+ validation 4 ─", rows[0])
    assert "validation" not in plain_rows[0]
    right = [[row[-8:] for row in some] for some in (plain_rows, rows)]
    assert right[0] != right[1]


def test_events_are_marked_and_a_finding_has_the_stretch_since_it_began() -> None:
    axis = XAxis(NOW_S - 100, NOW_S)
    events = [
        MetricEvent(0, "checkpoint", NOW_S - 50, 10, {}),
        MetricEvent(0, "eval", NOW_S - 40, 12, {}),
        MetricEvent(0, "epoch_end", NOW_S - 200, 1, {}),
        MetricEvent(0, "checkpoint", None, 14, {}),
    ]
    notes = notes_of(events, [], nan_diagnosis(), axis)
    assert [(mark.sign, mark.at - NOW_S) for mark in notes.marks] == [("V", -40.0), ("C", -50.0)]
    assert (notes.stretches[0].name, notes.stretches[0].start) == ("NUM001", NOW_S - 60)
    by_step = notes_of(events, [], nan_diagnosis(), XAxis(1, 20, is_time=False))
    assert {mark.at for mark in by_step.marks} == {1.0, 10.0, 12.0, 14.0}


def test_checkpoint_files_are_marked_where_no_event_tells_of_them() -> None:
    axis = XAxis(NOW_S - 100, NOW_S)
    notes = notes_of([], [(NOW_S - 10, 7), (NOW_S - 900, 1)], None, axis)
    assert [(mark.sign, mark.at - NOW_S) for mark in notes.marks] == [("C", -10.0)]


@pytest.mark.parametrize(
    ("value_s", "step_s", "text"),
    [
        (0, 5, "0 s"),
        (45, 15, "45 s"),
        (90, 30, "1:30"),
        (300, 300, "5 min"),
        (5400, 1800, "90 min"),
        (7200, 3600, "2 h"),
        (172800, 86400, "2 d"),
        (-60, 60, "−1 min"),
    ],
)
def test_a_time_on_the_axis_is_short(value_s: float, step_s: float, text: str) -> None:
    assert duration(value_s, step_s) == text


async def test_z_and_m_change_the_scale_and_the_large_curve_of_a_job() -> None:
    async with opened(size=(120, 36)) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("Z")
        await driver.sees("logarithmic")
        await driver.press("M")
        await driver.sees("─ throughput")


def test_the_pace_of_sequences_is_shown_in_tokens_too() -> None:
    history = make_history()
    text = "\n".join(drawn(history, 118, 40, CourseView(tokens_per_sample=128)))
    assert re.search(r"throughput [\d,.]+ samples/s · [\d,.]+ tokens/s", text)
    assert "tokens/s" not in "\n".join(drawn(history, 118, 40))
