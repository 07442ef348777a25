"""Read run.json, exit.json and the checkpoints of one run tolerantly.

Trainers, supervisor, batch script and coach all write to the run directory, so its files may be missing, torn
or from another version. The parsers are pure: they turn a dictionary into a value of the model, with None for
missing values.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.errors import UserError
from coach.model.launching.ladder import Ladder, Rung
from coach.model.launching.launch import AppliedFix, Scalar, SweepPoint
from coach.model.reading import Reading, RunFacts
from coach.model.slurm.cluster import NOT_RECORDED, is_final
from coach.model.teaching.drill import Answer
from coach.model.training.run import (
    Checkpoint,
    FullDisk,
    RankExit,
    Refusal,
    Run,
    RunExit,
    Segment,
)
from coach.sources.follow import describe, read_whole
from coach.sources.io import Io, for_folder
from coach.sources.runs.local_process import Look, Sighting, look, may_be_launching
from coach.sources.values import Fields, finite, flag, table, text, whole

LIVE_INTERVAL_S = 2.0
ENDED_INTERVAL_S = 15.0

_RECIPE_IN_RUN_ID = re.compile(r"^\d{8}-\d{6}-(.+)-[0-9a-f]{4}$")
_CHECKPOINT = re.compile(r"^step-(\d{1,18})(?:\.pt)?$")
"""A file, or a directory to which every rank wrote its part."""
_MAX_FULL_DISK_BYTES = 4096
_MAX_READINGS = 3
"""A record may be replaced between two readings."""
_MAX_BELOW = 8
"""Largest number of levels in a run directory: torchrun's folder of a rank is the deepest."""

MAX_SEGMENTS = 100
"""Largest number of segments that a launch may ask for."""

_RUN = Fields(
    Run,
    {
        *("state", "parameters", "resources", "launch", "created_time_s", "started_time_s", "ended_time_s"),
        *("parent_run_id", "device", "dataset", "versions", "parameter_info", "cluster", "submitted_time_s"),
        *("user", "expects", "mem_need_mib", "drill", "found_by", "raw_job_id"),
    },
)
"""What run.json may say as it stands. Everything else is judged by coach."""
_SEGMENT = Fields(Segment, Segment.__match_args__)
_RUNG = Fields(Rung, Rung.__match_args__)
MAX_RUNGS = 64
"""Rungs of a ladder that are read."""
_FULL_DISK = Fields(FullDisk, ("first_time_s", "last_time_s", "free_bytes", "free_inodes", "exit_code"))


def parse_run(value: Mapping[str, Any], run_dir: str) -> Run:
    """Parse run.json. The run's place is always `run_dir`, whatever run.json says; its id is the directory's
    name if run.json has none."""
    run_id = text(value.get("run_id")) or Path(run_dir).name
    job_id = value.get("job_id")
    if (number := whole(job_id)) is not None:
        job_id = str(number)
    named = _RECIPE_IN_RUN_ID.match(run_id)
    return Run(
        run_id=run_id,
        run_dir=run_dir,
        recipe=text(value.get("recipe")) or (named[1] if named else ""),
        backend=text(value.get("backend")) or ("local" if job_id in (None, run_id) else "slurm"),
        job_id=text(job_id),
        **_RUN.read(value),
        fix=_parse_fix(table(value.get("fix"))),
        is_uneven_by_design=flag(value.get("uneven_by_design")),
        remedies=_parse_remedies(table(value.get("remedies"))),
        sweep=_parse_sweep(table(value.get("sweep"))),
        ladder=_parse_ladder(table(value.get("ladder"))),
        segments=_parse_segments(value.get("segments")),
        attempts=tuple(_tables(value.get("attempts"))),
        has_torch_gpu_support=flag(table(value.get("torch_build")).get("has_gpu_support")),
    )


def _parse_segments(value: Any) -> tuple[Segment, ...]:
    return tuple(Segment(**_SEGMENT.read(each)) for each in _tables(value))


def _tables(value: Any) -> list[Mapping[str, Any]]:
    """The last tables of a list."""
    listed = value[-MAX_SEGMENTS:] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]


def _parse_remedies(value: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The remedies that set something to a plain value."""
    return {
        name: changes
        for name, changes in value.items()
        if isinstance(changes, dict)
        and changes
        and all(isinstance(each, Scalar) for each in changes.values())
    }


def _parse_sweep(value: Mapping[str, Any]) -> SweepPoint | None:
    group_id, parameter = text(value.get("group_id")), text(value.get("parameter"))
    index, size, swept = whole(value.get("index")), whole(value.get("size")), value.get("value")
    if not group_id or not parameter or index is None or size is None:
        return None
    return SweepPoint(group_id, parameter, swept, index, size) if isinstance(swept, Scalar) else None


def _parse_ladder(value: Mapping[str, Any]) -> Ladder | None:
    name, listed = text(value.get("name")), value.get("rungs")
    if not name or not isinstance(listed, list):
        return None
    rungs = [_RUNG.read(each) for each in listed[:MAX_RUNGS] if isinstance(each, dict)]
    known = tuple(Rung(**rung) for rung in rungs if rung["name"] and rung["recipe"])
    return Ladder(name, text(value.get("title")) or "", known, value.get("is_for_gpus") is True)


def _parse_fix(value: Mapping[str, Any]) -> AppliedFix | None:
    rule = text(value.get("rule"))
    if not rule:
        return None
    title, changes = text(value.get("title")) or "", table(value.get("changes"))
    return AppliedFix(rule, title, changes, whole(value.get("trial_steps")))


def parse_answer(value: Mapping[str, Any]) -> Answer:
    """Parse drill_answer.json. Without an answer, the learner gave up."""
    tries = whole(value.get("num_tries"))
    return Answer(
        text(value.get("answer")),
        value.get("is_right") is True,
        finite(value.get("time_s")),
        1 if tries is None else tries,
        text(value.get("spoiled")),
    )


def parse_exit(value: Mapping[str, Any]) -> RunExit:
    """Parse exit.json; a rank without a number is left out."""
    rows = value.get("ranks")
    ranks = [_parse_rank(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return RunExit(
        state=text(value.get("state")),
        exit_code=whole(value.get("exit_code")),
        ended_time_s=finite(value.get("ended_time_s")),
        ranks=tuple(rank for rank in ranks if rank is not None),
        refused=_parse_refusal(table(value.get("refused"))),
        oom_kills=_parse_oom_kills(table(value.get("nodes"))),
    )


def _parse_oom_kills(nodes: Mapping[str, Any]) -> Mapping[str, int]:
    """Node → sum over its tasks. Tasks other than the first have entries named `NODE.LOCAL_ID`."""
    found: Counter[str] = Counter()
    for name, part in nodes.items():
        node, _, local_id = name.rpartition(".")
        count = whole(table(part).get("oom_kills")) or 0
        found[node if node and local_id.isdecimal() else name] += count
    return dict(+found)


def _parse_refusal(value: Mapping[str, Any]) -> Refusal | None:
    cause, said = text(value.get("cause")), text(value.get("text"))
    return Refusal(cause, said, text(value.get("node"))) if cause and said else None


def _parse_rank(row: Mapping[str, Any]) -> RankExit | None:
    rank = whole(row.get("rank"))
    if rank is None:
        return None
    return RankExit(
        rank,
        whole(row.get("exit_code")),
        whole(row.get("signal")),
        text(row.get("message")),
        row.get("is_bystander") is True,
    )


def parse_checkpoint_names(names: Iterable[str]) -> list[tuple[int, str]]:
    """(step, name) of complete checkpoints, oldest first. Other names, including a writer's temporary files,
    are skipped."""
    found = ((match, name) for name in names if (match := _CHECKPOINT.match(name)))
    return sorted((int(match[1]), name) for match, name in found)


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Parse one JSON object. Raises UserError with one line if it is torn or not an object."""
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not valid JSON ({error}); it may have been cut while written",
            "the other files of the run can still be read: give the path of its log",
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_run(io: Io, run_dir: Path, look: Look = look) -> Run:
    """The run in this directory, judged to be the user's or not; for a local run its real state. Raises
    OSError if there is no run.json, UserError if it is torn."""
    path, io = runs.RunPaths(run_dir).run_json, for_folder(io, run_dir)
    data, why_not_mine = _read_record(io, path)
    value = parse_json(data, path)
    run = replace(parse_run(value, str(run_dir)), why_not_mine=why_not_mine)
    if run.drill is not None:
        run = replace(run, drill_answer=read_answer(io, run_dir))
    if run.job_id is None and may_be_launching(value, io.now()):
        run = replace(run, is_launching=True)
    return as_seen(io, run, look(value)) if run.backend == "local" else run


def _read_record(io: Io, path: Path) -> tuple[bytes, str | None]:
    """The content of run.json, and why somebody else may have written it. It is the user's only if a reading
    that asks for the owner of what was opened gives the same: a name may lead elsewhere a moment later."""
    why_not_mine = None
    for _ in range(_MAX_READINGS):
        try:
            own = runs.read_own(path)
        except OSError as error:
            own, why_not_mine = None, describe(error)
        data = read_whole(io, path)
        if own is None or own == data:
            return data, why_not_mine
    return data, f"{path}: it changes all the time"


def run_around(io: Io, path: Path) -> Run | None:
    """The run to which this file or folder belongs; None if it belongs to none."""
    for folder in (*path.parents[:_MAX_BELOW], path.parent.parent / path.stem):
        try:
            return read_run(io, folder)
        except (OSError, UserError):
            continue
    return None


def read_answer(io: Io, run_dir: Path) -> Answer | None:
    """The learner's answer to a drill; None if there is none that can be read."""
    path = runs.RunPaths(run_dir).drill_answer_json
    try:
        return parse_answer(parse_json(read_whole(io, path), path))
    except (OSError, UserError):
        return None


def as_seen(io: Io, run: Run, seen: Sighting) -> Run:
    """A local run with its real state; for a run on another machine with the time of its last change."""
    last_word_time_s = None if seen.is_visible else read_last_word_time_s(io, Path(run.run_dir))
    return replace(
        run,
        state=seen.state,
        host=seen.host,
        is_visible=seen.is_visible,
        last_word_time_s=last_word_time_s,
    )


def read_last_word_time_s(io: Io, run_dir: Path) -> float | None:
    """When a run last wrote to its run.json, its logs, its metrics or its telemetry, in epoch seconds."""
    paths = runs.RunPaths(run_dir)
    files = [paths.run_json, paths.stdout_log, paths.stderr_log, paths.metrics_of(0)]
    with contextlib.suppress(OSError):
        files += [paths.telemetry_dir / name for name in io.list_dir(paths.telemetry_dir)]
    times = []
    for file in files:
        with contextlib.suppress(OSError):
            times.append(io.modified_s(file))
    return max(times, default=None)


def read_exit(io: Io, run: Run) -> RunExit | None:
    """How the run ended; None if that is not recorded yet. Raises OSError or UserError."""
    paths = runs.RunPaths(run.run_dir)
    value: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        value = parse_json(read_whole(io, paths.exit_json), paths.exit_json)
    if run.state == NOT_RECORDED and not is_final(text(value.get("state"))):
        value = {**value, **_read_exit_status(io, paths.exit_status)}
    return parse_exit(value) if value else _exit_without_room(io, run)


def read_full_disks(io: Io, run_dir: Path) -> tuple[FullDisk, ...]:
    """What the nodes noted about a full file system; empty if none did."""
    folder = runs.RunPaths(run_dir).telemetry_dir
    try:
        names = sorted(name for name in io.list_dir(folder) if name.endswith(runs.FULL_DISK_SUFFIX))
    except OSError:
        return ()
    found = (_read_full_disk(io, folder / name) for name in names)
    return tuple(each for each in found if each is not None)


def _exit_without_room(io: Io, run: Run) -> RunExit | None:
    """The end of a run whose disk had no room for exit.json, once all its nodes noted their exit codes."""
    if (is_final(run.state) and run.state != NOT_RECORDED) or run.started_time_s is None:
        return None
    noted = read_full_disks(io, Path(run.run_dir))
    codes = [each.exit_code for each in noted if each.exit_code is not None]
    if not codes or len(codes) < (whole(run.resources.get("num_nodes")) or 1):
        return None
    state, ended_s = "FAILED" if any(codes) else "COMPLETED", max(each.last_time_s or 0.0 for each in noted)
    return RunExit(state, max(codes), ended_s or None, ())


def _read_full_disk(io: Io, path: Path) -> FullDisk | None:
    try:
        value = parse_json(io.read(path, 0, _MAX_FULL_DISK_BYTES), path)
    except (OSError, UserError):
        return None
    number = whole(value.get("errno"))
    if number not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return FullDisk(
        node=path.name.removesuffix(runs.FULL_DISK_SUFFIX),
        file=str(path),
        is_quota=number == errno.EDQUOT,
        **_FULL_DISK.read(value),
    )


def _read_exit_status(io: Io, path: Path) -> dict[str, Any]:
    """The exit status of a command whose supervisor was killed; empty if unknown. A living supervisor records
    more: which limit ended the command."""
    try:
        status = int(read_whole(io, path))
        ended_time_s = io.modified_s(path)
    except (OSError, ValueError):
        return {}
    return {"state": "FAILED" if status else "COMPLETED", "exit_code": status, "ended_time_s": ended_time_s}


def read_checkpoints(io: Io, run_dir: Path) -> tuple[Checkpoint, ...]:
    """Complete checkpoints, oldest first."""
    folder = runs.RunPaths(run_dir).checkpoints_dir
    try:
        names = io.list_dir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    found = []
    for step, name in parse_checkpoint_names(names):
        path = folder / name
        try:
            found.append(Checkpoint(str(path), step, io.modified_s(path)))
        except FileNotFoundError:
            continue  # the trainer has removed it since the listing
    return tuple(found)


class RunFilesSource:
    """Reads run.json, exit.json and the checkpoints of one watched run; less often after its end."""

    name = "run"

    def __init__(self, io: Io, target: str, run_dir: Path, look: Look = look) -> None:
        self.interval_s = LIVE_INTERVAL_S
        self._look = look
        self._io = io
        self._target = target
        self._run_dir = run_dir

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        facts, error = None, None
        try:
            run = read_run(self._io, self._run_dir, self._look)
            run = replace(run, full_disks=read_full_disks(self._io, self._run_dir))
            exit_ = read_exit(self._io, run)
            facts = RunFacts(self._target, run, exit_, read_checkpoints(self._io, self._run_dir))
            has_ended = is_final(run.state) or (exit_ is not None and is_final(exit_.state))
            self.interval_s = ENDED_INTERVAL_S if has_ended else LIVE_INTERVAL_S
        except OSError as problem:
            error = describe(problem)
        except UserError as problem:
            error = problem.message
        now_s = self._io.now()
        yield Reading(self.name, now_s, now_s - start_s, facts, error, self._target)
