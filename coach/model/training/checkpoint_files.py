"""A checkpoint of any framework, as far as its files tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saved:
    """A file, or a directory of files that belong together."""

    path: str
    made_by: str
    """Whose format it is: `Lightning`, `Hugging Face`, `DeepSpeed`, `torch.distributed.checkpoint`,
    `safetensors`, `PyTorch`."""
    step: int | None
    """None: its name does not tell."""
    time_s: float
    """When the last of its files was written."""
    torn: str | None = None
    """Why it cannot be loaded; None for a complete one."""


@dataclass(frozen=True, slots=True)
class SavedFound:
    """What a directory holds of them, newest first, down to the newest complete one. `is_whole` is False
    where not all of it was looked at."""

    directory: str
    saved: tuple[Saved, ...] = ()
    is_whole: bool = True
    problem: str | None = None

    @property
    def newest(self) -> Saved | None:
        """The newest complete one."""
        return next((each for each in self.saved if each.torn is None), None)

    @property
    def torn(self) -> tuple[Saved, ...]:
        return tuple(each for each in self.saved if each.torn is not None)
