"""Run several probes side by side, and wait for none of them longer than the deadline.

A dead controller keeps a client for seconds, and a dead file server blocks a system call for ever. So every
probe has its own thread, which is not joined at exit; a probe without an answer at the deadline is reported
as such.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from coach.model.errors import UserError
from coach.model.judging.doctor_report import UNKNOWN, WRONG, Check
from coach.sources.io import CommandResult, Io, PassingIo, Query

Probe = Callable[[], Sequence[Check]]


class _Kept:
    """One command and its answer; its lock is held while the command runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.result: CommandResult | None = None


class HurriedIo(PassingIo):
    """An Io that runs each command once, for all callers; each gets at most `limit_s` seconds, and none runs
    beyond `deadline_s` on the monotonic clock."""

    def __init__(self, io: Io, limit_s: float, deadline_s: float) -> None:
        super().__init__(io)
        self._limit_s = limit_s
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, ...], _Kept] = {}

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        with self._lock:
            kept = self._asked.setdefault(query.argv, _Kept())
        with kept.lock:
            if kept.result is None:
                kept.result = self._run(query, timeout_s)
            return kept.result

    def _run(self, query: Query, timeout_s: float | None) -> CommandResult:
        limit_s = self._limit_s if timeout_s is None else min(timeout_s, self._limit_s)
        left_s = min(limit_s, self._deadline_s - time.monotonic())
        if left_s <= 0:
            error = f"{query.argv[0]}: not run, no time was left"
            return CommandResult(query, None, b"", "", self.now(), 0.0, error)
        result = self._io.run(query, left_s)
        if result.returncode is None and result.duration_s >= left_s:
            result = replace(result, error=f"{query.argv[0]}: no answer within {result.duration_s:.1f} s")
        return result


class _Running:
    def __init__(self, area: str, name: str, probe: Probe) -> None:
        self.area, self.name = area, name
        self.done = threading.Event()
        self.checks: Sequence[Check] = ()
        self._probe = probe
        threading.Thread(target=self._run, name=f"doctor-{name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.checks = self._probe()
        except UserError as error:
            self.checks = (Check(self.area, self.name, WRONG, None, error.message, error.hint),)
        except OSError as error:
            words = f"{error.filename or self.name}: {error.strerror or error}"
            self.checks = (Check(self.area, self.name, UNKNOWN, None, words),)
        except Exception as error:  # a crashed probe must not look like a healthy result
            words = f"coach failed to look: {type(error).__name__}: {error}"
            self.checks = (Check(self.area, self.name, UNKNOWN, None, words, "report it, please"),)
        finally:
            self.done.set()


def side_by_side(probes: Mapping[tuple[str, str], Probe], deadline_s: float) -> list[Check]:
    """The checks of all probes, in the order of the probes. A probe's name is its area and its subject."""
    running = [_Running(area, name, probe) for (area, name), probe in probes.items()]
    checks: list[Check] = []
    for each in running:
        if each.done.wait(max(0.0, deadline_s - time.monotonic())):
            checks.extend(each.checks)
        else:
            checks.append(_unanswered(each.area, each.name))
    return checks


def _unanswered(area: str, name: str) -> Check:
    return Check(
        area,
        name,
        UNKNOWN,
        None,
        "no answer in time",
        "a hanging file system or controller: try again, then ask the site",
    )
