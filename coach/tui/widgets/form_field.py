"""A field of a form: Up and Down move among the form's fields, and `?` lists the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from coach.tui.widgets.text_field import TextField

HELP_CHARACTER = "?"


class FormField(TextField):
    """One value of a form. Up and Down stay among the fields; Tab leaves them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "field(-1)", "Field above", show=False),
        Binding("down", "field(1)", "Field below", show=False),
    ]

    def action_field(self, by: int) -> None:
        """Give the focus to a neighbour that the user can edit. The first and the last field keep it."""
        fields = [field for field in self.screen.query(FormField) if field.focusable]
        at = fields.index(self) + by
        if 0 <= at < len(fields):
            self.screen.set_focus(fields[at])

    def leaves(self, character: str) -> bool:
        """`?` is a key as long as the user has not begun to edit the field: its text is selected whole."""
        is_untouched = len(self.selected_text) == len(self.value)
        return character == HELP_CHARACTER and is_untouched

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return not (character and self.leaves(character)) and super().check_consume_key(key, character)
