"""What the screens know of the world outside: the session's live data, and the names of recipes and rules.

`live_ports.py` has what the controllers call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coach.lookback.history import History
from coach.model.politeness import Attention
from coach.model.snapshot import Snapshot, Watch

if TYPE_CHECKING:
    from coach.lookback.glance import Glance
    from coach.sources.slurm.overlap_step import StreamSource

OnUpdate = Callable[[Snapshot], None]


class Session(Protocol):
    """Live data. `on_update` is called from a thread of the session, never from the screens' thread."""

    @property
    def snapshot(self) -> Snapshot: ...

    def start(self, on_update: OnUpdate) -> None: ...

    def watch(self, watch: Watch) -> None: ...

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None: ...

    def history(self, target: str) -> History:
        """The target's series, read-only. Returns the same object until there are new data."""
        ...

    def glance(self, target: str) -> Glance:
        """The summary of the target's history for a line of a list. Returns the same object until there are
        new data."""
        ...

    def refresh_soon(self, *, is_cluster_only: bool = False) -> None: ...

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Take the user's idle time in seconds and the focus. The session asks Slurm less often while the
        user is idle, and stops after a long time."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecipeKey:
    """A recipe that can be launched from any screen."""

    key: str | None
    """The digit that launches it; None if only the palette and the list of recipes do."""
    name: str
    """How a launch names it: by its name or its path."""
    title: str

    @property
    def word(self) -> str:
        """Its name in the footer."""
        return self.name.rpartition("/")[2].removesuffix(".toml").rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class RuleTitle:
    """A rule or a topic whose page can be opened."""

    code: str
    """The rule's code; for a topic, its name."""
    title: str
    """The rule's name and its first sentence; for a topic, its first line."""
    kind: str = "rule"


PARENT_CHOICES = ("cancel", "keep", "wait")
"""What a relaunch does with a running parent: cancels it, keeps it, or waits for it."""
