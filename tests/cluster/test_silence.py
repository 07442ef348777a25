"""Silence when all is well: a healthy run of five minutes gets no finding, from its first second to its
end."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]

MIN_DURATION_S = 300.0


def test_a_healthy_run_of_five_minutes_stays_silent_to_its_end(user_coach: InstalledCoach) -> None:
    """Prints how often it was judged, and how long it ran."""
    launched = user_coach(
        *(
            "launch",
            "baseline",
            "--set",
            "max_steps=2600",
            "--set",
            "eval_every_epoch=true",
            "--format",
            "json",
        )
    )
    run = json.loads(launched.stdout)
    states: list[str | None] = []

    def has_ended() -> bool:
        result = user_coach("check", run["run_id"], "--format", "json")
        diagnosis = json.loads(result.stdout)
        loud = [finding for finding in diagnosis["findings"] if finding["severity"] != "info"]
        assert loud == [], f"after {len(states)} looks: {loud}"
        assert result.returncode == 0
        states.append(diagnosis["state"])
        return diagnosis["state"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    start = time.monotonic()
    wait_until(has_ended, 1200, "the run ends", every_s=5.0)
    duration_s = time.monotonic() - start
    steps = Path(run["run_dir"], "metrics", "rank-0.jsonl").read_text().count('"loss"')
    what = f"silent in {len(states)} looks over {duration_s:.0f} s, {steps} records, ended {states[-1]}"
    print(f"\n{what}")  # noqa: T201 (what `make test-long` shows)
    assert states[-1] == "COMPLETED"
    assert duration_s >= MIN_DURATION_S, "too short to say anything: raise max_steps"
