from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.silence import has_failed, judge, report

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings"


def _healthy_and_not(folder: Path) -> Path:
    shutil.copy(RECORDINGS / "caught" / "disk-full.log", folder / "went-on.log")
    shutil.copy(RECORDINGS / "ended" / "disk-full.log", folder / "ended.log")
    return folder


def test_each_false_alarm_is_named_with_its_line(tmp_path: Path) -> None:
    lines = report(judge(_healthy_and_not(tmp_path)))
    assert lines[0].startswith("2 logs, ")
    assert lines[0].endswith(" 2 of 2 (100.0 %) with a traceback")
    assert lines[2] == "silent: 1 of 2 (50.0 %); of those with a traceback: 1 of 2 (50.0 %)"
    alarms = [line for line in lines if line.startswith("false alarm")]
    assert len(alarms) == 1
    assert alarms[0].startswith("false alarm  ended.log: ")
    assert alarms[0].endswith(", line 3: OSError: [Errno 28] No space left on device")


def test_a_log_that_takes_too_long_is_not_counted_as_silent(tmp_path: Path) -> None:
    with open(tmp_path / "long.log", "w") as file:
        file.writelines(f"step {step} Error: loss {step / 7:.4f}\n" for step in range(100_000))
    logs = judge(tmp_path, seconds=1e-3)
    assert has_failed(logs)
    assert report(logs)[-1] == "not judged   long.log: not judged within 0.001 s"
    assert "silent: 0 of 1 (0.0 %); of those with a traceback: none" in report(logs)


def test_a_log_that_cannot_be_read_is_not_counted_as_silent(tmp_path: Path) -> None:
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    logs = judge(_healthy_and_not(tmp_path))
    assert has_failed(logs)
    assert report(logs)[-1] == "not judged   gone.log: cannot be read: No such file or directory"


def test_the_benchmark_names_its_requirements(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "silence.py")]
    unset = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert (unset.returncode, unset.stdout) == (2, "")
    assert unset.stderr == "COACH_HEALTHY_LOGS is not set: it names the folder with the *.log files\n"
    empty = subprocess.run(
        command, env={"COACH_HEALTHY_LOGS": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (empty.returncode, empty.stderr) == (2, f"no *.log in {tmp_path}\n")
