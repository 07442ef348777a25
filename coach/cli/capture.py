"""`coach doctor --capture`: shows a capture of a site and saves it.

It is apart from the checks, because it judges nothing: it asks Slurm, shows the masked answers, and waits for
a yes.
"""

from __future__ import annotations

from pathlib import Path

from coach.analysis.spelling.printable import cut
from coach.cli.saving import save_shown
from coach.cli.text import printable
from coach.sources.io import SystemIo
from coach.sources.machine.new_file import refuse_if_there
from coach.sources.machine.user import user_name
from coach.workflows.doctor import capture

_WIDTH = 160
_NOTES = (
    "names of users, accounts, jobs, nodes, partitions and paths are replaced, each by the same word "
    "everywhere",
    "of fields that coach does not read, only the format is kept; nothing is sent: read the file before "
    "you share it",
)


def save_capture(file: Path, io: SystemIo, *, is_known: bool) -> int:
    """Ask Slurm, show the masked answers, and save them after confirmation."""
    refuse_if_there(file)
    taken = capture.take(io, user_name())
    shown = (cut(printable(line), _WIDTH) for line in capture.shown_lines(taken))
    return save_shown(file, capture.as_text(taken), shown, _NOTES, is_known=is_known)
