"""What `coach.trusted` opens, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.trusted import open_trusted, private_folder, read_trusted, why_not_private
from tests.attacks.mallory import UID, Mallory

ME = os.geteuid()


def test_a_file_of_its_owner_is_read_and_another_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert read_trusted(path, owner=ME) == read_trusted(path, owner=None) == b"text"
    with pytest.raises(OSError, match=r"belongs to .*, not to uid 64999"):
        read_trusted(path, owner=UID)


def test_links_pipes_devices_folders_and_long_files_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    os.mkfifo(pipe)
    assert read_trusted(link, owner=ME, follows_links=True) == b"text"
    for bad, problem in (
        (link, "a symbolic link, not a file"),
        (pipe, "a pipe, not a file"),
        (Path("/dev/zero"), "a device, not a file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(OSError, match=problem):
            open_trusted(bad, owner=None)
    assert read_trusted(path, owner=ME, limit=4) == b"text"
    with pytest.raises(OSError, match="longer than 3 bytes"):
        read_trusted(path, owner=ME, limit=3)


@pytest.mark.root
def test_a_private_file_is_not_read_for_another_user_and_a_public_one_is(
    mallory: Mallory, open_directory: Path
) -> None:
    for folder_mode, mode, is_read in ((0o755, 0o644, True), (0o755, 0o600, False), (0o700, 0o644, False)):
        folder = open_directory / f"{folder_mode:o}-{mode:o}"
        folder.mkdir(mode=folder_mode)
        path = folder / "key"
        path.write_text("text")
        path.chmod(mode)
        link = mallory.link(mallory.folder / folder.name, path)
        if is_read:
            with open_trusted(link, owner=UID, or_public=True, follows_links=True) as file:
                assert file.read() == b"text"
            continue
        with pytest.raises(OSError, match="belongs to root, not to uid 64999"):
            open_trusted(link, owner=UID, or_public=True, follows_links=True)


@pytest.mark.root
def test_a_folder_is_private_only_if_nobody_else_can_change_it(
    mallory: Mallory, open_directory: Path
) -> None:
    made = open_directory / "new" / "root"
    private_folder(made)
    assert made.stat().st_mode & 0o777 == made.parent.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    private_folder(made)
    made.chmod(0o775)
    with pytest.raises(OSError, match=f"others may write to it: chmod go-w {made}"):
        private_folder(made)
    with pytest.raises(OSError, match="belongs to uid 64999: name a folder of your own"):
        private_folder(mallory.make_folder("coach", 0o777))
    open_to_all = open_directory / "scratch"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "coach").mkdir(mode=0o700)
    assert f"everybody may write in {open_to_all}" in (why_not_private(open_to_all / "coach") or "")
    assert f"everybody may write in {open_to_all}" in (why_not_private(open_to_all / "new" / "root") or "")
    open_to_all.chmod(0o1777)
    assert why_not_private(open_to_all / "coach") is None
    mallory.own(open_to_all)
    assert f"everybody may write in {open_to_all}" in (why_not_private(open_to_all / "coach") or "")
