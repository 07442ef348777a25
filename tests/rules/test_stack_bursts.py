"""Stack samples of real trainings: a slow loader, a slow rank, a rank that stands still, and ranks that
work."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.model.training.stacks import StackBurst
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.sources.metrics.stack_samples import parse_burst
from tests.rules.examples import gpu_samples, history, run, steps
from tests.rules.recorded import RECORDINGS
from tests.rules.test_telemetry import hosts


def recorded(name: str) -> list[StackBurst]:
    """The newest burst of each rank in a recording."""
    lines = (RECORDINGS / "stacks" / f"{name}.jsonl").read_text().splitlines()
    parsed = [parse_burst(json.loads(line)) for line in lines]
    newest = {burst.rank: burst for burst in parsed if burst is not None}
    return [*newest.values()]


def judged(
    bursts: list[StackBurst], later_s: float = 0.0, past: History | None = None, **more: object
) -> Diagnosis:
    snapshot = TargetSnapshot("run", bursts[0].time_s + later_s, run=run(), bursts=tuple(bursts))
    return Engine(build()).diagnose(replace(snapshot, **more), past or History())


def found(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.rule == code), None)


def busy_in(category: str, rank: int | None = None, **more: object) -> StackBurst:
    made = StackBurst(
        *("node1", 7 + (rank or 0), rank, 5000.0, False, True, None, 20),
        categories={category: 20},
        places=(("train.py:40 main", 20),),
        cpu_pct=99.0,
    )
    return replace(made, **more)


def test_a_program_whose_stacks_stand_in_its_loader_is_input_bound_without_any_number_of_its_own() -> None:
    diagnosis = judged(recorded("slow-loader"))
    finding = found(diagnosis, "GPU005")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "100% of the stacks of the program stand in the data loader" in finding.summary
    assert "lightning_module.py:23 __getitem__()" in finding.summary
    workers = judged(recorded("slow-loader"), run=run({"num_workers": 0}, {"cpus_per_task": 4}))
    fixes = [fix.changes for finding in workers.findings for fix in finding.fixes]
    assert {"num_workers": 4} in fixes
    titles = [
        fix.title for finding in workers.findings for fix in finding.fixes if "cpus_per_task" in fix.changes
    ]
    assert titles
    assert all("or all that a node has" in title for title in titles)


def test_a_wait_that_is_printed_without_the_time_of_the_step_does_not_hide_the_stacks() -> None:
    waits = [replace(step, step_time_s=None) for step in steps([2.0] * 40, data_time_s=0.3)]
    assert found(judged(recorded("slow-loader"), past=history(waits)), "GPU005") is not None


def test_the_rank_that_all_wait_for_is_named_by_its_stacks() -> None:
    finding = found(judged(recorded("slow-rank")), "DST008")
    assert finding is not None
    assert finding.subject.rank == 1
    assert "in its data loader" in finding.summary
    assert not any("exclude" in fix.changes for fix in finding.fixes)


def test_late_ranks_on_several_nodes_leave_out_none_of_them() -> None:
    waiting = [busy_in("collective", rank) for rank in (0, 1)]
    late = [busy_in("other", 2), busy_in("other", 3, node="node2", places=(("train.py:50 save", 20),))]
    finding = found(judged([*waiting, *late]), "DST008")
    assert finding is not None
    assert "ranks 2, 3: rank 2 stands in train.py:40 main()" in finding.summary
    assert not any("exclude" in fix.changes for fix in finding.fixes)
    same = found(judged([*waiting, *(replace(each, node="node2") for each in late)]), "DST008")
    assert same is not None
    assert any("exclude" in fix.changes for fix in same.fixes)


def test_a_rank_that_stands_while_the_others_wait_for_it_is_a_hang_with_its_line() -> None:
    finding = found(judged(recorded("stuck-rank"), 60.0), "DST007")
    assert finding is not None
    assert finding.severity is Severity.CRITICAL
    assert finding.summary == (
        "The training has stood still for 6 min: rank 1 stands in deepspeed_train.py:37 main(), rank 0 "
        "waits for it in a collective"
    )
    assert finding.fixes[0].command == "coach stacks run"


def test_a_stall_that_is_over_is_no_hang() -> None:
    bursts = recorded("stuck-rank")
    tail = LogTail("out", 1, ("step=65",), 7, 1, written_s=bursts[0].time_s + 30)
    assert found(judged(bursts, 60.0, log_tails=(tail,)), "DST007") is None
    assert found(judged(bursts, 60.0, run=run(state="COMPLETED")), "DST007") is None


def test_an_endless_loop_of_one_rank_is_a_hang_once_the_logs_are_silent() -> None:
    looping = [replace(burst, is_stall=True, silent_s=400.0) for burst in recorded("endless-loop")]
    finding = found(judged(looping), "DST007")
    assert finding is not None
    assert "rank 1 stands in loop.py:10 spin()" in finding.summary


def test_half_an_hour_of_silence_is_one_line() -> None:
    working = busy_in("other", is_stall=True, silent_s=1900.0)
    finding = found(judged([working]), "DST007")
    assert finding is not None
    assert finding.severity is Severity.INFO
    assert finding.summary == "Nothing was printed for 32 min: the program works in train.py:40 main()"


def test_a_sampled_program_without_metrics_that_stands_is_a_hang_too() -> None:
    standing = busy_in("data", is_stall=True, silent_s=400.0, cpu_pct=0.2)
    past = history((), hosts(300, start_s=4700.0, cpu_pct=0.2))
    assert found(judged([standing], past=past), "DST007") is not None


def test_ranks_that_wait_for_an_unmeasured_node_are_no_hang_that_is_certain() -> None:
    waiting = busy_in("collective", 0, is_stall=True, silent_s=400.0, cpu_pct=0.0)
    for num_nodes, is_told in ((1, True), (2, False)):
        launched = run(resources={"num_nodes": num_nodes})
        assert (found(judged([waiting], run=launched), "DST007") is not None) is is_told
    two_ranks = history([step for rank in (0, 1) for step in steps([1.0] * 30, rank, start_s=4600.0)])
    assert found(judged([waiting], past=two_ranks), "DST007") is None
    later = found(judged([waiting], 1500.0, run=run(resources={"num_nodes": 2})), "DST007")
    assert later is not None
    assert later.severity is Severity.INFO
    assert later.summary.endswith("rank 0 stands in train.py:40 main(), and other ranks are not measured")


def test_the_rank_that_works_is_named_beside_one_that_stands() -> None:
    standing = busy_in("data", 0, is_stall=True, silent_s=1900.0, cpu_pct=0.0)
    working = busy_in("forward", 1, is_stall=True, silent_s=1900.0)
    finding = found(judged([standing, working]), "DST007")
    assert finding is not None
    assert "rank 1 works in" in finding.summary


@pytest.mark.parametrize(("cpu_pct", "is_told"), [(0.0, True), (0.2, True), (9.0, False), (None, False)])
def test_a_process_that_stands_in_one_line_without_cpu_is_a_hang(
    cpu_pct: float | None, is_told: bool
) -> None:
    finding = found(judged([busy_in("data", is_stall=True, silent_s=400.0, cpu_pct=cpu_pct)]), "DST007")
    assert (finding is not None and finding.severity is Severity.CRITICAL) is is_told


@pytest.mark.parametrize(
    "bursts",
    [
        [busy_in("backward", 0), busy_in("backward", 1)],
        [busy_in("collective", 0), busy_in("collective", 1)],
        [busy_in("forward", 0), busy_in("collective", 1)],
        [busy_in("other", 0, has_steps=False), busy_in("collective", 1, has_steps=False)],
        [busy_in("other", 0), busy_in("other", 1)],
        [replace(busy_in("other"), categories={"data": 6, "forward": 14})],
        [
            busy_in("forward", 0, is_stall=True, silent_s=400.0),
            busy_in("collective", 1, is_stall=True, silent_s=400.0),
        ],
        [
            busy_in("save", 0, is_stall=True, silent_s=400.0),
            busy_in("collective", 1, is_stall=True, silent_s=400.0),
        ],
        [busy_in("other", is_stall=True, silent_s=400.0)],
        [busy_in("data", num_samples=3, categories={"data": 3})],
    ],
    ids=[
        "all compute",
        "all exchange",
        "one is a little ahead",
        "one prepares the data before the first step",
        "own code on all ranks",
        "a third waits for data",
        "an evaluation on one rank",
        "a long checkpoint",
        "six minutes without a line, at work",
        "too few stacks",
    ],
)
def test_ranks_that_work_are_no_finding(bursts: list[StackBurst]) -> None:
    assert [finding.rule for finding in judged(bursts).findings] == []


def test_a_loader_that_hides_behind_a_busy_gpu_is_no_finding() -> None:
    bursts = recorded("slow-loader")
    busy = gpu_samples([99.0] * 40, start_s=bursts[0].time_s - 20)
    assert found(judged(bursts, past=history(samples=busy)), "GPU005") is None
