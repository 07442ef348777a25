"""Make standard output and standard error write only characters that the terminal shows.

In the C locale Python writes UTF-8 all the same (PEP 538, PEP 540), and such a terminal shows its bytes as
other signs. The screens use the same table of signs.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping

from coach.analysis.spelling.ascii import AsciiText
from coach.sources.machine.terminal import locale_encoding, started_environment

ASCII_SIGNS = "coach.ascii"
"""Name of the error handler that writes an ASCII sign for a character that the encoding lacks."""


def follow_terminal(env: Mapping[str, str]) -> None:
    """Write ASCII if the locale names no UTF-8. An encoding in PYTHONIOENCODING is kept; characters that it
    lacks become ASCII signs."""
    is_kept = bool(env.get("PYTHONIOENCODING")) or locale_encoding(started_environment(env)) == "UTF-8"
    for stream in (sys.stdout, sys.stderr):
        encoding = stream.encoding if is_kept else "ascii"
        is_unicode = codecs.lookup(encoding).name.startswith("utf")
        if hasattr(stream, "reconfigure") and not is_unicode:
            codecs.register_error(ASCII_SIGNS, _signs)
            stream.reconfigure(encoding=encoding, errors=ASCII_SIGNS)


def _signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return AsciiText().of(error.object[error.start : error.end]), error.end
