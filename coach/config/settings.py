"""The values that settings are made of.

Passed on to everything that can be set, so that nothing below reads an environment variable or a file; kept
apart from the reading, so that a test builds one by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.model.launching.environment import Environment
from coach.model.launching.site import Advice, Limits, Lock, Switch

OWN_THEMES = ("night", "day", "colour-blind-night", "colour-blind-day")
DEFAULT_THEME = OWN_THEMES[0]
THEMES = (
    *OWN_THEMES,
    *("textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "catppuccin-macchiato"),
    *("catppuccin-frappe", "catppuccin-latte", "dracula", "tokyo-night", "monokai", "flexoki"),
    *("solarized-dark", "solarized-light", "rose-pine", "rose-pine-moon", "rose-pine-dawn"),
    *("atom-one-dark", "atom-one-light"),
)
"""coach's own and Textual's; tests hold the latter against its list."""
NOTICE_WAYS = ("toast", "bell", "terminal", "title")
BACKENDS = ("auto", "slurm", "local")
DEFAULT_JOBS_INTERVAL_S = 15.0
DEFAULT_NODES_INTERVAL_S = 60.0
DEFAULT_IDLE_MINUTES = 60.0
DEFAULT_IDLE_GPUS_MINUTES = 30.0
DEFAULT_SLURM_TIMEOUT_S = 12.0
MESSAGE_SLACK_S = 2.0
"""Slurm's clients say why they failed when MessageTimeout is over; they are given this much more to say
it."""
DEFAULT_SBATCH_TIMEOUT_S = 60.0
DEFAULT_RECORDS_BYTES = 2 * 2**30
DEFAULT_RECORDS_FILES = 5000
"""A home directory often has a quota of 10 to 50 GB and of some 100,000 files: coach takes a small part of
it."""
DEFAULT_CLUSTER = "default"
"""What a cluster is called that does not say its name."""


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
    has_gpm: bool | None = None
    """True: the sampler of a launch also reads SM, tensor and DRAM activity (Hopper or newer). Key `gpm`."""
    has_comment: bool = False
    """True: a failed job appends its finding to its own comment. Key `squeue_comment`."""
    share: str | None = None
    """Where each run puts a small summary for everybody to read; "none": nowhere."""
    sbatch: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More sbatch options by long name."""


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file of the config as it was when it was read; all None: there was none."""

    path: Path
    mtime_ns: int | None = None
    size: int | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """How the screens tell that a job starts, ends or gets a finding."""

    ways: tuple[str, ...] = ()
    """Of NOTICE_WAYS. Key `notify.ways`."""
    command: tuple[str, ...] = ()
    """The user's own, in words, run for each notice; empty: nothing. Key `notify.command`."""
    term: str = ""
    """TERM, which says how the terminal is told."""

    @property
    def is_on(self) -> bool:
        return bool(self.ways or self.command)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Paths are absolute."""

    runs_root: Path
    """Where run directories are made. Key `runs_root`."""
    cache_dir: Path
    """Where generated data sets lie. Key `cache_dir`."""
    config_dir: Path
    """Where config.toml and remembered.toml lie."""
    data_dir: Path | None = None
    """Where real data sets lie (the directory that holds cifar-10-batches-py). Key `data_dir`."""
    launch: LaunchDefaults = field(default_factory=LaunchDefaults)
    jobs_interval_s: float = DEFAULT_JOBS_INTERVAL_S
    """Seconds between two looks at the queue. Key `poll.jobs_interval_s`; the pace slows by itself when the
    controller is slow, or nobody looks."""
    least_jobs_interval_s: float = 0.0
    """The site's least of it, which a job that has just come does not shorten either. Key
    `poll.min_jobs_interval_s` of the site's file."""
    nodes_interval_s: float = DEFAULT_NODES_INTERVAL_S
    """Seconds between two looks at nodes, partitions and everybody's jobs, 60 at least on Slurm. Key
    `poll.nodes_interval_s`."""
    idle_minutes: float = DEFAULT_IDLE_MINUTES
    """After so many minutes without a key, the screens ask nothing any more until somebody presses one. Key
    `poll.idle_minutes`."""
    slurm_timeout_s: float = DEFAULT_SLURM_TIMEOUT_S
    """Seconds that an answer of Slurm's may take.

    Key `slurm.timeout_s`, by default slurm.conf's MessageTimeout and two more.
    """
    sbatch_timeout_s: float = DEFAULT_SBATCH_TIMEOUT_S
    """Seconds that sbatch may take, which may have to pass a site's plugins and wrapper.

    Key `slurm.sbatch_timeout_s`.
    """
    max_records_bytes: int = DEFAULT_RECORDS_BYTES
    """Bytes that the records of all runs may hold; logs and checkpoints do not count. Key
    `records.max_size`."""
    max_records_files: int = DEFAULT_RECORDS_FILES
    """Files that the records of all runs may be. Key `records.max_files`."""
    idle_command: tuple[str, ...] = ()
    """What is run once when all GPUs of a job of the user's are idle, in words; empty: nothing. Key
    `idle_gpus.command`."""
    idle_minutes_of_command: float = DEFAULT_IDLE_GPUS_MINUTES
    """After so many minutes. Key `idle_gpus.minutes`."""
    is_ssh_allowed: bool = False
    """True: where no step can run beside a job's own, `coach attach` may go to its nodes by ssh. Key
    `telemetry.ssh`."""
    theme: str = DEFAULT_THEME
    """The colours of the screens. Key `theme`."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    is_ascii: bool | None = None
    """True: the screens show ASCII alone; False: never; None: where the locale's encoding is not UTF-8. Key
    `ascii`."""
    muted_rules: frozenset[str] = frozenset()
    """Codes of rules that never fire. Key `rules.mute`."""
    rule_files: tuple[Path, ...] = ()
    """Tables of wordings and thresholds beside those of the project. Key `rules.files`."""
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=_nothing)
    """Rule code → threshold name → value. Keys `rules.CODE.NAME`."""
    environments: Mapping[str, Environment] = field(default_factory=_nothing)
    """Training environments by name. Tables [environments.NAME]."""
    scratch_cache_dir: Path | None = None
    """Where jobs keep the caches of torch, Triton and Hugging Face, off home; None: where those put them. Key
    `scratch_cache_dir`."""
    limits: Limits = field(default_factory=Limits)
    advice: Mapping[str, Advice] = field(default_factory=_nothing)
    """Rule code → the site's advice. Tables [advice.CODE]."""
    locks: Mapping[str, Lock] = field(default_factory=_nothing)
    """Dotted key → why nobody but the site may set it. Table [locked] of the site's file."""
    switched_off: frozenset[Switch] = frozenset()
    """What the site has switched off. Keys `switches.NAME`."""
    recipe_paths: tuple[Path, ...] = ()
    """Recipes of the user's own: files, folders, or folders of such folders. Key `recipes`."""
    recipe_keys: Mapping[str, str] = field(default_factory=_nothing)
    """Key on the screens, 6 to 9 → the name or path of the recipe that it launches. Keys `keys.6` to
    `keys.9`."""
    chosen_keys: Mapping[str, str] = field(default_factory=_nothing)
    """Id of a key of the screens → the character or name of the key that does it. Keys `keys.ID`."""
    is_readonly: bool = False
    """True removes every action that changes something. Key `readonly`."""
    origins: Mapping[str, str] = field(default_factory=_nothing)
    """Dotted key → where its value came from: `FILE:LINE` or an environment variable; absent for defaults."""
    notes: tuple[str, ...] = ()
    """What was said and does not count, one line each: a key that the site locked, a path whose variable is
    not set."""
    cluster: str = DEFAULT_CLUSTER
    """Name of the cluster, by which answers are remembered."""
    runs_root_candidates: tuple[tuple[Path, str], ...] = ()
    """Where run directories could be made, best first, each with who says so."""
    runs_root_text: str | None = None
    """Which of them was taken, and why the earlier ones were not."""
    roster: Path | None = None
    """A file with the user names of the cohort, one a line. Key `cohort.roster`."""
    cohort_group: str | None = None
    """The Unix group whose members are the cohort. Key `cohort.group`."""
    files: tuple[FileStamp, ...] = ()
    """The files that were looked for, as they were."""

    def why_off(self, switch: Switch) -> str | None:
        """Why the site's file does not allow it, with key and place; None where it does."""
        if switch not in self.switched_off:
            return None
        lock = self.lock_of(switch.key)
        place = self.origins.get(switch.key) or (lock.origin if lock is not None else "the site's file")
        words = f"switched off by the site: {switch.key} in {place}"
        return words if lock is None else f"{words}: {lock.reason}"

    def lock_of(self, key: str) -> Lock | None:
        """The lock on a key, or on a table that it stands in."""
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            lock = self.locks.get(".".join(parts[:length]))
            if lock is not None:
                return lock
        return None
