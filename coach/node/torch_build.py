"""The torch of an interpreter, read from its files: an import takes seconds, and a broken torch cannot be
imported.

Also compares a version with a recipe's requirement. That is implemented here because a foreign Python (>=
3.9) may lack `packaging`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import machinery, util
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from coach.trusted import read_text

_ASSIGNED = re.compile(
    r"^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", re.MULTILINE
)
_OF_PYTHON = re.compile(r"(?:python[\d.]*|torchrun|accelerate|deepspeed)$")
"""Programs that lie in the folder of the Python that they use."""
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*v?(\d{1,9}(?:\.\d{1,9})*)(\.\*)?")
_RELEASE = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9})*)")


class TorchBuild(NamedTuple):
    """A torch in an environment. A fact that its files do not hold is None."""

    version: Optional[str]
    cuda: Optional[str]
    """The CUDA it was built for."""
    has_gpu_support: Optional[bool]
    """False only if its files say so: built for neither CUDA, nor ROCm, nor XPU."""


def is_own_interpreter(command: List[str]) -> bool:
    """True if the command starts this interpreter: another interpreter's packages cannot be inspected from
    here."""
    found = shutil.which(command[0]) if command else None
    # Do not resolve a venv's link.
    return found is not None and os.path.abspath(found) == sys.executable  # noqa: PTH100


def torch_of_command(command: List[str]) -> Optional[TorchBuild]:
    """The torch that the command's Python imports, read from its files; None if the command starts no known
    Python, or if none is installed beside it."""
    if is_own_interpreter(command):
        return find_torch()
    found = shutil.which(command[0]) if command else None
    if found is None or not _OF_PYTHON.match(os.path.basename(found)):  # noqa: PTH119
        return None
    # Do not resolve a venv's link.
    prefix = Path(os.path.abspath(found)).parent.parent  # noqa: PTH100
    for file in sorted(prefix.glob("lib*/python3*/site-packages/torch/version.py")):
        return parse_version_file(read_text(file, owner=None, errors="replace", follows_links=True))
    return None


def find_torch() -> Optional[TorchBuild]:
    """The torch that `import torch` would find; None if there is none."""
    # This process runs without PYTHONPATH; the training does not. An empty entry is the current directory.
    brought = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    spec = machinery.PathFinder.find_spec("torch", [*brought, *sys.path, ""]) or util.find_spec("torch")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        try:
            text = read_text(Path(folder) / "version.py", owner=None, errors="replace", follows_links=True)
        except OSError:
            continue
        build = parse_version_file(text)
        if build.version is not None:
            return build
    return TorchBuild(_installed_version(), None, None)


def parse_version_file(text: str) -> TorchBuild:
    """Parse torch/version.py, which torch's build writes."""
    said = {found[1]: found[2] or found[3] for found in _ASSIGNED.finditer(text)}
    has_gpu_support = any(said.get(name) for name in ("cuda", "hip", "xpu")) if "cuda" in said else None
    return TorchBuild(said.get("__version__"), said.get("cuda"), has_gpu_support)


def satisfies(version: str, wanted: str) -> Optional[bool]:
    """True if a version such as `2.6.0+cu124` meets a requirement such as `>=2.6,<3`; None if either cannot
    be read.

    Only releases are compared: a vendor's pre-release (`2.6.0a0+ecf3bae`) has its release's features, so it
    counts as that release.
    """
    release = _RELEASE.match(version)
    clauses = [clause.strip() for clause in wanted.split(",") if clause.strip()]
    found = [_CLAUSE.fullmatch(clause) for clause in clauses]
    if release is None or not clauses or None in found:
        return None
    mine = _numbers(release[1])
    return all(_holds(mine, match[1], match[2], bool(match[3])) for match in found if match is not None)


def _holds(mine: Tuple[int, ...], operator: str, text: str, is_prefix: bool) -> bool:
    theirs = _numbers(text)
    if operator in ("==", "!=") and is_prefix:
        return (_padded(mine, len(theirs))[: len(theirs)] == theirs) == (operator == "==")
    length = max(len(mine), len(theirs))
    left, right = _padded(mine, length), _padded(theirs, length)
    if operator == "~=":
        return left >= right and left[: len(theirs) - 1] == right[: len(theirs) - 1]
    return {
        ">=": left >= right,
        "<=": left <= right,
        "==": left == right,
        "!=": left != right,
        ">": left > right,
        "<": left < right,
    }[operator]


def _numbers(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _padded(numbers: Tuple[int, ...], length: int) -> Tuple[int, ...]:
    return numbers + (0,) * (length - len(numbers))


def _installed_version() -> Optional[str]:
    try:
        from importlib import metadata

        return metadata.version("torch")
    except Exception:  # a damaged installation: its version is unknown
        return None
