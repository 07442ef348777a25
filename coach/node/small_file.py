"""Small files of the kernel, read by whoever looks at the node: what is not there, or not shown, is empty.

Which of them exist differs from kernel to kernel, and a process may end between two looks: neither is an error here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Union


def read_small(path: Union[str, Path]) -> str:
    """The whole text without blanks around it; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""
