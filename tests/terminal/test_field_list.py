"""A list of fields after it has scrolled, as painted in a real terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from tests.terminal.tmux import Terminal

FIELDS = """
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import Input, Static
from coach.tui.widgets.field_list import FieldList

class Fields(App):
    AUTO_FOCUS = None
    CSS = "Horizontal { height: 1; } Static { width: 12; }"
    BINDINGS = [("d", "down", "scroll"), ("s", "scroll", "scroll while the last label changes")]

    def compose(self):
        with FieldList():
            for number in range(60):
                yield Horizontal(Static(f"label{number:02}"), Input(f"value{number:02}", compact=True))

    def action_down(self):
        self.query_one(FieldList).scroll_to(y=3, animate=False)

    def action_scroll(self):
        fields = self.query_one(FieldList)
        fields.scroll_to(y=7, animate=False, immediate=True)
        fields.children[-1].region
        self.query(Static).last().update("changed")

Fields().run()
"""


def test_every_label_stands_beside_its_own_value_after_scrolling(
    open_terminal: Callable[..., Terminal],
) -> None:
    terminal = open_terminal([sys.executable, "-c", FIELDS], columns=80, rows=24)
    terminal.wait_for("label00")
    terminal.send("d")
    terminal.wait_gone("label01")
    terminal.send("s")
    screen = terminal.wait_gone("label04")
    pairs = re.findall(r"label(\d\d) +value(\d\d)", screen)
    assert len(pairs) >= 20
    assert all(label == value for label, value in pairs)
