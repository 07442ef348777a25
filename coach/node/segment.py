"""The segments of a training that is longer than its time limit, and the checkpoint between two of them.

The batch script runs it at the start of a segment and when the limit is near. A checkpoint is recognised by
the name and the form that its framework gives it. Nothing is unpickled, because a checkpoint may run code.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from coach import runs
from coach.trusted import open_trusted, read_tail

MAX_DEPTH = 5
"""Lightning writes to lightning_logs/version_0/checkpoints/ below its root directory."""
MAX_ENTRIES = 20_000

_FOLDER = re.compile(r"(?:checkpoint|global_step|step|epoch|iter)[-_=]?(\d+)", re.IGNORECASE)
_FILE = re.compile(
    r"(?:^|[^a-z])(?:step|epoch|iter(?:ation)?|checkpoint|ckpt|last|latest)[-_=]?\d{0,20}"
    r"(?:[^a-z\d].{0,200})?"
    r"\.(?:pt|pth)(?:\.tar)?$|\.ckpt$",
    re.IGNORECASE,
)
_PART = re.compile(
    r"(?:^|[^a-z])(?:optim|optimi[sz]er|sched(?:uler)?|scaler|rng(?:_?state)?)(?:[^a-z]|$)", re.IGNORECASE
)
"""A file beside the weights: no program resumes from it alone."""
_WEIGHTS = re.compile(r"(?:pytorch_model|model|adapter_model)[\w-]*\.(?:bin|safetensors)")
_DEEPSPEED = re.compile(r"global_step\d+")
_ZIP_BEGINS, _ZIP_ENDS = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_TAIL_BYTES = 1024


class Found(NamedTuple):
    """A complete checkpoint. `path` is the path that the program gets to resume from."""

    time_s: float
    path: str


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `segment`."""
    parser.add_argument("--run-dir", required=True, metavar="DIR", help="the run directory")
    parser.add_argument("--max", required=True, type=int, metavar="N", help="segments at most")
    parser.add_argument("--end", action="store_true", help="this segment ends (default: one begins)")
    parser.add_argument(
        "--exit-code", type=int, metavar="N", help="with --end: exit status of the training, if it is known"
    )
    parser.add_argument("--nodes", default="", metavar="LIST", help="the nodes of this segment")
    parser.add_argument("--successor", metavar="JOB", help="the job that goes on in the place of this one")
    parser.add_argument("places", nargs="*", metavar="DIR", help="where checkpoints are looked for")


def run(args: argparse.Namespace) -> int:
    """Print the checkpoint to resume from. At the end of a segment: exit status 1, and a one-line reason, if
    there must be no further segment."""
    paths = runs.RunPaths(Path(args.run_dir))
    try:
        if args.successor is not None:
            runs.update_json(paths.run_json, succeeded(args.successor, time.time()))
            return 0
        if args.end:
            return _end(paths, args.max, [str(paths.run_dir), *args.places], args.exit_code)
        checkpoint = begin(paths, args.max, args.nodes, time.time())
    except (OSError, runs.RunFileError) as error:
        print(f"coach segment: {error}", file=sys.stderr)
        return 1
    if checkpoint is not None:
        print(checkpoint)
    return 0


def begin(paths: runs.RunPaths, most: int, nodes: str, now_s: float) -> Optional[str]:
    """Add a new segment to run.json. Returns the checkpoint of the last segment; None if it left none."""
    segments = read_segments(paths)
    checkpoint = segments[-1].get("checkpoint") if segments else None
    segments.append({"start_time_s": now_s, "end_time_s": None, "nodes": nodes, "resumed_from": checkpoint})
    runs.update_json(paths.run_json, {"segments": segments})
    words = f", goes on from {checkpoint}" if checkpoint else ""
    print(f"coach: segment {len(segments)} of at most {most}{words}", file=sys.stderr)
    return checkpoint if isinstance(checkpoint, str) else None


def succeeded(job_id: str, now_s: float) -> Dict[str, Any]:
    """The changes of run.json when another job continues the run because Slurm does not requeue."""
    return {"job_id": job_id, "submitted_time_s": now_s, "state": "PENDING"}


def _end(paths: runs.RunPaths, most: int, places: List[str], exit_code: Optional[int]) -> int:
    checkpoint, refusal = end(paths, most, places, time.time(), exit_code)
    if refusal is not None:
        done = "; the training was signalled and exited 0: is it complete?" if exit_code == 0 else ""
        print(f"coach: no further segment: {refusal}{done}", file=sys.stderr)
        return 1
    segments = read_segments(paths)
    lost_s = segments[-1].get("lost_s") or 0.0
    print(
        f"coach: segment {len(segments)} ended ({segments[-1]['why']}); {lost_s:.0f} s after its checkpoint "
        "are lost",
        file=sys.stderr,
    )
    print(checkpoint)
    return 0


def end(
    paths: runs.RunPaths, most: int, places: List[str], now_s: float, exit_code: Optional[int] = None
) -> Tuple[Optional[str], Optional[str]]:
    """Record the end of the newest segment. Returns its checkpoint, and the reason why there must be no
    further segment. Without a reason there must be one.

    A training that exits 0 after the signal gets a further segment too: most programs save and exit 0 because
    of the signal. One that was complete resumes, and ends at once.
    """
    segments = read_segments(paths)
    if not segments:
        return None, "run.json names none"
    last = segments[-1]
    started_s = last.get("start_time_s")
    found = newest_checkpoint(places, started_s if isinstance(started_s, (int, float)) else now_s)
    refusal = None
    if found is None:
        refusal = f"no newer checkpoint was written in {', '.join(places)}"
    elif len(segments) >= most:
        refusal = f"at most {most} were asked for; the newest checkpoint is {found.path}"
    last["end_time_s"] = now_s
    last["checkpoint"] = found.path if found is not None else None
    last["lost_s"] = max(0.0, now_s - found.time_s) if found is not None else None
    last["why"] = "signalled near the time limit, exited 0" if exit_code == 0 else "the time limit was near"
    last["refusal"] = refusal
    runs.update_json(paths.run_json, {"segments": segments})
    return last["checkpoint"], refusal


def close(paths: runs.RunPaths, state: str, now_s: float) -> None:
    """Record that the newest segment ended by itself, if one is open. Raises OSError or RunFileError."""
    segments = read_segments(paths)
    if segments and segments[-1].get("end_time_s") is None:
        segments[-1].update(end_time_s=now_s, why=state)
        runs.update_json(paths.run_json, {"segments": segments})


def read_segments(paths: runs.RunPaths) -> List[Dict[str, Any]]:
    """The segments in run.json, oldest first. Raises RunFileError."""
    told = runs.read_json(paths.run_json).get("segments")
    return [dict(each) for each in told if isinstance(each, dict)] if isinstance(told, list) else []


def newest_checkpoint(places: List[str], since_s: float) -> Optional[Found]:
    """The newest complete checkpoint written since `since_s`, in any of the places; None if there is none."""
    found = [
        one
        for place in dict.fromkeys(os.path.abspath(place) for place in places)  # noqa: PTH100 (a text)
        for one in _checkpoints(place)
        # File servers may store times in whole seconds.
        if one.time_s >= int(since_s) and one.path.isprintable()
    ]
    return max(found, default=None)


def _checkpoints(place: str) -> Iterator[Found]:
    """All complete checkpoints below a directory. A checkpoint's contents are not searched."""
    waiting, num_entries = [(place, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:
            continue
        num_entries += len(entries)
        if num_entries > MAX_ENTRIES:
            return
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if _FOLDER.fullmatch(entry.name):
                        yield from _of_folder(entry.path, entries)
                    elif depth < MAX_DEPTH and not entry.name.startswith("."):
                        waiting.append((entry.path, depth + 1))
                elif _is_named(entry.name) and entry.is_file() and _is_whole(entry.path):
                    yield Found(entry.stat().st_mtime, entry.path)
            except OSError:
                continue


def _is_named(name: str) -> bool:
    return bool(_FILE.search(name)) and ("model" in name.lower() or not _PART.search(name))


def _of_folder(path: str, siblings: "List[os.DirEntry[str]]") -> Iterator[Found]:
    """The directory as one checkpoint, if it is one and is complete."""
    names, times = set(), []
    for folder, _, files in os.walk(path):
        for name in files:
            names.add(name)
            times.append(os.lstat(os.path.join(folder, name)).st_mtime)  # noqa: PTH118 (many files)
    if not times:
        return
    name = os.path.basename(path)  # noqa: PTH119 (a text)
    if _DEEPSPEED.fullmatch(name):
        # DeepSpeed writes `latest` last. It names the step that DeepSpeed loads from the directory above.
        latest = next((entry.path for entry in siblings if entry.name == "latest"), None)
        if (
            latest is not None
            and read_tail(latest, 4096, owner=None).decode("utf-8", "replace").strip() == name
        ):
            yield Found(max(times), os.path.dirname(path))  # noqa: PTH120 (a text)
        return
    is_hugging_face = any(_WEIGHTS.fullmatch(each) for each in names)
    if not is_hugging_face or "trainer_state.json" in names:  # written after the weights
        yield Found(max(times), path)


def _is_whole(path: str) -> bool:
    """False for an empty file, and for a file of torch's without its end."""
    with open_trusted(path, owner=None, follows_links=True) as file:
        head = file.read(len(_ZIP_BEGINS))
        if head != _ZIP_BEGINS:
            return bool(head)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _ZIP_TAIL_BYTES))
        return _ZIP_ENDS in file.read()
