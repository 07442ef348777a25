"""The pure-Python stand-ins for native packages: coach behaves the same with both."""

from __future__ import annotations

import ast
import importlib.util
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ahocorasick_rs
import psutil
import pytest

from coach.model.training.log import LogHit, Signature
from coach.rules.registry import build, signatures
from coach.sources.logs import line_filter, log_windows
from coach.sources.logs.scanner import LogScanner
from tests.installed import REPOSITORY

RECORDINGS = REPOSITORY / "tests" / "recordings"
ALPHABET = b"abcABC01 \0\n-"


def stand_in(name: str) -> ModuleType:
    """Loaded under another name, so the real package stays unchanged."""
    path = REPOSITORY / "single" / "stand_ins" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"stand_in_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


literals = stand_in("ahocorasick_rs")
processes = stand_in("psutil")


def words(chance: random.Random, most: int, longest: int) -> list[bytes]:
    return [
        bytes(chance.choices(ALPHABET, k=chance.randint(1, longest))) for _ in range(chance.randint(1, most))
    ]


def test_literals_are_found_in_the_same_places_and_the_same_order() -> None:
    chance = random.Random(20261125)
    num_found = 0
    for _ in range(1000):
        patterns, text = words(chance, 9, 5), b"".join(words(chance, 40, 4))
        real = ahocorasick_rs.BytesAhoCorasick(patterns, implementation=ahocorasick_rs.Implementation.DFA)
        pure = literals.BytesAhoCorasick(patterns, implementation=literals.Implementation.DFA)
        for overlapping in (True, False):
            found = real.find_matches_as_indexes(text, overlapping=overlapping)
            assert pure.find_matches_as_indexes(text, overlapping=overlapping) == found, (patterns, text)
            num_found += len(found)
    assert num_found > 1000


def test_the_hits_in_recorded_logs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = signatures(build())
    logs = [path.read_bytes() for path in sorted(RECORDINGS.rglob("*.log"))[::3]]
    native = [found_in(log, wanted) for log in logs]
    for module in (line_filter, log_windows):
        monkeypatch.setattr(module, "BytesAhoCorasick", literals.BytesAhoCorasick)
    monkeypatch.setattr(line_filter, "Implementation", literals.Implementation)
    forget_automata()
    try:
        pure = [found_in(log, wanted) for log in logs]
    finally:
        forget_automata()
    assert sum(map(len, native)) > 100
    assert pure == native


def found_in(log: bytes, wanted: tuple[Signature, ...]) -> list[LogHit]:
    scanner = LogScanner(wanted)
    return [*scanner.feed(log), *scanner.flush()]


def forget_automata() -> None:
    """The cached automaton of a process for all its logs."""
    for value in vars(line_filter).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child that lives on, and one that has ended without being asked how."""
    script = "sleep 600 & (exit 3) & echo begun; kill -STOP $$; wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_processes_are_seen_as_psutil_sees_them(tree: subprocess.Popen[bytes]) -> None:
    mine, theirs = processes.Process(tree.pid), psutil.Process(tree.pid)
    assert mine.create_time() == pytest.approx(theirs.create_time(), abs=0.05)
    assert {each.pid for each in mine.children(recursive=True)} == {
        each.pid for each in theirs.children(True)
    }
    assert mine.memory_info().rss == pytest.approx(theirs.memory_info().rss, rel=0.5)
    assert mine.memory_full_info().pss == pytest.approx(theirs.memory_full_info().pss, rel=0.5)
    assert processes.virtual_memory().total == psutil.virtual_memory().total
    assert tree.pid in processes.pids()
    assert os.getpid() in {each.pid for each in processes.Process().children()} | {processes.Process().pid}


def test_processes_are_ended_and_waited_for() -> None:
    child: Any = subprocess.Popen(["sleep", "600"])
    process = processes.Process(child.pid)
    assert processes.wait_procs([process], timeout=0) == ([], [process])
    process.terminate()
    gone, alive = processes.wait_procs([process], timeout=60)
    assert (gone, alive) == ([process], [])
    with pytest.raises(processes.NoSuchProcess):
        process.kill()
    with pytest.raises(processes.NoSuchProcess):
        processes.Process(child.pid)
    child.wait()


def test_a_zombie_is_recognised_and_a_foreign_process_is_not_signalled() -> None:
    child = subprocess.Popen(["true"])
    process = processes.Process(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.status() == processes.STATUS_ZOMBIE == psutil.STATUS_ZOMBIE
    process._ticks -= 1  # as if the number had been given to another process
    with pytest.raises(processes.NoSuchProcess):
        process.terminate()
    assert child.wait() == 0
    for module in (psutil, processes):
        with pytest.raises(module.NoSuchProcess):
            module.Process(2**70)


def test_the_stand_ins_have_every_function_that_coach_calls() -> None:
    """A new use of either package needs its stand-in."""
    for name, module in (("psutil", processes), ("ahocorasick_rs", literals)):
        used = uses_of(name)
        assert used
        assert {word for word in used if not hasattr(module, word)} == set()


def uses_of(package: str) -> set[str]:
    used: set[str] = set()
    for path in (REPOSITORY / "coach").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if package not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == package:
                used |= {alias.name for alias in node.names}
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == package
            ):
                used.add(node.attr)
    return used
