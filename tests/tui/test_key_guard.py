"""A key answers the screen that was shown when it arrived."""

from __future__ import annotations

from coach.tui.key_guard import GUARD_S, KeyGuard


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
