"""Keys that belong to coach as a whole: panes, refresh, help, leaving."""

from __future__ import annotations

from coach.tui.keys.key import Key
from coach.tui.screen_specs import Kind

COACH_KEYS: tuple[Key, ...] = (
    Key(
        id="pane",
        key="tab",
        label="Tab",
        word="pane",
        description="Next pane or field",
        tooltip="Shift+Tab goes back",
        places=frozenset({Kind.SHOW, Kind.ASK}),
        action="app.focus_next",
    ),
    Key(
        id="zoom",
        key="z",
        label="z",
        word="zoom",
        description="Give the pane the whole screen",
        tooltip="Esc or z gives it back",
        places=frozenset({Kind.PANES}),
        action="zoom",
    ),
    Key(
        id="refresh",
        key="ctrl+r",
        label="^r",
        description="Read everything again now",
        tooltip="The pace is otherwise adapted to the controller",
        places=frozenset({Kind.SHOW, "doctor"}),
        action="app.refresh_data",
    ),
    Key(
        id="doctor",
        key="d",
        label="d",
        description="What works here, and what does not",
        tooltip="Slurm, environments, roots, terminal: each with what to do",
        places=frozenset({Kind.SHOW}),
        action="app.open_screen('doctor')",
        opens="doctor",
    ),
    Key(
        id="back",
        key="escape",
        label="Esc",
        word="back",
        description="Back, or clear the filter",
        tooltip="Leaves a plan or a question with nothing done",
        places=frozenset({Kind.ANY}),
        action="app.go_back",
    ),
    Key(
        id="help",
        key="question_mark",
        label="?",
        word="keys",
        description="Every key that works here",
        places=frozenset({Kind.ANY}),
        action="app.open_help",
        opens="help",
    ),
    Key(
        id="palette",
        key="ctrl+p",
        label="^p",
        description="Find an action by its name",
        places=frozenset({Kind.ANY}),
        action="app.command_palette",
    ),
    Key(
        id="quit",
        key="q",
        label="q",
        word="quit",
        description="Leave coach",
        tooltip="Jobs and runs go on",
        places=frozenset({Kind.ANY}),
        action="app.quit",
    ),
)
