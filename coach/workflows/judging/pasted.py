"""Recognise what people paste in the place of a log, by marks that no log has: the table of `nvidia-smi`, the
text of `py-spy dump`, and Slurm's own record of a job (`scontrol show job`).

Only a text that is nothing else counts: many jobs print such a table above their training, and their log is a
log. The values go to the rules that judge them elsewhere. They are of one moment: nothing follows from them
about a course. The text is other people's: every number has few digits, and every list an end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from coach.analysis.measured.stack_groups import merge
from coach.launch.resubmission import read_job
from coach.model.reading import JobRow, Payload, StackChunk, TelemetryChunk
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.stacks import Stacks
from coach.model.training.telemetry import GpuSample, ProcessSample, TelemetrySample
from coach.node.stack_samples import reduce_burst
from coach.node.stacks import PY_SPY, Threads, with_main_thread
from coach.sources.metrics.stack_dumps import parse_stacks
from coach.sources.metrics.stack_samples import parse_burst
from coach.sources.slurm.gres import count_gpus
from coach.sources.slurm.text import parse_duration, parse_exit_code, parse_time, parse_whole

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
_MARKS = (b"NVIDIA-SMI", b"Python v", b"JobId=")
_MAX_ITEMS = 512
"""GPUs and processes: more are left out."""
_NODE = "its node"
"""No pasted text names the node."""
_ONE_LOOK = "one look, so nothing is known of before and after"

_SMI = re.compile(r"^\| NVIDIA-SMI \S+ +(?:KMD Version: \S+ +)?Driver Version: \S+")
_SMI_GPU = re.compile(
    r"^\| {1,4}(?P<gpu>\d{1,3})  (?P<name>\S.{0,60}?) +(?:On|Off|N/A) *"
    r"\| *[0-9A-F]{1,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d ",
    re.IGNORECASE,
)
_SMI_USE = re.compile(
    r"^\| *\S{1,6} +(?P<temperature>\S{1,6}) +\S{1,7} +(?P<power>\S{1,9}) */ *(?P<limit>\S{1,9})"
    r" *\| *(?P<used>\S{1,12}) */ *(?P<total>\S{1,12}) *\| *(?P<utilization>\S{1,6}) "
)
_SMI_PROCESS = re.compile(
    r"^\| {1,5}(?P<gpu>\d{1,3}) +(?:\S{1,4} +\S{1,4} +)?(?P<pid>\d{1,10}) +[CGM+]{1,4} +"
    r"(?P<name>\S.{0,200}?) +(?P<memory>\d{1,9})MiB *\|$"
)
_MEASURED = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(?:C|W|MiB|%)")

_SPY_PROCESS = re.compile(r"^Process (\d{1,10}): ")
_SPY_PYTHON = re.compile(r"^Python v\d+\.\d+\S* \(")
_SPY_THREAD = re.compile(r'^Thread (\w{1,20})(?:/\w{1,20})? \([\w+ ]{1,20}\)(?:: "(.{0,200})")?$')
_SPY_FRAME = re.compile(r"^    (\S.{0,200}?) \((.{1,300}?)(?::(\d{1,7}))?\)$")
_SPY_INDENT = "    "
"""Begins a frame, and an argument or a variable, which `py-spy dump --locals` prints."""
_INSTALLED = frozenset(
    {"torch", "deepspeed", "horovod", "accelerate", "transformers", "lightning", "pytorch_lightning", "numpy"}
)
"""py-spy leaves out the folder of a module's package, which tells installed code from a program's own."""

_JOB = re.compile(r"JobId=(\d{1,15})(?: ArrayJobId=(\d{1,15})(?: ArrayTaskId=(\d{1,15})\b)?)?")
_JOB_LINE = re.compile(r"JobId=\d| {3,6}[A-Z][\w/]*[=:]")
_STATE = re.compile(r"[A-Z][A-Z_]{1,40}")


@dataclass(frozen=True, slots=True)
class Pasted:
    """`words`: what the text was taken for. `payload`: its values, for the monitor."""

    words: str
    payload: Payload


def recognise(data: bytes, target: str, now_s: float) -> Pasted | None:
    """What a text holds that is no log; None for any other text. `now_s`: the time to give its values."""
    if len(data) >= MAX_BYTES or not any(mark in data for mark in _MARKS):
        return None
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = [line[:_MAX_CHARS].rstrip() for line in text.split("\n") if line.strip()]
    lines = [line for line in lines if not _BESIDE.fullmatch(line)]
    return _of_smi(lines, target, now_s) or _of_py_spy(lines, target, now_s) or _of_job(text, lines, target)


def _of_smi(lines: Sequence[str], target: str, now_s: float) -> Pasted | None:
    if not all(line.startswith(("|", "+-", "+=")) for line in lines) or not any(map(_SMI.match, lines)):
        return None
    gpus: dict[int, GpuSample] = {}
    processes: list[TelemetrySample] = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if (gpu := _SMI_GPU.match(line)) and len(gpus) < _MAX_ITEMS:
            gpus.setdefault(int(gpu["gpu"]), _gpu(gpu, _SMI_USE.match(below), now_s))
        elif (process := _SMI_PROCESS.match(line)) and len(processes) < _MAX_ITEMS:
            of, memory_mib = (int(process["gpu"]),), float(process["memory"])
            one = (_NODE, now_s, int(process["pid"]), process["name"])
            processes.append(ProcessSample(*one, gpu_memory_mib=memory_mib, gpus=of))
    if not gpus:
        return None
    facts = (
        _range("busy", [gpu.utilization_pct for gpu in gpus.values()]),
        _range("of memory used", [_memory_pct(gpu) for gpu in gpus.values()]),
        _count(len(processes), "process", "processes"),
    )
    table = f"an nvidia-smi table of {_count(len(gpus), 'GPU', 'GPUs')}"
    words = f"taken for {table}: {', '.join(facts)}; {_ONE_LOOK}"
    return Pasted(words, TelemetryChunk(target, (*gpus.values(), *processes)))


def _gpu(gpu: re.Match[str], use: re.Match[str] | None, now_s: float) -> GpuSample:
    """One GPU from its two lines."""
    sample = GpuSample(_NODE, now_s, int(gpu["gpu"]), None, gpu["name"])
    if use is None:
        return sample
    return replace(
        sample,
        utilization_pct=_number(use["utilization"]),
        memory_used_mib=_number(use["used"]),
        memory_total_mib=_number(use["total"]),
        power_w=_number(use["power"]),
        power_limit_w=_number(use["limit"]),
        temperature_c=_number(use["temperature"]),
    )


def _number(word: str) -> float | None:
    """`78641MiB`, `98%`, `121W`, `45C`; None for `N/A` and `ERR!`."""
    found = _MEASURED.fullmatch(word)
    return float(found[1]) if found else None


def _memory_pct(gpu: GpuSample) -> float | None:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    return 100 * used / total if used is not None and total else None


def _range(what: str, values: Sequence[float | None]) -> str:
    """`0 to 98 % busy`, `40 % busy (not known of 1)`, `busy: not known`."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{what}: not known"
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    num_unknown = len(values) - len(known)
    unknown = f" (not known of {num_unknown})" if num_unknown else ""
    return f"{low if low == high else f'{low} to {high}'} % {what}{unknown}"


def _of_py_spy(lines: Sequence[str], target: str, now_s: float) -> Pasted | None:
    if not any(map(_SPY_PYTHON.match, lines)):
        return None
    ranks = [rank for rank in _processes(lines) if any(thread["frames"] for thread in rank["threads"])]
    if not ranks:
        return None
    record = {"node": _NODE, "time_s": now_s}
    looks = ((rank["pid"], reduce_burst([with_main_thread(rank["threads"])])) for rank in ranks)
    bursts = [parse_burst({**record, "pid": pid, **look}) for pid, look in looks]
    place = merge(Stacks(parse_stacks({"node": _NODE, "ranks": ranks}), "", 1)).sentence
    words = f"taken for a py-spy dump of {_count(len(ranks), 'process', 'processes')}: {place}; {_ONE_LOOK}"
    return Pasted(words, StackChunk(target, tuple(filter(None, bursts))))


def _processes(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The processes with their threads, in the form of `coach.node.stacks`; none if a line is another
    program's."""
    processes: list[dict[str, Any]] = []
    threads: Threads = []
    for line in lines:
        if process := _SPY_PROCESS.match(line):
            threads = []
            processes.append({"pid": int(process[1]), "rung": PY_SPY, "threads": threads})
        elif processes and (thread := _SPY_THREAD.match(line)):
            is_main = thread[1] == str(processes[-1]["pid"])
            threads.append({"name": thread[2], "is_main": is_main, "frames": []})
        elif threads and line.startswith(_SPY_INDENT):
            if frame := _SPY_FRAME.match(line):
                number = int(frame[3]) if frame[3] else None
                place = {"function": frame[1], "file": _whole_path(frame[2]), "line": number}
                threads[-1]["frames"].append(place)
        elif not _SPY_PYTHON.match(line):
            return []
    return processes[:_MAX_ITEMS]


def _whole_path(file: str) -> str:
    """The file with a folder that shows that it is installed, where py-spy has cut it off."""
    top = file.partition("/")[0].removesuffix(".py")
    if top in _INSTALLED:
        return f"/site-packages/{file}"
    return f"/lib/python/{file}" if top in sys.stdlib_module_names else file


def _of_job(text: str, lines: Sequence[str], target: str) -> Pasted | None:
    records = [each for each in re.split(r"^(?=JobId=)", text, flags=re.MULTILINE) if _JOB.match(each)]
    job = _job(records[0]) if records and all(map(_JOB_LINE.match, lines)) else None
    if job is None:
        return None
    which = f" (the first of {len(records)})" if len(records) > 1 else ""
    words = f"taken for Slurm's record of job {job.job_id}{which}: its log was not read"
    return Pasted(words, JobRow(target, job))


def _job(record: str) -> Job | None:
    """The job. It has no user: whatever cluster it is of, nobody here acts on it."""
    facts, head = read_job(record), _JOB.match(record)
    state = facts.get("JobState", "")
    if head is None or not _STATE.fullmatch(state):
        return None
    number, array, task = head.groups()
    has_ended, code = is_final(state), parse_exit_code(facts.get("ExitCode", ""))
    return Job(
        job_id="_".join(filter(None, (array or number, task))),
        name=facts.get("JobName", ""),
        user="",
        state=state,
        reason=facts.get("Reason"),
        partition=facts.get("Partition", ""),
        nodes=facts.get("NodeList"),
        num_nodes=parse_whole(facts.get("NumNodes", "").partition("-")[0]),
        num_cpus=parse_whole(facts.get("NumCPUs", "").partition("-")[0]),
        num_gpus=count_gpus(facts.get("AllocTRES") or facts.get("ReqTRES") or facts.get("TRES", "")),
        time_used_s=parse_duration(facts.get("RunTime", "")),
        time_left_s=None,
        time_limit_s=parse_duration(facts.get("TimeLimit", "")),
        submit_time_s=parse_time(facts.get("SubmitTime", "")),
        start_time_s=parse_time(facts.get("StartTime", "")),
        end_time_s=parse_time(facts.get("EndTime", "")) if has_ended else None,
        exit_code=code if has_ended and (code or state == "COMPLETED") else None,
        raw_job_id=number,
        dependency=facts.get("Dependency"),
        reservation=facts.get("Reservation"),
        stdout=facts.get("StdOut"),
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
