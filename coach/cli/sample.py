"""`coach sample`: prints the sampler's measurements of this node as lines of JSON."""

from __future__ import annotations

import argparse

from coach.config import Settings
from coach.node import sample

configure = sample.configure


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Sample until the followed process ends; without one, for ever."""
    return sample.run(args)
