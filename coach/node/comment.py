"""Appends `coach RUN_ID CODE` to a failed job's own comment, for `squeue -o %k`.

Slurm lets a user change the comment of an own job while it runs, but not after its end (22.05). The existing
text of the user and the site stays.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any, List, Mapping, Optional

from coach import runs
from coach.node.node_name import slurm_job_id

PATIENCE_S = 3.0
"""Seconds for each of the two commands to Slurm: a slow controller must not hold the nodes."""
MAX_LENGTH = 1024
"""A comment that would become longer stays unchanged."""
_NONE = ("", "(null)")
_JOB_ID = re.compile(r"\d{1,18}(?:_\d{1,18})?")
_RULE = re.compile(r"[A-Z]{3}\d{3}")


def append(paths: runs.RunPaths, env: Mapping[str, str]) -> bool:
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
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "replace").rstrip("\n")
