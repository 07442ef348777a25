"""The types of the settings.

They are passed to all code that can be configured, so no lower layer reads an environment variable or a file.
They are apart from the reading, so that a test can build them by hand.
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
"""coach's own themes and Textual's; a test compares the latter with Textual's list."""
NOTICE_WAYS = ("toast", "bell", "terminal", "title")
BACKENDS = ("auto", "slurm", "local")
DEFAULT_JOBS_INTERVAL_S = 15.0
DEFAULT_NODES_INTERVAL_S = 60.0
DEFAULT_IDLE_MINUTES = 60.0
DEFAULT_SLURM_TIMEOUT_S = 12.0
MESSAGE_SLACK_S = 2.0
"""Seconds that Slurm's clients get beyond MessageTimeout, to print why they failed."""
DEFAULT_SBATCH_TIMEOUT_S = 60.0
"""A home directory often has a quota of 10 to 50 GB and some 100,000 files: coach uses a small part of it."""
DEFAULT_CLUSTER = "default"
"""The name of a cluster that does not report one."""


@dataclass(frozen=True, slots=True)
class LaunchDefaults:
    """The [launch] table: values for a launch if neither the command line nor the plan sets them."""

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
    """The option that asks for GPUs: "gpus-per-node" or "gres"."""
    cpus_per_gpu: int | None = None
    exclude: str | None = None
    """Nodes to exclude, in Slurm's spelling."""
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
    """The directory into which each run writes a small summary that everybody can read; "none": no
    directory."""
    sbatch: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Further sbatch options by long name."""


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A config file's state when it was read; all None if it did not exist."""

    path: Path
    mtime_ns: int | None = None
    size: int | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """How the screens report that a job starts, ends or gets a finding."""

    ways: tuple[str, ...] = ()
    """Some of NOTICE_WAYS. Key `notify.ways`."""
    command: tuple[str, ...] = ()
    """The user's own command as words, run for each notice; empty: no command. Key `notify.command`."""
    term: str = ""
    """TERM, which decides how to notify through the terminal."""

    @property
    def is_on(self) -> bool:
        return bool(self.ways or self.command)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Paths are absolute."""

    runs_root: Path
    """The directory for run directories. Key `runs_root`."""
    cache_dir: Path
    """The directory for generated data sets. Key `cache_dir`."""
    config_dir: Path
    """The directory of config.toml and remembered.toml."""
    data_dir: Path | None = None
    """The directory of real data sets (it holds cifar-10-batches-py). Key `data_dir`."""
    launch: LaunchDefaults = field(default_factory=LaunchDefaults)
    jobs_interval_s: float = DEFAULT_JOBS_INTERVAL_S
    """Seconds between two looks at the queue. Key `poll.jobs_interval_s`. The pace slows while the controller
    is slow or nobody watches."""
    least_jobs_interval_s: float = 0.0
    """The site's minimum for it, which also holds for a new job. Key `poll.min_jobs_interval_s` of the site's
    file."""
    nodes_interval_s: float = DEFAULT_NODES_INTERVAL_S
    """Seconds between two looks at nodes, partitions and everybody's jobs; at least 60 on Slurm. Key
    `poll.nodes_interval_s`."""
    least_nodes_interval_s: float = 0.0
    """The site's minimum for it. Key `poll.min_nodes_interval_s` of the site's file."""
    idle_minutes: float = DEFAULT_IDLE_MINUTES
    """Minutes without a key press after which the screens stop polling until the next key. Key
    `poll.idle_minutes`."""
    slurm_timeout_s: float = DEFAULT_SLURM_TIMEOUT_S
    """Seconds that an answer from Slurm may take.

    Key `slurm.timeout_s`, by default slurm.conf's MessageTimeout plus two.
    """
    sbatch_timeout_s: float = DEFAULT_SBATCH_TIMEOUT_S
    """Seconds that sbatch may take, including a site's plugins and wrapper.

    Key `slurm.sbatch_timeout_s`.
    """
    theme: str = DEFAULT_THEME
    """The colour theme of the screens. Key `theme`."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    is_ascii: bool | None = None
    """True: the screens use only ASCII; False: never; None: if the locale's encoding is not UTF-8. Key
    `ascii`."""
    muted_rules: frozenset[str] = frozenset()
    """Codes of rules that never fire. Key `rules.mute`."""
    rule_files: tuple[Path, ...] = ()
    """Files of wordings and thresholds beside coach's own. Key `rules.files`."""
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=_nothing)
    """Rule code → threshold name → value. Keys `rules.CODE.NAME`."""
    environments: Mapping[str, Environment] = field(default_factory=_nothing)
    """Training environments by name. Tables [environments.NAME]."""
    scratch_cache_dir: Path | None = None
    """The directory for the jobs' caches of torch, Triton and Hugging Face, outside home; None: each
    library's default. Key `scratch_cache_dir`."""
    limits: Limits = field(default_factory=Limits)
    advice: Mapping[str, Advice] = field(default_factory=_nothing)
    """Rule code → the site's advice. Tables [advice.CODE]."""
    locks: Mapping[str, Lock] = field(default_factory=_nothing)
    """Dotted key → reason why only the site may set it. Table [locked] of the site's file."""
    switched_off: frozenset[Switch] = frozenset()
    """The features that the site has switched off. Keys `switches.NAME`."""
    recipe_paths: tuple[Path, ...] = ()
    """The user's own recipes: files, folders, or folders of such folders. Key `recipes`."""
    recipe_keys: Mapping[str, str] = field(default_factory=_nothing)
    """Key on the screens, 6 to 9 → the name or path of the recipe that it launches. Keys `keys.6` to
    `keys.9`."""
    chosen_keys: Mapping[str, str] = field(default_factory=_nothing)
    """Id of a key of the screens → the character or name of the key assigned to it. Keys `keys.ID`."""
    is_readonly: bool = False
    """True removes each action that changes something. Key `readonly`."""
    origins: Mapping[str, str] = field(default_factory=_nothing)
    """Dotted key → origin of its value, `FILE:LINE` or an environment variable; absent for defaults."""
    notes: tuple[str, ...] = ()
    """Settings without effect, one line each: a key that the site locked, a path with an unset variable."""
    cluster: str = DEFAULT_CLUSTER
    """Name of the cluster; answers are remembered under it."""
    runs_root_candidates: tuple[tuple[Path, str], ...] = ()
    """Possible places for run directories, best first, each with its origin."""
    runs_root_text: str | None = None
    """Names the chosen place, and why the earlier ones were not chosen."""
    roster: Path | None = None
    """A file with the user names of the cohort, one a line. Key `cohort.roster`."""
    cohort_group: str | None = None
    """The Unix group whose members are the cohort. Key `cohort.group`."""
    files: tuple[FileStamp, ...] = ()
    """The state of each config file that was looked for."""

    def why_off(self, switch: Switch) -> str | None:
        """Why the site's file forbids it; None if it is allowed. The site's own reason comes before key and
        place, because a narrow screen cuts the end."""
        if switch not in self.switched_off:
            return None
        lock = self.lock_of(switch.key)
        place = self.origins.get(switch.key) or (lock.origin if lock is not None else "the site's file")
        words = f"switched off by the site: {switch.key} in {place}"
        return words if lock is None else f"{lock.reason} ({words})"

    def lock_of(self, key: str) -> Lock | None:
        """The lock on a key, or on a table that contains it."""
        return find_lock(self.locks, key)


def find_lock(locks: Mapping[str, Lock], key: str) -> Lock | None:
    """The lock on a key, or on a table that contains it."""
    while key and key not in locks:
        key = key.rpartition(".")[0]
    return locks.get(key)
