"""What the app asks of a controller: which requests of the screens it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coach.tui.messages import Request

Handlers = Mapping[type[Request], Callable[[Any], object]]
"""What is called with a request, by the request's type."""


class Controller(Protocol):
    """Answers some of the screens' requests. The app has them in one table."""

    @property
    def handlers(self) -> Handlers: ...
