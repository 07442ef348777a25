"""The choice for the parent of a fix: it names lost steps only if the parent's checkpoints are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Fix, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.render.text import plain
from coach.tui.render.fix import parent_lines
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from tests.rules.examples import run
from tests.tui.fake_ports import LOST, FakeFixes

RECIPE = run({"checkpoint_every": 50}, launch={"recipe": "ddp"})
OWN = run(
    {"checkpoint_every": 50},
    recipe="train",
    launch={"own": {"kind": "script", "words": ["train.py"], "directory": "/home/ada"}},
)


def offer_for(parent: Run) -> RelaunchOffer:
    finding = Finding("N", "n", "c", Severity.WARNING, 0.9, True, None, Subject(), "", (), (), None)
    known = replace(parent, recipe="ddp")
    offer = FakeFixes().offer_fix(known, finding, Fix("lower"), TargetSnapshot("r", None), History())
    return replace(offer, parent=parent, parent_step=40)


@pytest.mark.parametrize(
    ("parent", "choice", "first"),
    [
        (RECIPE, "cancel", "no complete checkpoint yet; 40 steps would be lost"),
        (RECIPE, "keep", "no complete checkpoint yet; nothing is lost"),
        (OWN, "cancel", LOST[0]),
        (OWN, "keep", "nothing is lost"),
    ],
)
def test_steps_are_lost_only_where_the_checkpoints_are_known(parent: Run, choice: str, first: str) -> None:
    rows = parent_lines(offer_for(parent), choice, 200, lambda action: action)
    assert plain(rows[4]).strip() == first
