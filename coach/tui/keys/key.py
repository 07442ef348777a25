"""The class Key, of which the tables of keys consist."""

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
    """The key as the screens show it: `Enter`, `Tab`, `x`."""
    word: str = ""
    """One word for the footer; empty if the footer does not show it."""
    description: str
    tooltip: str = ""
    places: frozenset[Kind | str]
    """The screens where it works: kinds of screens, and names of single screens."""
    elsewhere: str = ""
    """The note on a screen where it does nothing: its action, and the way to a screen where it works. Empty
    if it works everywhere, or if another entry of the same key has the note."""
    action: str
    opens: str | None = None
    """The screen that it opens; it does nothing on that screen."""
    is_change: bool = False
    """True if it leads to a launch, a cancellation or another change."""
    switch: Switch | None = None
    """The site's switch that turns this key off."""
    is_answer: bool = False
    """True if it confirms the question on the screen."""
    is_of_story: bool = False
    """True if it belongs to the demo's captions; it exists only in the demo."""
    is_priority: bool = False
    """True if it works even while a field is edited."""

    def works_on(self, spec: ScreenSpec) -> bool:
        """True if it is a key of this screen. It may still be off there."""
        if spec.name == self.opens:
            return False
        return spec.name in self.places or not self.places.isdisjoint(spec.kinds)
