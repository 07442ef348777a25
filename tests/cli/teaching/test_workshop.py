"""`coach workshop`: the day's arithmetic as an organizer reads it."""

from __future__ import annotations

from coach.cli.teaching.workshop import fit_lines
from coach.model.teaching.rehearsal import Fit, NodeRoom, Place, Share

GPU = Place("partition gpu", (NodeRoom((("a100", 8),), 64, None),) * 2)
BASELINE = Share("baseline", 1, 4, 16, 3, 180.0, "as the plan says")


def test_forty_learners_are_shown_their_rounds_and_the_sum() -> None:
    ddp = Share("ddp", 2, 8, 8, 5, 612.5, "measured, and the recipe's 0.3 GPU-hours")
    assert list(fit_lines(Fit(40, 3 * 3600, (GPU,), (BASELINE, ddp)))) == [
        "partition gpu: 2 nodes in service, 16 GPUs, as if nobody else used them",
        "  baseline: 40 runs of 1 GPU, 16 at once: 3 rounds of 3:00 = 9:00 (as the plan says)",
        (
            "  ddp: 40 runs of 2 GPUs, 8 at once: 5 rounds of 10:12 = 51:02 (measured, and the recipe's 0.3 "
            "GPU-hours)"
        ),
        "✓ 40 learners fit: 1:00:02 of 3:00:00",
    ]


def test_a_day_too_short_a_run_without_room_and_an_unknown_time_have_lines_of_their_own() -> None:
    *_, short = fit_lines(Fit(40, 300, (GPU,), (BASELINE,)))
    assert short == "✖ 40 learners do not fit: 9:00, there are 5:00"
    huge = Share("huge", 32, 64, 0, None, None, "")
    *_, arithmetic, none = fit_lines(Fit(40, 300, (GPU,), (huge,)))
    assert "no room for even one" in arithmetic
    assert none.startswith("✖ 40 learners do not fit")
    refused = Share("refused", None, None, None, None, None, "it could not be planned")
    *_, arithmetic, unknown = fit_lines(Fit(40, 600, (), (BASELINE, refused)))
    assert arithmetic == "  refused: it could not be planned"
    assert unknown == "? whether 40 learners fit into 10:00 is not known: at least 9:00"


def test_runs_without_gpus_are_counted_by_their_cpus_and_a_limit_is_no_proof() -> None:
    limited = Share("cpu", 0, 4, 32, 2, 600.0, "at most: its time limit", is_at_most=True)
    _, arithmetic, unknown = fit_lines(Fit(40, 900, (GPU,), (limited,)))
    assert (
        arithmetic
        == "  cpu: 40 runs of 4 CPUs, 32 at once: 2 rounds of 10:00 = 20:00 (at most: its time limit)"
    )
    assert unknown == "? whether 40 learners fit into 15:00 is not known: at least 0:00, at most 20:00"
