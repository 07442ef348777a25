"""A training environment of its own, as people have one beside coach's."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path


def environment_without(folder: Path, *packages: str) -> Path:
    """The interpreter of a virtual environment with all packages of the suite's, except the given ones.

    transformers imports torchvision if it finds it, and a torchvision of another build than torch's then
    fails.
    """
    venv.create(folder, with_pip=False)
    theirs = Path(sysconfig.get_path("purelib"))
    ours = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for entry in theirs.iterdir():
        if not entry.name.startswith(packages):
            (ours / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
