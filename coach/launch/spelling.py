"""Strict parsers for texts that enter a batch script. `analysis.spelling.slurm` parses times and memory.

Text from a user or a config ends up in a batch script. Text that is not recognised is refused here, before
the plan is made.
"""

from __future__ import annotations

import re
import unicodedata

from coach.analysis.spelling.slurm import format_time as format_time
from coach.analysis.spelling.slurm import parse_mem_mib as parse_mem_mib
from coach.analysis.spelling.slurm import parse_time as parse_time
from coach.model.errors import UserError

_SIGNAL = re.compile(r"(?:[RB]{1,2}:)?(?:SIG)?USR1(?:@(\d{1,5}))?", re.ASCII | re.IGNORECASE)

DEFAULT_SIGNAL_LEAD_S = 60
"""Slurm's default for a signal without a time."""


def parse_signal_lead(text: str, what: str) -> int:
    """Seconds before the time limit at which Slurm sends USR1, parsed from Slurm's format. Raises
    UserError."""
    match = _SIGNAL.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"{what} {text!r}: not a signal that the trainers know",
            "expected USR1@SECONDS, the time before the limit at which it comes, for example USR1@300",
        )
    return int(match.group(1) or DEFAULT_SIGNAL_LEAD_S)


def check_printable(text: str, what: str) -> str:
    """Return the text unchanged. Raises UserError for control characters: a newline would start a new line of
    the batch script."""
    for char in text:
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            raise UserError(
                f"{what} {text!r}: the control character {char!r} cannot be part of a batch script"
            )
    return text
