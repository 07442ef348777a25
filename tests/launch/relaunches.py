"""A run's record read back as the request that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.launch.record import request_from
from coach.model.launching.launch import LaunchRequest
from coach.sources.runs.run_files import parse_run


def asked_again(launch: Mapping[str, Any], recipe: str) -> LaunchRequest:
    """The request in the record of a run of one's own."""
    run = parse_run({"launch": launch, "recipe": recipe}, "/runs/20261121-142233-ddp-4f2a")
    return request_from(replace(run, why_not_mine=None))
