"""A line of text that is typed. The app gives it each key at once, before it looks at the next one.

Textual inserts characters in the field's own queue and runs Backspace, the arrows and Enter later, as
bindings: of `Backspace 2` in one packet the 2 comes first.
"""

from __future__ import annotations

from textual.widgets import Input


class TextField(Input):
    """Its text is selected when it gets the focus (`CoachScreen.set_focus`)."""

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
            select_on_focus=False,  # Textual's comes later than the keys behind the one that gave the focus
        )
        self.cursor_blink = False
        self.is_held = False
        """True while its text must stay as it is."""

    def takes(self, character: str) -> bool:
        """True if a typed character is no text here, but did something else."""
        return False

    def replace(self, text: str, start: int, end: int) -> None:
        """Every edit comes through here."""
        if not self.is_held:
            super().replace(text, start, end)
