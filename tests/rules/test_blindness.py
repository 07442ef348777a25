"""Missing measurements are listed with the remedy for this target."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogFile
from coach.model.training.telemetry import GpuHealth, GpuLink, GpuSample, TelemetrySample
from coach.rules.blindness import Sight
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.tui.fake_session import make_job, make_run


def remedies(job: Job | None, **more: object) -> set[str]:
    sight = Sight.of(TargetSnapshot("17", 1.0, job=job, **more), History())  # type: ignore[arg-type]
    missing = [gap for rule in build() if not sight.can_judge(rule) for gap in sight.not_measured(rule)]
    return {gap.how for gap in missing if gap.what.startswith(("gpu", "host"))}


def test_a_running_job_that_coach_did_not_launch_can_be_measured_now() -> None:
    assert all(how.startswith("coach attach 17; ") for how in remedies(make_job("17", raw_job_id="17")))
    assert remedies(make_job("17", raw_job_id="17"))


@pytest.mark.parametrize(
    ("state", "more"), [("COMPLETED", {}), ("PENDING", {}), ("RUNNING", {"run": make_run()})]
)
def test_nothing_is_put_into_a_job_that_does_not_run_or_has_a_sampler(
    state: str, more: dict[str, object]
) -> None:
    found = remedies(make_job("17", state=state, raw_job_id="17"), **more)
    assert found
    assert not any("attach" in how for how in found)


@pytest.mark.parametrize("is_own_script", [False, True])
def test_a_run_of_coach_gets_no_advice_to_launch_by_coach(is_own_script: bool) -> None:
    run = make_run(
        parameters={} if is_own_script else {"lr": 0.1}, resources={"num_nodes": 1, "gpus_per_node": 1}
    )
    history = History()
    for known in (history, with_one_gpu()):
        found = Engine(build()).diagnose(TargetSnapshot(run.run_id, 1.0, run=run), known).not_measured
        told = {gap.what: gap.how for gap in found}
        assert told
        assert not [how for how in told.values() if "coach launch" in how or "coach run" in how], told
        assert ("as the trainers do" in told["metrics"]) == is_own_script
    foreign = Engine(build()).diagnose(TargetSnapshot("17", 1.0), history).not_measured
    assert any("coach run" in gap.how for gap in foreign)


def test_an_own_program_without_metrics_gets_advice_on_writing_them() -> None:
    run = make_run(parameters={"lr": 0.1}, launch={"own": {"kind": "script"}})
    found = Engine(build()).diagnose(TargetSnapshot(run.run_id, 1.0, run=run), History()).not_measured
    told = {gap.what: gap for gap in found}["metrics"]
    assert "contain a loss" in told.because
    assert "coach_report.step" in told.how


def with_one_gpu() -> History:
    history = History()
    history.add_samples([GpuSample("node1", 1.0, 0, None, utilization_pct=90.0)])
    return history


def blind_of(*samples: TelemetrySample) -> set[str]:
    history = History()
    history.add_samples([GpuSample("node1", 1.0, 0, None, utilization_pct=90.0), *samples])
    return {gap.what for gap in Engine(build()).diagnose(TargetSnapshot("17", 1.0), history).not_measured}


def test_links_and_memory_of_a_gpu_without_any_record_of_them_are_not_called_healthy() -> None:
    assert {"gpu.links", "gpu.health"} <= blind_of()
    assert not {"gpu.links", "gpu.health"} & blind_of(
        GpuLink("node1", 1.0, 0, None), GpuHealth("node1", 1.0, 0, None)
    )


def test_without_any_gpu_telemetry_its_parts_have_no_lines_of_their_own() -> None:
    found = Engine(build()).diagnose(TargetSnapshot("17", 1.0), History()).not_measured
    assert "gpu.utilization" in {gap.what for gap in found}
    assert not {"gpu.links", "gpu.health"} & {gap.what for gap in found}


def test_a_job_whose_files_may_not_be_read_is_not_said_to_have_no_sampler() -> None:
    log = LogFile("/home/anna/log", False, problem="/home/anna/log: Permission denied")
    found = remedies(make_job("17", raw_job_id="17"), log_files=(log,))
    assert "ask its owner: coach check JOB" in found
    assert not any("attach" in how for how in found)
