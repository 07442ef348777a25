"""A plan says how much room a run has, warns when that is little, and refuses only where nothing could be
written."""

from __future__ import annotations

import pytest

from coach.launch.disk_space import Room, checkpoint_bytes, judge_rooms, reads_images
from coach.model.errors import UserError
from coach.sources.machine.disk import Space
from coach.sources.machine.quota import Quota

GB = 10**9


def room(
    free_bytes: int = 500 * GB,
    total_bytes: int = 1000 * GB,
    free_inodes: int | None = 10**6,
    quota: Quota | None = None,
    needs: dict[str, int | None] | None = None,
) -> Room:
    space = Space(free_bytes, total_bytes, free_inodes, 10**7)
    return Room(
        "/scratch/u/runs", "runs_root", space, quota, {"checkpoints": None} if needs is None else needs
    )


def test_checkpoints_of_the_workshop_s_model_are_estimated_from_its_parameters() -> None:
    assert checkpoint_bytes({"width": 64, "optimizer": "sgd"}) == 3 * 2 * 4 * 2_474_506
    assert checkpoint_bytes({"width": 64, "optimizer": "adamw"}) == 3 * 3 * 4 * 2_474_506
    assert checkpoint_bytes({"lr": 0.1}) is None


def test_a_language_model_s_checkpoints_are_estimated_and_it_reads_no_images() -> None:
    gpt2 = {"layers": 12, "heads": 12, "embedding": 768, "vocabulary": 50257, "sequence_length": 1024}
    assert checkpoint_bytes(gpt2) == 3 * 3 * 4 * 124_475_904  # with the padded vocabulary
    assert checkpoint_bytes({**gpt2, "rank": 8}) is None
    assert [reads_images(read) for read in (gpt2, {"model": "gpt"}, {"model": "simplecnn"}, {"lr": 0.1})] == [
        False,
        False,
        True,
        True,
    ]


def test_enough_room_is_a_note_with_the_space_needed() -> None:
    notes, warnings = judge_rooms([room(needs={"checkpoints": 60_000_000, "generated data": 38_000_000})])
    assert notes == (
        "/scratch/u/runs: 500 GB free of 1 TB; needed: checkpoints about 60 MB, generated data about 38 MB",
    )
    assert warnings == ()


def test_the_quota_counts_where_it_leaves_less_than_the_disk() -> None:
    notes, _ = judge_rooms([room(quota=Quota(80 * GB, 100 * GB, 10, None))])
    assert notes == ("/scratch/u/runs: 20 GB left of your quota of 100 GB",)


def test_a_quota_without_a_limit_changes_nothing() -> None:
    notes, _ = judge_rooms([room(quota=Quota(80 * GB, None, 10, None))])
    assert notes == ("/scratch/u/runs: 500 GB free of 1 TB",)


@pytest.mark.parametrize(
    "small",
    [
        room(free_bytes=GB // 2, total_bytes=2 * GB),
        room(free_bytes=4 * GB, total_bytes=100 * GB),
        room(quota=Quota(96 * GB, 100 * GB, 10, None)),
    ],
)
def test_little_room_is_a_warning(small: Room) -> None:
    notes, (warning,) = judge_rooms([small])
    assert notes == ()
    assert warning.endswith(": little room")


def test_a_small_share_of_a_huge_file_system_is_no_reason_to_worry() -> None:
    _, warnings = judge_rooms([room(free_bytes=900 * GB, total_bytes=10**15)])
    assert warnings == ()


def test_checkpoints_that_will_not_fit_are_a_warning() -> None:
    _, (warning,) = judge_rooms([room(free_bytes=2 * GB, total_bytes=10 * GB, needs={"checkpoints": 3 * GB})])
    assert "needed: checkpoints about 3 GB: too little" in warning


@pytest.mark.parametrize(
    ("full", "words"),
    [
        (room(free_bytes=12_000_000), "only 12 MB free of 1 TB"),
        (room(quota=Quota(100 * GB, 100 * GB, 10, None)), "only 0 B left of your quota of 100 GB"),
        (room(free_inodes=7), "only 7 more files can be made there: the file system is full"),
        (room(quota=Quota(1, None, 999, 1000)), "only 1 more files can be made there: your quota is used up"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_launched(full: Room, words: str) -> None:
    with pytest.raises(UserError) as caught:
        judge_rooms([full])
    assert caught.value.message.startswith(f"/scratch/u/runs: {words}")
    assert "coach runs clean" in (caught.value.hint or "")
    assert "runs_root" in (caught.value.hint or "")


def test_a_room_without_known_facts_gets_neither_note_nor_warning() -> None:
    assert judge_rooms([Room("/runs", "runs_root", None, None, {})]) == ((), ())
