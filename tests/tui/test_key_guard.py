"""A key answers the screen that was shown when it arrived."""

from __future__ import annotations

from coach.tui.key_guard import GUARD_S, KeyGuard, StrayLine, TypedOn


def test_before_the_question_is_painted_no_key_counts() -> None:
    assert not KeyGuard().admits(10_000.0)


def test_a_key_within_the_first_moment_does_not_count_and_a_later_one_does() -> None:
    guard = KeyGuard()
    guard.arm(10.0)
    assert not guard.admits(10.0)
    assert not guard.admits(10.0 + GUARD_S - 0.01)
    assert guard.admits(10.0 + GUARD_S + 0.01)


def test_a_key_that_arrived_before_does_not_count_however_late_it_is_handled() -> None:
    guard = KeyGuard()
    guard.arm(10.0)
    assert not guard.admits(9.9)


def test_a_question_that_changed_must_be_painted_again() -> None:
    guard = KeyGuard()
    guard.arm(10.0)
    guard.close()
    assert not guard.admits(20.0)


def test_a_key_that_comes_too_early_starts_the_wait_again() -> None:
    guard = KeyGuard()
    guard.arm(10.0)
    guard.press(10.0 + GUARD_S - 0.01)
    assert not guard.admits(10.0 + GUARD_S + 0.1)
    assert guard.admits(10.0 + 2 * GUARD_S)


def test_keys_typed_on_without_a_pause_after_a_dead_key_are_known() -> None:
    typed_on = TypedOn()
    typed_on.press(1.0)
    typed_on.refuse(1.0)
    for time_s in (1.0 + GUARD_S / 2, 1.0 + GUARD_S):
        typed_on.press(time_s)
        assert typed_on.is_on
    typed_on.press(1.0 + 3 * GUARD_S)
    assert not typed_on.is_on


def test_the_text_behind_a_dead_slash_is_no_keys_up_to_enter() -> None:
    line = StrayLine()
    assert not line.swallows("1", "1")
    line.begin()
    for character in "step 1":
        assert line.swallows("space" if character == " " else character, character)
    assert line.words.endswith("step 1")
    assert line.swallows("backspace", None)
    assert line.words.endswith("step ")
    assert line.swallows("enter", None)
    assert not line.swallows("enter", None)


def test_a_key_that_types_nothing_ends_that_line_and_works() -> None:
    line = StrayLine()
    line.begin()
    assert not line.swallows("down", None)
    assert not line.swallows("1", "1")
