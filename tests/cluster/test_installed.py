"""coach as an ordinary user has it: reachable for him and his jobs, in environments with torch and
without."""

from __future__ import annotations

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import NOBODY

pytestmark = pytest.mark.cluster

WHO = "import importlib.util, os; print(os.getuid(), importlib.util.find_spec('torch') is not None)"


def test_a_user_runs_coach_and_a_job_of_his_starts_the_same_interpreter(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    assert user_coach("--version").stdout.startswith("coach ")
    job = slurm.run(["srun", "--nodes=2", user_coach.python, "-c", WHO], env=user_coach.env(), timeout_s=60)
    assert job.stdout.splitlines() == [f"{NOBODY} True"] * 2, job.stderr


def test_the_bare_environment_has_coach_and_no_torch(slurm: SlurmCluster, bare_coach: InstalledCoach) -> None:
    assert bare_coach("--help").returncode == 0
    result = slurm.run([bare_coach.python, "-c", WHO])
    assert result.stdout == f"{NOBODY} False\n"


def test_a_user_s_coach_sees_the_cluster(user_coach: InstalledCoach) -> None:
    result = user_coach("partitions")
    assert result.returncode == 0, result.stderr
    assert "gpu" in result.stdout


def test_a_user_of_a_machine_without_slurm_finds_no_client(local_coach: InstalledCoach) -> None:
    found = local_coach("jobs", "--format", "json")
    assert found.returncode == 0, found.stderr
    assert '"jobs": []' in found.stdout


def test_homes_are_closed_to_others_and_new_for_every_test(user_coach: InstalledCoach) -> None:
    home = user_coach.user.home
    assert home.stat().st_mode & 0o777 == 0o700
    assert home.stat().st_uid == NOBODY
    assert list(home.iterdir()) == []
