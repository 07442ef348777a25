"""The table of all keys: the action of each, the screens where it works, and why it may be off.

Footer, help and palette are built from this table, so they agree. A letter has the same meaning on every
screen. The config may replace a key (`keys_in_force`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_letters
from types import MappingProxyType

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.launching.site import Switch
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from coach.tui.screen_specs import SCREENS, Kind, ScreenSpec


@dataclass(frozen=True, slots=True)
class Key:
    """One key: a row of the table.

    In `tooltip` and `elsewhere`, `{id}` stands for the label of the key with this id.
    """

    id: str
    press: str
    """What is pressed, as in the config: `x`, `/`, `enter`, `ctrl+r`."""
    word: str
    """One word for the footer; empty if the footer does not show it."""
    description: str
    tooltip: str
    places: tuple[Kind | str, ...]
    """The screens where it works: kinds of screens, and names of single screens."""
    elsewhere: str = ""
    """The note on a screen where it does nothing: its action, and the way to a screen where it works. Empty
    if it works everywhere, or if another entry of the same key has the note."""
    method: str = ""
    """The method on the screen or, with `app.`, on the app. Without it: `app.open_screen` of the screen that
    the key opens, else the method of the key's id."""
    opens: str = ""
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

    @property
    def key(self) -> str:
        """Textual's name of the key."""
        if len(self.press) > 1 or self.press.isalnum():
            return self.press
        name = unicodedata.name(self.press, self.press).lower().replace("-", "_").replace(" ", "_")
        return KEY_NAME_REPLACEMENTS.get(name, name)

    @property
    def label(self) -> str:
        """The key as the screens show it: `Enter`, `^r`, `x`."""
        if len(self.press) == 1:
            return self.press
        if self.press.startswith("ctrl+"):
            return f"^{self.press[-1]}"
        return "Esc" if self.press == "escape" else self.press.capitalize()

    @property
    def action(self) -> str:
        """Textual's action of the key."""
        return self.method or (f"app.open_screen('{self.opens}')" if self.opens else self.id)

    def works_on(self, spec: ScreenSpec) -> bool:
        """True if it is a key of this screen. It may still be off there."""
        if spec.name == self.opens:
            return False
        return spec.name in self.places or not spec.kinds.isdisjoint(self.places)


_ANY = (Kind.ANY,)
_SHOWS = (Kind.SHOW,)
_LISTS = (Kind.LIST,)
_TABLES = (Kind.TABLE,)
_JOBS = (Kind.JOBS,)
_HOME = ("cluster",)
_LOG = ("log",)

_OPEN_KEYS = (
    Key(
        "open",
        "enter",
        "open",
        "Open the row under the cursor",
        "A run's screen; a job's or a node's detail; a recipe's plan",
        _LISTS,
        "opens a row of a list: there is none to open here",
    ),
    Key(
        "findings",
        "enter",
        "findings",
        "All findings in full",
        "Every finding with its proof, and what could not be measured",
        ("job",),
        method="open",
    ),
    Key(
        "proof",
        "enter",
        "proof",
        "The line that proves the finding, in its log",
        "Of the marked finding, if there are several",
        ("finding",),
        method="open",
    ),
)
"""Enter: it goes on with the row under the cursor."""
_QUESTION_KEYS = (
    Key(
        "submit",
        "enter",
        "submit",
        "Submit exactly what is shown",
        "Only after the plan has been on the screen for 0.4 s",
        ("plan",),
        is_change=True,
        is_answer=True,
        is_priority=True,
    ),
    Key(
        "confirm",
        "y",
        "yes",
        "Do exactly what is shown",
        "Only after the question has been on the screen for 0.4 s; Enter never confirms",
        ("confirm", "fix", "foreign_fix", "stacks"),
        "says yes to a question: there is none here",
        is_change=True,
        is_answer=True,
    ),
    Key(
        "trial",
        "b",
        "try",
        "Try the fix for a few steps",
        "A short run with a time limit of its own, to compare before the full run; {trial} once more: "
        "the full run",
        ("fix",),
        "tries a fix for a few steps: show one with {fix} first",
        method="toggle_trial",
    ),
    Key(
        "parent",
        "p",
        "parent",
        "Choose: cancel, keep or wait for the parent",
        "Cancel the parent, keep it, or wait for its end",
        ("fix",),
        "chooses what happens to a parent run: show a fix with {fix} first",
        method="next_choice",
    ),
    Key(
        "choose",
        "enter",
        "name it",
        "Name this cause, or give up",
        "Only after the list has been on the screen for 0.4 s",
        ("answer",),
        is_change=True,
        is_answer=True,
    ),
)
"""Of the screens that ask for confirmation or an answer."""
_RUN_KEYS = (
    Key(
        "fix",
        "F",
        "fix",
        "Show the change that a fix makes",
        "The changed launch as a diff: y relaunches. For a job that coach did not launch: a form that "
        "submits its script again, or advice if no change of the launch helps",
        (Kind.JOBS, "finding", "findings", "history", "runs"),
        "shows a fix, or submits a job again: choose one in the queue",
        is_change=True,
    ),
    Key(
        "explain",
        "E",
        "",
        "Explain what is under the cursor",
        "Each value of a row: meaning, source, age, next step; of a finding the page of its rule",
        (Kind.LIST, "explained", "finding", "gpus", "job", "node"),
        "explains a row or a finding: go to one first",
        method="explain",
        opens="rule",
    ),
    Key(
        "copy",
        "Y",
        "",
        "Copy: a row's id, or a job's findings as Markdown",
        "Into tmux's buffer, else into the terminal's clipboard",
        ("cluster", "finding", "findings", "job", "runs"),
        "copies the id of a row or job: choose one in the queue first",
    ),
    Key(
        "compare",
        "c",
        "compare",
        "Compare two runs",
        "The marked runs, up to six, a run with its parent or child, or all runs of a sweep",
        ("cluster", "history", "job", "runs"),
        "compares two runs: open one with {runs}",
        method="compare",
        opens="compare",
    ),
    Key(
        "mark",
        "m",
        "mark",
        "Mark a run to compare",
        "Two to six marked runs can be compared with {compare}",
        ("runs",),
        "marks a run to compare: list them with {runs} first",
    ),
)
"""Of runs and findings."""
_JOB_KEYS = (
    Key(
        "cancel",
        "x",
        "cancel",
        "Cancel your job",
        "Shows the exact command and asks; all marked jobs, if there are any",
        (Kind.JOBS, "runs"),
        "cancels a job: choose one in the queue first",
        method="act('cancel')",
        switch=Switch.CANCEL,
        is_change=True,
    ),
    Key(
        "select",
        "space",
        "select",
        "Select a job, go to the next row",
        "The next action applies to every selected job, and ends the selection; so does {back}",
        _HOME,
        "selects jobs: it works in the queue",
    ),
    Key(
        "hold",
        "h",
        "",
        "Hold: keep it from starting",
        "Your waiting jobs; {release} lets them start",
        _JOBS,
        "holds a waiting job: choose one in the queue first",
        method="act('hold')",
        switch=Switch.HOLD,
        is_change=True,
    ),
    Key(
        "release",
        "U",
        "",
        "Release: let a held job start",
        "Only an administrator releases a job that an administrator held",
        _JOBS,
        "releases a held job: choose one in the queue first",
        method="act('release')",
        switch=Switch.HOLD,
        is_change=True,
    ),
    Key(
        "requeue",
        "Q",
        "",
        "Requeue: back into the queue",
        "It starts again, from its first line",
        _JOBS,
        "requeues a job: choose one in the queue first",
        method="act('requeue')",
        switch=Switch.REQUEUE,
        is_change=True,
    ),
    Key(
        "timelimit",
        "T",
        "",
        "Lower the time limit",
        "A shorter job may start sooner; only an administrator raises a limit",
        _JOBS,
        "lowers a job's time limit: choose one in the queue first",
        method="act('timelimit')",
        switch=Switch.TIMELIMIT,
        is_change=True,
    ),
    Key(
        "resubmit",
        "A",
        "",
        "Again: submit the same job once more",
        "A run by its plan; another job by its script; of an array the failed or the selected tasks",
        (Kind.JOBS, "history", "runs"),
        "submits a job again: choose one in the queue first",
        method="act('resubmit')",
        switch=Switch.RESUBMIT,
        is_change=True,
    ),
    Key(
        "resume",
        ">",
        "",
        "Resume: the same run goes on",
        "Your ended run, from its newest whole checkpoint, in its own directory",
        (Kind.JOBS, "history", "runs"),
        "resumes an ended run: choose one with {runs} first",
        method="act('resume')",
        switch=Switch.RESUBMIT,
        is_change=True,
    ),
    Key(
        "shell",
        "!",
        "",
        "A shell in the allocation",
        "On the first node of your running job, beside what runs there; it costs a job step",
        _JOBS,
        "opens a shell in a job: choose one in the queue first",
        method="act('shell')",
        switch=Switch.SHELL,
        is_change=True,
    ),
    Key(
        "attach",
        "t",
        "",
        "Telemetry: measure inside a job",
        "Your running job that coach did not launch; a question shows the step and its cost",
        _JOBS,
        "measures inside a job: choose one in the queue first",
        method="act('attach')",
        switch=Switch.ATTACH,
        is_change=True,
    ),
    Key(
        "stacks",
        "S",
        "stacks",
        "Stacks: where each rank is in its code",
        "Finds the rank that a hang waits for; asks first for a job that coach did not launch",
        (Kind.JOBS, "history", "runs", "stacks"),
        "shows the stacks of all ranks: choose a job in the queue first",
        switch=Switch.STACKS,
        is_change=True,
    ),
    Key(
        "log",
        "l",
        "log",
        "The log of your job",
        "Both streams, wherever the job writes them; at the line of the cause, if it is known",
        (Kind.JOBS, "finding", "findings", "history", "runs"),
        "opens a job's log: choose one in the queue first",
        method="open_log",
        opens="log",
    ),
    Key(
        "all",
        "a",
        "own/all",
        "Own jobs or everybody's",
        "Switches the queue between your jobs and all",
        _HOME,
        "shows your jobs or everybody's: it works in the queue",
        method="toggle_all",
    ),
    Key(
        "unfold",
        "u",
        "tasks",
        "A row for each task of the array",
        "Also for the parts of a heterogeneous job; {unfold} folds them again",
        _HOME,
        "unfolds an array: it works in the queue",
    ),
)
"""Actions on a job, and questions about it."""
_TABLE_KEYS = (
    Key(
        "filter",
        "/",
        "filter",
        "Filter the rows",
        "Every word must be true; in the queue also state:pending gpu:>0 user:me -word; {back} clears",
        (Kind.LIST, "gpus"),
        "filters a list, or finds words in a log: here is neither",
    ),
    Key(
        "find",
        "/",
        "find",
        "Find words in the log",
        "Case counts if you type a capital; {next} and {previous} go on and back",
        _LOG,
    ),
    Key(
        "sort",
        "s",
        "sort",
        "Sort by the next column",
        "An arrow marks the column; after the last column the original order returns",
        _TABLES,
        "sorts a table by its columns: there is none here",
    ),
    Key(
        "reverse",
        "I",
        "",
        "Reverse the order",
        "The largest first, or the smallest",
        _TABLES,
        "reverses a table's order: there is none here",
    ),
    Key(
        "columns",
        "C",
        "",
        "Choose the columns",
        "Type the names in any order; an empty line restores the original columns",
        _TABLES,
        "chooses a table's columns: there is none here",
    ),
    Key(
        "views",
        "V",
        "",
        "Views: mine, failed today, a partition, your own",
        "A view is a filter, an order, columns, and own or all jobs; a new name keeps the view shown",
        _HOME,
        "chooses a view of the queue: it is on the first screen",
    ),
)
"""Of tables: filter, order, columns."""
_PANE_KEYS = (
    Key(
        "stdout",
        "o",
        "stdout",
        "Show the standard output",
        "The end of the file of standard output",
        ("job", "log"),
        "shows the standard output: open a job first",
        method="log('stdout.log')",
    ),
    Key(
        "stderr",
        "e",
        "stderr",
        "Show the standard error",
        "The end of the file of standard error",
        ("job", "log"),
        "shows the standard error: open a job first",
        method="log('stderr.log')",
    ),
    Key(
        "both",
        "B",
        "both",
        "Both streams merged, by the times of their lines",
        "o and e mark the lines of each; {both} shows one of them again",
        _LOG,
        "merges both streams of a log: open it with {log}",
    ),
    Key(
        "next_error",
        "]",
        "error",
        "The next line that reports an error",
        "Finds it by its words alone: a finding is far more reliable",
        _LOG,
        "goes to the next error of a log: open it with {log}",
    ),
    Key(
        "previous_error",
        "[",
        "",
        "The line before that reports an error",
        "",
        _LOG,
        "goes to the error before in a log: open it with {log}",
    ),
    Key(
        "wrap",
        "w",
        "wrap",
        "Wrap long lines, or cut them",
        "Cut lines end with ›; ← and → scroll",
        _LOG,
        "wraps the lines of a log: open it with {log}",
    ),
    Key(
        "numbers",
        "#",
        "",
        "The numbers of the lines",
        "",
        _LOG,
        "numbers the lines of a log: open it with {log}",
    ),
    Key(
        "pager",
        "O",
        "",
        "The log in your pager",
        "$PAGER, else less; coach comes back when you leave it",
        ("job", "log"),
        "opens a log in your pager: open a job first",
    ),
    Key(
        "gpus",
        "D",
        "gpus",
        "The GPUs of a job: now, over time, their processes",
        "Names the source and the age of each number; many GPUs become a heat map",
        (Kind.JOBS, "history", "runs"),
        "shows a job's GPUs: choose one in the queue first",
        method="gpus",
        opens="gpus",
    ),
    Key(
        "quantity",
        "M",
        "quantity",
        "Next quantity: enlarge its curve, or show it in the map",
        "Of a job: loss, GPUs, samples/s, data wait, step time; of GPUs or ranks: each measured quantity",
        ("compare", "gpus", "job"),
        "chooses the quantity of curves and maps: open a job first",
    ),
    Key(
        "scale",
        "Z",
        "",
        "A logarithmic scale of the loss, or a linear one",
        "A logarithmic scale cannot show values at or below 0",
        ("compare", "job"),
        "changes the scale of a loss: open a job or a comparison",
    ),
    Key(
        "answer",
        "i",
        "identify",
        "Identify the cause of a drill",
        "From a short list; a wrong answer shows the evidence against it",
        ("drills", "job"),
        "identifies a drill's cause: choose its row after {drills} first",
    ),
    Key(
        "next",
        "n",
        "next",
        "The next finding, fix or search hit",
        "Of all findings, primary first; the fix screen goes through the fixes of all findings",
        ("finding", "fix", "log"),
        "goes to the next finding: open a job's findings first",
    ),
    Key(
        "previous",
        "N",
        "",
        "The previous finding, fix or search hit",
        "",
        ("finding", "fix", "log"),
        "goes to the finding before: open a job's findings first",
    ),
    Key(
        "view",
        "v",
        "view",
        "The next view",
        "Of a recipe: lesson, diff against the step before, script; of GPUs: now, their past, "
        "processes, ranks; of a job: its cause, or all that the queue knows; of compared runs: table, "
        "curves by step, by time",
        ("compare", "gpus", "job", "recipes"),
        "turns the page of a job, its GPUs or a recipe: open one first",
    ),
)
"""They change how a screen shows its subject, or open a part of it."""
_SCREEN_KEYS = (
    Key(
        "where",
        "W",
        "where",
        "Where a job could start now",
        "Free GPUs of each partition by type, the most on one node, time limits, if you may use it",
        _SHOWS,
        "shows where a job could start: leave this with {back} first",
        opens="where",
    ),
    Key(
        "reservations",
        "K",
        "",
        "The reservations of the cluster",
        "Each with its time, its nodes and for whom it is; a job may wait for one to end",
        _SHOWS,
        "lists the reservations: leave this with {back} first",
        opens="reservations",
    ),
    Key(
        "history",
        "H",
        "history",
        "Your jobs that have ended",
        "Each with its use of time, CPU, memory and GPU",
        _SHOWS,
        "lists the jobs that have ended: leave this with {back} first",
        opens="history",
    ),
    Key(
        "runs",
        "r",
        "runs",
        "All your runs",
        "Newest first, with state, finding and parent",
        _SHOWS,
        "lists your runs: leave this with {back} first",
        opens="runs",
    ),
    Key(
        "all_findings",
        "f",
        "findings",
        "The findings of all your jobs",
        "The most GPU-hours lost first; of running jobs, and of jobs that ended within a day",
        (Kind.SHOW, "doctor", "help"),
        "lists the findings: leave this with {back} first",
        opens="findings",
    ),
    Key(
        "recipes",
        "R",
        "recipes",
        "All recipes, step by step",
        "Lesson, what a step changes, and a form for its parameters",
        _SHOWS,
        "lists the recipes: leave this with {back} first",
        opens="recipes",
    ),
    Key(
        "ladder",
        "=",
        "ladder",
        "The ladder of this recipe: a group of recipes",
        "Its plan; the table sets each result beside the figure that a document states",
        ("recipes",),
        "opens the ladder of a recipe: open {recipes} first",
        is_change=True,
        switch=Switch.LAUNCH,
    ),
    Key(
        "new_launch",
        "+",
        "",
        "A new launch: your trainings, commands, scripts",
        "Earlier commands and files of this directory, then the recipes; Enter shows the plan first",
        _SHOWS,
        "begins a new launch: leave this with {back} first",
        opens="new_launch",
    ),
    Key(
        "drills",
        "P",
        "drills",
        "Planted faults to practise on",
        "Launch one, name its cause from a short list, be shown the proof and the lesson",
        _LISTS,
        "lists the drills: press it in the queue",
        opens="drills",
    ),
    Key(
        "cohort",
        "L",
        "",
        "The state of everybody in the course",
        "State, samples/s, finding and solved drills of each person, as their runs share them; marks a "
        "long wait and a missing run",
        _LISTS,
        "shows how a course stands: press it in the queue",
        opens="cohort",
    ),
)
"""They open a screen from any other, without the name of a job or node."""
_COACH_KEYS = (
    Key(
        "pane",
        "tab",
        "pane",
        "Next pane or field",
        "Shift+Tab goes back",
        (Kind.SHOW, Kind.ASK),
        "goes to the next pane: there is one alone here",
        method="app.focus_next",
    ),
    Key(
        "zoom",
        "z",
        "zoom",
        "Enlarge the pane to the whole screen",
        "{back} or {zoom} gives it back",
        (Kind.PANES,),
        "gives a pane the whole screen: there is one pane here",
    ),
    Key(
        "detail",
        "|",
        "",
        "Hide the detail beside the list, or show it",
        "From 160 columns on; it follows the cursor. Your choice is kept",
        _HOME,
        "hides the detail beside the first screen's queue",
    ),
    Key(
        "refresh",
        "ctrl+r",
        "",
        "Read everything again now",
        "Otherwise coach reads at a pace that spares the controller",
        (Kind.SHOW, "doctor"),
        "reads everything again: leave this with {back} first",
        method="app.refresh_data",
    ),
    Key(
        "theme",
        "ctrl+t",
        "",
        "Other colours: night, day, for the colour-blind",
        "Until coach is left; `theme` in the config keeps one, also of Textual's",
        _ANY,
        method="app.next_theme",
    ),
    Key(
        "doctor",
        "d",
        "",
        "Doctor: check if launches work here",
        "Slurm, environments, directories, terminal; each failed check names its remedy",
        _SHOWS,
        "opens the doctor: leave this with {back} first",
        opens="doctor",
    ),
    Key(
        "back",
        "escape",
        "back",
        "One step back, or clear the filter",
        "Follows the names in the top line back; leaves a plan or a question, and changes nothing",
        _ANY,
        method="app.go_back",
    ),
    Key("help", "?", "keys", "Every key that works here", "", _ANY, method="app.open_help", opens="help"),
    Key(
        "story_next",
        ".",
        "",
        "The demo's next caption",
        "Goes to the first screen, with the cursor on the row that it explains; skips ahead in the "
        "recording if need be",
        _ANY,
        method="app.next_chapter",
        is_of_story=True,
    ),
    Key(
        "story_previous",
        ",",
        "",
        "The demo's caption before",
        "The recording continues",
        _ANY,
        method="app.previous_chapter",
        is_of_story=True,
    ),
    Key("palette", "ctrl+p", "", "Find an action by its name", "", _ANY, method="app.command_palette"),
    Key(
        "leave",
        "q",
        "quit",
        "One step back; on the first screen leave coach",
        "Jobs and runs continue",
        _ANY,
        method="app.leave",
    ),
    Key("quit", "ctrl+q", "", "Leave coach from anywhere", "Jobs and runs continue", _ANY, method="app.quit"),
    Key(
        "go_to",
        ":",
        "go to",
        "Go to a job, node, user, run, recipe, rule or screen by its name",
        "Part of a name is enough; {go_to} and Enter goes to the first screen",
        (Kind.SHOW, "doctor", "help"),
        "goes to anything by its name: leave this with {back} first",
        method="app.go_to",
    ),
)
"""Of the whole app: panes, refresh, help, leaving."""

GROUPS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    ("The question", _QUESTION_KEYS),
    ("Rows and tables", (*_OPEN_KEYS, *_TABLE_KEYS)),
    ("Runs and findings", _RUN_KEYS),
    ("Jobs", _JOB_KEYS),
    ("Panes and views", _PANE_KEYS),
    ("Screens", _SCREEN_KEYS),
    ("coach", _COACH_KEYS),
)
"""All keys, in the groups of the help."""
OWN_KEYS: tuple[Key, ...] = (*_OPEN_KEYS, *_QUESTION_KEYS, *_RUN_KEYS, *_JOB_KEYS, *_TABLE_KEYS, *_PANE_KEYS)
"""Keys that act on the content of a screen."""
GENERAL_KEYS: tuple[Key, ...] = (*_SCREEN_KEYS, *_COACH_KEYS)
"""Keys of the whole app; they stand after the others."""
KEYS: tuple[Key, ...] = (*OWN_KEYS, *GENERAL_KEYS)

SwitchedOff = Mapping[Switch, str]
"""Functions that the site has switched off, with its reasons."""
NOTHING_OFF: SwitchedOff = MappingProxyType({})

MOVES = (
    ("↑ ↓ j k", "Move by one line"),
    ("PgUp PgDn", "Move by one page"),
    ("Home End g G", "First and last line"),
    ("← →", "Scroll sideways"),
)


def launch_keys(recipes: Iterable[RecipeKey]) -> tuple[Key, ...]:
    """One launch key for each recipe that declares a key."""
    return tuple(
        Key(
            f"launch_{recipe.key}",
            recipe.key,
            recipe.word,
            f"Launch {recipe.word}",
            f"{recipe.title}. Shows the plan first; nothing is submitted before Enter",
            _SHOWS,
            method=f"app.launch('{recipe.key}')",
            is_change=True,
            switch=Switch.LAUNCH,
        )
        for recipe in recipes
        if recipe.key is not None
    )


def in_force(chosen: Mapping[str, str]) -> Mapping[str, Key]:
    """All keys by id. `chosen` has what is pressed for each remapped one, as the config says it."""
    keys = [replace(key, press=chosen.get(key.id, key.press)) for key in KEYS]
    labels = {key.id: key.label for key in keys}
    return MappingProxyType(
        {
            key.id: replace(
                key, tooltip=key.tooltip.format(**labels), elsewhere=key.elsewhere.format(**labels)
            )
            for key in keys
        }
    )


SHIPPED = in_force({})
"""All keys by id, without remapping."""


def keys_of(
    spec: ScreenSpec, more: Iterable[Key] = (), table: Mapping[str, Key] = SHIPPED
) -> tuple[Key, ...]:
    """The keys that work on a screen. Launch keys come before those of the whole app."""
    own, general = ([table[key.id] for key in keys] for keys in (OWN_KEYS, GENERAL_KEYS))
    return tuple(key for key in (*own, *more, *general) if key.works_on(spec))


def why_dead(
    pressed: str, character: str | None, spec: ScreenSpec, table: Mapping[str, Key] = SHIPPED
) -> str | None:
    """Why a key does nothing on a screen that does not have it. None if it is neither a character nor a key
    of any screen.

    `pressed` is Textual's name of the key, `character` the character that it types.
    """
    found = [key for key in table.values() if key.key == pressed]
    if any(key.opens == spec.name for key in found):
        return f"{found[0].label} opens this screen: you are there"
    for key in found:
        if key.elsewhere:
            return f"{key.label} {key.elsewhere}"
    return None if character is None else f"{character} is no key: {table['help'].label} lists the keys"


def bindings_of(spec: ScreenSpec) -> list[BindingType]:
    """Textual's bindings of a screen. The app's own keys are bound there too, so that one table is enough."""
    return [
        Binding(
            key.key,
            key.action,
            key.description,
            id=spec.binding_id(key.id),
            priority=key.is_priority,
            show=False,
        )
        for key in KEYS
        if key.works_on(spec)
    ]


def can_launch(mode: Mode, switched_off: SwitchedOff) -> bool:
    """True if neither the mode nor the site forbids launches."""
    return mode.is_live and Switch.LAUNCH not in switched_off


def reason_off(
    key: Key, mode: Mode, why_readonly: str | None = None, switched_off: SwitchedOff = NOTHING_OFF
) -> str | None:
    """Why a key does nothing; None if it works. `why_readonly` is the reason if the settings forbid changes;
    `switched_off` has the site's reason for each switch that is off."""
    if mode.is_live and key.switch is not None:
        return switched_off.get(key.switch)
    if not key.is_change or mode.is_live:
        return None
    if mode is Mode.READONLY:
        return why_readonly or "coach was opened read-only"
    if mode is Mode.ROOT:
        return "you are root; `coach --as-root` allows it"
    return "this is a recording: nothing in it can be changed"


@dataclass(frozen=True, slots=True)
class KeysInForce:
    """The keys by the settings; without arguments, the shipped keys."""

    table: Mapping[str, Key] = field(default_factory=lambda: SHIPPED)
    """All keys by id."""
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Textual's keymap: for each changed binding, its id → its key."""


def keys_in_force(settings: Settings) -> KeysInForce:
    """The keys by the settings. Raises UserError if two actions on one screen would have the same key."""
    table = in_force(settings.chosen_keys)
    for key_id, press in settings.chosen_keys.items():
        taken = next(_taken(table, table[key_id]), None)
        if taken is not None:
            place = settings.origins.get(f"keys.{key_id}", "config")
            used = {key.label for key in (*KEYS, *table.values())}
            free = sorted(set(ascii_letters) - used - _moves())
            raise UserError(f"{place}: keys.{key_id} = {press!r}: {taken}", f"free: {' '.join(free)}")
    keymap = {
        spec.binding_id(key_id): table[key_id].key
        for key_id in settings.chosen_keys
        for spec in SCREENS
        if table[key_id].works_on(spec)
    }
    return KeysInForce(table, keymap)


def _taken(table: Mapping[str, Key], chosen: Key) -> Iterator[str]:
    """Other actions that already have the key chosen for this one."""
    if chosen.key in _moves():
        yield "it moves in every list and text"
    for spec in SCREENS:
        if chosen.works_on(spec):
            yield from _taken_on(spec, table, chosen)


def _taken_on(spec: ScreenSpec, table: Mapping[str, Key], chosen: Key) -> Iterator[str]:
    for other in table.values():
        if other.key == chosen.key and other.id != chosen.id and other.works_on(spec):
            yield f"on the {spec.word} screen it is keys.{other.id} ({other.description})"


def _moves() -> frozenset[str]:
    """Letters that move the cursor."""
    return frozenset(word for keys, _ in MOVES for word in keys.split() if len(word) == 1 and word.isalpha())
