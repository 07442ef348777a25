"""Sample a running job from a step that overlaps its own steps: one srun for all nodes, which streams as long
as it is needed.

This is for jobs that coach did not launch. It is one long-lived step, not one per look: each step costs the
controller a step and the accounting a row. A stream that has ended is not restarted automatically, because
the user is asked each time before coach enters a job.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from coach import runs
from coach.model.reading import Reading, TelemetryChunk
from coach.model.training.telemetry import Rung, TelemetrySample
from coach.sources.base import Emit
from coach.sources.commands import running_command
from coach.sources.io import Io, Query
from coach.sources.metrics.telemetry_files import parse_records
from coach.sources.slurm.configuration import parse_version
from coach.sources.slurm.text import failure_words

SHARES_ALL = (22, 5)
"""First version in which an overlapping step shares CPUs, memory and GPUs with all others."""
STEP_NAME = "coach-sampler"

VERSION_QUERY = Query("srun-version", ("srun", "--version"))

_ENDED_BY_SLURM = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+( DUE TO [A-Z ]+[A-Z])?")
_BITE_BYTES = 1 << 16
_MAX_TORN_BYTES = 1 << 16
_MAX_WORDS_BYTES = 1 << 12
_BATCH_S = 0.25
"""Nodes answer one after the other: records within this time are emitted as one reading."""


def step_command(
    job_id: str, num_nodes: int, num_gpus_to_ask: int | None, sampler: Sequence[str]
) -> tuple[str, ...]:
    """The exact srun command. `job_id` must be a number for srun. Without the numbers of nodes and tasks it
    would run only on the first node.

    It has no `--unbuffered`, which joins lines of different nodes.
    """
    gpus = () if num_gpus_to_ask is None else (f"--gres=gpu:{num_gpus_to_ask}",)
    return (
        *("srun", f"--jobid={job_id}", "--overlap", f"--nodes={num_nodes}", f"--ntasks={num_nodes}"),
        *("--ntasks-per-node=1", *gpus, "--immediate=20", "--input=none", f"--job-name={STEP_NAME}"),
        *sampler,
    )


def why_no_step(version: str) -> str | None:
    """Why no step can run beside a job's own steps, judged by the output of `srun --version`; None if it can,
    or if the version is unknown."""
    number = parse_version(version)
    if number is None or number >= SHARES_ALL:
        return None
    said = version.split()[-1]
    return (
        f"this is Slurm {said}: before 22.05 an added step waits until the job's own steps end, or "
        "prevents them from starting"
    )


def ask_why_no_step(io: Io) -> str | None:
    """`why_no_step` for the Slurm on this machine. An unknown version does not prevent a step."""
    return why_no_step(io.run(VERSION_QUERY).text)


def _end_words(stderr: str) -> str:
    """Why the step ended. Slurm's message about a step that ends with its job would look like a failure."""
    ended = _ENDED_BY_SLURM.search(stderr)
    if ended is None:
        return failure_words(stderr)
    return f"Slurm ended the step{(ended[1] or '').lower()}, as it does when the job ends"


class StreamSource:
    """Runs one command that prints telemetry records, one per line, until it ends or is no longer needed."""

    name = "stream"

    def __init__(self, target: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._target = target
        self._argv = tuple(argv)
        self._env = env
        self._torn = b""
        self._words = b""
        self.has_ended = False

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit until `stop` is set, or until the command ends; its last words are then emitted as an
        error."""
        words = self._run(emit, stop)
        self.has_ended = True
        if words is not None:
            emit(Reading(self.name, time.time(), 0.0, None, words, self._target))

    def _run(self, emit: Emit, stop: threading.Event) -> str | None:
        try:
            with running_command(self._argv, self._env) as process:
                self._follow(process, emit, stop)
                if stop.is_set():
                    return None
                status = process.wait()
        except FileNotFoundError:
            return f"{self._argv[0]}: command not found"
        except OSError as error:
            return f"{self._argv[0]}: {error.strerror or error}"
        words = _end_words(self._words.decode("utf-8", "replace"))
        return f"{self._argv[0]} has ended (exit status {status}){': ' if words else ''}{words}"

    def _follow(self, process: subprocess.Popen[bytes], emit: Emit, stop: threading.Event) -> None:
        """Read until both outputs are closed. No wait is long, so that `stop` acts soon."""
        outputs = [output for output in (process.stdout, process.stderr) if output is not None]
        with selectors.DefaultSelector() as selector:
            for output in outputs:
                selector.register(output, selectors.EVENT_READ)
            samples: list[TelemetrySample] = []
            num_bad, due_s = 0, 0.0
            while selector.get_map() and not stop.is_set():
                for key, _ in selector.select(_BATCH_S):
                    data = os.read(key.fd, _BITE_BYTES)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        self._words = (self._words + data)[-_MAX_WORDS_BYTES:]
                    else:
                        new, bad = self._parse(data)
                        samples += new
                        num_bad += bad
                is_due = time.monotonic() >= due_s or not selector.get_map()
                if (samples or num_bad) and is_due:
                    chunk = TelemetryChunk(self._target, tuple(samples), Rung.STEP)
                    emit(Reading(self.name, time.time(), 0.0, chunk, None, self._target, num_bad))
                    samples, num_bad, due_s = [], 0, time.monotonic() + _BATCH_S

    def _parse(self, data: bytes) -> tuple[list[TelemetrySample], int]:
        data = self._torn + data
        records, num_bad, used = runs.decode_records(data)
        self._torn = data[used:]
        if len(self._torn) > _MAX_TORN_BYTES:
            self._torn, num_bad = b"", num_bad + 1  # no record is this long
        samples, num_wrong = parse_records(records)
        return samples, num_bad + num_wrong
