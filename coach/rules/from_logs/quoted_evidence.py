"""Turn log hits and numbers into evidence: helpers that several rules share.

Places and sizes are written the same way in every finding. The meaning of a hit stays in its rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coach.model.error_block import Frame
from coach.model.judging.finding import Evidence
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit

MAX_QUOTE_CHARS = 400
_MIB = {"B": 1 / 1048576, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1048576.0}
_SIZE = re.compile(r"\s*+([\d.]++)\s*+([BKMGTkmgt]?)(?:i?[Bb])?(?:ytes)?\s*+")
_LIBRARY = re.compile(
    r'site-packages|dist-packages|[\\/]lib(?:32|64)?[\\/]python|[\\/]python\d+\.zip[\\/]|File "<'
    r"|(?:conda|mamba|forge)\w{0,9}[\\/]pkgs[\\/]"
    # Files that torch.compile and Triton generated in their caches, and downloaded code in a cache.
    r"|[\\/]\.cache[\\/]|[\\/]torchinductor_[^\\/]+[\\/]|[\\/]\.triton[\\/]cache[\\/]"
    r"|[\\/][a-z2-7]{2}[\\/]c[a-z2-7]{40,}\.py\b"
    # Command scripts that pip generates: no file extension, in an environment's bin.
    r"|[\\/](?:\.?v?envs?|\.?venv[^\\/]*|envs[\\/][^\\/]+|\w*(?:conda|mamba|forge)\w*|\.local"
    r"|usr(?:[\\/]local)?)[\\/]bin[\\/][\w-]+(?![\w.-])"
    r"|[\\/]bin[\\/](?:torchrun|accelerate|deepspeed|horovodrun)(?![\w.-])"
)
"""Paths of frames that are not the user's program."""


def hits_of(snapshot: TargetSnapshot, rule: str, *names: str) -> list[LogHit]:
    """The hits of a rule's signatures, in log order. Without `names`, those of all its signatures."""
    found = [hit for hit in snapshot.log_hits if hit.rule == rule and (not names or hit.signature in names)]
    return sorted(found, key=lambda hit: (hit.file, hit.line))


def quote(hit: LogHit) -> Evidence:
    """A log line as evidence, with its place."""
    text = hit.text.strip()
    if len(text) > MAX_QUOTE_CHARS:
        text = text[: MAX_QUOTE_CHARS - 1] + "…"
    return Evidence(text, hit.file, hit.line)


def is_library(frame: str) -> bool:
    """True if a frame belongs to a library or the interpreter."""
    return bool(_LIBRARY.search(frame))


def innermost_own(frames: Sequence[Frame]) -> Frame | None:
    """The innermost of the frames that lies in the user's own code."""
    return next((frame for frame in reversed(frames) if not is_library(frame.text)), None)


def own_frame(hit: LogHit) -> Evidence | None:
    """The innermost frame at the hit that belongs to neither a library nor the interpreter."""
    own = innermost_own(hit.all_frames)
    return Evidence(f"in the program's own code: {own.text}", hit.file, own.number) if own else None


def earliest(hits: Iterable[LogHit]) -> LogHit:
    """The first hit: by line in one log, by time stamp across several logs."""
    hits = list(hits)
    if len({hit.file for hit in hits}) == 1:
        return min(hits, key=lambda hit: hit.line)
    return min(hits, key=lambda hit: (hit.time_s is None, hit.time_s or 0.0, hit.file, hit.line))


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 1, 2`, or the number of ranks if there are many."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 8:
        return "ranks " + ", ".join(map(str, ranks))
    return f"{len(ranks)} ranks ({ranks[0]} to {ranks[-1]})"


def parse_mib(text: object, default_unit: str = "B") -> float | None:
    """`7.71 GiB`, `8G`, `500M` in MiB. A bare number is in `default_unit`."""
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        return float(found[1]) * _MIB[(found[2] or default_unit).upper()]
    except ValueError:
        return None


def size_text(mib: float) -> str:
    """`512 MiB` or `7.7 GiB`."""
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"
