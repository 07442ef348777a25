"""Keys of tables: open a row; change the view of the table (filter, order, columns)."""

from __future__ import annotations

from coach.tui.keys.key import Key
from coach.tui.screen_specs import Kind

OPEN_KEYS: tuple[Key, ...] = (
    Key(
        id="open",
        key="enter",
        label="Enter",
        word="open",
        description="Open the row under the cursor",
        tooltip="A run's screen; a job's or a node's detail; a recipe's plan",
        places=frozenset({Kind.LIST}),
        elsewhere="opens a row of a list: there is none to open here",
        action="open",
    ),
    Key(
        id="findings",
        key="enter",
        label="Enter",
        word="findings",
        description="All findings in full",
        tooltip="Every finding with its proof, and what could not be measured",
        places=frozenset({"job"}),
        action="open",
    ),
    Key(
        id="proof",
        key="enter",
        label="Enter",
        word="proof",
        description="The line that proves the finding, in its log",
        tooltip="Of the marked finding, if there are several",
        places=frozenset({"finding"}),
        action="open",
    ),
)

TABLE_KEYS: tuple[Key, ...] = (
    Key(
        id="filter",
        key="slash",
        label="/",
        word="filter",
        description="Filter the rows",
        tooltip=(
            "Every word must be true; in the queue also state:pending gpu:>0 user:me -word; {back} clears"
        ),
        places=frozenset({Kind.LIST, "gpus"}),
        elsewhere="filters a list, or finds words in a log: here is neither",
        action="filter",
    ),
    Key(
        id="find",
        key="slash",
        label="/",
        word="find",
        description="Find words in the log",
        tooltip="Case counts if you type a capital; {next} and {previous} go on and back",
        places=frozenset({"log"}),
        action="find",
    ),
    Key(
        id="sort",
        key="s",
        label="s",
        word="sort",
        description="Sort by the next column",
        tooltip="An arrow marks the column; after the last column the original order returns",
        places=frozenset({Kind.TABLE}),
        elsewhere="sorts a table by its columns: there is none here",
        action="sort",
    ),
    Key(
        id="reverse",
        key="I",
        label="I",
        description="Reverse the order",
        tooltip="The largest first, or the smallest",
        places=frozenset({Kind.TABLE}),
        elsewhere="reverses a table's order: there is none here",
        action="reverse",
    ),
    Key(
        id="columns",
        key="C",
        label="C",
        description="Choose the columns",
        tooltip="Type the names in any order; an empty line restores the original columns",
        places=frozenset({Kind.TABLE}),
        elsewhere="chooses a table's columns: there is none here",
        action="columns",
    ),
    Key(
        id="views",
        key="V",
        label="V",
        description="Views: mine, failed today, a partition, your own",
        tooltip="A view is a filter, an order, columns, and own or all jobs; a new name keeps the view shown",
        places=frozenset({"cluster"}),
        elsewhere="chooses a view of the queue: it is on the first screen",
        action="views",
    ),
)
