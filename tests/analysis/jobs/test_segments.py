"""Segments in words: their number, the end of each, and the work lost in all."""

from __future__ import annotations

from coach.analysis.jobs.segments import segment_words
from coach.model.training.run import Segment


def test_segments_are_shown_as_one_training_with_the_lost_work() -> None:
    first = Segment(0.0, 3600.0, "node1", None, "out/checkpoint-9", 61.0, "the time limit was near")
    second = Segment(3700.0, None, "node2", "out/checkpoint-9", None, None, None)
    assert segment_words((first, second)) == (
        "one training in 2 segments; 00:01:01 were lost after checkpoints",
        "segment 1, 01:00:00, on node1, ended: the time limit was near, left out/checkpoint-9, "
        "61 s before its end",
        "segment 2, on node2, from out/checkpoint-9",
    )


def test_a_last_segment_says_why_no_further_one_followed() -> None:
    only = Segment(0.0, 60.0, None, None, None, None, "the time limit was near", "at most 1 were asked for")
    assert segment_words((only,))[1] == (
        "segment 1, 00:01:00, ended: the time limit was near, no further segment: at most 1 were asked for"
    )


def test_any_other_training_shows_no_segments() -> None:
    assert segment_words(()) == ()


def test_an_unexplained_end_of_a_segment_says_so() -> None:
    only = Segment(None, 10.0, None, None, None, None, None)
    assert segment_words((only,)) == ("one training in 1 segment", "segment 1, ended: not known why")
