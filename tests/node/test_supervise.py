"""`coach run` is invisible to the user's training, even if the sampler fails."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from tests.node.conftest import Start, children_of, sampler_of, telemetry
from tests.nvml.stand_in import NvmlStandIn
from tests.waiting import wait_until

# Signals are awaited, not handled: one that came just before signal.pause() would be noticed only with the
# next.
_COUNT_SIGNALS = """
import signal, sys
wanted = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
count = 0
while signal.sigwait(wanted) == signal.SIGUSR1:
    count += 1
    print("usr1", count, flush=True)
sys.exit(count)
"""


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def _run(tmp_path: Path) -> list[str]:
    return ["run", "--run-dir", str(tmp_path / "run"), "--interval", "0.1"]


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_of_the_training_is_passed_through(start: Start, tmp_path: Path, status: int) -> None:
    training = start(*_run(tmp_path), "--", "sh", "-c", f"echo out; echo err >&2; exit {status}")
    assert training.communicate(timeout=30) == ("out\n", "err\n")
    assert training.returncode == status
    part = _read(tmp_path / "run" / "exit.json")["nodes"]["node1"]
    assert (part["exit_code"], part["signal"]) == (status, None)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_coach_run_dies_of_the_signal_that_the_training_died_of(
    start: Start, tmp_path: Path, signum: int
) -> None:
    training = start(*_run(tmp_path), "--", "sh", "-c", f"kill -{signum:d} $$")
    training.communicate(timeout=30)
    assert training.returncode == -signum
    part = _read(tmp_path / "run" / "exit.json")["nodes"]["node1"]
    assert (part["exit_code"], part["signal"]) == (None, signum)


def test_a_command_that_does_not_exist_is_one_line_and_127(start: Start, tmp_path: Path) -> None:
    training = start(*_run(tmp_path), "--", "no-such-trainer")
    _, stderr = training.communicate(timeout=30)
    assert training.returncode == 127
    assert stderr == "coach run: no-such-trainer: No such file or directory\n"
    assert (tmp_path / "run" / "stderr.log").read_text() == stderr


def test_no_command_at_all_is_one_line(start: Start, tmp_path: Path) -> None:
    training = start(*_run(tmp_path), "--")
    _, stderr = training.communicate(timeout=30)
    assert training.returncode == 2
    assert len(stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def _is_pending(supervisor: int, signum: int = signal.SIGUSR1) -> bool:
    """For it or one of its children."""
    for pid in (supervisor, *children_of(supervisor)):
        pending = re.findall(
            r"^(?:SigPnd|ShdPnd):\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
        )
        if any(int(mask, 16) >> (signum - 1) & 1 for mask in pending):
            return True
    return False


@pytest.mark.parametrize("to_group", [False, True], ids=["supervisor-alone", "whole-group"])
def test_the_training_gets_each_usr1_once_and_the_sampler_goes_on(
    start: Start, tmp_path: Path, to_group: bool
) -> None:
    training = start(*_run(tmp_path), "--", sys.executable, "-c", _COUNT_SIGNALS, start_new_session=True)
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    sampler = wait_until(lambda: sampler_of(training.pid), what="a sampler")
    for count in (1, 2):
        (os.killpg if to_group else os.kill)(training.pid, signal.SIGUSR1)
        assert training.stdout.readline() == f"usr1 {count}\n"
        # A process sees two signals of one number as one if the first is still pending.
        wait_until(lambda: not _is_pending(training.pid), what="the signal with everybody it was for")
    os.kill(sampler, signal.SIGUSR1)
    seen = len(telemetry(tmp_path / "run"))
    wait_until(lambda: len(telemetry(tmp_path / "run")) > seen + 3, what="samples after USR1")
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait(30) == 2, "the training counted another number of USR1"


def test_a_killed_sampler_is_reported_and_the_training_goes_on(start: Start, tmp_path: Path) -> None:
    training = start(*_run(tmp_path), "--", sys.executable, "-c", _COUNT_SIGNALS)
    sampler = wait_until(lambda: sampler_of(training.pid), what="a sampler")
    os.kill(sampler, signal.SIGKILL)
    gap = wait_until(
        lambda: [record for record in telemetry(tmp_path / "run") if record.get("what") == "telemetry"]
    )
    assert gap[0]["because"] == "the sampler was killed by signal 9"
    assert training.poll() is None
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait(30) == 0


def test_a_telemetry_folder_that_cannot_be_written_does_not_fail_the_training(
    start: Start, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "telemetry").mkdir(parents=True)
    (run_dir / "telemetry" / "node1.jsonl").symlink_to("/dev/full")  # every write: no space left on device
    training = start(*_run(tmp_path), "--", sys.executable, "-c", _COUNT_SIGNALS)
    sampler = wait_until(lambda: sampler_of(training.pid), what="a sampler")
    wait_until(lambda: _read(run_dir / "run.json").get("started_time_s"), what="the sampler's first tick")
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait(30) == 0
    assert not Path(f"/proc/{sampler}").exists()


@pytest.mark.parametrize("before", [{"state": "PENDING"}, {"state": "CANCELLED", "ended_time_s": 5.0}])
def test_a_run_that_started_says_running_over_any_earlier_state(
    start: Start, tmp_path: Path, before: dict[str, Any]
) -> None:
    run_json = tmp_path / "run" / "run.json"
    run_json.parent.mkdir()
    run_json.write_text(json.dumps({"schema": 1, **before}))
    training = start(*_run(tmp_path), "--", sys.executable, "-c", _COUNT_SIGNALS)
    run = wait_until(lambda: (run := _read(run_json)).get("started_time_s") and run, what="the first tick")
    assert (run["state"], run["ended_time_s"]) == ("RUNNING", None)
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait(30) == 0


def test_a_run_directory_that_cannot_be_made_does_not_fail_the_training(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file is in the way")
    training = start(*_run(tmp_path), "--", "sh", "-c", "echo trained; exit 5")
    stdout, stderr = training.communicate(timeout=30)
    assert (training.returncode, stdout) == (5, "trained\n")
    assert len(stderr.splitlines()) == 1


def _is_copier(pid: int, command: str) -> bool:
    return os.getsid(pid) == pid and " sample " not in command


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_coach_is_left_behind(start: Start, tmp_path: Path, signum: int) -> None:
    training = start(*_run(tmp_path), "--", "sleep", "60")
    wait_until(lambda: telemetry(tmp_path / "run"), what="a first sample")
    children = children_of(training.pid)
    assert len(children) == 4, children
    sleep = next(pid for pid, command in children.items() if command.startswith("sleep"))
    # The copier stays for the output of a training that could not be signalled to end.
    copier = next(pid for pid, command in children.items() if pid != sleep and _is_copier(pid, command))
    training.send_signal(signum)
    training.wait(30)
    try:
        rest = [Path(f"/proc/{pid}") for pid in children if pid not in (sleep, copier)]
        wait_until(lambda: not any(path.exists() for path in rest), what="the helpers' end")
    finally:
        if signum == signal.SIGKILL:
            os.kill(sleep, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{copier}").exists(), what="the copier's end")


def test_a_users_own_command_gets_a_run_directory(
    start: Start, tmp_path: Path, clean_env: dict[str, str]
) -> None:
    training = start("run", "--", "sh", "-c", "exit 4")
    training.communicate(timeout=30)
    assert training.returncode == 4
    [run_dir] = (tmp_path / "home" / "runs").iterdir()
    run = _read(run_dir / "run.json")
    assert (run["recipe"], run["state"], run["command"]) == ("run", "FAILED", ["sh", "-c", "exit 4"])
    assert run["run_id"] == run_dir.name
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert _read(run_dir / "exit.json")["exit_code"] == 4


@pytest.mark.parametrize(("action", "state"), [(signal.SIG_IGN, "FAILED"), (signal.SIG_DFL, "CANCELLED")])
def test_a_command_that_fails_after_a_hangup_that_nohup_ignored_was_not_cancelled(
    start: Start, tmp_path: Path, action: signal.Handlers, state: str
) -> None:
    command = f"trap '' HUP; echo ready; until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 3"
    training = start(
        "run", "--", "sh", "-c", command, preexec_fn=lambda: signal.signal(signal.SIGHUP, action)
    )
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    training.send_signal(signal.SIGHUP)
    wait_until(lambda: not _is_pending(training.pid, signal.SIGHUP), what="the hangup with the supervisor")
    (tmp_path / "go").touch()
    training.communicate(timeout=30)
    [run_dir] = (tmp_path / "home" / "runs").iterdir()
    assert (training.returncode, _read(run_dir / "exit.json")["state"]) == (3, state)


@pytest.mark.parametrize(
    ("rest_s", "state"), [(600, "CANCELLED"), (-1, "TIMEOUT"), (None, "CANCELLED"), ("soon", "CANCELLED")]
)
def test_a_job_that_slurm_ended_at_its_time_limit_was_not_cancelled(
    start: Start, tmp_path: Path, rest_s: int | str | None, state: str
) -> None:
    end_time = str(int(time.time()) + rest_s) if isinstance(rest_s, int) else rest_s
    limit = {} if end_time is None else {"SLURM_JOB_END_TIME": end_time}
    command = ["sh", "-c", "echo ready; exec sleep 60"]
    training = start("run", "--", *command, env={"SLURM_JOB_ID": "17", **limit})
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=30)
    [run_dir] = (tmp_path / "home" / "runs").iterdir()
    assert _read(run_dir / "exit.json")["state"] == state


@pytest.mark.parametrize(("job", "state"), [("17", "TIMEOUT"), ("170", "CANCELLED"), (None, "CANCELLED")])
def test_a_slurm_without_an_end_time_tells_the_limit_in_the_job_s_log(
    start: Start, tmp_path: Path, job: str | None, state: str
) -> None:
    log = tmp_path / "slurm-17.out"
    step = {"SLURM_JOB_ID": "17"}
    with log.open("ab", buffering=0) as file:
        training = start(
            "run",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 60",
            env=step,
            preexec_fn=lambda: (os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)),
        )
        wait_until(lambda: "ready\n" in log.read_text(), what="the command")
        if job is not None:
            file.write(
                f"slurmstepd-node1: error: *** JOB {job} ON node1 CANCELLED AT 2026-11-26T22:05:37 DUE TO "
                "TIME LIMIT ***\n".encode()
            )
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=30)
    [run_dir] = (tmp_path / "home" / "runs").iterdir()
    assert _read(run_dir / "exit.json")["state"] == state


def test_the_tasks_of_a_slurm_step_share_one_run_directory(start: Start, tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2"}
    tasks = [
        start(
            "run",
            "--",
            "sh",
            "-c",
            f"exit {node}",
            env={**step, "SLURM_NODEID": str(node), "SLURMD_NODENAME": f"node{node}"},
        )
        for node in (0, 1)
    ]
    assert [task.wait(30) for task in tasks] == [0, 1]
    [run_dir] = [path for path in (tmp_path / "home" / "runs").iterdir() if not path.name.startswith(".")]
    ended = _read(run_dir / "exit.json")
    assert sorted(ended["nodes"]) == ["node0", "node1"]
    assert _read(run_dir / "run.json")["job_id"] == "17"
    assert ended["state"] == "FAILED"


def test_the_trainer_s_start_event_is_written_to_run_json(start: Start, tmp_path: Path) -> None:
    trainer = (
        "import json, sys, time\n"
        "start = dict(event='start', time_s=time.time(), step=0, rank=0, device='cuda', device_name='H100', "
        "torch='2.13.0',"
        " python='3.11.7', compute_capability=9.0, dataset=dict(name='cifar10', path='/d', "
        "is_synthetic=True), num_parameters=2474506, node='node1')\n"
        "end = dict(event='end', time_s=time.time(), step=3, exit_code=0, reason='max_steps')\n"
        "open(sys.argv[1] + '/metrics/rank-0.jsonl', 'w').write(json.dumps(start) + '\\n' + json.dumps(end) "
        "+ '\\n')\n"
    )
    run_dir = tmp_path / "run"
    training = start(*_run(tmp_path), "--", sys.executable, "-c", trainer, str(run_dir))
    training.communicate(timeout=30)
    run = _read(run_dir / "run.json")
    assert run["device"] == {"type": "cuda", "name": "H100", "compute_capability": 9.0}
    assert run["dataset"]["is_synthetic"] is True
    assert (run["versions"]["torch"], run["num_parameters"]) == ("2.13.0", 2474506)
    [rank] = _read(run_dir / "exit.json")["ranks"]
    assert (rank["rank"], rank["exit_code"], rank["is_bystander"]) == (0, 0, False)


def test_gpm_is_sampled_beside_a_training_that_asked_for_it(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"gpm": "41:42:43:44"}])
    training = start(*_run(tmp_path), "--gpm", "--", "sleep", "60", env=nvml_stand_in.env)
    sampled = wait_until(lambda: [r for r in telemetry(tmp_path / "run") if "tensor_activity_pct" in r])
    assert sampled[0]["tensor_activity_pct"] == 43
    training.terminate()
    training.communicate(timeout=10)


def test_a_driver_that_hangs_holds_up_neither_the_training_nor_its_end(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 1}])
    command = f"while [ ! -e {tmp_path / 'go'} ]; do sleep 0.05; done; exit 5"
    training = start(*_run(tmp_path), "--", "sh", "-c", command, env=nvml_stand_in.env)
    wait_until(lambda: [r for r in telemetry(tmp_path / "run") if r["kind"] == "gpu"])
    nvml_stand_in.set_gpus([{"hang": "util"}])
    seen = len(telemetry(tmp_path / "run"))
    wait_until(lambda: telemetry(tmp_path / "run")[seen + 5 :], what="samples of the host")
    (tmp_path / "go").touch()
    training.communicate(timeout=5)
    assert training.returncode == 5


@pytest.mark.root
def test_a_disk_that_fills_costs_samples_only_and_they_come_again_with_room(
    start: Start, tmp_path: Path
) -> None:
    disk, release = tmp_path / "disk", tmp_path / "go"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)], check=True)
    try:
        command = f"while [ ! -e {release} ]; do sleep 0.05; done; exit 5"
        options = ["run", "--run-dir", str(disk / "run"), "--interval", "0.05"]
        training = start(*options, "--", "sh", "-c", command)
        wait_until(lambda: telemetry(disk / "run")[3:])
        filler, file_of_samples = disk / "filler", disk / "run/telemetry/node1.jsonl"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            file.write(bytes(2**25))
        # The last block of the file itself may still have room.
        wait_until(lambda: _stands_still(file_of_samples), what="a file that does not grow")
        assert sampler_of(training.pid), "the sampler goes on"
        seen = len(runs.decode_records(file_of_samples.read_bytes())[0])
        filler.unlink()
        # The line that was torn is passed over.
        wait_until(
            lambda: runs.decode_records(file_of_samples.read_bytes())[0][seen + 3 :], what="samples again"
        )
        with contextlib.suppress(OSError), filler.open("wb") as file:
            file.write(bytes(2**25))
        release.touch()
        _, errors = training.communicate(timeout=20)
        (said,) = errors.splitlines()
        assert training.returncode == 5
        assert said.startswith("coach run: how the command ended is not recorded: ")
    finally:
        release.touch()
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _stands_still(path: Path) -> bool:
    before = path.stat().st_size
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        if path.stat().st_size != before:
            return False
        time.sleep(0.02)
    return True
