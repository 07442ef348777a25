"""The terminal harness shows what a person would see, and hands over the keys as a person presses them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ordinary_user import NOBODY, User
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.terminal

OpenTerminal = Callable[..., Terminal]

ECHO = """
import os, tty
tty.setraw(0)
print("ready", end="\\r\\n", flush=True)
while (keys := os.read(0, 100)) != b"q":
    print(repr(keys), end="\\r\\n", flush=True)
"""


def test_keys_arrive_as_pressed_and_a_packet_arrives_in_one_read(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal([sys.executable, "-c", ECHO])
    terminal.wait_for("ready")
    terminal.send("2")
    terminal.wait_for("b'2'")
    terminal.send("Down")
    terminal.wait_for(re.compile(r"b'\\x1b(\[|O)B'"))
    terminal.send_packet("1\r\r")
    terminal.wait_for(r"b'1\r\r'")
    terminal.send_text("Enter;")
    terminal.wait_for("Enter;")
    terminal.send("q")
    assert terminal.wait_exit() == 0


def test_the_program_has_the_size_and_the_locale_it_was_given(open_terminal: OpenTerminal) -> None:
    size = "import os, locale; print(*os.get_terminal_size(), locale.getencoding(), '–é✓')"
    small = open_terminal([sys.executable, "-c", size], columns=80, rows=24)
    small.wait_for("80 24 UTF-8 –é✓")


def test_a_resized_window_tells_the_program(open_terminal: OpenTerminal) -> None:
    watch = (
        "import os, signal\nsignal.signal(signal.SIGWINCH, lambda *_: "
        "print(*os.get_terminal_size()))\nprint('ready')\nwhile True: signal.pause()"
    )
    terminal = open_terminal([sys.executable, "-c", watch], columns=120, rows=36)
    terminal.wait_for("ready")
    terminal.resize(80, 24)
    terminal.wait_for("80 24")


def test_styles_are_seen_when_asked_for(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(["printf", r"\033[1;31mred\033[0m"])
    assert "\x1b" not in terminal.wait_for("red")
    assert re.search(r"\x1b\[1m?\x1b?\[?;?31mred", terminal.screen_with_styles())


def test_a_single_word_is_no_shell_command_and_the_exit_status_is_known(open_terminal: OpenTerminal) -> None:
    assert open_terminal(["false"]).wait_exit() == 1
    assert open_terminal(["true;false"]).wait_exit() == 127
    assert open_terminal(["sh", "-c", "kill -9 $$;"]).wait_exit() == 128 + 9


def test_waiting_in_vain_shows_the_screen(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal(["echo", "something else"])
    terminal.wait_for("something else")
    with pytest.raises(
        AssertionError, match=r"(?s)to see 'the curves' \(the program has ended\).*something else"
    ):
        terminal.wait_for("the curves", timeout_s=0.3)


def test_an_ordinary_user_has_the_terminal_for_his_own(open_terminal: OpenTerminal, user: User) -> None:
    script = "id -u; pwd; test -w $(tty) && echo writable; echo $USER $MINE"
    terminal = open_terminal(["sh", "-c", script], env={"MINE": "too"}, as_user=user)
    screen = terminal.wait_for("nobody too")
    assert screen.split()[:3] == [str(NOBODY), str(user.home), "writable"]


def test_a_closed_terminal_leaves_nothing_even_of_a_program_that_ignores_it(tmp_path: Path) -> None:
    stubborn = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); print('ready', flush=True); "
        "signal.pause()"
    )
    terminal = Terminal([sys.executable, "-c", stubborn], env={"COACH_TEST_MARK": str(tmp_path)})
    terminal.wait_for("ready")
    assert running_with(f"COACH_TEST_MARK={tmp_path}")
    terminal.close()
    wait_until(lambda: not running_with(f"COACH_TEST_MARK={tmp_path}"), 5, "tmux and the program are gone")


def running_with(setting: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
