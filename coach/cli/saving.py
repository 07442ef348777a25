"""Shows a text that a person wants to send to others, asks, and saves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from coach.cli.acting import is_confirmed
from coach.cli.text import print_line, say
from coach.runs import expand_home
from coach.sources.machine.new_file import refuse_if_there, save_new


def new_path_of(text: str) -> Path:
    """The absolute path of the new file that a person named. Raises UserError if the file exists."""
    file = expand_home(text).absolute()
    refuse_if_there(file)
    return file


def save_shown(file: Path, text: str, shown: Iterable[str], notes: Sequence[str], *, is_known: bool) -> int:
    """Exit status: 0 saved, 1 not confirmed. `shown` are lines without control characters that show the text.
    Raises UserError if the file exists or cannot be written."""
    refuse_if_there(file)
    for line in shown:
        print_line(line)
    if not is_confirmed(f"save {file}", is_known, notes):
        say("nothing was saved")
        return 1
    save_new(file, text)
    say(f"saved {file}")
    return 0
