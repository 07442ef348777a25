"""An Io that reports the file that it reads, and the progress, if reading takes long.

A log of gigabytes takes a minute to read. After a second and a half the user gets a message with the cause
that the end of the log names by itself, and can stop the reading.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coach.analysis.spelling.sizes import format_bytes
from coach.cli.text import printable
from coach.config import Settings
from coach.late import late
from coach.model.errors import UserError
from coach.model.judging.finding import Finding
from coach.node.secret_words import mask_text
from coach.sources.io import Io as Io
from coach.sources.io import SystemIo, scrubbed_environment

if TYPE_CHECKING:
    from coach.workflows.judging import far_end
else:
    far_end = late("coach.workflows.judging", "far_end")

AFTER_S = 1.5
EVERY_S = 5.0
_FAR_BYTES = 64 << 20
"""With less than this to read, the whole answer comes soon."""


class ReadingIo(SystemIo):
    """`tell` gets a line every few seconds while a file is read. `end_of` returns the cause that the end of a
    file names. It is called once for each file that has much left to read."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        after_s: float = AFTER_S,
        every_s: float = EVERY_S,
        end_of: Callable[[Path], str | None] = lambda path: None,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s)
        self._tell = tell
        self._every_s = every_s
        self._end_of = end_of
        self._with_end: set[Path] = set()
        self._read_to: dict[Path, int] = {}
        self._due_s = time.monotonic() + after_s

    def read(self, path: Path, offset: int, limit: int) -> bytes:
        data = super().read(path, offset, limit)
        now_s = time.monotonic()
        read_to = self._read_to.get(path, 0)
        goes_on = offset <= read_to < offset + len(data)  # else this is another part, such as the end
        if goes_on:
            self._read_to[path] = offset + len(data)
        if offset and goes_on and now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            told = os.stat(path).st_size  # noqa: PTH116 (the file was just read)
            self._tell(f"reading {path}: {format_bytes(offset)} of {format_bytes(told)} so far")
            if told - offset > _FAR_BYTES and path not in self._with_end:
                self._with_end.add(path)
                if (words := self._end_of(path)) is not None:
                    self._tell(f"{path}: {words}; the rest is being read")
        return data


def told_cause(finding: Finding) -> str:
    return f"{finding.severity.word} {finding.rule}: {mask_text(finding.summary)}"


def reading_io(settings: Settings) -> ReadingIo:
    """A ReadingIo with this process's environment; its lines go to standard error."""

    def tell(line: str) -> None:
        print(f"coach: {printable(line)}", file=sys.stderr, flush=True)

    env, timeout_s = scrubbed_environment(os.environ), settings.slurm_timeout_s

    def end_of(path: Path) -> str | None:
        with contextlib.suppress(OSError, UserError):  # the whole reading reports it
            found = far_end.cause_at_end(SystemIo(env), path, settings)
            part = format_bytes(far_end.END_BYTES)
            return f"its last {part} say {told_cause(found)}" if found is not None else None
        return None

    return ReadingIo(env, timeout_s=timeout_s, tell=tell, end_of=end_of)
