"""The line of every key, in any way of writing TOML."""

from __future__ import annotations

import tomllib
from typing import Any

from coach.config.lines import key_lines, line_of

TEXT = '''# a comment = "not a key"
runs_root = "/x" # and = another
launch.partition = "gpu"

[launch.sbatch]
comment = """
mem = "16G"
"""
"nice" = 1
[ environments . "py torch" ]
modules = [ # [not.a.table]
  "a=b", "c\'d",
  "]",
]
kind = "modules"
variables = { NCCL = "x = 1", b.c = "}" }
[locked]
"launch.partition" = "because \\"so\\""
'''


def paths(table: dict[str, Any], around: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found = set()
    for name, value in table.items():
        found.add((*around, name))
        if isinstance(value, dict):
            found |= paths(value, (*around, name))
    return found


def test_every_key_has_its_line() -> None:
    lines = key_lines(TEXT)
    torch = ("environments", "py torch")
    assert {path: line_of(lines, path) for path in paths(tomllib.loads(TEXT))} == {
        ("runs_root",): 2,
        ("launch",): 3,
        ("launch", "partition"): 3,
        ("launch", "sbatch"): 5,
        ("launch", "sbatch", "comment"): 6,
        ("launch", "sbatch", "nice"): 9,
        ("environments",): 10,
        torch: 10,
        (*torch, "modules"): 11,
        (*torch, "kind"): 15,
        (*torch, "variables"): 16,
        (*torch, "variables", "NCCL"): 16,
        (*torch, "variables", "b"): 16,
        (*torch, "variables", "b", "c"): 16,
        ("locked",): 17,
        ("locked", "launch.partition"): 18,
    }


def test_a_key_that_is_missing_has_no_line() -> None:
    assert line_of(key_lines(TEXT), ("nowhere",)) is None
    assert key_lines("") == {}
