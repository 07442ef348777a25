"""Writes the small file by which a run shows its state to a cohort. The content comes from its run directory.

Launch, sampler, batch script, supervisor and coach all write it through this module, under one lock, so the
cohort sees the run even while its owner's coach is closed. Other users write into the same directory, so no
link is followed and no content is trusted. No function raises. The directory may be on a file server that
hangs: a caller that must not wait uses `share_in_time`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import stat
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from coach import runs
from coach.trusted import read_tail, read_trusted

HELP = "put a small summary of the run into DIR, for everybody to read: state, samples/s, finding"
INTERVAL_S = 30.0
"""Seconds between two updates of a run that goes on."""

PATIENCE_S = 15.0
"""Seconds for which the end of a run waits for the shared directory: longer than the lock of a killed sampler
lasts."""

_MAX_TEXT = 40
_TAIL_BYTES = 64 << 10
_NUM_STEPS = 100
BEGINS = "course-begins"
"""A file of the directory's owner. Runs that were launched before it was last changed belong to an earlier
course, and share nothing any more."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def share(
    paths: runs.RunPaths, finding: Optional[Mapping[str, Any]] = None, state: Optional[str] = None
) -> Optional[str]:
    """Write the summary of a run to the directory that its launch named. Returns the reason if that failed.

    `finding` is coach's verdict, empty if it found nothing; None keeps the earlier verdict. `state` is a
    state that only Slurm knows.
    """
    try:
        directory = _directory(paths)
        if directory is None:
            return None
        # The lock keeps the order: the last write has the newest content.
        with runs.locked(paths.run_dir / "share"):
            run = runs.read_json(paths.run_json)
            name = _name(paths)
            folder = os.open(directory, _FOLDER)
            try:
                problem = why_unsafe(os.fstat(folder))
                if problem:
                    return f"{directory}: {problem}"
                if _is_of_earlier_course(folder, run):
                    return None
                before = _own(folder, name) if finding is None else {"finding": dict(finding) or None}
                is_judged = bool(before.get("is_judged", finding is not None))
                summary = _summary(paths, run, state)
                # Others may still have to solve the same drill, so the summary only reports if it was solved.
                summary["is_judged"] = is_judged and summary["drill"] is None
                summary["finding"] = before.get("finding") if summary["is_judged"] else None
                data = json.dumps(summary).encode("ascii") + b"\n"
                if len(data) > runs.MAX_SUMMARY_BYTES:
                    return f"{name}: a summary has {runs.MAX_SUMMARY_BYTES} bytes at most"
                _write(folder, name, data)
            finally:
                os.close(folder)
    except OSError as error:
        return f"{error.filename or paths.run_dir}: {error.strerror or error}"
    except (runs.RunFileError, ValueError) as error:
        return str(error)
    return None


def share_in_time(
    paths: runs.RunPaths,
    finding: Optional[Mapping[str, Any]] = None,
    state: Optional[str] = None,
    patience_s: float = PATIENCE_S,
) -> Optional[str]:
    """The same for a caller that must not hang with the shared directory."""
    problems: List[Optional[str]] = []
    thread = threading.Thread(
        target=lambda: problems.append(share(paths, finding, state)), name="share", daemon=True
    )
    thread.start()
    thread.join(patience_s)
    return problems[0] if problems else f"no answer within {patience_s:.0f} s"


def share_ticket(directory: str, run_id: str, data: bytes) -> str:
    """Put the ticket of a run into the directory, for everybody to read; it replaces an earlier one. Returns
    the file's path. Raises OSError."""
    folder = os.open(directory, _FOLDER)
    try:
        problem = why_unsafe(os.fstat(folder))
        if problem:
            raise OSError(errno.EPERM, problem)
        name = f"{os.geteuid()}-{run_id}.ticket.md"
        _write(folder, name, data)
    finally:
        os.close(folder)
    return f"{directory}/{name}"


def withdraw(paths: runs.RunPaths) -> None:
    """Remove the summary of a run whose submission failed."""
    try:
        directory = _directory(paths)
        if directory is not None:
            (Path(directory) / _name(paths)).unlink()
    except (OSError, runs.RunFileError):
        return


def why_unsafe(folder: os.stat_result) -> Optional[str]:
    """The reason why a directory is unsafe for sharing; None if it is safe."""
    if not stat.S_ISDIR(folder.st_mode):
        return "not a directory"
    if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
        return "everybody who may write there could replace what others share"
    return None


def _name(paths: runs.RunPaths) -> str:
    """The file's name. It holds the owner, so that no other user takes it by chance."""
    return f"{os.geteuid()}-{paths.run_dir.name}.json"


def _directory(paths: runs.RunPaths) -> Optional[str]:
    """The directory in which this run is shared. None for a copied run, or another user's."""
    run = runs.read_json(paths.run_json)
    said = run["launch"].get("share") if isinstance(run.get("launch"), dict) else None
    if not isinstance(said, str) or not said.startswith("/") or run.get("run_id") != paths.run_dir.name:
        return None
    return said if paths.run_dir.stat().st_uid == os.geteuid() else None


def _is_of_earlier_course(folder: int, run: Mapping[str, Any]) -> bool:
    """True if the directory's owner has begun another course since the launch."""
    created_s = runs.decode_number(run.get("created_time_s"))
    try:
        begun = os.stat(BEGINS, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    is_owners = begun.st_uid in (0, os.fstat(folder).st_uid)
    return is_owners and created_s is not None and created_s < begun.st_mtime


def _summary(paths: runs.RunPaths, run: Mapping[str, Any], state: Optional[str]) -> Dict[str, Any]:
    ended = runs.read_json_if_any(paths.exit_json)
    drill = run.get("drill")
    answer = runs.read_json_if_any(paths.drill_answer_json)
    is_settled = bool(answer) and (answer.get("is_right") is True or answer.get("answer") is None)
    last = last_steps(paths.metrics_of(0))
    return {
        "schema": runs.SCHEMA,
        "user": _text(run.get("user")),
        "run_id": paths.run_dir.name,
        "recipe": None if drill else _text(run.get("recipe")),
        "drill": _text(drill),
        "state": state or _text(ended.get("state")) or _text(run.get("state")),
        "job_id": _text(run.get("job_id")),
        "samples_per_s": last.samples_per_s,
        "step": last.step,
        "max_steps": _max_steps(run),
        "step_gap_s": last.gap_s,
        "last_step_time_s": last.time_s,
        "is_solved": answer.get("is_right") is True if is_settled else None,
        "is_spoiled": bool(answer.get("spoiled")),
        **{
            key: runs.decode_number(run.get(key))
            for key in ("created_time_s", "started_time_s", "ended_time_s")
        },
        "updated_time_s": time.time(),
        **_rung(run),
    }


def _rung(run: Mapping[str, Any]) -> Dict[str, Any]:
    """The rung of a ladder that the run is, and the least of the document's figure, if this machine can test
    it. Empty for any other run."""
    try:
        ladder, value, group_id = run["ladder"], run["sweep"]["value"], run["sweep"]["group_id"]
        index, rung = next(item for item in enumerate(ladder["rungs"]) if item[1]["name"] == value)
        is_on_cpus = ladder["is_for_gpus"] and not run["resources"]["gpus_per_node"]
        is_tested = rung["why_not"] is None and not is_on_cpus
        return {
            "ladder": {
                "name": _text(ladder["name"]),
                "group_id": group_id,
                "rung": index,
                **{
                    key: rung[key][0] if is_tested and rung[key] else None
                    for key in ("ratio", "samples_per_s")
                },
            }
        }
    except (KeyError, TypeError, StopIteration):
        return {}


class LastSteps(NamedTuple):
    """What the end of a metrics file says. Each value is None if the file does not tell it."""

    samples_per_s: Optional[float] = None
    """The usual speed: the median, so that a checkpoint or an evaluation does not count."""
    step: Optional[int] = None
    time_s: Optional[float] = None
    """When the last step was recorded, in epoch seconds."""
    gap_s: Optional[float] = None
    """The longest time between two records of the newest attempt, so that a checkpoint or an evaluation
    counts."""


def last_steps(metrics: Path) -> LastSteps:
    """The speed, number and times of the last steps, by one read of the end of the file."""
    try:
        records = runs.decode_records(read_tail(metrics, _TAIL_BYTES, owner=None))[0]
    except OSError:
        return LastSteps()
    rates: List[float] = []
    times: List[float] = []
    step: Optional[int] = None
    for record in records:
        time_s = runs.decode_number(record.get("time_s"))
        rate = _samples_per_s(record)
        if rate is not None:
            rates.append(rate)
        if record.get("event") == "start":
            times.clear()  # before it, a requeued run waited
        if time_s is not None and math.isfinite(time_s):
            times.append(time_s)
        if "event" not in record and isinstance(record.get("step"), int):
            step = record["step"]
    last = sorted(rates[-_NUM_STEPS:])
    gaps = [times[at] - times[at - 1] for at in range(1, len(times))]
    return LastSteps(
        round(last[len(last) // 2], 3) if last else None,
        step,
        times[-1] if times and step is not None else None,
        round(max(0.0, *gaps), 3) if gaps else None,
    )


def _samples_per_s(record: Mapping[str, Any]) -> Optional[float]:
    count = runs.decode_number(record.get("num_samples_global"))
    step_s = runs.decode_number(record.get("step_time_s"))
    return count / step_s if count is not None and step_s and step_s > 0 else None


def _max_steps(run: Mapping[str, Any]) -> Optional[int]:
    """The number of steps that the launch set; None if it sets epochs only."""
    parameters = run.get("parameters")
    number = parameters.get("max_steps") if isinstance(parameters, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def _text(value: Any) -> Optional[str]:
    return value[:_MAX_TEXT] if isinstance(value, str) and value else None


def _own(folder: int, name: str) -> Dict[str, Any]:
    """This run's earlier summary."""
    try:
        value = json.loads(
            read_trusted(name, owner=os.geteuid(), limit=runs.MAX_SUMMARY_BYTES, folder=folder)
        )
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(folder: int, name: str, data: bytes) -> None:
    temporary = f".{name}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
