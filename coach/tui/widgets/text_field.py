"""A one-line text field. The app gives it each key at once, before it handles the next one.

Textual inserts characters through the field's own queue, and runs Backspace, the arrows and Enter later, as
bindings: of `Backspace 2` in one packet, the 2 would come first.
"""

from __future__ import annotations

from textual.widgets import Input


class TextField(Input):
    """The field. Its text is selected when it gets the focus (`CoachScreen.set_focus`)."""

    def __init__(
        self,
        value: str | None = None,
        placeholder: str = "",
        *,
        restrict: str | None = None,
        id: str | None = None,
        classes: str | None = None,
        disabled: bool = False,
    ) -> None:
        super().__init__(
            value,
            placeholder,
            restrict=restrict,
            id=id,
            classes=classes,
            disabled=disabled,
            compact=True,
            select_on_focus=False,  # Textual would select only after keys that have already arrived
        )
        self.cursor_blink = False
        self.is_held = False
        """True while its text must stay as it is."""

    def leaves(self, character: str) -> bool:
        """True if a typed character is not for the field: it keeps its meaning as a key."""
        return False

    def takes(self, character: str) -> bool:
        """True if the field handles a typed character itself, and does not insert it."""
        return False

    def replace(self, text: str, start: int, end: int) -> None:
        """Replace a part of the text. Every edit passes through this method."""
        if not self.is_held:
            super().replace(text, start, end)
