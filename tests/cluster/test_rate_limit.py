"""coach at a site that limits how fast one user may ask (23.02 and newer): it must not make its own user's
sbatch wait."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coach.sources.rpc_budget import BURST, SITE_SHARE
from tests.cluster.other_slurm import OtherSlurm
from tests.cluster.slurm import booted
from tests.cluster.test_politeness import rpcs_of_user, wait_for_time
from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.terminal.tmux import Terminal

pytestmark = [pytest.mark.cluster]

BUCKET, PER_MIN, MINUTES = 40, 4, 10
LIMIT = f"SlurmctldParameters=rl_enable,rl_bucket_size={BUCKET},rl_refill_rate={PER_MIN},rl_refill_period=60"


@pytest.fixture
def strict_slurm() -> Iterator[OtherSlurm]:
    """A cluster of a version that can limit rates, and does so strictly."""
    with booted("coach-strict", lambda directory: OtherSlurm(directory, LIMIT)) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_after_ten_minutes_of_coach_sbatch_still_answers_at_once(
    strict_slurm: OtherSlurm, user: User, train_python: Path, open_terminal: Callable[..., Terminal]
) -> None:
    """A key is pressed every minute, so coach never idles. Prints the controller's counts."""
    coach = InstalledCoach(train_python, user, strict_slurm.env)
    job = strict_slurm.submit("sleep 900", "--job-name=patient")
    strict_slurm.wait_state(job, "RUNNING")
    terminal = open_terminal(coach.argv(), columns=80, rows=24, env=coach.env(), as_user=user)
    terminal.wait_for("patient", timeout_s=60)
    terminal.wait_for(re.compile(r"to spare Slurm|RPC/min of 1"), timeout_s=60)
    counted, start_s = [rpcs_of_user(strict_slurm)], time.monotonic()
    for minute in range(1, MINUTES + 1):
        terminal.send("j" if minute % 2 else "k")
        wait_for_time(start_s + 60.0 * minute)
        counted.append(rpcs_of_user(strict_slurm))
    before_s = time.monotonic()
    submitted = strict_slurm.submit("true")
    submit_s = time.monotonic() - before_s
    spent = [after - before for before, after in itertools.pairwise(counted)]
    print(  # noqa: T201
        f"\nSlurm {strict_slurm.version}, a bucket of {BUCKET} and {PER_MIN} a minute:"
        f"\n{counted[0]} RPCs for one sbatch and coach's start, then a minute: {spent}; sbatch took "
        f"{submit_s:.2f} s"
        f"\n{terminal.screen()}"
    )
    assert submitted
    assert submit_s < 2.0
    assert sum(spent) <= PER_MIN * SITE_SHARE * MINUTES + BURST, "a quarter of what the site gives back"
    assert "rate limit exceeded" not in strict_slurm.log()
