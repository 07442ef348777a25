"""Tell if two runs are of one program. The losses of different programs are of different tasks, so neither is
better than the other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from coach.model.launching.launch import OwnKind
from coach.model.training.run import Run


def other_program(before: Run | None, after: Run | None) -> str | None:
    """Why the losses of two runs cannot be compared: `other program (a.py → b.py)`. None if they can, or if a
    run is not known.

    The recipes of coach are variants of one training, and a run launched from another one is a variant of it.
    Two programs of the user's own may still train on the same data set.
    """
    if before is None or after is None or not (_own(before) or _own(after)):
        return None
    if before.run_id == after.parent_run_id or after.run_id == before.parent_run_id:
        return None
    data = before.dataset.get("name")
    if data is not None and data == after.dataset.get("name"):
        return None
    old, new = _program(before), _program(after)
    return None if old == new else f"other program ({old} → {new})"


def _program(run: Run) -> str:
    """The file name of an own script or batch file, else the name of the recipe or command."""
    own = _own(run)
    words = own.get("words")
    if own.get("kind") in (OwnKind.SCRIPT, OwnKind.BATCH) and isinstance(words, list | tuple) and words:
        return PurePosixPath(str(words[0])).name
    return run.recipe


def _own(run: Run) -> Mapping[str, object]:
    own = run.launch.get("own")
    return own if isinstance(own, Mapping) else {}
