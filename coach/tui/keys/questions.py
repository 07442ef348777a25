"""Keys of the screens that ask for confirmation or an answer: a plan, a command, a fix, the causes of a
drill."""

from __future__ import annotations

from coach.tui.keys.key import Key

QUESTION_KEYS: tuple[Key, ...] = (
    Key(
        id="submit",
        key="enter",
        label="Enter",
        word="submit",
        description="Submit exactly what is shown",
        tooltip="Only after the plan has been on the screen for 0.4 s",
        places=frozenset({"plan"}),
        action="submit",
        is_change=True,
        is_answer=True,
        is_priority=True,
    ),
    Key(
        id="confirm",
        key="y",
        label="y",
        word="yes",
        description="Do exactly what is shown",
        tooltip="Only after the question has been on the screen for 0.4 s; Enter never confirms",
        places=frozenset({"confirm", "fix", "foreign_fix", "stacks"}),
        elsewhere="says yes to a question: there is none here",
        action="confirm",
        is_change=True,
        is_answer=True,
    ),
    Key(
        id="trial",
        key="b",
        label="b",
        word="try",
        description="Try the fix for a few steps",
        tooltip=(
            "A short run with a time limit of its own, to compare before the full run; "
            "{trial} once more: the full run"
        ),
        places=frozenset({"fix"}),
        elsewhere="tries a fix for a few steps: show one with {fix} first",
        action="toggle_trial",
    ),
    Key(
        id="parent",
        key="p",
        label="p",
        word="parent",
        description="Choose: cancel, keep or wait for the parent",
        tooltip="Cancel the parent, keep it, or wait for its end",
        places=frozenset({"fix"}),
        elsewhere="chooses what happens to a parent run: show a fix with {fix} first",
        action="next_choice",
    ),
    Key(
        id="choose",
        key="enter",
        label="Enter",
        word="name it",
        description="Name this cause, or give up",
        tooltip="Only after the list has been on the screen for 0.4 s",
        places=frozenset({"answer"}),
        action="choose",
        is_change=True,
        is_answer=True,
    ),
)
