"""The generated images, made once for all the homes in which tests launch trainings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.installed import SHARED

_NAME = "cifar-10-generated-*"


@contextmanager
def lent_images(home: Path) -> Iterator[None]:
    """Lend a new COACH_HOME the images that the first training of another one has made."""
    kept, cache = Path(os.environ[SHARED]) / "images", home / "cache"
    for folder in (kept, cache):
        folder.mkdir(exist_ok=True)
    lent = [made.name for made in kept.glob(_NAME)]
    for name in lent:
        (cache / name).symlink_to(kept / name)
    try:
        yield
    finally:
        for made in cache.glob(_NAME):
            if made.name not in lent:
                shutil.move(made, kept / made.name)
