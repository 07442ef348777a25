"""The remaining quota, from the output of the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.io import Query
from coach.sources.machine.quota import (
    Mount,
    Quota,
    find_mount,
    parse_lustre_quota,
    parse_quota,
    read_mount,
    read_quota,
)
from tests.sources.fake_io import FakeIo

QUOTA = """Disk quotas for user ada (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
/dev/mapper/home  9000000* 8000000 10000000 1795871000   41203   50000   60000       0
nas.example.org:/export/project 120       0       0       0      12       0       0       0
"""
LUSTRE = """     /lustre/scratch/with/a/very/long/name
                [52428800]* 41943040 62914560       -   1203*     1000       0      6d23h
"""
MOUNTS = r"""/dev/mapper/root / ext4 rw 0 0
/dev/mapper/home /home ext4 rw 0 0
nas.example.org:/export/project /project/my\040lab nfs4 rw 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw 0 0
tmpfs /scratch/memory tmpfs rw 0 0
"""


def test_a_quota_that_is_nearly_used_up_shows_the_space_left() -> None:
    home = parse_quota(QUOTA)["/dev/mapper/home"]
    assert home == Quota(9_000_000 * 1024, 10_000_000 * 1024, 41203, 60000)
    assert (home.left_bytes, home.left_files) == (1_000_000 * 1024, 18797)


def test_without_a_limit_the_remaining_quota_is_unknown() -> None:
    project = parse_quota(QUOTA)["nas.example.org:/export/project"]
    assert (project.left_bytes, project.left_files) == (None, None)


def test_lustre_s_row_is_read_over_two_lines_and_a_soft_limit_counts_where_there_is_no_hard_one() -> None:
    assert parse_lustre_quota(LUSTRE) == Quota(52428800 * 1024, 62914560 * 1024, 1203, 1000)
    assert parse_lustre_quota("lfs: cannot get quota: Permission denied\n") is None
    over = parse_lustre_quota("/s 30 10 20 - 5 0 0 -\n")
    assert over is not None
    assert over.left_bytes == 0


@pytest.mark.parametrize(
    "text", ["", "Disk quotas for user ada (uid 1000): none\n", "\x00 1 2\n", "a b c d e f g h i\n"]
)
def test_output_without_a_table_gives_no_quota(text: str) -> None:
    assert parse_quota(text) == {}


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("/home/ada/runs", "/dev/mapper/home"),
        ("/homework", "/dev/mapper/root"),
        ("/project/my lab/ada", "nas.example.org:/export/project"),
        ("/scratch/memory/x", "tmpfs"),
    ],
)
def test_a_path_lies_in_the_innermost_mount(path: str, device: str) -> None:
    mount = find_mount(path, MOUNTS)
    assert mount is not None
    assert mount.device == device


def test_lustre_is_asked_by_its_mount_and_the_user_and_the_rest_by_the_device() -> None:
    io = FakeIo()
    asked: list[tuple[str, ...]] = []

    def answer(query: Query) -> bytes:
        asked.append(query.argv)
        return (LUSTRE if query.argv[0] == "lfs" else QUOTA).encode()

    io.answer("quota", answer)
    on_lustre = read_quota(io, Mount("10.0.0.1@o2ib:/scratch", "/scratch", "lustre"), "ada")
    at_home = read_quota(io, Mount("/dev/mapper/home", "/home", "ext4"), "ada")
    assert on_lustre is not None
    assert at_home is not None
    assert asked == [("lfs", "quota", "-q", "-u", "ada", "/scratch"), ("quota", "-w", "-p")]


def test_memory_has_no_quota_and_a_missing_tool_is_no_error() -> None:
    io = FakeIo()
    assert read_quota(io, Mount("tmpfs", "/scratch/memory", "tmpfs"), "ada") is None
    assert read_quota(io, Mount("/dev/sda1", "/", "ext4"), "ada") is None
    assert read_mount(io, Path("/home")) is None
