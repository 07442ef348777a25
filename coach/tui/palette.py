"""Actions and places by name: `^p` lists the actions of the screen below it; `:` goes to a job, node, user,
run, recipe, rule or screen.

The actions come from the same table of keys as the footer and the help. Keys that confirm a plan or a command
are left out: the user confirms where the text is read. Textual's own provider is not used, because it reads
names as markup and other people choose the names of recipes. `:` searches only the data of the screens, and
asks Slurm nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import islice

from textual import on
from textual.app import SystemCommand
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.widgets import Input

from coach.analysis.queueing.arrays import group_id, is_part
from coach.render.text import printable
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.ports import RecipeKey, RuleTitle
from coach.tui.screen_specs import HOME, Kind, by_name
from coach.workflows.watching.table_views import BUILT_IN

_MAX_CHARACTERS = 200
"""Longer names are cut: other people choose them."""
_MAX_HITS = 50
_MAX_OFFERED = 20
"""How many places are listed before anything is typed."""
_JOB_ID = re.compile(r"\d{1,18}(?:_\d{1,9})?", re.ASCII)
_EQUAL, _BEGINS, _HOLDS, _HOLDS_WORDS = 1.0, 0.75, 0.5, 0.25


class Commands(Provider):
    """Searches the commands of `App.get_system_commands`."""

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

    `act` runs an action of the screen by its name.
    """
    launches = set(screen.context.launch_keys)
    offered = screen.keys()
    for key in offered:
        if key in launches or key.id == "palette" or key.is_answer or screen.reason_off(key) is not None:
            continue
        yield _command(key.description, key.label, key.tooltip, partial(act, screen, key.action))
    if screen.context.mode.is_live:
        for recipe in recipes:
            yield _command(f"launch {recipe.word}", recipe.key, recipe.title, partial(launch, recipe))


def _command(title: str, label: str | None, text: str, callback: Callable[[], object]) -> SystemCommand:
    help_text = "  ".join(filter(None, (label, text)))
    return SystemCommand(printable(title)[:_MAX_CHARACTERS], printable(help_text)[:_MAX_CHARACTERS], callback)


@dataclass(frozen=True, slots=True)
class Place:
    """A place that `:` can go to."""

    name: str
    """Its name, which other people may have chosen."""
    kind: str
    go: Callable[[], object]
    about: str = ""
    """Further words that find it."""

    def score(self, words: str) -> float:
        """How well these lower-case words match its name, from 0 (no match) to 1 (equal)."""
        name = self.name.casefold()
        if name == words:
            return _EQUAL
        if name.startswith(words):
            return _BEGINS
        if words in name:
            return _HOLDS
        if not self.about and " " not in words:  # most places; there may be tens of thousands
            return _HOLDS if words in self.kind else 0.0
        text = f"{self.kind} {name} {self.about}".casefold()
        if words in text:
            return _HOLDS
        return _HOLDS_WORDS if all(word in text for word in words.split()) else 0.0


def places_of(
    context: Context,
    recipes: Sequence[RecipeKey],
    go: Callable[..., object],
    launch: Callable[[RecipeKey], object],
) -> tuple[Place, ...]:
    """All places with a name. `go` opens a screen by its name and arguments; `launch` opens a recipe's
    plan."""
    places = [*_places(context, go)]
    if context.mode.is_live:
        places += [Place(recipe.word, "recipe", partial(launch, recipe)) for recipe in recipes]
    return tuple(places)


def _places(context: Context, go: Callable[..., object]) -> Iterator[Place]:
    yield Place("home", "the first screen", partial(go, HOME.name))
    for spec in by_name().values():
        if spec.name in _ABOUT_EVERYTHING and Kind.ASK not in spec.kinds:
            yield Place(spec.word, "screen", partial(go, spec.name))
    for view in (*BUILT_IN, *context.saved_views.values()):
        yield Place(view.name, "view", partial(go, HOME.name, "", view.name))
    snapshot = context.snapshot
    own_first = sorted(snapshot.jobs, key=lambda job: job.user != context.user)
    for run in snapshot.runs:
        yield Place(run.run_id, "run", partial(go, "job", run.run_id))
    for job in own_first:
        yield Place(f"{job.job_id} {job.name}", "job", partial(go, "job", job.job_id))
    yield from _ended_places(context, go)
    for node in snapshot.nodes:
        yield Place(node.name, "node", partial(go, "node", node.name))
    for user in dict.fromkeys(job.user for job in snapshot.jobs):
        yield Place(user, "user", partial(go, HOME.name, f"user:{user}"))


def _ended_places(context: Context, go: Callable[..., object]) -> Iterator[Place]:
    """Ended jobs that have left the queue, newest first: each job, and each array by its own number."""
    listed = context.jobs_by_id
    arrays = {group_id(job_id) for job_id in listed if is_part(job_id)}
    for past in context.answers.past_jobs:
        job = past.job
        if job.job_id in listed or past.run_id is not None or context.run_of_job(job.job_id) is not None:
            continue
        array = group_id(job.job_id)
        if is_part(job.job_id) and array not in arrays:
            arrays.add(array)
            yield Place(f"{array} {job.name}", "array that has ended", partial(go, "job", array))
        yield Place(f"{job.job_id} {job.name}", "job that has ended", partial(go, "job", job.job_id))


def rule_places(titles: Iterable[RuleTitle], go: Callable[..., object]) -> tuple[Place, ...]:
    """The pages of the rules and of the topics."""
    return tuple(
        Place(title.code, title.kind, partial(go, "rule", title.code), about=title.title) for title in titles
    )


_ABOUT_EVERYTHING = frozenset(
    {
        "runs",
        "where",
        "reservations",
        "history",
        "findings",
        "recipes",
        "drills",
        "cohort",
        "doctor",
    }
)
"""Screens that open without the name of a job, node or run."""


class Places(Provider):
    """Searches the places of the open GoTo palette."""

    @property
    def _places(self) -> Iterable[Place]:
        palette = self.app.screen
        return palette.places if isinstance(palette, GoTo) else ()

    async def discover(self) -> Hits:
        for place in islice(self._places, _MAX_OFFERED):
            yield DiscoveryHit(_shown_place(place), place.go, place.name)

    async def search(self, query: str) -> Hits:
        palette = self.app.screen
        found = palette.best(query, _MAX_HITS) if isinstance(palette, GoTo) else []
        for score, place in found:
            yield Hit(score, _shown_place(place), place.go, place.name)


def _shown_place(place: Place) -> Content:
    words = f"{place.kind} · {place.about}" if place.about else place.kind
    return Content.assemble(
        printable(place.name)[:_MAX_CHARACTERS],
        "  ",
        (printable(words)[:_MAX_CHARACTERS], "$text-muted"),
    )


class GoTo(CommandPalette):
    """Asks for a name and goes there."""

    def __init__(
        self,
        places: Sequence[Place],
        go: Callable[..., object],
        asked: str = "a job, node, user, run, recipe, rule, topic, view or screen…",
    ) -> None:
        """`go` opens a screen by its name and arguments; `asked` is the hint in the empty field."""
        super().__init__(providers=[Places], placeholder=asked)
        self.places = tuple(places)
        self._go = go

    def best(self, query: str, limit: int) -> list[tuple[float, Place]]:
        """Scores and places, best first. A job id leads to the job even if no list has it."""
        words = query.casefold().strip()
        scored = ((place.score(words), place) for place in self.places)
        found = nlargest(limit, (each for each in scored if each[0]), key=lambda each: each[0])
        if _JOB_ID.fullmatch(words) and not any(place.name.split()[:1] == [words] for _, place in found):
            found = [(_EQUAL, Place(words, "job", partial(self._go, "job", words))), *found]
        return found

    def add(self, places: Sequence[Place]) -> None:
        """Add places, and search them for the text already typed."""
        self.places += tuple(places)
        if self.is_mounted and self.is_current:
            line = self.query_one(Input)
            if line.value:
                line.post_message(Input.Changed(line, line.value))

    @on(Input.Changed)
    def _look_no_more(self, event: Input.Changed) -> None:
        """Ignore a letter that is reported after Enter: the list of matches is gone by then."""
        if not self.is_current:
            event.stop()
            event.prevent_default()

    @on(Input.Submitted)
    def _take_first(self, event: Input.Submitted) -> None:
        """Enter takes the best match of the typed text, because the list may still show the matches of fewer
        letters. If the user has moved the cursor, Textual's own handler takes the row under it."""
        commands = self.query_one(CommandList)
        if commands.highlighted:
            return
        found = self.best(event.value, 1) if event.value.strip() else []
        if found:
            event.stop()
            event.prevent_default()
            self.workers.cancel_node(self)  # a running search would fail without the list
            self.dismiss()
            self.app.call_later(found[0][1].go)
        elif commands.option_count:
            commands.highlighted = 0
