"""Checks that ask no other machine: the terminal, the Python, the configuration, the permission to change
something.

Pure judgements of values read before, so that a test can try every odd terminal and clock.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

from coach import installed
from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.judging.doctor_report import OK, UNKNOWN, WARNING, WRONG, Check
from coach.sources.machine.terminal import Terminal
from coach.workflows.readonly import why_readonly

MIN_COLUMNS, MIN_ROWS = 80, 24
MIN_COLOURS = 8


def judge_permission(settings: Settings, why_not_here: str | None = None) -> Check:
    """Check if coach may launch at all. `why_not_here` is the reason why the site allows no training on this
    machine."""
    readonly = why_readonly(settings)
    off, no_cancel = settings.why_off(Switch.LAUNCH), settings.why_off(Switch.CANCEL)
    if readonly is not None:
        return Check("launch", "permission", WRONG, "read-only", *readonly)
    if why_not_here is not None:
        value, todo = "nothing trains on this machine", "open coach where Slurm is"
        return Check("launch", "permission", WRONG, value, why_not_here, todo)
    if off is not None:
        return Check("launch", "permission", WRONG, "nothing is launched", off, "ask the site")
    value = "coach may launch and cancel" if no_cancel is None else "coach may launch, and cancels nothing"
    return Check("launch", "permission", OK, value, no_cancel)


def judge_python(data: Path) -> list[Check]:
    """Check coach's own interpreter and installation. The training's interpreter is checked with the
    launch."""
    home = installed.one_file() or installed.package()
    python = f"Python {platform.python_version()}, {sys.executable}"
    coach = Check("python", "coach", OK, f"coach {installed.version()} in {home}")
    if not (data / "trainers").is_dir():
        todo = "install it again: the package is not complete"
        coach = replace(coach, state=WRONG, because=f"there are no trainers in {data}", todo=todo)
    return [Check("python", "interpreter", OK, python), coach]


def judge_terminal(terminal: Terminal) -> list[Check]:
    """Check if the screens would display correctly. Commands need no terminal."""
    if not terminal.is_there:
        because = "neither standard input nor output is a terminal"
        todo = "run `coach doctor` where you would open coach"
        return [Check("terminal", "terminal", UNKNOWN, None, because, todo, is_needed=False)]
    return [_judge_term(terminal), _judge_size(terminal), _judge_letters(terminal)]


def _judge_term(terminal: Terminal) -> Check:
    inside = f" inside {terminal.multiplexer}" if terminal.multiplexer else ""
    value = f"TERM={terminal.term or ''}{inside}"
    todo = "export TERM=xterm-256color"
    if terminal.term in (None, "dumb", "unknown"):
        because = "the screens need a terminal that can move its cursor; commands work"
        return Check("terminal", "kind", WRONG, value, because, todo)
    if terminal.num_colours is None:
        because = "this machine does not know a terminal of this name"
        return Check("terminal", "kind", WARNING, value, because, todo)
    colours = {2**24: "16 million"}.get(terminal.num_colours, str(terminal.num_colours))
    value = f"{value}, {colours} colours"
    if terminal.num_colours < MIN_COLOURS:
        because = "severities are then shown by signs and words alone"
        return Check("terminal", "kind", WARNING, value, because, todo)
    return Check("terminal", "kind", OK, value)


def _judge_size(terminal: Terminal) -> Check:
    value = f"{terminal.columns} × {terminal.rows}"
    if (terminal.columns or 0) >= MIN_COLUMNS and (terminal.rows or 0) >= MIN_ROWS:
        return Check("terminal", "size", OK, value)
    because = f"the screens are made for {MIN_COLUMNS} × {MIN_ROWS} and more"
    return Check("terminal", "size", WARNING, value, because, "make the window larger")


def _judge_letters(terminal: Terminal) -> Check:
    encoding = terminal.encoding
    if encoding == "UTF-8":
        return Check("terminal", "letters", OK, encoding)
    because = "the locale is not UTF-8: signs and curves may be garbled"
    todo = "export LC_ALL=C.UTF-8"
    return Check("terminal", "letters", WARNING, encoding or "C locale", because, todo)


def judge_config(settings: Settings, problem: UserError | None = None) -> list[Check]:
    """The files that the settings came from, their keys without effect, and the keys that the site locked."""
    if problem is not None:
        todo = "; ".join(filter(None, (problem.hint, "`coach config --check` lists every problem")))
        because = f"{problem.message}; the other checks assume an empty config"
        return [Check("config", "files", WRONG, "coach does not start with them", because, todo)]
    files = [str(file.path) for file in settings.files if file.mtime_ns is not None]
    value = f"valid: {', '.join(files)}" if files else "no file: every value is a default"
    checks = [Check("config", "files", OK, value, is_needed=False)]
    todo = "`coach config --explain` shows every value and where it comes from"
    checks += [Check("config", "note", WARNING, None, note, todo, False) for note in settings.notes]
    locked = ", ".join(sorted(settings.locks))
    if locked:
        checks.append(Check("config", "locked by the site", OK, locked, None, todo, False))
    off = ", ".join(switch.key for switch in Switch if switch in settings.switched_off)
    if off:
        checks.append(Check("config", "switched off by the site", OK, off, None, todo, False))
    return checks
