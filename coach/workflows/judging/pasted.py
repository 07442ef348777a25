"""Recognise what people paste in the place of a log, by marks that no log has: the table of `nvidia-smi`, the
text of `py-spy dump`, and Slurm's own record of a job (`scontrol show job`).

Only a text that is nothing else counts: many jobs print such a table above their training, and their log is a
log. The values are of one moment: nothing follows from them about a course. The text is other people's: every
number has few digits, and every list an end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from coach.analysis.measured.stack_groups import merge
from coach.launch.resubmission import read_job
from coach.model.reading import JobRow, Payload, TelemetryChunk
from coach.model.training.stacks import Frame, RankStack, Stacks
from coach.model.training.telemetry import GpuSample
from coach.node.stacks import PY_SPY
from coach.sources.slurm.queue import parse_jobs
from coach.sources.slurm.start_times import RECORD, job_id_of

MAX_BYTES = 1 << 20
"""A longer text is a log."""
_MAX_CHARS = 400
"""Of a line: the widest line of these programs has about 250."""
_BESIDE = re.compile(
    r"```\w{0,10}|\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}|(?:.{0,60}@.{0,60})?[$#>]"
    r"|(?:.{0,120}[$#>%+] )?(?:sudo )?\S{0,60}\b(?:nvidia-smi|py-spy|scontrol)(?: .{0,200})?"
)
"""A line that may stand beside the text: a fence, the date that nvidia-smi prints, a prompt, the command. Any
other line makes it a log: the table of a job that then failed."""
_MARKS = (b"MiB |", b".py:", b"JobId=")
_MAX_ITEMS = 512
"""GPUs and processes: more are left out."""
_NODE = "its node"
"""No pasted text names the node."""
_ONE_LOOK = "one look, so nothing is known of before and after"

_SMI_GPU = re.compile(
    r"^\| {1,4}(?P<gpu>\d{1,3})  (?P<name>\S.{0,60}?) {1,40}(?:On|Off|N/A) {0,20}"
    r"\| {0,20}[0-9A-F]{1,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d ",
    re.IGNORECASE,
)
_SMI_USE = re.compile(
    r"^\| *\S{1,6} +(?P<temperature_c>\S{1,6}) +\S{1,7} +(?P<power_w>\S{1,9}) */ *(?P<power_limit_w>\S{1,9})"
    r" *\| *(?P<memory_used_mib>\S{1,12}) */ *(?P<memory_total_mib>\S{1,12}) *\|"
    r" *(?P<utilization_pct>\S{1,6}) "
)
"""The line below, with the names of `GpuSample`."""
_SMI_PROCESS = re.compile(r"^\| {1,5}\d{1,3} +(?:\S{1,4} +\S{1,4} +)?\d{1,10} +[CGM+]{1,4} +\S.*MiB *\|$")
_MEASURED = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(?:C|W|MiB|%)")

_SPY_PROCESS = re.compile(r"^Process (\d{1,10}): ")
_SPY_PYTHON = re.compile(r"^Python v\d{1,3}\.\d{1,3}\S{0,40} \(")
_SPY_THREAD = re.compile(r'^Thread (\w{1,20})(?:/\w{1,20})? \([\w+ ]{1,20}\)(?:: "(.{0,200})")?$')
_SPY_FRAME = re.compile(r"^    (\S.{0,200}?) \((.{1,300}?)(?::(\d{1,7}))?\)$")
_SPY_INDENT = "    "
"""Begins a frame, and an argument or a variable, which `py-spy dump --locals` prints."""
_SPY_CUT = re.compile(r"(?:Process|Python|Thread) .*|Pr?o?c?e?s?s?|Py?t?h?o?n?|Th?r?e?a?d?")
"""The beginning of a last line that is cut off."""
_INSTALLED = sys.stdlib_module_names | {
    *(
        "torch",
        "deepspeed",
        "horovod",
        "accelerate",
        "transformers",
        "lightning",
        "pytorch_lightning",
        "numpy",
    )
}
"""py-spy leaves out the folder of a module's package, which tells installed code from a program's own."""

_JOB_LINE = re.compile(r"JobId=\d| {3,6}[A-Z][\w/]*[=:]")
_COLUMNS = (
    *("UserId", "JobState", "Reason", "Partition", "NodeList", "NumNodes", "NumCPUs", "NumTasks"),
    *("AllocTRES", "TresPerJob", "TresPerNode", "TresPerTask", "RunTime", "TimeLeft", "TimeLimit"),
    *("SubmitTime", "StartTime", "EndTime", "Account", "QOS", "ExitCode", "WorkDir", "JobId", "Dependency"),
    *("Reservation", "Priority", "SchedNodeList", "Restarts", "TresPerSocket", "Sockets"),
    *("Command", "StdOut", "StdErr", "JobName"),
)
"""The record's keys in the order of squeue's columns, after the id."""
_BETWEEN, _END = "\x1f", "\x1e"


@dataclass(frozen=True, slots=True)
class Pasted:
    """`words`: what the text was taken for. `payload`: its values, for the monitor; None if no rule judges
    them."""

    words: str
    payload: Payload | None = None


def recognise(data: bytes, target: str, now_s: float) -> Pasted | None:
    """What a text holds that is no log; None for any other text. `now_s`: the time to give its values."""
    if len(data) >= MAX_BYTES or not any(mark in data for mark in _MARKS):
        return None
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = [line[:_MAX_CHARS].rstrip() for line in text.split("\n") if line.strip()]
    lines = [line for line in lines if not _BESIDE.fullmatch(line)]
    return _of_smi(lines, target, now_s) or _of_py_spy(lines) or _of_job(text, lines, target)


def _of_smi(lines: Sequence[str], target: str, now_s: float) -> Pasted | None:
    if not all(line.startswith(("|", "+-", "+=")) for line in lines):
        return None
    gpus: list[GpuSample] = []
    for line, below in pairwise([*lines, ""]):
        if (gpu := _SMI_GPU.match(line)) and len(gpus) < _MAX_ITEMS:
            use = _SMI_USE.match(below)
            cells = use.groupdict() if use else {}
            values: dict[str, Any] = {name: _number(word) for name, word in cells.items()}
            gpus.append(GpuSample(_NODE, now_s, int(gpu["gpu"]), None, gpu["name"], **values))
    if not gpus:
        return None
    facts = (
        _range("% busy", [gpu.utilization_pct for gpu in gpus]),
        _range("MiB of memory used", [gpu.memory_used_mib for gpu in gpus]),
        f"processes: {sum(map(bool, map(_SMI_PROCESS.match, lines)))}",
    )
    what = f"an nvidia-smi table of {len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
    words = f"taken for {what}: {', '.join(facts)}; {_ONE_LOOK}"
    return Pasted(words, TelemetryChunk(target, tuple(gpus)))


def _number(word: str) -> float | None:
    """`78641MiB`, `98%`, `121W`, `45C`; None for `N/A` and `ERR!`."""
    found = _MEASURED.fullmatch(word)
    return float(found[1]) if found else None


def _range(unit: str, values: Sequence[float | None]) -> str:
    """`0 to 98 % busy`, `40 to 40 % busy (not known of 1)`, `– % busy (not known of 2)`."""
    known = [value for value in values if value is not None]
    ends = f"{min(known):.0f} to {max(known):.0f}" if known else "–"
    num_unknown = len(values) - len(known)
    return f"{ends} {unit}{f' (not known of {num_unknown})' if num_unknown else ''}"


def _of_py_spy(lines: Sequence[str]) -> Pasted | None:
    ranks = [
        RankStack(_NODE, pid, None, None, PY_SPY, (), tuple(frames), 1, None, None, None, None, None)
        for pid, frames in _processes(lines).items()
        if frames
    ][:_MAX_ITEMS]
    if not ranks:
        return None
    places = "; ".join(group.heading for group in merge(Stacks(tuple(ranks), "", 1)).groups)
    places = places.replace("pid 0 on", "a process on")
    number = len(ranks)
    return Pasted(
        f"taken for a py-spy dump of {number} process{'' if number == 1 else 'es'}: {places}; {_ONE_LOOK}"
    )


def _processes(lines: Sequence[str]) -> dict[int, list[Frame]]:
    """Pid → frames of its main thread, by name or number, else of its first thread: py-spy prints the oldest
    one first. Pid 0: a process whose line is cut off.

    Empty if a line belongs to another program. The last line may be cut off, and above a missing process also
    the first one.
    """
    frames: list[Frame] = []
    processes, pid = {0: frames}, 0
    for number, line in enumerate(lines, 1):
        if process := _SPY_PROCESS.match(line):
            pid = int(process[1])
            processes[pid] = frames = []
        elif thread := _SPY_THREAD.match(line):
            frames = []
            if thread[2] == "MainThread" or thread[1] == str(pid) or not processes[pid]:
                processes[pid] = frames
        elif frame := _SPY_FRAME.match(line):
            frames.append(Frame(frame[1], _whole_path(frame[2]), int(frame[3]) if frame[3] else None))
        elif not _is_of_py_spy(number, lines):
            return {}
    return {} if len(processes[0]) == 1 else processes


def _is_of_py_spy(number: int, lines: Sequence[str]) -> bool:
    """True for a line of an argument or of the Python, and for one that is cut off."""
    line = lines[number - 1]
    if line.startswith(_SPY_INDENT) or _SPY_PYTHON.match(line):
        return True
    if number == 1:
        return not any(map(_SPY_PROCESS.match, lines[1:2]))
    return number == len(lines) and _SPY_CUT.fullmatch(line) is not None


def _whole_path(file: str) -> str:
    """The file with a folder that shows that it is installed, where py-spy has cut it off."""
    top = file.partition("/")[0].removesuffix(".py")
    return f"/lib/python/{file}" if top in _INSTALLED else file


def _of_job(text: str, lines: Sequence[str], target: str) -> Pasted | None:
    records = [*RECORD.finditer(text)]
    if not records or not all(map(_JOB_LINE.match, lines)):
        return None
    facts = read_job(text[records[0].start() :].partition("\nJobId=")[0])
    row = [job_id_of(records[0]), *(facts.get(column, "") for column in _COLUMNS)]
    jobs, _ = parse_jobs(_BETWEEN.join(row), _BETWEEN, _END)
    if not jobs:
        return None
    which = f" (the first of {len(records)})" if len(records) > 1 else ""
    words = f"taken for Slurm's record of job {jobs[0].job_id}{which}: its log was not read"
    # Without its user and number: whatever cluster it is of, nobody here acts on it.
    return Pasted(words, JobRow(target, replace(jobs[0], user="", raw_job_id=None)))
