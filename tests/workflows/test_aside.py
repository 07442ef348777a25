from __future__ import annotations

import threading

import pytest

from coach.workflows.sharing import Aside


def test_hanging_work_delays_no_caller_and_newer_work_of_a_kind_replaces_older() -> None:
    aside, done, goes_on = Aside(), list[str](), threading.Event()
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        goes_on.wait(60)

    aside.do("hangs", hang)
    assert begun.wait(60)
    aside.do("queue", lambda: done.append("old"))
    aside.do("end", lambda: done.append("end"))
    aside.do("queue", lambda: done.append("new"))
    aside.wait(0.0)
    assert done == []
    goes_on.set()
    aside.wait(60)
    assert done == ["new", "end"]


def test_work_that_fails_does_not_stop_later_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    aside, done = Aside(), list[str]()

    def fail() -> None:
        raise ValueError("not foreseen")

    aside.do("fails", fail)
    aside.wait(60)
    aside.do("end", lambda: done.append("end"))
    aside.wait(60)
    assert done == ["end"]
