"""Keys and pastes are done one after the other, each before the next one is looked at.

Textual gives a character to the widget that has the focus, which inserts it in its own time, and runs an
action when the key has come back from there. Of `Backspace 2` in one packet the 2 would come first; of `Tab
2`, the 2 would be typed into the field before.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import App, ScreenStackError
from textual.widgets import Input

from coach.tui.widgets.text_field import TextField


async def done_at_once(app: App[Any], event: events.Event) -> bool:
    """Type a character or a paste into the field that has the focus, or run a key's action.

    False: Textual does it.
    """
    if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
        return False
    try:
        screen = app.screen
    except ScreenStackError:  # the last screen closes
        return False
    field = screen.focused
    if isinstance(event, events.Paste):
        if isinstance(field, Input):
            line = next(iter(event.text.splitlines()), "")
            field.replace("".join(filter(str.isprintable, line)), *field.selection)
        return isinstance(field, Input)
    if isinstance(field, Input) and event.character is not None and event.is_printable:
        if not (isinstance(field, TextField) and field.takes(event.character)):
            field.replace(event.character, *field.selection)
        return True
    active = screen.active_bindings.get(event.key)
    if active is None or not active.enabled:
        return False
    return await app.run_action(active.binding.action, active.node)
