"""The protocol of a controller: the requests of the screens that it handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coach.tui.messages import Request

Handlers = Mapping[type[Request], Callable[[Any], object]]
"""By the type of a request, the function that is called with it."""


class Controller(Protocol):
    """Handles some of the screens' requests. The app collects all handlers in one table."""

    @property
    def handlers(self) -> Handlers: ...
