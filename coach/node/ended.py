"""Writes exit.json: how a run ended. Each process that knows a part writes it.

Each node's supervisor writes its own part. The batch script's last lines write the state with `coach ended`,
because they run even if a supervisor was killed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from coach import runs
from coach.node import rank_ends, segment, share


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `ended`."""
    parser.add_argument("--run-dir", required=True, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--exit-code", required=True, type=int, metavar="N", help="exit status of the training"
    )
    parser.add_argument(
        "--state", metavar="STATE", help="Slurm's word for it (default: COMPLETED when N is 0, else FAILED)"
    )


def run(args: argparse.Namespace) -> int:
    """Record the end. If the run directory cannot be written, print one line; exit status 1."""
    paths = runs.RunPaths(Path(args.run_dir))
    try:
        record_state(paths, args.exit_code, args.state)
    except (OSError, runs.RunFileError) as error:
        print(f"coach ended: {error}", file=sys.stderr)
        return 1
    return 0


def record_state(paths: runs.RunPaths, exit_code: int, state: Optional[str] = None) -> None:
    """Write state, exit code and end time into exit.json and run.json, and share them with the cohort."""
    word = state or ("COMPLETED" if exit_code == 0 else "FAILED")
    ended_time_s = time.time()
    runs.update_json(
        paths.exit_json,
        {"schema": runs.SCHEMA, "state": word, "exit_code": exit_code, "ended_time_s": ended_time_s},
    )
    runs.update_json(paths.run_json, {"state": word, "ended_time_s": ended_time_s})
    segment.close(paths, word, ended_time_s)
    problem = share.share_in_time(paths)
    if problem:
        print(f"coach: shares nothing: {problem}", file=sys.stderr)


def record_node(
    paths: runs.RunPaths, node: str, returncode: int, ranks: List[Dict[str, Any]], oom_kills: int = 0
) -> None:
    """Write one node's part of exit.json, and the ranks of all nodes that have written their parts.
    `oom_kills` is the number of the job's processes that the kernel killed on this node for lack of
    memory."""
    part: Dict[str, Any] = {
        "exit_code": returncode if returncode >= 0 else None,
        "signal": -returncode if returncode < 0 else None,
        "ranks": ranks,
    }
    if oom_kills:
        part["oom_kills"] = oom_kills
    value = runs.update_json(paths.exit_json, {"schema": runs.SCHEMA, "nodes": {node: part}})
    while True:
        # Another node may write between a read and the merge. Look again until the merge holds all parts.
        known = {
            entry["rank"]: dict(entry)
            for other in value["nodes"].values()
            for entry in other.get("ranks", ())
        }
        merged = [known[rank] for rank in sorted(known)]
        rank_ends.mark_bystanders(merged)
        if value.get("ranks") == merged:
            return
        value = runs.update_json(paths.exit_json, {"ranks": merged})
