"""Text that is typed or pasted in bursts, and sequences that come in pieces, as a slow line and a quick
person send them."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.terminal

OpenTerminal = Callable[..., Terminal]

NUM_FIELDS = 11
NUM_BURSTS = 50
MAX_CHARACTERS = 12
TAB, BACK_TAB, ENTER = "\t", "\x1b[Z", "\r"
HOME, END, LEFT, RIGHT = "\x1b[H", "\x1b[F", "\x1b[D", "\x1b[C"
BACKSPACE, DELETE = "\x7f", "\x1b[3~"


class Typed:
    """The keys of one burst, and the resulting text of a field whose value is selected."""

    def __init__(self, chance: random.Random, value: str) -> None:
        self.keys = ""
        self.text = value
        self._at = len(value)
        self._is_selected = True
        while len(self.keys) < 24:
            chance.choice([self._type, self._paste, self._erase, self._move, self._submit])(chance)
        if not self.text:
            self._type(chance)

    def _put(self, keys: str, text: str) -> None:
        if self._is_selected:
            self.text, self._at = "", 0
        if len(self.text) + len(text) > MAX_CHARACTERS:
            return
        self.keys += keys
        self.text = self.text[: self._at] + text + self.text[self._at :]
        self._at, self._is_selected = self._at + len(text), False

    def _type(self, chance: random.Random) -> None:
        text = "".join(chance.choices("0123456789.", k=chance.randint(1, 4)))
        self._put(text, text)

    def _paste(self, chance: random.Random) -> None:
        text = str(chance.randint(10, 999))
        self._put(f"\x1b[200~{text}\x1b[201~", text)

    def _erase(self, chance: random.Random) -> None:
        key = chance.choice([BACKSPACE, DELETE])
        self.keys += key
        if self._is_selected:
            self.text, self._at = "", 0
        elif key == DELETE:
            self.text = self.text[: self._at] + self.text[self._at + 1 :]
        elif self._at:
            self.text = self.text[: self._at - 1] + self.text[self._at :]
            self._at -= 1
        self._is_selected = False

    def _move(self, chance: random.Random) -> None:
        key = chance.choice([HOME, END, LEFT, RIGHT])
        self.keys += key
        if key == HOME or (key == LEFT and self._is_selected):
            self._at = 0
        elif key == END or self._is_selected:
            self._at = len(self.text)
        else:
            self._at = min(max(0, self._at + (1 if key == RIGHT else -1)), len(self.text))
        self._is_selected = False

    def _submit(self, chance: random.Random) -> None:
        self.keys += ENTER


@pytest.fixture
def form(open_terminal: OpenTerminal, tmp_path: Path) -> Terminal:
    """The parameters of the first recipe; the cursor is in the first field."""
    terminal = open_terminal(
        [sys.executable, "-m", "coach", "--demo"],
        columns=200,
        rows=60,  # all fields are in sight
        env={"COACH_HOME": str(tmp_path)},
    )
    terminal.wait_for("1-5 launch", timeout_s=30)
    terminal.send_packet("R")
    terminal.wait_for(re.compile(r"lr +0\.01 .*\n.*batch_size +64 "), timeout_s=30)
    terminal.send_packet("\t")
    terminal.wait_for("usual 0.0001")
    return terminal


def values(screen: str) -> list[str]:
    """The text of the fields, from the top."""
    rows = screen.splitlines()
    first, left = next(
        (index, at) for index, row in enumerate(rows) if (at := row.find("─ parameters · ")) >= 0
    )
    fields = [row[left:].split() for row in rows[first + 1 :] if row[left : left + 3].strip()]
    return [words[1] for words in fields[:NUM_FIELDS]]


def test_fifty_bursts_of_keys_and_pastes_leave_the_values_that_were_typed(form: Terminal) -> None:
    chance = random.Random(16)
    defaults = values(form.screen())
    expected = [""] * NUM_FIELDS
    num_bursts = 0
    for sweep in range(NUM_BURSTS // (NUM_FIELDS - 1)):
        is_down = sweep % 2 == 0
        for field in range(NUM_FIELDS - 1) if is_down else range(NUM_FIELDS - 1, 0, -1):
            burst = Typed(chance, expected[field])
            expected[field] = burst.text
            form.send_packet(burst.keys + (TAB if is_down else BACK_TAB))
            num_bursts += 1
        typed = [text or default for text, default in zip(expected, defaults, strict=True)]
        wait_until(lambda typed=typed: values(form.screen()) == typed, 15, (f"the fields show {typed}"))  # type: ignore[misc]
    assert num_bursts == NUM_BURSTS


def test_a_sequence_in_two_pieces_is_a_key_and_esc_alone_still_is_esc(form: Terminal) -> None:
    def send(*pieces: str) -> None:
        for piece in pieces:
            form.send_packet(piece)
            sent_s = time.monotonic()
            wait_until(lambda sent_s=sent_s: time.monotonic() - sent_s > 0.15, every_s=0.01)  # type: ignore[misc]

    send("\x1b", "[B")
    form.wait_for("Samples of one micro-batch", timeout_s=5)
    send("\x1b[", "A", "7\x1b[200~12", "34\x1b[20", "1~\x1b[", "D\x7f", "5")
    wait_until(lambda: values(form.screen())[:2] == ["71254", "64"], 5, "71254 stands in the first field")
    form.send_packet("\x1b")
    sent_s = time.monotonic()
    form.wait_for("Tab goes into the form", timeout_s=5)
    assert time.monotonic() - sent_s < 5
    assert "71254" in form.screen()
