"""The palette: what can be done on the screen below it, by name.

Made of the same table as the footer and the help. What answers a question is not in it: a plan or a command
is confirmed where it is read. Textual's own provider would read the names as markup, and recipes are named by
other people.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from textual.app import SystemCommand
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from coach.tui.bases.screen import CoachScreen
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from coach.tui.render.text import printable

_MAX_CHARACTERS = 200
"""A name may be as long as its author likes."""


class Commands(Provider):
    """Searches what `App.get_system_commands` offers."""

    async def discover(self) -> Hits:
        for command in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(_shown(Content(command.title), command.help), command.callback, command.title)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self.app.get_system_commands(self.screen):
            score, offsets = matcher.fuzzy_search.match(query, command.title)
            if score <= 0:
                continue
            title = Content(command.title)
            for offset in offsets:
                title = title.stylize(matcher.match_style, offset, offset + 1)
            yield Hit(score, _shown(title, command.help), command.callback, command.title)


def _shown(title: Content, text: str) -> Content:
    return Content.assemble(title, "\n", (text, "$text-muted"))


def commands_of(
    screen: CoachScreen,
    recipes: Sequence[RecipeKey],
    act: Callable[[CoachScreen, str], Awaitable[object]],
    launch: Callable[[RecipeKey], object],
) -> Iterator[SystemCommand]:
    """The keys that work on this screen now, then a launch for each recipe.

    `act` runs an action of the screen.
    """
    launches = set(screen.context.launch_keys)
    offered = screen.keys()
    for key in offered:
        if key in launches or key.id == "palette" or key.is_answer or screen.reason_off(key) is not None:
            continue
        yield _command(key.description, key.label, key.tooltip, partial(act, screen, key.action))
    if screen.context.mode is Mode.LIVE:
        for recipe in recipes:
            yield _command(f"launch {recipe.word}", recipe.key, recipe.title, partial(launch, recipe))


def _command(title: str, label: str | None, text: str, callback: Callable[[], object]) -> SystemCommand:
    help_text = "  ".join(filter(None, (label, text)))
    return SystemCommand(printable(title)[:_MAX_CHARACTERS], printable(help_text)[:_MAX_CHARACTERS], callback)
