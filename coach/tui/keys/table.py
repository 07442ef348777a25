"""Every key, once: what it does, where it works, and why it is off.

Footer, help and palette are made of this table, so they cannot disagree; a letter has one meaning on every screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from textual.binding import Binding, BindingType

from coach.tui.keys.jobs import JOB_KEYS
from coach.tui.keys.key import ASKS, EVERYWHERE, JOBS, LISTS, SHOWS, Key
from coach.tui.ports import RecipeKey


class Mode(Enum):
    """How coach was opened, as far as it takes actions away. The value is the watermark."""

    LIVE = ""
    READONLY = "READONLY"
    ROOT = "READONLY: root"
    REPLAY = "REPLAY"
    DEMO = "DEMO"


KEYS: tuple[Key, ...] = (
    Key(
        "open",
        "enter",
        "Enter",
        "open",
        "Open what the cursor is on",
        "A run's screen; a job's or a node's detail; a recipe's plan",
        LISTS,
        "open",
    ),
    Key(
        "findings",
        "enter",
        "Enter",
        "findings",
        "All findings, whole",
        "Every finding with its proof, and what could not be measured",
        frozenset({"run"}),
        "open",
    ),
    Key(
        "submit",
        "enter",
        "Enter",
        "submit",
        "Submit exactly what is shown",
        "Only after the plan has been on the screen for 0.3 s",
        frozenset({"plan"}),
        "submit",
        True,
        True,
    ),
    Key(
        "confirm",
        "y",
        "y",
        "yes",
        "Do exactly what is shown",
        "Only after the question has been on the screen for 0.3 s; Enter never confirms",
        frozenset({"confirm", "fix", "stacks"}),
        "confirm",
        True,
    ),
    Key(
        "fix",
        "F",
        "F",
        "fix",
        "Show what a fix would change",
        "The changed launch as a diff, nothing happens before y; of a job that coach did not launch, its script as a diff; advice where no change mends it",
        frozenset({"run", "finding", "job"}),
        "fix",
        True,
    ),
    Key(
        "next_fix",
        "n",
        "n",
        "next fix",
        "Show the next fix",
        "Goes through the fixes of all findings, primary first",
        frozenset({"fix"}),
        "next_fix",
    ),
    Key(
        "trial",
        "b",
        "b",
        "try",
        "Try the fix for a few steps",
        "A short run with a time limit of its own, to be compared before the whole is launched again; b once more: the whole",
        frozenset({"fix"}),
        "toggle_trial",
    ),
    Key(
        "parent",
        "p",
        "p",
        "parent",
        "What becomes of the running parent",
        "Cancelled, kept, or waited for",
        frozenset({"fix"}),
        "next_choice",
    ),
    Key(
        "compare",
        "c",
        "c",
        "compare",
        "Compare two runs",
        "The two marked runs, a run with its parent, or all runs of a sweep",
        frozenset({"runs", "run"}),
        "compare",
    ),
    Key(
        "mark",
        "m",
        "m",
        "mark",
        "Mark a run to compare",
        "Two marked runs can be compared with c",
        frozenset({"runs"}),
        "mark",
    ),
    Key(
        "cancel",
        "x",
        "x",
        "cancel",
        "Cancel your job",
        "Shows the exact command and asks; all marked jobs, if there are any",
        JOBS | {"runs"},
        "act('cancel')",
        True,
    ),
    *JOB_KEYS,
    Key(
        "stdout",
        "o",
        "o",
        "stdout",
        "Show the standard output",
        "The end of stdout.log",
        frozenset({"run", "log"}),
        "log('stdout.log')",
    ),
    Key(
        "stderr",
        "e",
        "e",
        "stderr",
        "Show the standard error",
        "The end of stderr.log",
        frozenset({"run", "log"}),
        "log('stderr.log')",
    ),
    Key(
        "gpus",
        "D",
        "D",
        "gpus",
        "The devices: every GPU, their past, the processes",
        "With where each number comes from and how old it is; a heat map where there are many",
        frozenset({"run", "job"}),
        "gpus",
    ),
    Key(
        "quantity",
        "M",
        "M",
        "quantity",
        "What the heat map shows",
        "SM activity, power over limit, utilization, memory, temperature, clock: what is measured",
        frozenset({"gpus"}),
        "quantity",
    ),
    Key(
        "runs",
        "r",
        "r",
        "runs",
        "All your runs",
        "Newest first, with state, finding and parent",
        SHOWS - {"runs"},
        "app.open_runs",
    ),
    Key(
        "all_findings",
        "f",
        "f",
        "findings",
        "The findings of all your jobs",
        "What costs most GPU-hours first; jobs that run, and those that ended within a day",
        (SHOWS | {"help", "doctor"}) - {"findings"},
        "app.open_findings",
    ),
    Key(
        "recipes",
        "R",
        "R",
        "recipes",
        "All recipes, step by step",
        "Lesson, what a step changes, and a form for its parameters",
        SHOWS - {"recipes"},
        "app.open_recipes",
    ),
    Key(
        "drills",
        "P",
        "P",
        "drills",
        "Planted faults to practise on",
        "Launch one, name its cause from a short list, be shown the proof and the lesson",
        LISTS - {"drills"},
        "app.open_drills",
    ),
    Key(
        "answer",
        "N",
        "N",
        "answer",
        "Name the cause of a drill",
        "From a short list; a wrong answer says what speaks against it",
        frozenset({"run", "drills"}),
        "answer",
    ),
    Key(
        "cohort",
        "L",
        "L",
        "",
        "How everybody of the course stands",
        "What their runs share: state, samples/s, finding, drills solved; who waits too long, who has nothing",
        LISTS - {"cohort"},
        "app.open_cohort",
    ),
    Key(
        "choose",
        "enter",
        "Enter",
        "name it",
        "Name this cause, or give up",
        "Only after the list has been on the screen for 0.3 s",
        frozenset({"answer"}),
        "choose",
        True,
    ),
    Key(
        "view",
        "v",
        "v",
        "view",
        "The next view",
        "Of a recipe: lesson, diff against the step before, script; of GPUs: now, their past, processes",
        frozenset({"recipes", "gpus"}),
        "view",
    ),
    Key(
        "pane",
        "tab",
        "Tab",
        "pane",
        "Next pane or field",
        "Shift+Tab goes back",
        SHOWS | ASKS,
        "app.focus_next",
    ),
    Key(
        "zoom",
        "z",
        "z",
        "zoom",
        "Give the pane the whole screen",
        "Esc or z gives it back",
        frozenset({"cluster", "run"}),
        "zoom",
    ),
    Key(
        "refresh",
        "ctrl+r",
        "^r",
        "",
        "Read everything again now",
        "The pace is otherwise adapted to the controller",
        SHOWS | {"doctor"},
        "app.refresh_data",
    ),
    Key(
        "doctor",
        "d",
        "d",
        "",
        "What works here, and what does not",
        "Slurm, environments, roots, terminal: each with what to do",
        SHOWS,
        "app.open_doctor",
    ),
    Key(
        "back",
        "escape",
        "Esc",
        "back",
        "Back, or clear the filter",
        "Leaves a plan or a question with nothing done",
        EVERYWHERE,
        "app.go_back",
    ),
    Key(
        "help",
        "question_mark",
        "?",
        "keys",
        "Every key that works here",
        "",
        SHOWS | ASKS | {"doctor"},
        "app.open_help",
    ),
    Key("palette", "ctrl+p", "^p", "", "Find an action by its name", "", EVERYWHERE, "app.command_palette"),
    Key("quit", "q", "q", "quit", "Leave coach", "Jobs and runs go on", EVERYWHERE, "app.quit"),
)

MOVES = (
    ("↑ ↓ j k", "Move by one line"),
    ("PgUp PgDn", "Move by one page"),
    ("Home End g G", "First and last line"),
    ("← →", "Scroll sideways"),
)


def launch_keys(recipes: Iterable[RecipeKey]) -> tuple[Key, ...]:
    """One key per recipe that names one."""
    return tuple(
        Key(
            f"launch_{recipe.key}",
            recipe.key,
            recipe.key,
            recipe.word,
            f"Launch {recipe.word}",
            f"{recipe.title}. Shows the plan first; nothing is submitted before Enter",
            SHOWS,
            f"app.launch('{recipe.key}')",
            True,
        )
        for recipe in recipes
        if recipe.key is not None
    )


def keys_of(place: str, more: Iterable[Key] = ()) -> tuple[Key, ...]:
    """The keys that work on a screen, launch keys before what belongs to coach as a whole."""
    own = [key for key in KEYS if place in key.places]
    general = (
        "all_findings",
        "runs",
        "history",
        "where",
        "recipes",
        "drills",
        "cohort",
        "pane",
        "zoom",
        "refresh",
        "doctor",
        "back",
        "help",
        "palette",
        "quit",
    )
    head = [key for key in own if key.id not in general]
    return (*head, *(key for key in more if place in key.places), *(key for key in own if key.id in general))


def bindings_of(place: str) -> list[BindingType]:
    """Textual's bindings of a screen; those of the app are bound there too, so that one table is enough."""
    return [
        Binding(
            key.key, key.action, key.description, id=f"{place}.{key.id}", priority=key.is_priority, show=False
        )
        for key in KEYS
        if place in key.places
    ]


def reason_off(key: Key, mode: Mode, why_readonly: str | None = None) -> str | None:
    """Why a key does nothing; None when it works. `why_readonly` is who says so, where it was not said when coach was opened."""
    if not key.is_change or mode is Mode.LIVE:
        return None
    if mode is Mode.READONLY:
        return why_readonly or "coach was opened read-only"
    if mode is Mode.ROOT:
        return "you are root; `coach --as-root` allows it"
    return "this is a recording: nothing in it can be changed"
