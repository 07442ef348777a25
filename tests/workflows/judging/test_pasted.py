"""What people paste into `coach check -`, through the whole program: it says for what it took the text."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.model.reading import JobRow, TelemetryChunk
from coach.model.training.telemetry import GpuSample
from coach.workflows.judging.pasted import MAX_BYTES, recognise
from tests.forked import typed_coach

Check = Callable[..., "subprocess.CompletedProcess[str]"]
FIXTURES = Path(__file__).parents[2] / "fixtures/slurm"

HEAD = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
GPU = """|   {gpu}  NVIDIA A100-SXM4-80GB          On  |   00000000:{gpu}1:00.0 Off |                    0 |
| N/A   {temperature}C    P0             {power}W /  400W |  {used}MiB /  81920MiB |    {busy}%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A    815221      C   /home/ada/envs/vision/bin/python            61000MiB |
+-----------------------------------------------------------------------------------------+
"""
SMI = (
    HEAD
    + GPU.format(gpu=0, temperature=61, power=388, used=61440, busy=100)
    + GPU.format(gpu=1, temperature=31, power=55, used="    0", busy="  0")
    + PROCESSES
)
OLD_SMI = """Mon Feb  3 09:12:44 2020
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:3B:00.0 Off |                    0 |
| N/A   41C    P0    57W / 300W |   1024MiB / 32510MiB |     12%      Default |
+-------------------------------+----------------------+----------------------+
|   1  GeForce GTX 108...  Off  | 00000000:5E:00.0 Off |                  N/A |
|ERR!   ERR! ERR!    ERR! / ERR! |     1MiB / 11178MiB |   ERR!       Default |
+-------------------------------+----------------------+----------------------+
"""
SPY = """Process {pid}: python -u pretrain.py --config big.yaml
Python v3.10.14 (/opt/envs/lm/bin/python3.10)

Thread {pid} ({state}): "MainThread"
{frames}
Thread {more} (idle): "Thread-3 (_pin_memory_loop)"
    select (selectors.py:416)
    wait (multiprocessing/connection.py:931)
    run (threading.py:953)
"""
IN_COLLECTIVE = """    all_reduce (torch/distributed/distributed_c10d.py:2050)
        Arguments:
            tensor: <Tensor at 0x7f12>
    wrapper (torch/distributed/c10d_logger.py:72)
    mean_loss (pretrain.py:77)
    main (pretrain.py:140)"""
IN_DATA = """    read (tokens.py:19)
    __getitem__ (tokens.py:44)
    main (pretrain.py:120)"""
PY_SPY = "".join(
    SPY.format(pid=pid, more=pid + 50, state=state, frames=frames)
    for pid, state, frames in (
        (3100, "idle", IN_COLLECTIVE),
        (3101, "idle", IN_COLLECTIVE),
        (3102, "active+gil", IN_DATA),
    )
)
JOB = (FIXTURES / "public/scontrol-job-23.02.4.txt").read_text()
WAITING = JOB.replace("JobState=RUNNING Reason=None", "JobState=PENDING Reason=QOSMaxGRESPerUser")
OUT_OF_MEMORY = JOB.replace("JobState=RUNNING Reason=None", "JobState=OUT_OF_MEMORY Reason=OutOfMemory")
TEXTS = {"nvidia-smi": SMI, "py-spy": PY_SPY, "a job": JOB}


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """`coach check TARGET` with a text on standard input, where each of Slurm's clients leaves a trace."""
    clients = tmp_path / "bin"
    clients.mkdir()
    for name in ("squeue", "scontrol", "sinfo", "sacct"):
        (clients / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\nexit 1\n")
        (clients / name).chmod(0o755)
    home, path = str(tmp_path / "home"), f"{clients}:{os.environ['PATH']}"

    def call(text: str, *words: object, target: object = "-") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "COACH_HOME": home, "COACH_AS_ROOT": "1", "PATH": path}
        return typed_coach(("check", target, *words), env, stdin=text)

    return call


def test_an_nvidia_smi_table_is_named_first_and_no_course_is_claimed(check: Check) -> None:
    done = check(SMI)
    first, *rest = done.stdout.splitlines()
    assert first == (
        "taken for an nvidia-smi table of 2 GPUs: 0 to 100 % busy, 0 to 61440 MiB of memory used, "
        "processes: 1; one look, so nothing is known of before and after"
    )
    assert (done.returncode, "healthy" in done.stdout, "gpu.utilization" in done.stdout) == (0, False, False)
    assert "  nothing wrong seen, but its loss is not known" in rest


def test_each_cell_of_an_old_table_is_a_value_or_not_known() -> None:
    found = recognise(OLD_SMI.encode(), "-", 5.0)
    assert found is not None
    assert "12 % busy (not known of 1)" in found.words
    chunk = found.payload
    assert isinstance(chunk, TelemetryChunk)
    first, second = chunk.samples
    assert isinstance(first, GpuSample)
    assert isinstance(second, GpuSample)
    assert (first.name, first.utilization_pct, first.power_w, first.power_limit_w) == (
        "Tesla V100-SXM2...",
        *(12.0, 57.0, 300.0),
    )
    assert (first.memory_used_mib, first.memory_total_mib, first.temperature_c) == (1024.0, 32510.0, 41.0)
    assert (second.utilization_pct, second.power_w, second.temperature_c) == (None, None, None)


def test_py_spy_says_where_each_process_stands_and_who_waits(check: Check) -> None:
    done = check(PY_SPY)
    assert done.stdout.splitlines()[0] == (
        "taken for a py-spy dump of 3 processes: pid 3100 on its node, pid 3101 on its node wait "
        "in all_reduce, at pretrain.py:77 mean_loss; pid 3102 on its node is in read, at tokens.py:19 read; "
        "one look, so nothing is known of before and after"
    )


def test_one_look_at_stacks_proves_no_hang(check: Check) -> None:
    for text in (PY_SPY, SPY.format(pid=7, more=9, state="active", frames=IN_DATA)):
        done = check(text, "--format", "json")
        value = json.loads(done.stdout)
        assert (value["verdict"], value["findings"], done.returncode) == ("unknown", [], 0)
        assert done.stderr.startswith("coach: taken for a py-spy dump of ")


@pytest.mark.parametrize("main", ["", ': "MainThread"'])
def test_the_main_thread_is_found_by_its_name_or_number(main: str) -> None:
    text = PY_SPY.replace(': "MainThread"', main)
    found = recognise(text.encode(), "-", 5.0)
    assert found is not None
    assert "wait in all_reduce, at pretrain.py:77 mean_loss" in found.words


BODY = PY_SPY.partition("\n\n")[2]
"""The dump without its first process and its Python."""


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        BODY[4:],
        "-u pretrain.py --config big.yaml\n" + PY_SPY.partition("\n")[2],
        "\n".join(BODY.splitlines()[1:]),
        "\n".join(IN_COLLECTIVE.splitlines()),
        *(PY_SPY[:-number] for number in (5, 30, 60)),
        PY_SPY + "Thread 3250 (id",
        PY_SPY + "Thre",
    ],
)
def test_a_dump_of_py_spy_may_be_cut_off_at_both_ends(check: Check, text: str) -> None:
    first, *rest = check(text).stdout.splitlines()
    assert first.startswith("taken for a py-spy dump of ")
    assert "all_reduce, at pretrain.py:77 mean_loss" in first
    assert "pid 0" not in first
    assert "  nothing wrong seen, but its loss is not known" in rest


@pytest.mark.parametrize(
    "text", ["FAILED\n    test_loss (test_train.py:12)\n", "a\nb\n" + BODY, BODY + "done"]
)
def test_a_text_with_other_lines_is_no_cut_dump(text: str) -> None:
    assert recognise(text.encode(), "-", 5.0) is None


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (WAITING, 0, "you have as much as the QOS allows"),
        (OUT_OF_MEMORY, 1, "critical MEM007"),
        (JOB.replace("JobState=RUNNING", "JobState=TIMEOUT"), 1, "warning JOB002"),
        (JOB.replace("JobState=RUNNING", "JobState=COMPLETED"), 0, "nothing wrong seen, but"),
        (" ".join(OUT_OF_MEMORY.split()) + "\n", 1, "critical MEM007"),
    ],
    ids=["waits", "out of memory", "time limit", "completed", "one line"],
)
def test_a_job_s_record_is_judged_by_state_and_reason_and_slurm_is_not_asked(
    check: Check, tmp_path: Path, text: str, status: int, words: str
) -> None:
    done = check(text)
    assert done.stdout.startswith("taken for Slurm's record of job 3662: its log was not read\n")
    assert (done.returncode, words in done.stdout) == (status, True)
    assert not (tmp_path / "asked").exists()


def test_no_step_in_a_pasted_job_is_advised(check: Check) -> None:
    done = check(JOB)
    assert "RUNNING" in done.stdout
    assert "coach attach" not in done.stdout


def test_a_pasted_job_is_not_remembered_as_an_own_one(check: Check, tmp_path: Path) -> None:
    check(OUT_OF_MEMORY)
    kept = [
        path for path in (tmp_path / "home").rglob("*") if path.is_file() and b"3662" in path.read_bytes()
    ]
    assert kept == []


@pytest.mark.parametrize("name", ["allocations-22.05.txt", "allocations-24.11.txt"])
def test_of_several_records_the_first_is_judged(name: str) -> None:
    text = (FIXTURES / name).read_bytes()
    found = recognise(text, "-", 5.0)
    assert found is not None
    assert isinstance(found.payload, JobRow)
    num_jobs = len(text.split(b"\nJobId="))
    assert f"(the first of {num_jobs})" in found.words


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(
    "prompt", ["", "(base) [ada@gpu07 ~]$ nvidia-smi\n", "```\n", "$ py-spy dump --pid 7\n"]
)
def test_a_prompt_or_a_fence_does_not_hide_the_text(text: str, prompt: str) -> None:
    assert recognise(f"{prompt}{text}{prompt}".encode(), "-", 5.0) is not None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(
    "line",
    [
        "step 3 loss 0.5",
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    ],
)
def test_a_log_with_such_a_text_above_its_training_is_a_log(check: Check, text: str, line: str) -> None:
    for log in (f"{text}{line}\n", f"{line}\n{text}"):
        assert "taken for" not in check(log).stdout
    assert recognise(f"{text}{line}".encode(), "-", 5.0) is None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_file_with_the_text_is_recognised_too(check: Check, tmp_path: Path, text: str) -> None:
    file = tmp_path / "from-ada.txt"
    file.write_text(text)
    assert check("", target=file).stdout.splitlines()[0] == check(text).stdout.splitlines()[0]


def test_the_json_stays_as_documented_and_the_note_goes_to_stderr(check: Check) -> None:
    done = check(SMI, "--format", "json")
    value = json.loads(done.stdout)
    assert set(value) == {"schema", "target", "state", "verdict", "findings", "not_measured"}
    assert (value["verdict"], value["findings"]) == ("unknown", [])
    assert done.stderr.startswith("coach: taken for an nvidia-smi table of 2 GPUs")


EVIL = "\x1b]0;owned\x07\u202e[bold]"
HOSTILE = {
    "a gpu's name": SMI.replace("NVIDIA A100-SXM4-80GB", f"NVIDIA {EVIL}"),
    "a process's name": SMI.replace("/home/ada/envs", EVIL),
    "long numbers": SMI.replace("61440MiB", "9" * 5000 + "MiB").replace("388W", "9" * 5000 + "W"),
    "a function": PY_SPY.replace("mean_loss", EVIL).replace("read (", f"{EVIL} ("),
    "a long line of code": PY_SPY.replace(":77)", ":" + "7" * 5000 + ")"),
    "a long pid": PY_SPY.replace("3100", "3" * 5000),
    "a job's name": OUT_OF_MEMORY.replace("JobName=", f"JobName={EVIL}"),
    "a reason": WAITING.replace("QOSMaxGRESPerUser", EVIL),
    "a task that is a path": OUT_OF_MEMORY.replace(
        "JobId=3662", "JobId=3662 ArrayJobId=7 ArrayTaskId=../../x"
    ),
    "many nodes": JOB.replace("JobState=RUNNING", "JobState=NODE_FAIL").replace("=cn1", "=n[0-999999999]"),
    "a time without end": JOB.replace("JobState=RUNNING", "JobState=TIMEOUT").replace(
        "2024-", "9" * 500 + "-"
    ),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_answered_and_acts_on_no_terminal(check: Check, text: str) -> None:
    done = check(text)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & {*done.stdout, *done.stderr}


def test_a_long_text_is_a_log() -> None:
    assert recognise(SMI.encode() + b"|\n" * MAX_BYTES, "-", 5.0) is None
