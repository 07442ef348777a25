"""Checkpoints of any framework, as far as their files identify them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saved:
    """One checkpoint: a file, or a directory of files that belong together."""

    path: str
    made_by: str
    """The framework of the format: `Lightning`, `Hugging Face`, `DeepSpeed`, `torch.distributed.checkpoint`,
    `safetensors`, `PyTorch`."""
    step: int | None
    """None: the name contains no step."""
    time_s: float
    """When the last of its files was written, in epoch seconds."""
    torn: str | None = None
    """Why it cannot be loaded; None if it is complete."""
    may_be_of: tuple[str, ...] = ()
    """Ids of other jobs that may have written it; empty if it is the job's own."""


@dataclass(frozen=True, slots=True)
class SavedFound:
    """Checkpoints of a directory, newest first, down to the newest complete one that is surely the job's.
    `is_whole` is False if a part of the directory was not searched."""

    directory: str
    saved: tuple[Saved, ...] = ()
    is_whole: bool = True
    problem: str | None = None

    @property
    def newest(self) -> Saved | None:
        """The newest complete checkpoint that is surely the job's."""
        return next((each for each in self.saved if each.torn is None and not each.may_be_of), None)

    @property
    def torn(self) -> tuple[Saved, ...]:
        return tuple(each for each in self.saved if each.torn is not None and not each.may_be_of)

    @property
    def doubtful(self) -> Saved | None:
        """The newest checkpoint that another job may have written, if it is newer than `newest`."""
        return next((each for each in self.saved if each.may_be_of), None)
