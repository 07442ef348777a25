from __future__ import annotations

import threading

from coach.workflows.sharing import Aside


def test_what_hangs_aside_holds_up_nobody_and_newer_news_take_the_place_of_older() -> None:
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
