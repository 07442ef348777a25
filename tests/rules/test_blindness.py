"""What could not be measured is listed with what to do about it, for this very target."""

from __future__ import annotations

import pytest

from coach.model.cluster import Job
from coach.model.history import History
from coach.model.snapshot import TargetSnapshot
from coach.rules.blindness import Sight
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
