"""The verdict at a job's end: coach judges the run on the node, and writes into the job's own log why it
ended.

The site's interpreter may be too old for the rules, so a process with coach's own interpreter judges, with
limits on time, processor and memory. Its failure does not change how the job ends. A run without a verdict is
judged by the next coach that looks at it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Mapping, Optional, Union

from coach import runs
from coach.node.limits import memory_left_mib
from coach.node.node_name import slurm_job_id

PATIENCE_S = 10.0
"""Seconds: the job has ended, but holds its nodes until the verdict is written."""
MAX_CPU_S = 2
NEEDED_MIB = 80.0
"""Judging a log of 10 MB takes 65 MiB."""
MAX_LINES = 6
_MAX_LINE_BYTES = 4096
COMMENT_PATIENCE_S = 3.0
"""Seconds for each of the two commands to Slurm: a slow controller must not hold the nodes."""
MAX_LENGTH = 1024
"""A comment that would become longer stays unchanged."""
_NONE = ("", "(null)")
_JOB_ID = re.compile(r"\d{1,18}(?:_\d{1,18})?")
_RULE = re.compile(r"[A-Z]{3}\d{3}")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `judge`."""
    parser.add_argument("--run-dir", required=True, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--python", default=sys.executable, metavar="PYTHON", help="the interpreter that has coach"
    )
    parser.add_argument("--file", metavar="FILE", help="coach as one file, for the interpreter to run")


def run(args: argparse.Namespace) -> int:
    """Judge the run and print the lines for its log. The exit status is always 0."""
    for line in judge(Path(args.run_dir), args.python, os.environ, args.file):
        sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()
    append_comment(runs.RunPaths(args.run_dir), os.environ)
    return 0


def judge(
    run_dir: Path, python: str, env: Mapping[str, str], file: Union[str, Path, None] = None
) -> List[bytes]:
    """Write `verdict.json` for a run that has ended. Returns the lines for its log: at most six, none for a
    healthy run, and none if it could not be judged. `file` is the path of coach, if coach is one file and not
    a package of that interpreter."""
    left_mib = memory_left_mib(os.getpid(), env)
    if left_mib is not None and left_mib < NEEDED_MIB:
        return []
    # -E -P: neither the training's variables nor a file in its directory may break coach.
    started = ["-m", "coach"] if file is None else [str(file)]
    argv = [python, "-E", "-P", *started, "why", "--write-verdict", str(run_dir.absolute())]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=null,
            stdout=subprocess.PIPE,
            stderr=null,
            timeout=PATIENCE_S,
            preexec_fn=_bound,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        # It may have judged the run, and then hung on the cohort's directory.
        return _said(late.stdout or b"")
    except (OSError, ValueError):
        return []
    return _said(done.stdout) if done.returncode == 0 else []


def _said(output: bytes) -> List[bytes]:
    """The complete lines that are meant for the job's log."""
    lines = output[: output.rfind(b"\n") + 1].splitlines()
    said = [line[:_MAX_LINE_BYTES] for line in lines if line.startswith(runs.SAID_OF_END.encode())]
    return said[:MAX_LINES]


def say(
    paths: runs.RunPaths,
    python: str,
    env: Mapping[str, str],
    descriptor: int,
    file: Union[str, Path, None] = None,
) -> None:
    """Judge a run by its own exit.json, and write the lines to a descriptor. A run that was cancelled, or
    without a recorded end, is left to the next coach that looks."""
    with contextlib.suppress(OSError, runs.RunFileError):
        state = runs.read_json(paths.exit_json).get("state")
        if state is None or state == "CANCELLED":
            return
        for line in judge(paths.run_dir, python, env, file):
            os.write(descriptor, line + b"\n")
        append_comment(paths, env)


def _bound() -> None:
    """In the process that judges, before it starts: set its limits."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))


def append_comment(paths: runs.RunPaths, env: Mapping[str, str]) -> bool:
    """Append the code of the most severe finding to this job's comment, if the launch asked for it.

    Returns True if Slurm took it. Never raises.
    """
    try:
        job_id = slurm_job_id(env) or ""  # of an array the task: one task's raw id is the whole array's
        words = _words(paths)
        if words is None or not _JOB_ID.fullmatch(job_id):
            return False
        before = _ask(["squeue", "--noheader", "--jobs", job_id, "--format", "%k"], env)
        if before is None or words in before or "\n" in before:
            return False
        said = words if before in _NONE else f"{before}; {words}"
        if len(said) > MAX_LENGTH:
            return False
        return _ask(["scontrol", "update", f"JobId={job_id}", f"Comment={said}"], env) is not None
    except (OSError, ValueError, subprocess.SubprocessError, runs.RunFileError):
        return False


def _words(paths: runs.RunPaths) -> Optional[str]:
    """The words to append. None if the launch did not ask for them, the job did not fail, or its verdict
    names no rule."""
    run = runs.read_json(paths.run_json)
    if run.get("squeue_comment") is not True or run.get("backend") != "slurm":
        return None
    if runs.read_json(paths.exit_json).get("state") in (None, "COMPLETED", "CANCELLED"):
        return None
    rule = _rule(runs.read_json(paths.verdict_json))
    return f"coach {paths.run_dir.name} {rule}" if rule is not None else None


def _rule(verdict: Mapping[str, Any]) -> Optional[str]:
    findings = verdict.get("findings")
    first = findings[0] if isinstance(findings, list) and findings else None
    rule = first.get("rule") if isinstance(first, dict) else None
    return rule if isinstance(rule, str) and _RULE.fullmatch(rule) else None


def _ask(argv: List[str], env: Mapping[str, str]) -> Optional[str]:
    done = subprocess.run(
        argv,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=COMMENT_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "replace").rstrip("\n")
