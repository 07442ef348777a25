"""Find the output file of a job: expand Slurm's filename patterns like slurmd.

Slurm's clients report paths that are partly expanded, differently in each version and client (22.05's
`scontrol show job` leaves %N, %J and %5j, its `squeue` expands everything). slurmd's own expansion was the
same in all versions that were tried. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from coach.model.slurm.cluster import Job
from coach.sources.slurm.node_sets import expand_nodes

DEFAULT_NAME = "slurm-%j.out"
DEFAULT_ARRAY_NAME = "slurm-%A_%a.out"
NOWHERE = Path("/dev/null")

_PATTERN = re.compile(r"%(\d*)(.?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PADDED = frozenset("aAbjnst")
_MAX_WIDTH = 10
NO_TASK = str(2**32 - 2)
"""slurmd's value of %a for a job that is not part of an array."""
_OPTIONS = {"-o": "stdout", "--output": "stdout", "-e": "stderr", "--error": "stderr"}
_SWITCH = re.compile(
    r"--(?:parsable|hold|exclusive|requeue|no-requeue|quiet|verbose|overcommit|oversubscribe|contiguous"
    r"|no-kill|nice|propagate|reboot|spread-job|use-min-nodes|ignore-pbs|get-user-env|label|unbuffered"
    r"|overlap|exact|pty|kill-on-bad-exit|multi-prog|preserve-env|disable-status)|-[EHKOQXZklsuv]"
)
"""Options of srun and sbatch without a value, or whose value can only follow a `=`."""
_JOB_ID = re.compile(r"(\d+)(?:_(\d+))?(?:\+\d+)?")


Names = Mapping[str, str | None]
"""Letter of each pattern → its value. None: not known yet, such as the node of a pending job."""


def expand(pattern: str, names: Names, work_dir: Path) -> Path | None:
    """Expand a pattern as described in sbatch(1), "filename pattern"; None if it needs a value that is not
    known yet. A backslash switches off all patterns."""
    if "\\" in pattern:
        return work_dir / _ESCAPED.sub(r"\1", pattern)
    if any(letter in names and names[letter] is None for _, letter in _PATTERN.findall(pattern)):
        return None
    return work_dir / _PATTERN.sub(lambda found: _expanded(found, names), pattern)


def output_options(words: Iterable[str], *, is_srun: bool = False) -> dict[str, str]:
    """The values of the output options, as `stdout` and `stderr`, among the words behind sbatch or srun. The
    options behind the script or program are its own."""
    found: dict[str, str] = {}
    option: str | None = None
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--wrap" or (option is None and not word.startswith("-")):
            break
        if not word.startswith("-"):
            name, value = option or "", word
        elif not word.startswith("--") and len(word) > 2:  # joined with its value or with other switches
            name, equals, value = word[:2], "=", word[2:]
        elif not equals:
            is_wait = name in ("-W", "--wait") and not is_srun  # srun waits for a number of seconds
            option = None if is_wait or _SWITCH.fullmatch(name) else name
            continue
        if name in _OPTIONS:
            found[_OPTIONS[name]] = value
        option = None
    return found


def output_paths(job: Job) -> tuple[Path, ...] | None:
    """The logs of a job, stdout first; empty if it writes to /dev/null. None if a path is not known, or not
    yet."""
    names = names_of(job)
    if names is None or job.work_dir is None:
        return None
    given = job.stdout or DEFAULT_NAME
    # squeue expands the default name of an array task like that of a single job; slurmd does not.
    of_task = names["a"] != NO_TASK and PurePath(given).name in (DEFAULT_NAME, f"slurm-{names['j']}.out")
    if of_task:
        given = str(PurePath(given).with_name(DEFAULT_ARRAY_NAME))
    errors = given if of_task and job.stderr == job.stdout else job.stderr or given
    found = [expand(pattern, names, Path(job.work_dir)) for pattern in (given, errors)]
    paths = [path for path in dict.fromkeys(found) if path is not None and path != NOWHERE]
    return None if None in found else tuple(paths)


def names_of(job: Job) -> Names | None:
    """The pattern values of a job's batch step; None for array tasks that have not started, which are no
    single job."""
    number = _JOB_ID.fullmatch(job.job_id)
    if number is None:
        return None
    nodes, task, job_id = expand_nodes(job.nodes), number[2] or NO_TASK, job.raw_job_id or number[1]
    return {
        "%": "%",
        "A": number[1],
        "a": task,
        "b": str(int(task) % 10),
        "J": job_id,
        "j": job_id,
        "N": nodes[0].split(".")[0] if nodes else None,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user,
        "x": job.name,
    }


def _expanded(found: re.Match[str], names: Names) -> str:
    width, letter = found.groups()
    value = names.get(letter)
    if value is None:  # not a pattern: it stays, but without the % if a width follows it
        return f"{width}{letter}" if width else found[0]
    if width and letter in _PADDED and value.isdecimal():
        return value.zfill(min(int(width[:3]), _MAX_WIDTH))
    return value
