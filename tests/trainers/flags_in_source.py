"""The flags that a trainer takes, from its text, for programs that give each trainer those of a set that it
has."""

from __future__ import annotations

import re

from common.arguments import USUAL

_PLACES = {"run_dir", "cache_dir", "gpus_per_node"}


def flags_in(source: str) -> set[str]:
    """Names of options that `parse_arguments` adds, in one trainer's text or in several together."""
    taken = {*re.findall(r'add_argument\(\s*"--(\w+)"', source), *_PLACES}
    for names in re.findall(r"add_shared\((.*?)\)", source, re.DOTALL):
        taken.update(re.findall(r"\w+", names))
    for without in re.findall(r"add_usual\((.*?)\)", source, re.DOTALL):
        taken.update(set(USUAL) - set(re.findall(r"\w+", without)))
    return taken
