"""Reads the terminal, and passes on only whole escape sequences, however slowly their parts arrive.

Textual waits 0.1 s for the rest of a sequence and then types the part: over a slow connection an arrow
becomes Esc and the text `[A`. Textual also joins Esc with any character that arrives within that time, so a
longer wait alone would swallow Esc and the keys typed after it.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Iterator
from time import monotonic
from typing import IO, Any, cast

from textual import constants, events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from coach.analysis.spelling.ascii import AsciiText

ESC = "\x1b"
ESCAPE_WAIT_S = 0.4
"""Seconds without a further character after which Esc counts as the key Esc.

ESCDELAY (milliseconds) sets another time, as for other programs.
"""
REST_WAIT_S = 2.0
"""Seconds to wait for the rest of a sequence. Then its beginning is dropped: it was not typed by the user."""
_TICK_S = 0.1
_PASTE_CHARACTERS = 200
_PASTE_VARIETY = 8
_PASTE_PAUSE_S = 0.1
"""A pause after which a paste without marks has ended."""

_WHOLE = re.compile(
    r"\x1b(?:"
    r"\[\[.|"  # function keys of the Linux console
    r"\[M...|"  # the mouse as old terminals report it
    r"\[\d+\$|"  # keys with Shift of rxvt
    r"\[(?![\[M])[0-?]*[ -/]*[@-~]|"  # CSI: keys, mouse, reports, pastes
    r"O[0-9;]*[ -/:-~])",  # SS3: function keys
    re.DOTALL,
)
_BEGUN = re.compile(r"\x1b(?:\[(?:\[|M.{0,2}|[0-?]*[ -/]*)|O[0-9;]*)?\Z", re.DOTALL)
_BROKEN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O[0-9;]*)")
_WITH_ALT = frozenset({"\x1b\x7f", "\x1b\t", "\x1bf", "\x1bb"})
"""Esc and a character that Textual reads as Alt and a key.

Any other character after Esc is a separate key.
"""


class WholeSequences:
    """Splits the terminal's input into text, whole sequences, Esc, and pastes (each begins with its start
    mark)."""

    def __init__(self, escape_wait_s: float = ESCAPE_WAIT_S) -> None:
        self._escape_wait_s = escape_wait_s
        self._held = ""
        self._held_s = 0.0
        self._is_pasting = False

    def add(self, text: str, now_s: float) -> Iterator[str]:
        """All complete parts. The rest is held until more arrives, or until `waited` drops it."""
        num_held, data, self._held = len(self._held), self._held + text, ""
        at = 0
        while at < len(data):
            if self._is_pasting:
                end = data.find(BRACKETED_PASTE_END, at)
                if end < 0:
                    self._hold(data[at:], now_s)
                    return
                self._is_pasting = False
                yield BRACKETED_PASTE_START + data[at:end]
                at = end + len(BRACKETED_PASTE_END)
            elif data[at] != ESC:
                end = data.find(ESC, at)
                end = len(data) if end < 0 else end
                yield data[at:end]
                at = end
            elif data[at : at + 2] in _WITH_ALT and at >= num_held:
                yield data[at : at + 2]
                at += 2
            elif (whole := _WHOLE.match(data, at)) is not None:
                at = whole.end()
                self._is_pasting = whole[0] == BRACKETED_PASTE_START
                if not self._is_pasting:
                    yield whole[0]
            elif _BEGUN.match(data, at) is not None:
                self._hold(data[at:], now_s)
                return
            elif (broken := _BROKEN.match(data, at)) is not None:
                at = broken.end()
            else:
                yield ESC
                at += 1

    def _hold(self, text: str, now_s: float) -> None:
        self._held, self._held_s = text, now_s

    def waited(self, now_s: float) -> Iterator[str]:
        """Esc, if nothing has followed it for long enough.

        The beginning of a longer sequence is dropped after REST_WAIT_S; a paste is waited for without a
        limit.
        """
        if self._is_pasting or not self._held:
            return
        is_escape = self._held == ESC
        if now_s - self._held_s >= (self._escape_wait_s if is_escape else REST_WAIT_S):
            self._held = ""
            if is_escape:
                yield ESC


def _is_paste(text: str) -> bool:
    """True if one read holds so much text that it was pasted into a terminal that does not mark pastes. A key
    held on a slow line repeats few characters."""
    has_lines = "\r" in text or "\n" in text
    return len(text) >= _PASTE_CHARACTERS and has_lines and len(set(text)) >= _PASTE_VARIETY


class PatientParser(XTermParser):
    """Textual's parser, given whole sequences only. An unknown sequence is dropped, not typed."""

    def __init__(self, escape_wait_s: float = ESCAPE_WAIT_S) -> None:
        super().__init__()
        self._sequences = WholeSequences(escape_wait_s)
        self._pasted = ""
        """A paste whose end has not been seen."""
        self._pasted_s = 0.0

    def feed(self, data: str) -> Iterator[Message]:
        for part in self._sequences.add(data, monotonic()):
            if part[0] != ESC and (self._pasted or _is_paste(part)):
                self._pasted, self._pasted_s = self._pasted + part, monotonic()
            else:
                yield from self._paste()
                yield from self._messages(part)

    def tick(self) -> Iterator[Message]:
        if monotonic() - self._pasted_s >= _PASTE_PAUSE_S:
            yield from self._paste()
        for part in self._sequences.waited(monotonic()):
            yield from self._messages(part)

    def _paste(self) -> Iterator[Message]:
        if self._pasted:
            text, self._pasted = self._pasted, ""
            yield events.Paste(text.replace("\0", ""))

    def _messages(self, part: str) -> Iterator[Message]:
        if part == ESC:
            yield events.Key("escape", ESC)
        elif part.startswith(BRACKETED_PASTE_START):
            yield events.Paste(part.removeprefix(BRACKETED_PASTE_START).replace("\0", ""))
        else:
            yield from super().feed(part)
            if self._timeout_time is not None:  # Textual's parser waits for more
                self._timeout_time = 0.0
                deque(super().tick(), maxlen=0)


class _Painted:
    """The terminal as an output. Output to a closed terminal is discarded: an error would end Textual's
    writer thread, and the screens would wait for it for ever."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


class PatientDriver(LinuxDriver):
    """The terminal, read by the patient parser."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = cast(Any, _Painted(cast("IO[str]", self._file)))

    def run_input_thread(self) -> None:
        parser = PatientParser(constants.ESCAPE_DELAY if "ESCDELAY" in os.environ else ESCAPE_WAIT_S)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_TICK_S):
                    data = self._read()
                    if not data:
                        # The terminal is closed. The kernel signals this only to the processes that it
                        # controls.
                        os.kill(os.getpid(), signal.SIGHUP)
                        return
                    for message in parser.feed(decode(data)):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def _read(self) -> bytes:
        """The bytes typed; empty at the end of the terminal."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""


class AsciiDriver(PatientDriver):
    """A terminal that shows only ASCII."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ascii = AsciiText()

    def write(self, data: str) -> None:
        super().write(self._ascii.of(data))
