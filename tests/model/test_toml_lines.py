"""The line of every key, in any way of writing TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from coach.model.toml_lines import key_lines
from coach.model.toml_schema import TomlFile

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
    file = TomlFile(Path("f"), TEXT)
    torch = ("environments", "py torch")
    at = {path: file.at(".".join(path)) for path in paths(tomllib.loads(TEXT))}
    assert {path: int(place.removeprefix("f:")) for path, place in at.items()} == {
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
    assert TomlFile(Path("f"), TEXT).at("nowhere") == "f"
    assert key_lines("") == {}
