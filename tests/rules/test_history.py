"""Rules about earlier runs: each where it fires, and where it stays silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.judging.verdict import Across, NodeRecord, Pace, PastRun
from coach.model.launching.launch import AppliedFix
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import run


def past(number: int, cause: str | None = "cuda_oom", state: str = "FAILED", **said: Any) -> PastRun:
    start_s = number * 3600.0
    made = PastRun(f"run-{number}", "recipe ddp", state, start_s - 60, start_s, start_s + 600, cause=cause)
    return replace(made, rule="MEM001" if cause else None, **said)


def found(across: Across, state: str | None = None, **launched: Any) -> list[Finding]:
    snapshot = TargetSnapshot(
        across.this.target, 9e4, run=run(state=state or across.this.state, **launched), across=across
    )
    findings = Engine(build()).diagnose(snapshot, History()).findings
    return [finding for finding in findings if finding.rule.startswith("HIS")]


def lr(value: float) -> Mapping[str, Any]:
    return {"parameters": {"lr": value}}


def test_the_fifth_failure_in_a_row_is_reported_with_the_changes_tried_in_between() -> None:
    before = tuple(past(number, **lr(0.1 * number)) for number in (1, 2, 3, 4))
    (finding,) = found(Across(past(5, **lr(0.4)), before))
    assert (finding.rule, finding.severity) == ("HIS001", Severity.WARNING)
    assert finding.summary.startswith("5 times in a row it ended with cuda_oom (MEM001)")
    assert "lr: 0.1 → 0.2" in finding.summary
    assert [item.text.partition(",")[0] for item in finding.evidence] == [f"run-{n}" for n in (1, 2, 3, 4, 5)]
    assert "no change is known" in finding.evidence[-1].text


def test_an_end_from_outside_in_between_neither_counts_nor_interrupts() -> None:
    ended = past(3, "slurm_preempted", "PREEMPTED")
    cancelled = past(4, None, "CANCELLED")
    (finding,) = found(Across(past(5), (past(1), past(2), ended, cancelled)))
    assert finding.summary.startswith("3 times in a row")


@pytest.mark.parametrize(
    "before",
    [
        (past(1),),
        (past(1), past(2), past(3, None, "COMPLETED")),
        (past(1), past(2), past(3, "nccl_timeout")),
        (past(1), past(2), past(3, None)),  # its cause is unknown
    ],
)
def test_a_retry_a_success_and_another_failure_in_between_are_no_row(before: tuple[PastRun, ...]) -> None:
    assert found(Across(past(4), before)) == []


def test_a_training_that_is_resumed_after_each_time_limit_is_as_planned() -> None:
    limits = tuple(past(number, "slurm_timeout", "TIMEOUT") for number in range(1, 6))
    assert found(Across(limits[-1], limits[:-1])) == []


@pytest.mark.parametrize("cause", ["code_error", "unknown_failure"])
def test_two_errors_of_a_program_are_the_same_if_only_their_numbers_differ(cause: str) -> None:
    def error(number: int, words: str) -> PastRun:
        return past(number, cause, summary=words)

    same = tuple(error(number, f"ValueError: bad row {number}") for number in (1, 2, 3))
    assert [finding.rule for finding in found(Across(same[-1], same[:-1]))] == ["HIS001"]
    assert found(Across(error(4, "KeyError: 'x'"), same)) == []


def asked(number: int, mem: str, cause: str | None = "host_oom", **said: Any) -> PastRun:
    return past(number, cause, resources={"mem": mem}, **said)


def test_memory_that_was_raised_and_used_up_again_is_to_be_measured_first() -> None:
    (finding,) = found(Across(asked(2, "64G"), (asked(1, "32G"),)))
    assert (finding.rule, finding.severity) == ("HIS002", Severity.WARNING)
    assert "32.0 GiB → 64.0 GiB" in finding.summary
    assert not any("mem" in fix.changes for fix in finding.fixes)


@pytest.mark.parametrize(
    "launched",
    [
        {"fix": AppliedFix("MEM007", "Memory per node → 64G", {"mem": "64G"})},
        {"mem_need_mib": 65536.0},
    ],
    ids=["a fix of coach", "what the recipe needs"],
)
@pytest.mark.parametrize("cause", ["host_oom", "cuda_oom"])
def test_memory_that_coach_itself_raised_is_not_reproached(cause: str, launched: dict[str, Any]) -> None:
    raised = Across(asked(2, "64G", cause), (asked(1, "32G", cause),))
    assert found(raised)
    assert found(raised, **launched) == []


def test_a_fix_of_something_else_and_more_memory_than_needed_stay_a_finding() -> None:
    raised = Across(asked(2, "64G"), (asked(1, "32G"),))
    assert found(raised, fix=AppliedFix("DAT001", "Fewer workers", {"num_workers": 2}), mem_need_mib=5120.0)


def test_a_job_that_survives_longer_with_more_memory_has_a_leak() -> None:
    longer = replace(asked(2, "64G"), ended_s=2 * 3600.0 + 1200)
    (finding,) = found(Across(longer, (asked(1, "32G"),)))
    assert "it ran 1200 s instead of 600 s" in finding.summary


def test_the_hosts_memory_does_not_help_the_gpus() -> None:
    (finding,) = found(Across(asked(2, "64G", "cuda_oom"), (asked(1, "32G", "cuda_oom"),)))
    assert "but GPU memory ran out again" in finding.summary


def test_memory_that_lay_idle_before_it_was_raised_is_a_remark() -> None:
    before = asked(1, "64G", None, memory_used_mib=8192.0)
    (finding,) = found(Across(asked(2, "128G", None, state="COMPLETED"), (before,)))
    assert (finding.rule, finding.severity) == ("HIS002", Severity.INFO)
    assert "8.0 GiB was the peak" in finding.summary
    titles = [fix.title for fix in finding.fixes]
    assert titles == ["Memory per node → 10.4 GiB covers the measured peak"]


@pytest.mark.parametrize(
    ("this", "before"),
    [
        (asked(2, "64G", None, state="COMPLETED"), asked(1, "32G")),  # it helped
        (asked(2, "32G"), asked(1, "32G")),
        (asked(2, "64G"), past(1, "host_oom")),  # its limit is not known
        (asked(2, "128G", None), asked(1, "64G", None, memory_used_mib=60000.0)),
        (asked(2, "128G", None), asked(1, "64G", None)),  # its use was not measured
        (replace(asked(2, "128G", None), **lr(0.1)), asked(1, "64G", None, memory_used_mib=8192.0)),
    ],
)
def test_memory_that_helped_or_was_not_measured_is_no_finding(this: PastRun, before: PastRun) -> None:
    assert found(Across(this, (before,))) == []


def record(
    num_failed: int, num_runs: int, low: float, peers: tuple[int, int], *failed: PastRun
) -> NodeRecord:
    return NodeRecord("n3", num_failed, num_runs, low, 1.0, *peers, failed or (past(1),))


def test_a_node_that_fails_more_than_its_peers_is_left_out() -> None:
    this = past(5, "slurm_node_fail", "NODE_FAIL", nodes=("n3",))
    (finding,) = found(Across(this, nodes=(record(4, 6, 0.3, (1, 60), past(1), this),)))
    assert (finding.rule, finding.severity, finding.subject.node) == ("HIS003", Severity.WARNING, "n3")
    assert "4 of 6 of your runs (30% to 100%), the other nodes under 1 of 60" in finding.summary
    assert {"exclude": "n3"} in [dict(fix.changes) for fix in finding.fixes]


def test_a_run_that_goes_on_there_gets_a_remark() -> None:
    running = past(5, None, "RUNNING", nodes=("n3",))
    (finding,) = found(Across(running, nodes=(record(4, 6, 0.3, (1, 60)),)))
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    "quiet",
    [
        record(2, 2, 0.3, (0, 60)),
        record(4, 6, 0.3, (0, 9)),
        record(3, 30, 0.02, (5, 60)),
    ],
)
def test_chance_too_few_peers_and_a_cluster_that_fails_everywhere_are_no_finding(quiet: NodeRecord) -> None:
    assert found(Across(past(5, None, "RUNNING", nodes=("n3",)), nodes=(quiet,))) == []


def test_a_run_that_got_through_on_a_bad_node_is_left_in_peace() -> None:
    done = past(5, None, "COMPLETED", nodes=("n3",))
    assert found(Across(done, nodes=(record(4, 6, 0.3, (1, 60)),))) == []


def paced(ratio: float, high: float) -> Across:
    before = tuple(
        past(n, None, "COMPLETED", samples_per_s=100.0, versions={"torch": "2.3"}) for n in (1, 2, 3)
    )
    this = past(5, None, "RUNNING", samples_per_s=100 * ratio, versions={"torch": "2.4"}, nodes=("n9",))
    return Across(this, pace=Pace(100 * ratio, before, ratio, ratio - 0.05, high))


def test_a_run_below_last_weeks_throughput_is_reported_with_the_differences() -> None:
    (finding,) = found(paced(0.8, 0.86))
    assert (finding.rule, finding.severity) == ("HIS004", Severity.WARNING)
    assert "20% below the 3 equal runs" in finding.summary
    assert "torch: 2.3 → 2.4" in [item.text for item in finding.evidence]
    assert finding.fixes[0].command == "coach compare run-3 run-5"


def test_a_run_whose_cpus_others_used_is_no_alarm_and_one_on_a_gpu_is() -> None:
    slow = paced(0.8, 0.86)
    shared = replace(slow, this=replace(slow.this, others_cpu_pct=60.0))
    on_cpus, on_gpu = {"device": {"type": "cpu"}}, {"device": {"type": "cuda"}}
    assert [f.severity for f in found(shared, **on_cpus)] == [Severity.INFO]
    assert [f.severity for f in found(shared, **on_gpu)] == [Severity.WARNING]
    assert [f.severity for f in found(slow, **on_cpus)] == [Severity.WARNING]


def test_a_failure_that_is_shown_on_purpose_is_no_attempt_in_vain() -> None:
    thrice = Across(past(5), (past(1), past(2), past(3)))
    assert found(thrice)
    assert found(thrice, expects=("MEM001",)) == []
    assert found(thrice, drill="full_card") == []


@pytest.mark.parametrize(("ratio", "high"), [(0.8, 0.97), (0.97, 0.98), (1.3, 1.4)])
def test_a_throughput_within_the_usual_spread_of_runs_is_no_finding(ratio: float, high: float) -> None:
    assert found(paced(ratio, high)) == []


def grown(batch: int, rate: float, noise: float = 1.0, **changed: Any) -> Across:
    """Two attempts: the first with a batch of 32 and 100 samples/s."""

    def attempt(number: int, size: int, samples_per_s: float, **said: Any) -> PastRun:
        parameters = {"batch_size": size, "lr": 0.001 * size, "num_workers": 4, **said.pop("parameters", {})}
        known = {
            "samples_per_s": samples_per_s,
            "samples_per_s_noise": noise,
            "device": "H200",
            "world_size": 2,
        }
        return past(number, None, "COMPLETED", parameters=parameters, **{**known, **said})

    return Across(attempt(2, batch, rate, **changed), (attempt(1, 32, 100.0),))


def test_a_batch_that_grew_without_more_samples_a_second_is_a_remark_with_both_runs() -> None:
    (finding,) = found(grown(64, 101.0))
    assert (finding.rule, finding.severity) == ("HIS005", Severity.INFO)
    assert finding.summary == (
        "The batch grew from 32 to 64, the throughput did not: 100 samples/s in run-1, 101 in run-2"
    )
    assert [fix.command for fix in finding.fixes] == ["coach compare run-1 run-2", None]
    assert dict(finding.fixes[1].changes) == {"batch_size": 32}


@pytest.mark.parametrize(
    "healthy",
    [
        grown(64, 190.0),
        grown(64, 108.0),
        grown(64, 80.0),
        grown(48, 101.0),
        grown(16, 101.0),
        grown(64, 101.0, noise=8.0),
        grown(64, 101.0, noise=0.0, samples_per_s_noise=8.0),
        grown(64, 101.0, noise=8.0, samples_per_s_noise=None),
        grown(64, 101.0, device="A100"),
        grown(64, 101.0, world_size=4),
        grown(64, 101.0, parameters={"num_workers": 0}),
        grown(64, 101.0, parameters={"batch_size": "many"}),
        replace(grown(64, 101.0), attempts=()),
    ],
)
def test_a_batch_that_brought_speed_or_cannot_be_compared_is_no_finding(healthy: Across) -> None:
    assert found(healthy) == []
