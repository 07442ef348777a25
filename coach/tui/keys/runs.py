"""Keys of runs: their fix, and their comparison."""

from __future__ import annotations

from coach.tui.keys.key import Key
from coach.tui.screen_specs import Kind

RUN_KEYS: tuple[Key, ...] = (
    Key(
        id="fix",
        key="F",
        label="F",
        word="fix",
        description="Show the change that a fix makes",
        tooltip=(
            "The changed launch as a diff: y relaunches. For a job that coach did not launch: a form that "
            "submits its script again, or advice if no change of the launch helps"
        ),
        places=frozenset({Kind.JOBS, "finding", "findings", "history", "runs"}),
        elsewhere="shows a fix, or submits a job again: choose one in the queue",
        action="fix",
        is_change=True,
    ),
    Key(
        id="explain",
        key="E",
        label="E",
        description="Explain what is under the cursor",
        tooltip=("Each value of a row: meaning, source, age, next step; of a finding the page of its rule"),
        places=frozenset({Kind.LIST, "explained", "finding", "gpus", "job", "node"}),
        elsewhere="explains a row or a finding: go to one first",
        action="explain",
        opens="rule",
    ),
    Key(
        id="copy",
        key="Y",
        label="Y",
        description="Copy: a row's id, or a job's findings as Markdown",
        tooltip="Into tmux's buffer, else into the terminal's clipboard",
        places=frozenset({"cluster", "finding", "findings", "job", "runs"}),
        elsewhere="copies the id of a row or job: choose one in the queue first",
        action="copy",
    ),
    Key(
        id="compare",
        key="c",
        label="c",
        word="compare",
        description="Compare two runs",
        tooltip="The marked runs, up to six, a run with its parent or child, or all runs of a sweep",
        places=frozenset({"cluster", "history", "job", "runs"}),
        elsewhere="compares two runs: open one with {runs}",
        action="compare",
        opens="compare",
    ),
    Key(
        id="mark",
        key="m",
        label="m",
        word="mark",
        description="Mark a run to compare",
        tooltip="Two to six marked runs can be compared with {compare}",
        places=frozenset({"runs"}),
        elsewhere="marks a run to compare: list them with {runs} first",
        action="mark",
    ),
)
