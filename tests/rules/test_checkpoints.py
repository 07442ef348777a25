"""Checkpoints of several ranks: writing the same file is a race, writing parts of one folder is not."""

from __future__ import annotations

from dataclasses import replace

from coach.model.judging.finding import Severity
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.recorded import diagnose, read


def test_ranks_that_write_one_file_are_named_with_the_step_and_the_file() -> None:
    (finding,) = diagnose("ranks/same-file").findings
    assert (finding.rule, finding.cause, finding.severity) == (
        "DST015",
        "checkpoint_by_every_rank",
        Severity.WARNING,
    )
    assert finding.summary == "Ranks 0, 1 each wrote the checkpoint newest.pt"
    assert finding.evidence[0].text == "step 20: written by ranks 0, 1"


def test_a_folder_that_all_ranks_write_into_and_a_file_of_one_rank_are_as_they_should_be() -> None:
    snapshot, history = read("ranks/same-file")
    in_parts = [
        replace(event, fields={**event.fields, "path": "checkpoints/step-00000020"})
        for event in snapshot.events
    ]
    of_rank_0 = [event for event in snapshot.events if event.event != "checkpoint" or event.rank == 0]
    for events in (in_parts, of_rank_0):
        assert not Engine(build()).diagnose(replace(snapshot, events=tuple(events)), history).findings
