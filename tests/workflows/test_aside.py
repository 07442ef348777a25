from __future__ import annotations

import threading

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
