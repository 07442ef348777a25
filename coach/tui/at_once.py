"""Handles each key or paste completely before the next one.

Textual passes a character to the widget with the focus, which inserts it later, and runs an action only after
the key returns from there. If keys arrive in one packet, their order would change: of `Backspace 2`, the 2
would be typed first; of `Tab 2`, the 2 would go into the previous field.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import App, ScreenStackError
from textual.widgets import Input

from coach.tui.widgets.text_field import TextField


async def done_at_once(app: App[Any], event: events.Event) -> bool:
    """Type a character or a paste into the field that has the focus, or run a key's action.

    False: Textual must handle the event.
    """
    if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
        return False
    try:
        screen = app.screen
    except ScreenStackError:  # the last screen is closing
        return False
    field = screen.focused
    if isinstance(event, events.Paste):
        if isinstance(field, Input):
            line = next(iter(event.text.splitlines()), "")
            field.replace("".join(filter(str.isprintable, line)), *field.selection)
        return isinstance(field, Input)
    typed = event.character if event.is_printable else None
    if isinstance(field, Input) and typed is not None and _is_typed(field, typed):
        return True
    active = screen.active_bindings.get(event.key)
    if active is None or not active.enabled:
        return False
    return await app.run_action(active.binding.action, active.node)


def _is_typed(field: Input, character: str) -> bool:
    """Type a character into the field. False: the field leaves it to the keys."""
    if not isinstance(field, TextField):
        field.replace(character, *field.selection)
        return True
    if field.leaves(character):
        return False
    if not field.takes(character):
        field.replace(character, *field.selection)
    return True
