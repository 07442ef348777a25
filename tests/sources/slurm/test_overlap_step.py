"""A stream from inside a job, with real commands in place of srun."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from coach.model.reading import Reading, TelemetryChunk
from coach.model.training.telemetry import HostSample, Rung
from coach.sources.slurm.overlap_step import StreamSource, step_command, why_no_step
from tests.waiting import wait_until

_HOST = '{"kind":"host","time_s":5.0,"node":"node1","cpu_pct":7.0}'


def stream(script: str) -> StreamSource:
    return StreamSource("17", ("sh", "-c", script), dict(os.environ))


def hosts(readings: list[Reading]) -> list[HostSample]:
    chunks = [reading.payload for reading in readings if isinstance(reading.payload, TelemetryChunk)]
    assert all(chunk.rung is Rung.STEP and chunk.target == "17" for chunk in chunks)
    return [sample for chunk in chunks for sample in chunk.samples if isinstance(sample, HostSample)]


def test_lines_are_joined_across_reads_and_the_end_is_reported_in_the_commands_words() -> None:
    readings: list[Reading] = []
    first, second = _HOST[:20], _HOST[20:]
    script = (
        f"printf '%s' '{first}'; sleep 0.4; printf '%s\\nrubbish\\n' '{second}'; echo 'srun: error: gone' "
        ">&2; exit 3"
    )
    source = stream(script)
    source.run(readings.append, threading.Event())
    assert [sample.cpu_pct for sample in hosts(readings)] == [7.0]
    assert sum(reading.num_bad_rows for reading in readings) == 1
    assert readings[-1].error == "sh has ended (exit status 3): gone"
    assert source.has_ended


def test_a_step_that_slurm_ended_with_its_job_is_not_a_failure() -> None:
    readings: list[Reading] = []
    said = (
        "slurmstepd-node1: error: *** STEP 17.1 ON node1 CANCELLED AT 2026-11-21T11:13:23 DUE TO TIME LIMIT "
        "***"
    )
    stream(f"echo '{said}' >&2; echo 'srun: error: node1: task 0: Killed' >&2; exit 137").run(
        readings.append, threading.Event()
    )
    assert [reading.error for reading in readings] == [
        "sh has ended (exit status 137): Slurm ended the step due to time limit, as it does when the job ends"
    ]


def test_a_stopped_stream_ends_its_command(tmp_path: Path) -> None:
    readings: list[Reading] = []
    stop = threading.Event()
    said = tmp_path / "pid"
    source = stream(f"echo $$ > {said}; while echo '{_HOST}'; do sleep 0.1; done")
    thread = threading.Thread(target=source.run, args=(readings.append, stop))
    thread.start()
    wait_until(lambda: len(hosts(readings)) > 1, 10, "samples arrive")
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert not Path(f"/proc/{said.read_text().strip()}").exists()
    assert all(reading.error is None for reading in readings)


def test_a_missing_command_is_a_reading_with_an_error() -> None:
    readings: list[Reading] = []
    StreamSource("17", ("no-such-srun",), dict(os.environ)).run(readings.append, threading.Event())
    assert [reading.error for reading in readings] == ["no-such-srun: command not found"]


def test_a_step_runs_once_on_every_node() -> None:
    words = step_command("17", 4, None, ("python", "node"))
    assert {"--overlap", "--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--input=none"} <= set(words)
    assert not any(word.startswith("--gres") for word in words)
    assert "--gres=gpu:8" in step_command("17", 1, 8, ())


@pytest.mark.parametrize(
    ("said", "is_off"),
    [("slurm 21.08.8-2", True), ("slurm-wlm 22.05.8", False), ("slurm 24.11.5", False), ("", False)],
)
def test_before_22_05_no_overlapping_step_is_started(said: str, is_off: bool) -> None:
    assert (why_no_step(said) is not None) == is_off
