"""Settings: read once at the edge, passed on as values.

Every value knows where it came from, so that an error and `coach config` can name the file and the key. Nothing below this module
reads an environment variable or a config file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.model.environment import Environment
from coach.model.errors import UserError

BACKENDS = ("auto", "slurm", "local")


@dataclass(frozen=True, slots=True)
class LaunchDefaults:
    """The [launch] table: what a launch uses when neither the command line nor the plan says otherwise."""

    backend: str = "auto"
    """auto, slurm or local."""
    num_nodes: int | None = None
    """Nodes. Key `nodes`."""
    gpus_per_node: int | None = None
    """GPUs per node. Key `gpus`."""
    nproc_per_node: int | None = None
    """Ranks per node."""
    time: str | None = None
    """Time limit in Slurm's spelling, for example "30:00"."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    mem: str | None = None
    """Memory per node in Slurm's spelling, for example "16G"."""
    cpus_per_task: int | None = None
    gpu_type: str | None = None
    """GRES type to ask for."""
    gpu_request: str | None = None
    """How GPUs are asked for: "gpus-per-node" or "gres"."""
    cpus_per_gpu: int | None = None
    exclude: str | None = None
    """Nodes not to use, in Slurm's spelling."""
    environment: str | None = None
    """The training environment: a name from [environments], or KIND=VALUE."""
    python: str | None = None
    """Interpreter of the training environment; it need not be coach's."""
    setup: tuple[str, ...] = ()
    """Shell lines put before srun, for example "module load cuda/12.4"."""
    sbatch: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More sbatch options by long name."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The [limits] table of the site's file: the most that one launch, or one user, may take. None: no limit of coach's own."""

    max_gpus: int | None = None
    """GPUs of one launch, all nodes together."""
    max_time_s: int | None = None
    """Time limit of one launch. Key `max_time`, in Slurm's spelling."""
    max_running: int | None = None
    """Runs of one user that may be pending or running at once."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a site says beside a rule's finding."""

    text: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A key that only the site's file may set."""

    reason: str
    origin: str
    """FILE:LINE of the lock."""


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Paths are absolute."""

    runs_root: Path
    """Where run directories are made. Key `runs_root`."""
    cache_dir: Path
    """Where generated data sets lie. Key `cache_dir`."""
    config_dir: Path
    """Where config.toml lies."""
    data_dir: Path | None = None
    """Where real data sets lie (the directory that holds cifar-10-batches-py). Key `data_dir`."""
    launch: LaunchDefaults = field(default_factory=LaunchDefaults)
    jobs_interval_s: float = 10.0
    """Seconds between two looks at the queue. Key `poll.jobs_interval_s`; the pace slows by itself when the controller is slow."""
    nodes_interval_s: float = 30.0
    """Seconds between two looks at nodes and partitions. Key `poll.nodes_interval_s`."""
    muted_rules: frozenset[str] = frozenset()
    """Codes of rules that never fire. Key `rules.mute`."""
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    """Rule code → threshold name → value. Keys `rules.CODE.NAME`."""
    environments: Mapping[str, Environment] = field(default_factory=_nothing)
    """Training environments by name. Tables [environments.NAME]."""
    scratch_cache_dir: Path | None = None
    """Where jobs keep the caches of torch, Triton and Hugging Face, off home; None: where those put them. Key `scratch_cache_dir`."""
    limits: Limits = field(default_factory=Limits)
    advice: Mapping[str, Advice] = field(default_factory=_nothing)
    """Rule code → the site's advice. Tables [advice.CODE]."""
    locks: Mapping[str, Lock] = field(default_factory=_nothing)
    """Dotted key → why nobody but the site may set it. Table [locked] of the site's file."""
    is_local_backend_allowed: bool = True
    """False: nothing trains on this machine. Key `switches.local_backend`."""
    is_readonly: bool = False
    """True removes every action that changes something. Key `readonly`."""
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Dotted key → where its value came from: `FILE:LINE` or an environment variable; absent for defaults."""


_LAUNCH_KEYS = {"num_nodes": "nodes", "gpus_per_node": "gpus"}
_LAUNCH_TYPES: Mapping[str, type] = MappingProxyType(
    {"num_nodes": int, "gpus_per_node": int, "nproc_per_node": int, "cpus_per_task": int, "cpus_per_gpu": int}
)


def load(env: Mapping[str, str]) -> Settings:
    """Read the user's config. Raises UserError naming file, line and key for anything that is wrong in it."""
    config_dir = runs.default_config_dir(env)
    values: dict[str, Any] = {
        "runs_root": runs.default_runs_root(env),
        "cache_dir": runs.default_cache_dir(env),
        "config_dir": config_dir,
    }
    file = config_dir / "config.toml"
    text = _read(file)
    if text is None:
        return Settings(**values)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: not valid TOML: {error}") from None
    return Settings(**{**values, **_Reader(file, text).settings(table)})


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UserError(f"{file}: cannot be read: {reason}") from None


class _Reader:
    """Checks one parsed file key by key."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._lines = text.splitlines()
        self._origins: dict[str, str] = {}

    def settings(self, table: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in table.items():
            if key in ("runs_root", "cache_dir", "data_dir"):
                result[key] = Path(self._expect(key, value, str)).expanduser().absolute()
            elif key == "readonly":
                result["is_readonly"] = self._expect(key, value, bool)
            elif key == "launch":
                result["launch"] = self._launch(self._expect(key, value, dict))
            elif key == "poll":
                result.update(self._poll(self._expect(key, value, dict)))
            elif key == "rules":
                result.update(self._rules(self._expect(key, value, dict)))
            else:
                raise self._unknown(
                    key, ["runs_root", "cache_dir", "data_dir", "readonly", "launch", "poll", "rules"]
                )
        result["origins"] = MappingProxyType(self._origins)
        return result

    def _launch(self, table: Mapping[str, Any]) -> LaunchDefaults:
        by_key = {_LAUNCH_KEYS.get(item.name, item.name): item.name for item in fields(LaunchDefaults)}
        values: dict[str, Any] = {}
        for key, value in table.items():
            dotted = f"launch.{key}"
            name = by_key.get(key)
            if name is None:
                raise self._unknown(dotted, [f"launch.{known}" for known in by_key])
            if name == "setup":
                lines = self._expect(dotted, value, list)
                values[name] = tuple(self._expect(dotted, line, str) for line in lines)
            elif name == "sbatch":
                options = self._expect(dotted, value, dict)
                values[name] = MappingProxyType({k: str(v) for k, v in options.items()})
            elif name == "backend":
                if value not in BACKENDS:
                    raise UserError(
                        f"{self._at(dotted)}: {dotted} = {value!r}: expected one of {', '.join(BACKENDS)}"
                    )
                self._expect(dotted, value, str)
                values[name] = value
            else:
                values[name] = self._expect(dotted, value, _LAUNCH_TYPES.get(name, str))
        return LaunchDefaults(**values)

    def _poll(self, table: Mapping[str, Any]) -> dict[str, float]:
        known = {"jobs_interval_s": 2.0, "nodes_interval_s": 5.0}
        result = {}
        for key, value in table.items():
            dotted = f"poll.{key}"
            if key not in known:
                raise self._unknown(dotted, [f"poll.{name}" for name in known])
            number = float(self._expect(dotted, value, (int, float)))
            if not known[key] <= number < math.inf:
                raise UserError(
                    f"{self._at(dotted)}: {dotted} = {number:g}: at least {known[key]:g} s is polite to the controller"
                )
            result[key] = number
        return result

    def _rules(self, table: Mapping[str, Any]) -> dict[str, Any]:
        muted: frozenset[str] = frozenset()
        thresholds: dict[str, Mapping[str, float]] = {}
        for key, value in table.items():
            dotted = f"rules.{key}"
            if key == "mute":
                muted = frozenset(
                    self._expect(dotted, code, str) for code in self._expect(dotted, value, list)
                )
            else:
                numbers = self._expect(dotted, value, dict)
                thresholds[key] = MappingProxyType(
                    {
                        name: float(self._expect(f"{dotted}.{name}", number, (int, float)))
                        for name, number in numbers.items()
                    }
                )
        return {"muted_rules": muted, "thresholds": MappingProxyType(thresholds)}

    def _expect(self, key: str, value: Any, kind: type | tuple[type, ...]) -> Any:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(
                {
                    str: "a string",
                    int: "a whole number",
                    float: "a number",
                    bool: "true or false",
                    list: "a list",
                    dict: "a table",
                }[k]
                for k in kinds
            )
            raise UserError(f"{self._at(key)}: {key} = {value!r}: expected {wanted}")
        self._origins[key] = self._at(key)
        return value

    def _unknown(self, key: str, known: list[str]) -> UserError:
        from difflib import get_close_matches

        near = get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return UserError(f"{self._at(key)}: unknown key {key}", hint)

    def _at(self, dotted: str) -> str:
        """FILE:LINE of a key: the first line that assigns its last part, after its table's heading."""
        *tables, leaf = dotted.split(".")
        line_no = 0
        if tables:
            for number, line in enumerate(self._lines):
                if line.strip().replace('"', "") == f"[{'.'.join(tables)}]":
                    line_no = number
                    break
        for number in range(line_no, len(self._lines)):
            stripped = self._lines[number].strip().replace('"', "")
            if stripped.split("=")[0].strip() in (leaf, dotted) or stripped == f"[{dotted}]":
                return f"{self._file}:{number + 1}"
        return str(self._file)
