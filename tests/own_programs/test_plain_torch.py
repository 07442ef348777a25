"""Three trainings of plain torch, healthy and with one fault: a script, a torchrun command, a batch file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.own_programs.proof import LOCAL, Here, copy_programs, launch, mend

pytestmark = pytest.mark.train

TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2", "ddp_toy.py")


@pytest.mark.long  # short: tests/cli/test_launch_own.py, tests/cluster/test_own_training.py
def test_a_learning_rate_that_gives_nan_is_found_and_mended_in_the_script_s_own_argument(
    tmp_path: Path,
) -> None:
    coach = Here(tmp_path)
    copy_programs(tmp_path, "digits_argparse.py")
    healthy = launch(coach, "digits_argparse.py", *LOCAL, "--", "--epochs", "4")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, "digits_argparse.py", *LOCAL, "--", "--epochs", "4", "--lr", "1")
    assert (faulty.alarms, faulty.primary["cause"]) == (["NUM001"], "nan_loss")
    mended = mend(coach, faulty)
    assert (mended.state, mended.alarms) == ("COMPLETED", [])
    assert mended.recorded()["parameters"]["lr"] == 0.1


@pytest.mark.long  # short: tests/cli/test_launch_own.py, tests/cluster/test_own_training.py
def test_an_exception_of_one_rank_is_named_and_the_other_s_lost_connection_follows_from_it(
    tmp_path: Path,
) -> None:
    coach = Here(tmp_path)
    copy_programs(tmp_path, "ddp_toy.py")
    healthy = launch(coach, *LOCAL, "--", *TORCHRUN, "6", "2")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(coach, *LOCAL, "--", *TORCHRUN, "6", "2", "--broken_item", "77")
    assert faulty.state == "FAILED"
    assert (faulty.primary["rule"], faulty.primary["cause"]) == ("COD001", "code_error")
    assert "ValueError: item 77: expected 3 channels, got 4" in faulty.primary["summary"]
    assert {finding["consequence_of"] for finding in faulty.findings[1:]} <= {"COD001"}


@pytest.mark.long  # short: tests/cli/test_launch_own.py, tests/cluster/test_own_training.py
@pytest.mark.cluster
def test_a_batch_file_with_srun_is_silent_when_healthy_and_its_lack_of_memory_is_named(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    copy_programs(home, "words.py", "words.sbatch")
    (home / "venv" / "bin").mkdir(parents=True)
    (home / "venv" / "bin" / "activate").write_text(f'PATH="{user_coach.python.parent}:$PATH"\n')
    healthy = launch(user_coach, "words.sbatch")
    assert (healthy.state, healthy.alarms) == ("COMPLETED", [])
    faulty = launch(user_coach, "words.sbatch", "--", "--copies", "100000000")
    assert (faulty.state, faulty.primary["cause"]) == ("FAILED", "host_oom")
    assert faulty.alarms[0] == faulty.primary["rule"]


def test_the_programs_know_nothing_of_coach() -> None:
    folder = Path(__file__).parent / "programs"
    assert [file.name for file in folder.glob("*.*") if "coach" in file.read_text().casefold()] == []
