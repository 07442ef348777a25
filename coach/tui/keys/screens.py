"""Keys that open a screen about everything, from any other screen."""

from __future__ import annotations

from coach.tui.keys.key import Key
from coach.tui.screen_specs import Kind

SCREEN_KEYS: tuple[Key, ...] = (
    Key(
        id="where",
        key="W",
        label="W",
        word="where",
        description="Where a job could start now",
        tooltip="Free GPUs of each partition by type, the most on one node, time limits, and if you may use it",
        places=frozenset({Kind.SHOW}),
        elsewhere="shows where a job could start: leave this with {back} first",
        action="app.open_screen('where')",
        opens="where",
    ),
    Key(
        id="history",
        key="H",
        label="H",
        word="history",
        description="Your jobs that have ended",
        tooltip="Each with its use of time, CPU, memory and GPU",
        places=frozenset({Kind.SHOW}),
        elsewhere="lists the jobs that have ended: leave this with {back} first",
        action="app.open_screen('history')",
        opens="history",
    ),
    Key(
        id="runs",
        key="r",
        label="r",
        word="runs",
        description="All your runs",
        tooltip="Newest first, with state, finding and parent",
        places=frozenset({Kind.SHOW}),
        elsewhere="lists your runs: leave this with {back} first",
        action="app.open_screen('runs')",
        opens="runs",
    ),
    Key(
        id="all_findings",
        key="f",
        label="f",
        word="findings",
        description="The findings of all your jobs",
        tooltip="The most GPU-hours lost first; of running jobs, and of jobs that ended within a day",
        places=frozenset({Kind.SHOW, "doctor", "help"}),
        elsewhere="lists the findings: leave this with {back} first",
        action="app.open_screen('findings')",
        opens="findings",
    ),
    Key(
        id="recipes",
        key="R",
        label="R",
        word="recipes",
        description="All recipes, step by step",
        tooltip="Lesson, what a step changes, and a form for its parameters",
        places=frozenset({Kind.SHOW}),
        elsewhere="lists the recipes: leave this with {back} first",
        action="app.open_screen('recipes')",
        opens="recipes",
    ),
    Key(
        id="new_launch",
        key="plus",
        label="+",
        description="A new launch: the recipes",
        places=frozenset({Kind.SHOW}),
        elsewhere="begins a new launch: leave this with {back} first",
        action="app.open_screen('recipes')",
    ),
    Key(
        id="drills",
        key="P",
        label="P",
        word="drills",
        description="Planted faults to practise on",
        tooltip="Launch one, name its cause from a short list, be shown the proof and the lesson",
        places=frozenset({Kind.LIST}),
        elsewhere="lists the drills: press it in the queue",
        action="app.open_screen('drills')",
        opens="drills",
    ),
    Key(
        id="cohort",
        key="L",
        label="L",
        description="The state of everybody in the course",
        tooltip=(
            "State, samples/s, finding and solved drills of each person, as their runs share them; marks "
            "a long wait and a missing run"
        ),
        places=frozenset({Kind.LIST}),
        elsewhere="shows how a course stands: press it in the queue",
        action="app.open_screen('cohort')",
        opens="cohort",
    ),
)
