"""A job's own verdict on a real Slurm: in its log and its run, and silent where all is well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coach.runs import SAID_OF_END
from tests.cluster.slurm import SlurmCluster
from tests.cluster.test_whole_jobs import submit
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
79.15 GiB of which 1.00 GiB is free."
PROGRAMS = {
    "healthy": "print('step 1 loss 0.5')\n",
    "traceback": "def load():\n    raise ValueError('11 classes, 10 expected')\nload()\n",
    "oom": f"import sys\nprint({OOM!r}, file=sys.stderr)\nsys.exit(1)\n",
    "disk": "with open('/dev/full', 'wb') as file:\n    file.write(bytes(1 << 20))\n",
    "rank": (
        "import os, signal, time\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(60)\n"
    ),
    "waits": "import signal\nprint('ready', flush=True)\nsignal.pause()\n",
}


@pytest.fixture
def launched(user_coach: InstalledCoach) -> Callable[..., dict[str, Any]]:
    """Launch one of the programs as a script; the answer of `coach launch`."""

    def launch(name: str, *options: str, status: int = 0) -> dict[str, Any]:
        (user_coach.user.home / f"{name}.py").write_text(PROGRAMS[name])
        words = (f"{name}.py", "--gpus", "0", "--time", "5:00", "--format", "json", *options)
        done = user_coach("launch", *words, timeout_s=120)
        assert done.returncode == status, done.stderr
        answer, _ = json.JSONDecoder().raw_decode(done.stdout)
        return dict(answer)

    return launch


def said(run_dir: Path) -> list[str]:
    """The job's own message about its end: the last lines of its standard error."""
    lines = (run_dir / "stderr.log").read_text().splitlines()
    found = [line.removeprefix(SAID_OF_END) for line in lines if line.startswith(SAID_OF_END)]
    assert all(line.startswith(SAID_OF_END) for line in lines[len(lines) - len(found) :])
    return found


def trains(run_dir: Path) -> bool:
    log = run_dir / "stdout.log"
    return log.exists() and "ready" in log.read_text()


@pytest.mark.parametrize(
    ("name", "options", "cause", "words"),
    [
        ("traceback", (), "code_error", "it ended with ValueError"),
        ("oom", (), "cuda_oom", "MEM001"),
        ("disk", (), "disk_quota", "it ended with OSError"),
        ("rank", ("--with", "torchrun", "--nproc-per-node", "2"), "host_oom", "by SIGKILL, rank 1 first"),
    ],
)
def test_a_job_that_failed_says_why_as_its_last_words(
    launched: Callable[..., dict[str, Any]],
    user_coach: InstalledCoach,
    name: str,
    options: tuple[str, ...],
    cause: str,
    words: str,
    train_python: Path,
) -> None:
    answer = launched(name, "--wait", "--python", str(train_python), *options, status=1)
    run_dir = Path(answer["run_dir"])
    lines = said(run_dir)
    assert 2 <= len(lines) <= 6
    assert words in "\n".join(lines)
    verdict = json.loads((run_dir / "verdict.json").read_text())
    assert verdict["findings"][0]["cause"] == cause
    assert json.loads((run_dir / "exit.json").read_text())["exit_code"] == 1
    again = user_coach("check", answer["job_id"], "--format", "json")
    assert json.loads(again.stdout)["findings"][0]["cause"] == cause
    why = user_coach("why", answer["job_id"])
    assert why.returncode == 1
    assert words in why.stdout
    assert len(why.stdout.splitlines()) <= 6
    assert user_coach("why").stdout.splitlines()[1:] == why.stdout.splitlines()[1:]


def test_a_healthy_job_says_nothing(launched: Callable[..., dict[str, Any]]) -> None:
    run_dir = Path(launched("healthy", "--wait")["run_dir"])
    assert said(run_dir) == []
    assert json.loads((run_dir / "verdict.json").read_text())["state"] == "COMPLETED"


def test_a_time_limit_is_judged_at_the_signal_before_it(
    launched: Callable[..., dict[str, Any]], slurm: SlurmCluster
) -> None:
    answer = launched("waits", "--with", "signal")
    run_dir = Path(answer["run_dir"])
    wait_until(lambda: trains(run_dir), 60, "it trains")
    slurm.run(["scancel", "--batch", "--signal=USR1", answer["job_id"]])  # as Slurm does before the limit
    slurm.wait_state(answer["job_id"], "FAILED", "COMPLETED", timeout_s=60)
    verdict = json.loads((run_dir / "verdict.json").read_text())
    assert verdict["state"] == "TIMEOUT"
    assert said(run_dir)[0].startswith(f"{run_dir.name}  TIMEOUT: Slurm ended it at its time limit")


def test_a_cancelled_job_ends_at_once_and_is_judged_by_the_next_coach(
    launched: Callable[..., dict[str, Any]], slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    answer = launched("waits")
    run_dir = Path(answer["run_dir"])
    wait_until(lambda: trains(run_dir), 60, "it trains")
    slurm.run(["scancel", answer["job_id"]])
    slurm.wait_state(answer["job_id"], "CANCELLED", timeout_s=30)
    wait_until((run_dir / "exit.json").exists, 30, "its end is noted")
    assert said(run_dir) == []
    assert not (run_dir / "verdict.json").exists()
    assert "CANCELLED" in user_coach("why", answer["job_id"]).stdout


def test_a_foreign_job_is_diagnosed_and_its_verdict_outlives_its_log(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    script = "#!/bin/bash\npython3 -c 'raise ValueError(\"11 classes\")'\n"
    job_id = submit(user_coach, "foreign", script)
    slurm.wait_state(job_id, "FAILED", timeout_s=60)
    first = user_coach("why", job_id)
    assert first.returncode == 1
    assert "ValueError: 11 classes" in first.stdout
    (log,) = (user_coach.user.home / "foreign").glob("slurm-*.out")
    log.unlink()
    assert user_coach("why", job_id).stdout == first.stdout


def test_a_crash_that_an_echo_hides_from_slurm_is_named(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    script = "#!/bin/bash\npython3 -c 'raise ValueError(\"11 classes\")'\necho Training finished\n"
    job_id = submit(user_coach, "hidden", script)
    slurm.wait_state(job_id, "COMPLETED", timeout_s=60)
    assert user_coach("check", job_id).returncode == 1
    why = user_coach("why", job_id)
    assert "ValueError: 11 classes; it ended a program of the job" in why.stdout
