"""Every key that a config file may have: its valid values, and who may set it.

File and variable reading, the locks, `coach config --explain` and `--check` all use this one table, so a new
key is one new line.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

from coach.analysis.spelling.environment import spelt_environment
from coach.analysis.spelling.slurm import format_time, parse_mem_mib, parse_time
from coach.config.settings import BACKENDS, NOTICE_WAYS, THEMES, LaunchDefaults
from coach.model.errors import UserError
from coach.model.launching.launch import GPU_REQUESTS, NOWHERE
from coach.model.launching.site import Switch
from coach.model.toml_schema import (
    FLAG,
    NUMBER,
    Kind,
    WrongValueError,
    fulfilling,
    list_of,
    one_of,
    spelt,
    whole,
)

MIN_JOBS_INTERVAL_S = 2.0
MIN_NODES_INTERVAL_S = 5.0
"""Seconds: the shortest interval between queries of the controller that anybody may set, the site
included."""

MIN_SLURM_TIMEOUT_S = 1.0
MAX_SLURM_TIMEOUT_S = 600.0

MAX_IDLE_MINUTES = 7 * 24 * 60.0


def variable_of(name: str) -> str:
    """The environment variable that belongs to the name of a key."""
    return f"COACH_{name.upper().replace('.', '_')}"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the config. `name` is dotted."""

    name: str
    kind: Kind
    says: str
    """The effect of the key, in one sentence."""
    field: str = ""
    """The field of Settings that holds its value; `launch.mem` is the field `mem` of `launch`. Empty: the
    value is one entry of a field."""
    is_site_only: bool = False
    is_path: bool = False
    """True if the value is a path, or a list of paths, in which `~` and variables are replaced."""
    from_text: Callable[[str], Any] | None = None
    """Converts an environment variable's text to a TOML value; None: no variable sets this key."""

    @property
    def variable(self) -> str | None:
        """The environment variable that sets this key."""
        return None if self.from_text is None else variable_of(self.name)

    @property
    def takes(self) -> str:
        """Type, limits and unit of the value, in words."""
        return self.kind.takes


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongValueError("expected a string")
    if not value:
        raise WrongValueError("expected a string that is not empty")
    if not value.isprintable():
        raise WrongValueError("expected a string without control characters")
    return value


def _number(value: Any) -> float:
    try:
        return float(NUMBER(value))
    except OverflowError:
        raise WrongValueError("expected a number of less than 309 digits") from None


def _command(value: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(_text(value))
    except ValueError as problem:
        raise WrongValueError(f"not a command: {str(problem).lower()}") from None
    if not words or not words[0]:
        raise WrongValueError("expected a program and its arguments")
    return tuple(words)


def _press(value: Any) -> str:
    key = _text(value)
    if len(key) == 1 and key in "123456789":
        raise WrongValueError("the digits launch recipes", "another character")
    is_character = len(key) == 1 and not key.isspace()
    ctrl, _, letter = key.partition("+")
    is_ctrl = ctrl == "ctrl" and len(letter) == 1 and letter in ascii_lowercase and letter not in _NO_CTRL
    if not is_character and not is_ctrl and key not in NAMED_PRESSES:
        raise WrongValueError(
            "no terminal sends this key",
            'a character ("X", "+"), space, enter, tab, backspace, delete, insert, f1 to f12, or ctrl+ and a '
            "letter other than c h i j m z",
        )
    return key


def _fixed(value: Any) -> str:
    raise WrongValueError("this key leaves or answers a question, and cannot be changed")


def _option(value: Any) -> str:
    """A value of a further sbatch option. Numbers and flags become Slurm's spelling."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise WrongValueError("expected a string")
    return str(value)


def seconds(least: float) -> Kind:
    def read(value: Any) -> float:
        interval_s = _number(value)
        if not least <= interval_s < math.inf:
            raise WrongValueError(f"at least {least:g} s, to spare the controller")
        return interval_s

    return Kind(f"seconds, at least {least:g}", read, lambda interval_s: interval_s or None)


TEXT = Kind("text", _text)
THRESHOLD = Kind("a number", _number)
COMMAND = Kind(
    "a program and its arguments, in a shell's quoting; no shell runs it",
    _command,
    lambda words: shlex.join(words) or None,
)
PATH = fulfilling(
    TEXT, lambda path: path.startswith(("/", "~", "$")), "a path from the root: /…, ~/… or $VARIABLE/…"
)
TIMEOUT = fulfilling(
    THRESHOLD,
    lambda limit_s: MIN_SLURM_TIMEOUT_S <= limit_s <= MAX_SLURM_TIMEOUT_S,
    f"seconds, from {MIN_SLURM_TIMEOUT_S:g} to {MAX_SLURM_TIMEOUT_S:g}",
)
MINUTES = fulfilling(
    THRESHOLD,
    lambda count: 1 <= count <= MAX_IDLE_MINUTES,
    f"minutes, from 1 to {MAX_IDLE_MINUTES:g} (a week)",
)
PRESS = Kind("a character, or the name of a key: f5, ctrl+x, space, enter …", _press)
_CODES = Kind("a list of codes", lambda value: frozenset(list_of(TEXT)(value)))
_SHARED = fulfilling(
    TEXT, lambda place: place == NOWHERE or place.startswith("/"), f"a path from the root, or {NOWHERE}"
)
OPTION = Kind("text, a number, true or false", _option)
FIXED = Kind("nothing: this key cannot be changed", _fixed)
_TIME_LIMIT_S = replace(
    spelt("a time in Slurm's spelling: 30:00, 1-00:00:00", parse_time, TEXT), write=format_time
)


def _as_written(kind: Kind) -> Kind:
    """The values of a kind, kept as they are written."""

    def read(value: Any) -> str:
        kind(value)
        return str(value)

    return Kind(kind.takes, read)


def _from_flag(text: str) -> Any:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(
        text.lower(), text
    )


def _from_number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_LAUNCH_NAMES = {
    "num_nodes": "nodes",
    "gpus_per_node": "gpus",
    "has_gpm": "gpm",
    "has_comment": "squeue_comment",
}
"""Fields of LaunchDefaults that have their option's name in the config."""

_LAUNCH_KINDS: Mapping[str, tuple[Kind, Callable[[str], Any] | None]] = {
    "backend": (one_of(BACKENDS), str),
    "num_nodes": (whole(1), _from_number),
    "gpus_per_node": (whole(0), _from_number),
    "nproc_per_node": (whole(1), _from_number),
    "cpus_per_task": (whole(1), _from_number),
    "cpus_per_gpu": (whole(1), _from_number),
    "time": (_as_written(_TIME_LIMIT_S), str),
    "mem": (_as_written(spelt("memory in Slurm's spelling: 16G", parse_mem_mib, TEXT)), str),
    "gpu_request": (one_of(GPU_REQUESTS), str),
    "environment": (
        _as_written(spelt("a name from [environments], or KIND=VALUE", spelt_environment, TEXT)),
        str,
    ),
    "setup": (list_of(TEXT), None),
    "has_gpm": (FLAG, _from_flag),
    "has_comment": (FLAG, _from_flag),
    "share": (_SHARED, str),
}

LAUNCH_KEYS = ("6", "7", "8", "9")
"""Keys that the config assigns to recipes. Recipes themselves claim 1 to 5."""

_SCREEN_KEYS = """
open find findings trial parent fix explain copy compare mark cancel select hold release requeue timelimit
resubmit resume shell attach stacks log all unfold filter sort reverse columns views stdout stderr both
next_error previous_error wrap numbers proof pager gpus quantity scale answer next previous view where
reservations history runs all_findings recipes ladder new_launch drills cohort pane
zoom detail refresh theme doctor help palette leave quit go_to story_next story_previous
"""
SCREEN_KEYS = tuple(_SCREEN_KEYS.split())
"""Ids of the screens' keys that a person may change; the table is `coach/tui/keys.py`."""

FIXED_SCREEN_KEYS = ("back", "submit", "confirm", "choose")
"""Ids of the screens' keys that cannot change: they leave or answer a question."""

NAMED_PRESSES = ("space", "enter", "tab", "backspace", "delete", "insert", *(f"f{n}" for n in range(1, 13)))
_NO_CTRL = "chijmz"
"""Ctrl with these letters arrives as Backspace, Tab or Enter, or the terminal itself uses it."""

LAUNCH_FIELDS: Mapping[str, str] = {
    f"launch.{_LAUNCH_NAMES.get(item.name, item.name)}": item.name
    for item in fields(LaunchDefaults)
    if item.name != "sbatch"
}
"""Key → field of LaunchDefaults. sbatch has a table of its own."""


_LAUNCH_SAYS: Mapping[str, str] = {
    "backend": "Where trainings run: in Slurm, on this machine, or in Slurm where there is one.",
    "num_nodes": "Nodes of a launch.",
    "gpus_per_node": "GPUs on each node; 0: train on CPUs.",
    "nproc_per_node": "Ranks on each node.",
    "time": "The time limit.",
    "partition": "The partition to submit to; unset: the default one, or one with GPUs if that has none.",
    "account": "The account that is charged.",
    "qos": "The quality of service.",
    "reservation": "The reservation to run in.",
    "constraint": "Features that each node must have.",
    "mem": "Memory on each node.",
    "cpus_per_task": "CPUs on each node, for all its ranks and data workers.",
    "gpu_type": "The type of GPU to request, as the partition names it.",
    "gpu_request": "The option of sbatch that requests GPUs.",
    "cpus_per_gpu": "CPUs for each GPU, at sites that want CPUs requested this way.",
    "exclude": "Nodes not to use, for example node[3-5].",
    "environment": "The training environment.",
    "python": "The interpreter of the training environment; it need not be coach's.",
    "setup": 'Shell lines before srun, for example "module load cuda/12.4".',
    "has_gpm": "Measure also SM, tensor and DRAM activity (Hopper or newer).",
    "has_comment": "A failed job appends its finding to its own comment in Slurm.",
    "share": "The folder into which each run puts a small summary for everybody to read.",
}
_SWITCH_SAYS: Mapping[Switch, str] = {
    Switch.LOCAL_BACKEND: "Training on this machine, outside of Slurm.",
    Switch.LAUNCH: "Every sbatch: launches, fixes, sweeps, drills, workshops, jobs submitted again.",
    Switch.RESUBMIT: "Submitting a job again that coach did not launch, a run again, and resuming a run.",
    Switch.CANCEL: "scancel.",
    Switch.HOLD: "scontrol hold and release.",
    Switch.REQUEUE: "scontrol requeue.",
    Switch.TIMELIMIT: "scontrol update TimeLimit.",
    Switch.ATTACH: "A job step that measures inside a running job of the user's.",
    Switch.SHELL: "A job step with a shell in a running job of the user's.",
    Switch.STACKS: "A job step that takes the stacks of the ranks of a running job of the user's.",
    Switch.JOB_VERDICT: "Checking a Slurm job at its end, on its node.",
    Switch.DRILLS: "Planted faults to practise on.",
    Switch.HISTORY: "sacct for the user's jobs that have ended.",
    Switch.FETCH: "Downloading CIFAR-10.",
    Switch.CLEAN: "Removing runs.",
}


def _launch_key(name: str, field: str) -> Key:
    kind, from_text = _LAUNCH_KINDS.get(field, (TEXT, str))
    return Key(name, kind, _LAUNCH_SAYS[field], f"launch.{field}", from_text=from_text)


_KEYS = (
    Key(
        "runs_root",
        PATH,
        "The folder in which run directories are made.",
        "runs_root",
        is_path=True,
        from_text=str,
    ),
    Key(
        "runs_roots",
        fulfilling(list_of(PATH), bool, f"a list of at least one; each: {PATH.takes}"),
        "Folders for run directories: coach uses the first writable one.",
        is_path=True,
        is_site_only=True,
    ),
    Key(
        "cache_dir",
        PATH,
        "The folder of coach's caches and of generated data sets.",
        "cache_dir",
        is_path=True,
        from_text=str,
    ),
    Key(
        "data_dir",
        PATH,
        "The folder that holds real data sets, for example cifar-10-batches-py.",
        "data_dir",
        is_path=True,
        from_text=str,
    ),
    Key(
        "scratch_cache_dir",
        PATH,
        "The folder for the caches of torch, Triton and Hugging Face, off home.",
        "scratch_cache_dir",
        is_path=True,
        from_text=str,
    ),
    Key(
        "recipes",
        list_of(PATH),
        "Recipes of your own: files, folders with one, or folders of such folders.",
        "recipe_paths",
        is_path=True,
    ),
    *(Key(f"keys.{digit}", TEXT, f"The recipe that the key {digit} launches.") for digit in LAUNCH_KEYS),
    *(Key(f"keys.{key_id}", PRESS, "The key of this action on the screens.") for key_id in SCREEN_KEYS),
    *(Key(f"keys.{key_id}", FIXED, "It stays as it is.") for key_id in FIXED_SCREEN_KEYS),
    Key(
        "readonly",
        FLAG,
        "Refuse launches, changes of jobs, steps inside jobs, downloads and removals.",
        "is_readonly",
        from_text=_from_flag,
    ),
    *(_launch_key(name, field) for name, field in LAUNCH_FIELDS.items()),
    Key(
        "poll.jobs_interval_s",
        seconds(MIN_JOBS_INTERVAL_S),
        "Time between two queries of the queue; coach lengthens it while the controller is slow.",
        "jobs_interval_s",
        from_text=_from_number,
    ),
    Key(
        "poll.nodes_interval_s",
        seconds(MIN_NODES_INTERVAL_S),
        "Time between two queries of nodes, partitions and all users' jobs; at least 60 on Slurm.",
        "nodes_interval_s",
        from_text=_from_number,
    ),
    Key(
        "poll.idle_minutes",
        MINUTES,
        "After this time without a key press the screens stop polling until the next one.",
        "idle_minutes",
        from_text=_from_number,
    ),
    Key(
        "poll.min_jobs_interval_s",
        seconds(MIN_JOBS_INTERVAL_S),
        "The minimum for every user's poll.jobs_interval_s.",
        "least_jobs_interval_s",
        is_site_only=True,
    ),
    Key(
        "poll.min_nodes_interval_s",
        seconds(MIN_NODES_INTERVAL_S),
        "The minimum for every user's poll.nodes_interval_s.",
        "least_nodes_interval_s",
        is_site_only=True,
    ),
    Key(
        "slurm.timeout_s",
        TIMEOUT,
        "Timeout of an answer of Slurm.",
        "slurm_timeout_s",
        from_text=_from_number,
    ),
    Key(
        "slurm.sbatch_timeout_s",
        TIMEOUT,
        "Timeout of sbatch, which includes a site's plugins and wrapper.",
        "sbatch_timeout_s",
        from_text=_from_number,
    ),
    Key("theme", one_of(THEMES), "The colours of the screens.", "theme", from_text=str),
    Key("ascii", FLAG, "Show ASCII alone on the screens.", "is_ascii", from_text=_from_flag),
    Key(
        "notify.ways",
        list_of(one_of(NOTICE_WAYS)),
        "How the screens report that a job starts, ends or gets a finding.",
        "notices.ways",
    ),
    Key("notify.command", COMMAND, "The program that is run for each such notice.", "notices.command"),
    Key(
        "cohort.roster",
        PATH,
        "A file with the user names of a course, one a line.",
        "roster",
        is_path=True,
        from_text=str,
    ),
    Key("cohort.group", TEXT, "The Unix group whose members are the course.", "cohort_group", from_text=str),
    Key("rules.mute", _CODES, "Rules that never fire.", "muted_rules"),
    Key(
        "rules.files",
        list_of(PATH),
        "Files of wordings and thresholds beside those of the project.",
        "rule_files",
        is_path=True,
    ),
    Key(
        "limits.max_gpus",
        whole(0),
        "GPUs of one launch, all nodes together.",
        "limits.max_gpus",
        is_site_only=True,
    ),
    Key(
        "limits.max_time",
        _TIME_LIMIT_S,
        "The time limit of one launch.",
        "limits.max_time_s",
        is_site_only=True,
    ),
    Key(
        "limits.max_running",
        whole(1),
        "Runs of one user that may wait or run at once. Runs that follow each other count as one.",
        "limits.max_running",
        is_site_only=True,
    ),
    *(Key(switch.key, FLAG, _SWITCH_SAYS[switch], is_site_only=True) for switch in Switch),
)
KEYS: Mapping[str, Key] = {key.name: key for key in _KEYS}

OPEN_TABLES = ("launch.sbatch", "rules", "environments", "advice", "locked")
"""Tables in which a person chooses the keys."""
SITE_ONLY_TABLES = ("advice", "limits", "locked", "switches")


def kind_of(name: str) -> Kind | None:
    """The kind of this key's value; None if the key does not exist. Environments and advice are tables with
    their own readers."""
    if name in KEYS:
        return KEYS[name].kind
    if name.startswith("launch.sbatch.") and len(name) > len("launch.sbatch."):
        return OPTION
    parts = name.split(".")
    return THRESHOLD if len(parts) == 3 and parts[0] == "rules" else None


def is_lockable(name: str) -> bool:
    """True if a key, or a table of keys, can be locked."""
    if kind_of(name) is not None or name in OPEN_TABLES[:-1]:
        return True
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in ("rules", "environments", "advice"):
        return True
    return any(key.startswith(f"{name}.") for key in KEYS)


_MAX_KEYS = 12
_REMOVED = MappingProxyType(
    {
        "telemetry": "`coach attach` measures by a job step alone; remove the table",
        "idle_gpus": "notify.command runs at each finding, as for idle GPUs; remove the table",
        "switches.idle_command": "no config names such a command any more; remove the switch",
    }
)
"""Keys and tables of earlier versions → what to do about one."""


def unknown_key(name: str, place: str, is_site: bool) -> UserError:
    """The error for a key that does not exist; it names the nearest key that does."""
    if name in _REMOVED:
        return UserError(f"{place}: the key {name} was removed", _REMOVED[name])
    known = [key.name for key in KEYS.values() if is_site or not key.is_site_only]
    table, dot, last = name.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in known if dot and key.startswith(f"{table}.")}
    tables = [key for key in OPEN_TABLES if is_site or key not in SITE_ONLY_TABLES]
    top = list(dict.fromkeys(key.partition(".")[0] for key in [*known, *tables]))
    if siblings:  # the table's name is right, and would make any of its keys look near
        near = [siblings[each] for each in get_close_matches(last, siblings, 1)]
        return UserError(f"{place}: unknown key {name}", _nearest(near, list(siblings.values()), _MAX_KEYS))
    is_table = name.casefold() in top
    near = [name.casefold()] if is_table else get_close_matches(name, known, 1)
    return UserError(f"{place}: unknown key {name}", _nearest(near, top, len(top)))


def _nearest(near: list[str], known: list[str], most: int) -> str:
    """The hint for an unknown key."""
    if near:
        return f"did you mean {near[0]}?"
    more = f", and {len(known) - most} more" if len(known) > most else ""
    return f"known keys: {', '.join(known[:most])}{more}"


def unknown_name(what: str, name: str, known: list[str], plural: str) -> UserError:
    """The error for an undefined name; it names the nearest defined one."""
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"{plural}: {', '.join(sorted(known)) or 'none'}"
    return UserError(f"{what} = {name!r}: this name is not defined", hint)
