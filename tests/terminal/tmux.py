"""A real terminal for tests: a program in a tmux of its own, keys in, the painted screen out.

Only a real terminal shows what a person would see: the size taken from the terminal, keys as escape
sequences, several keys in one read, the screen restored at the end. Each `Terminal` has its own tmux server
on its own socket, run by the user who runs the program, and `close()` ends that server and nothing else.

    with Terminal(coach.argv("--backend", "local"), columns=120, rows=36, env=coach.env(), as_user=coach.user)
    as terminal:
        terminal.wait_for("node1")
        terminal.send("2")
        terminal.send("Down", "Enter")        # key names as tmux knows them: Escape, C-c, BSpace, F1 …
        terminal.send_packet("1\\r\\r")         # one write: the program reads all three at once
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.cluster.processes import in_session
from tests.ordinary_user import User, make_open_directory
from tests.waiting import wait_until

_SETTINGS = (
    ("set-option", "-g", "status", "off"),  # its line would be missing from the program's screen
    ("set-option", "-g", "default-terminal", "tmux-256color"),
    ("set-option", "-g", "history-limit", "5000"),
    ("set-option", "-s", "escape-time", "0"),
)


# The shell notes how the program ended and then holds the terminal, so that the last screen stays to be seen:
# tmux itself now and then loses the last output, or the status, of a program that ends at once.
_HOLD = (
    'trap : INT QUIT; "$@"; echo $? > "$STATUS_FILE.new"; mv "$STATUS_FILE.new" "$STATUS_FILE"; exec sleep '
    "infinity"
)


def why_not() -> str | None:
    """Why no terminal can be driven here, or None when one can."""
    return None if shutil.which("tmux") else "not installed: tmux"


class Terminal:
    """A program running in a terminal of `columns` by `rows`."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        columns: int = 120,
        rows: int = 36,
        env: Mapping[str, str] | None = None,
        as_user: User | None = None,
        cwd: Path | None = None,
    ) -> None:
        """`env` is added to the environment of `as_user`, or to the suite's own when there is none."""
        self._user = as_user
        self._session: int | None = None
        self._directory = make_open_directory("coach-terminal")
        if as_user is not None:
            os.chown(self._directory, as_user.uid, as_user.gid)
        self._status_file = self._directory / "status"
        self._socket = f"coach-{secrets.token_hex(6)}"
        # pytest's workers set COLUMNS, which a program believes more than its terminal.
        foreign = ("TMUX", "COLUMNS", "LINES")
        base = (
            as_user.env() if as_user else {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        )
        locale = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._env = (
            base
            | locale
            | {"TMUX_TMPDIR": str(self._directory), "STATUS_FILE": str(self._status_file)}
            | dict(env or {})
        )
        size = ["-x", str(columns), "-y", str(rows)]
        held = ["sh", "-c", _HOLD, "sh", *(os.fspath(word) for word in argv)]
        start = ["new-session", "-d", *size, "--", *map(_word, held)]
        commands = [word for setting in _SETTINGS for word in (*setting, ";")]
        try:
            self._tmux("start-server", ";", *commands, *start, cwd=cwd or (as_user.home if as_user else None))
            self._session = int(self._asked("pane_pid"))
        except BaseException:
            self.close()
            raise

    def send(self, *keys: str) -> None:
        """Press keys, one after the other: characters (`"2"`, `":"`) or names (`"Enter"`, `"Down"`,
        `"C-c"`)."""
        self._tmux("send-keys", "--", *map(_word, keys))

    def send_text(self, text: str) -> None:
        """Type a text literally, even if it is the name of a key."""
        self._tmux("send-keys", "-l", "--", _word(text))

    def send_packet(self, data: str | bytes) -> None:
        """Write all bytes at once, as a paste, a slow link or an impatient person does: the program gets them
        in one read."""
        raw = data.encode() if isinstance(data, str) else data
        self._tmux("send-keys", "-H", *(f"{byte:02x}" for byte in raw))

    def resize(self, columns: int, rows: int) -> None:
        """Change the terminal's size, as when a person drags the window."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        """The screen now: lines without styles and without trailing blanks."""
        return self._looked("capture-pane", "-p")

    def screen_with_styles(self) -> str:
        """The screen now, with the escape sequences of colours and attributes."""
        return self._looked("capture-pane", "-p", "-e")

    def wait_for(self, *wanted: str | re.Pattern[str], timeout_s: float = 15.0) -> str:
        """Wait until the screen shows all texts, or matches of all patterns, at the same time. Returns that
        screen.

        A screen is painted piece by piece: whatever a test wants to see together, it waits for together.
        Fails with the screen as it was at the end.
        """
        patterns = [_pattern(each) for each in wanted]
        return self._wait_screen(
            lambda screen: all(pattern.search(screen) is not None for pattern in patterns),
            f"to see {' and '.join(map(repr, wanted))}",
            timeout_s,
        )

    def wait_gone(self, unwanted: str | re.Pattern[str], timeout_s: float = 15.0) -> str:
        """Wait until a text, or every match of a pattern, has left the screen; the screen then."""
        pattern = _pattern(unwanted)
        return self._wait_screen(
            lambda screen: pattern.search(screen) is None, f"{unwanted!r} to go", timeout_s
        )

    def wait_exit(self, timeout_s: float = 15.0) -> int:
        """Wait until the program has ended; its exit status (128 + n when signal n ended it)."""
        try:
            wait_until(lambda: not self.is_running, timeout_s)
        except AssertionError:
            raise AssertionError(f"the program still runs after {timeout_s:g} s:\n{self.screen()}") from None
        return int(self._status_file.read_text())

    @property
    def is_running(self) -> bool:
        return not self._status_file.exists()

    def hang_up(self) -> None:
        """Close the terminal under the program, as when a window is closed or a connection breaks: it gets
        SIGHUP, and nothing else."""
        self._tmux("kill-server")

    def close(self) -> None:
        """End this terminal's own tmux server, and with it the program."""
        subprocess.run(self._argv("kill-server"), env=self._env, capture_output=True, timeout=10)
        if self._session is not None:
            # The closed terminal has sent them SIGHUP. Processes that ignore it are stopped here.
            leader = self._session
            try:
                wait_until(lambda: not in_session(leader), 2)
            except AssertionError:
                for process in in_session(leader):
                    process.signal(signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_screen(self, is_reached: Callable[[str], bool], what: str, timeout_s: float) -> str:
        last = ""

        def reached() -> bool:
            nonlocal last
            last = self.screen()
            return is_reached(last)

        try:
            wait_until(reached, timeout_s, every_s=0.1)  # each look is a process of tmux
        except AssertionError:
            end = "" if self.is_running else " (the program has ended)"
            message = f"waited {timeout_s:g} s for {what}{end}; the screen was:\n{last.rstrip()}"
            raise AssertionError(message) from None
        return last

    def _asked(self, name: str) -> str:
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def _argv(self, *command: str) -> list[str]:
        argv = ["tmux", "-L", self._socket, "-f", "/dev/null", "-u", *command]
        return self._user.argv(argv) if self._user else argv

    def _looked(self, *command: str) -> str:
        """tmux's answer to a query. root asks the user's server directly: to become that user first doubles
        the cost, ten times a second."""
        if self._user is None or os.geteuid() != 0:
            return self._tmux(*command)
        socket = self._directory / f"tmux-{self._user.uid}" / self._socket
        return self._run(["tmux", "-S", str(socket), "-f", "/dev/null", "-u", *command])

    def _tmux(self, *command: str, cwd: Path | None = None) -> str:
        return self._run(self._argv(*command), cwd)

    def _run(self, argv: Sequence[str], cwd: Path | None = None) -> str:
        result = subprocess.run(
            argv,
            env=self._env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
        )
        assert result.returncode == 0, f"{' '.join(argv)}: {result.stderr.strip()}"
        return result.stdout


def _pattern(wanted: str | re.Pattern[str]) -> re.Pattern[str]:
    return wanted if isinstance(wanted, re.Pattern) else re.compile(re.escape(wanted))


def _word(text: str) -> str:
    """A word for tmux, which would take a semicolon at its end for the end of the command."""
    return f"{text[:-1]}\\;" if text.endswith(";") else text
