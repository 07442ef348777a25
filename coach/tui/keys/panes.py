"""Keys that change what a screen shows of its subject, or open a part of it."""

from __future__ import annotations

from coach.tui.keys.key import Key
from coach.tui.screen_specs import Kind

PANE_KEYS: tuple[Key, ...] = (
    Key(
        id="stdout",
        key="o",
        label="o",
        word="stdout",
        description="Show the standard output",
        tooltip="The end of stdout.log",
        places=frozenset({"job", "log"}),
        elsewhere="shows the standard output: open a job first",
        action="log('stdout.log')",
    ),
    Key(
        id="stderr",
        key="e",
        label="e",
        word="stderr",
        description="Show the standard error",
        tooltip="The end of stderr.log",
        places=frozenset({"job", "log"}),
        elsewhere="shows the standard error: open a job first",
        action="log('stderr.log')",
    ),
    Key(
        id="pager",
        key="O",
        label="O",
        description="The log in your pager",
        tooltip="$PAGER, else less; coach comes back when you leave it",
        places=frozenset({"job", "log"}),
        elsewhere="opens a log in your pager: open a job first",
        action="pager",
    ),
    Key(
        id="gpus",
        key="D",
        label="D",
        word="gpus",
        description="The devices: every GPU, their past, the processes",
        tooltip="With where each number comes from and how old it is; a heat map where there are many",
        places=frozenset({Kind.JOBS, "runs"}),
        elsewhere="shows a job's GPUs: choose one in the queue first",
        action="gpus",
        opens="gpus",
    ),
    Key(
        id="quantity",
        key="M",
        label="M",
        word="quantity",
        description="What the heat map shows",
        tooltip="SM activity, power over limit, utilization, memory, temperature, clock: what is measured",
        places=frozenset({"gpus"}),
        elsewhere="changes the heat map: open a job's GPUs with {gpus} first",
        action="quantity",
    ),
    Key(
        id="answer",
        key="i",
        label="i",
        word="identify",
        description="Identify the cause of a drill",
        tooltip="From a short list; a wrong answer says what speaks against it",
        places=frozenset({"drills", "job"}),
        elsewhere="identifies a drill's cause: choose its row after {drills} first",
        action="answer",
    ),
    Key(
        id="next",
        key="n",
        label="n",
        word="next",
        description="The next one: finding, or fix",
        tooltip="Of all findings, primary first; the fix screen goes through the fixes of all findings",
        places=frozenset({"finding", "fix"}),
        elsewhere="goes to the next finding or fix: open a job's findings first",
        action="next",
    ),
    Key(
        id="previous",
        key="N",
        label="N",
        description="The one before it",
        places=frozenset({"finding", "fix"}),
        elsewhere="goes to the finding or fix before: open a job's findings first",
        action="previous",
    ),
    Key(
        id="view",
        key="v",
        label="v",
        word="view",
        description="The next view",
        tooltip=(
            "Of a recipe: lesson, diff against the step before, script; of GPUs: now, their past, processes; "
            "of a job: its cause, or all that the queue knows about it"
        ),
        places=frozenset({"gpus", "job", "recipes"}),
        elsewhere="turns the page of a job, its GPUs or a recipe: open one first",
        action="view",
    ),
)
