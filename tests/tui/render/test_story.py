from __future__ import annotations

import pytest

from coach.recorder import Chapter, open_recording
from coach.render.text import line_width, plain
from coach.tui.render.story import CAPTIONS, caption_line
from coach.tui.wiring import demo_recording_path
from coach.workflows.watching.story import Story
from tests.tui.labels import shipped

CHAPTERS = (Chapter("cluster", 0.0), Chapter("healthy", 8.0, "a"), Chapter("nan", 30.0, "b"))


class Play:
    """A recording that has come as far as the test says."""

    def __init__(self) -> None:
        self.played_s = 0.0
        self.story = Story(CHAPTERS, lambda: self.played_s, self.skip_to)

    def skip_to(self, seconds: float) -> None:
        self.played_s = seconds


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("place", ["first", "job", ""])
@pytest.mark.parametrize("name", CAPTIONS)
def test_a_caption_describes_the_picture_and_names_the_key_that_goes_on(
    name: str, place: str, width: int
) -> None:
    shown = plain(caption_line(name, 3, 6, "train_small 12345", place, shipped, width))
    assert line_width(caption_line(name, 3, 6, "train_small 12345", place, shipped, width)) <= width
    assert shown.startswith(" 3/6 ")
    assert ". next" in shown
    assert "…" not in shown
    assert "{" not in shown


def test_the_captions_follow_the_time_of_the_recording() -> None:
    play = Play()
    for played_s, name in ((0.0, "cluster"), (7.9, "cluster"), (8.0, "healthy"), (99.0, "nan")):
        play.played_s = played_s
        assert play.story.chapter is not None
        assert play.story.chapter.name == name


def test_a_key_skips_to_the_next_caption_and_another_repeats_the_one_before() -> None:
    play = Play()
    play.story.go_on()
    assert play.played_s == 8.0
    play.story.go_back()
    assert (play.story.index, play.played_s) == (0, 8.0)
    play.played_s = 31.0
    assert play.story.index == 0
    play.story.go_on()
    assert (play.story.index, play.played_s) == (1, 31.0)
    play.story.go_on()
    assert play.story.index == 2


def test_after_the_last_caption_the_story_is_left() -> None:
    play = Play()
    play.played_s = 31.0
    play.story.go_on()
    assert play.story.chapter is None
    assert not play.story.leave()


def test_every_chapter_of_the_demo_has_its_caption_in_the_order_of_the_story() -> None:
    chapters = open_recording(demo_recording_path()).header.chapters
    assert [each.name for each in chapters] == list(CAPTIONS)
    assert list(chapters) == sorted(chapters, key=lambda each: each.at_s)
