"""Packages beside torch that one trainer needs: where one is missing, the training ends with one line that
says how it comes."""

from __future__ import annotations

import contextlib
from typing import Iterator

from common.distributed import Refused, run


@contextlib.contextmanager
def needed(how: str) -> Iterator[None]:
    """Around the imports of a package. `how` says where it comes from."""
    try:
        yield
    except ImportError as error:  # not only of the package itself: it may lack a library
        refused = Refused("module_not_found", f"{error}; {how}")

        def refuse() -> None:
            raise refused

        run(refuse)
