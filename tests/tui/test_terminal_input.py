"""Bytes of the terminal, in pieces, become the pressed keys."""

from __future__ import annotations

import pytest
from textual import events, messages
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser

from coach.tui import terminal_input
from coach.tui.terminal_input import ESCAPE_WAIT_S, REST_WAIT_S, PatientParser

SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOP": "f1",
    "\x1b[[A": "f1",
    "\x1b[3~": "delete",
    "\x1b[1;5C": "ctrl+right",
    "\x1b[Z": "shift+tab",
    "\x1b[7$": "shift+home",
    "\x1b[27u": "escape",
    "\x1b[97;5u": "ctrl+a",
}


class Line:
    """A terminal whose clock the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(terminal_input, "monotonic", lambda: self.now_s)
        self.parser = PatientParser()
        self.events: list[object] = []

    def send(self, *pieces: str, apart_s: float = 0.15) -> list[object]:
        """The resulting keys, long after the last piece."""
        self.events = []
        for piece in pieces:
            self._add(piece)
            self.wait(apart_s)
        self.wait(ESCAPE_WAIT_S)
        return self.events

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self._note(self.parser.tick())

    def _add(self, piece: str) -> None:
        self._note(self.parser.feed(piece))

    def _note(self, found: object) -> None:
        for event in found:  # type: ignore[attr-defined]
            self.events.append(name_of(event))


def name_of(event: object) -> object:
    return event.key if isinstance(event, events.Key) else event


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(monkeypatch)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_cut_anywhere_is_one_key(line: Line, sequence: str) -> None:
    for cut in range(len(sequence) + 1):
        assert line.send(sequence[:cut], sequence[cut:]) == [SEQUENCES[sequence]]
    assert line.send(*sequence) == [SEQUENCES[sequence]], "every byte for itself"


def test_every_sequence_that_textual_knows_means_the_same_as_there(line: Line) -> None:
    for sequence in ANSI_SEQUENCES_KEYS:
        if sequence[0] != "\x1b" or len(sequence) <= 2:
            continue
        expected = [repr(name_of(event)) for event in XTermParser().feed(sequence)]
        assert [*map(repr, line.send(sequence))] == expected, repr(sequence)


def test_esc_alone_is_esc_after_a_moment(line: Line) -> None:
    line._add("\x1b")
    line.wait(ESCAPE_WAIT_S - 0.01)
    assert line.events == []
    line.wait(0.02)
    assert line.events == ["escape"]


def test_keys_behind_esc_are_keys_of_their_own(line: Line) -> None:
    assert line.send("\x1bq") == ["escape", "q"]
    assert line.send("\x1b1") == ["escape", "1"]
    assert line.send("\x1b", "f") == ["escape", "f"]
    assert line.send("\x1b", "jjj\r") == ["escape", "j", "j", "j", "enter"]
    assert line.send("\x1b\x1b\x1b[B") == ["escape", "escape", "down"]
    assert line.send("\x1b\x7f") == ["ctrl+w"], "Alt and Backspace"


def test_keys_after_esc_do_not_wait(line: Line) -> None:
    line._add("\x1bjk")
    assert line.events == ["escape", "j", "k"]


def test_a_beginning_without_an_end_is_dropped(line: Line) -> None:
    assert line.send("a\x1b[1;", apart_s=REST_WAIT_S) == ["a"]
    assert line.send("b") == ["b"]
    assert line.send("\x1b[1;\rc") == ["enter", "c"]


def test_an_unknown_sequence_is_no_text(line: Line) -> None:
    assert line.send("\x1b[99;99;99z", "x") == ["x"]
    assert line.send("\x1bO9w\x1b[?1;2cy") == ["y"]


def test_a_paste_in_pieces_is_one_paste(line: Line) -> None:
    whole = "\x1b[200~two\nlines \x1bq\x1b[201~"
    for cut in range(1, len(whole)):
        (paste,) = line.send(whole[:cut], whole[cut:], apart_s=3.0 if cut >= 6 else 0.15)
        assert isinstance(paste, events.Paste)
        assert paste.text == "two\nlines \x1bq"
    paste, key = line.send(f"{whole}z")
    assert isinstance(paste, events.Paste)
    assert key == "z"


def test_reports_of_the_terminal_are_not_taken_for_keys(line: Line) -> None:
    for cut in (1, 3, 6):
        report = "\x1b[<0;12;7M"
        (mouse,) = line.send(report[:cut], report[cut:])
        assert isinstance(mouse, events.MouseDown)
        assert (mouse.x, mouse.y) == (11, 6)
        cursor = "\x1b[12;34R"
        (position,) = line.send(cursor[:cut], cursor[cut:])
        assert isinstance(position, events.CursorPosition)
        assert (position.x, position.y) == (33, 11)
    (mode,) = line.send("\x1b[?2026;", "2$y")
    assert isinstance(mode, messages.TerminalSupportsSynchronizedOutput)
    assert line.send("\x1b[M", " +'") == [], "the mouse as old terminals report it"
    (focus,) = line.send("\x1b[", "I")
    assert isinstance(focus, events.AppFocus)
    (size,) = line.send("\x1b[48;24;80", ";480;640t")
    assert isinstance(size, events.Resize)
    assert size.size == (80, 24)


def test_many_lines_in_one_read_are_a_paste_and_no_keys(line: Line) -> None:
    text = "paste line x y F A \r" * 500
    pieces = [text[at : at + 4096] for at in range(0, len(text), 4096)]
    (paste,) = line.send(*pieces, apart_s=0.01)
    assert isinstance(paste, events.Paste)
    assert paste.text == text
    assert line.send("q") == ["q"], "a key after the pause"


@pytest.mark.parametrize("typed", ["j" * 400, "\r" * 300, "jjk\r" * 100])
def test_held_keys_in_one_read_stay_keys(line: Line, typed: str) -> None:
    assert len(line.send(typed)) == len(typed)
