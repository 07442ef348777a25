"""What a key is. The tables of keys are made of it."""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.launching.site import Switch
from coach.tui.screen_specs import Kind, ScreenSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key. `action` is the method on the screen or, with `app.`, on the app.

    In `tooltip` and `elsewhere`, `{id}` stands for the label of the key with this id.
    """

    id: str
    key: str
    label: str
    """As it is shown: `Enter`, `Tab`, `x`."""
    word: str = ""
    """One word for the footer; empty: not shown there."""
    description: str
    tooltip: str = ""
    places: frozenset[Kind | str]
    """The screens where it works: kinds, and names of single ones."""
    elsewhere: str = ""
    """What it does and how to get there, said on a screen where it does nothing. Empty: it works everywhere,
    or another entry of the same key says it."""
    action: str
    opens: str | None = None
    """The screen that it opens, and on which it does nothing."""
    is_change: bool = False
    """True if it leads to something being launched, cancelled or relaunched."""
    switch: Switch | None = None
    """What a site can switch off, and with it this key."""
    is_answer: bool = False
    """True if it says yes to the question on the screen."""
    is_of_story: bool = False
    """True if it is a key of the demo's captions: elsewhere there is no such key."""
    is_priority: bool = False
    """True if it works even while a field is edited."""

    def works_on(self, spec: ScreenSpec) -> bool:
        """True if it is a key of this screen; it may be off there all the same."""
        if spec.name == self.opens:
            return False
        return spec.name in self.places or not self.places.isdisjoint(spec.kinds)
