"""What a rank is doing, from its Python stack: one category, and the line of its own code.

Pure. A function's file and name decide, never its source line. A wait inside C++ (DDP's reducer in backward)
looks like its caller. There the record's `cpu_pct` tells waiting from computing.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, List, Mapping, NamedTuple, Tuple

COLLECTIVE, DATA, SAVE = "collective", "data", "save"
OPTIMIZER, BACKWARD, FORWARD, OTHER = "optimizer", "backward", "forward", "other"

_MAX_PLACE = 120


class Row(NamedTuple):
    """A stack belongs to the category if one of its frames matches both function and file."""

    category: str
    function: "re.Pattern[str]"
    places: Tuple[str, ...]


# The first row with a matching frame counts: an all_reduce inside backward is a collective.
_ROWS = (
    Row(
        COLLECTIVE,
        re.compile(
            r"(all_?(gather|reduce|to_?all)|reduce|broadcast|gather|scatter|(monitored_)?barrier|send|recv"
            r"|new_group|(init|destroy)_process_group)(_\w+)?"
        ),
        ("/torch/distributed/", "/deepspeed/comm/", "/horovod/"),
    ),
    Row(DATA, re.compile(r"__next__|__iter__|_next_data|_get_data"), ("/torch/utils/data/dataloader.py",)),
    Row(
        SAVE,
        re.compile(r"save|_save|async_save"),
        ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/"),
    ),
    Row(OPTIMIZER, re.compile(r"step|zero_grad"), ("/torch/optim/",)),
    Row(BACKWARD, re.compile(r"backward|_engine_run_backward"), ("/torch/",)),
    Row(FORWARD, re.compile(r"_call_impl|_wrapped_call_impl|forward"), ("/torch/nn/",)),
)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen", "<string>")

Frames = List[Mapping[str, Any]]


def category_of(frames: Frames) -> str:
    """The category of the first row that matches a frame; `other` for the training's own code."""
    for row in _ROWS:
        for frame in frames:
            name = str(frame["function"]).rpartition(".")[2]
            if row.function.fullmatch(name) and any(place in frame["file"] for place in row.places):
                return row.category
    return OTHER


def own_place(frames: Frames) -> str:
    """`train.py:41 load`: the innermost frame outside of installed libraries, at most 120 characters."""
    own = [frame for frame in frames if not any(place in frame["file"] for place in _LIBRARIES)]
    frame = (own or frames)[0]
    return f"{PurePath(frame['file']).name}:{frame['line']} {frame['function']}"[:_MAX_PLACE]
