"""Opens files and folders, and refuses what somebody else could have put there.

The owner of what was opened decides, never a name: between a look at a name and its opening, another user can
exchange the file or a link. Node code runs this too: Python >= 3.9, standard library only.
"""

from __future__ import annotations

import errno
import io
import os
import pwd
import stat
from pathlib import Path
from typing import BinaryIO, Optional

UNKNOWN_USER = -1
"""A uid that owns no file."""
MAX_BYTES = 16 << 20
"""Bytes: the longest file that `read_trusted` reads, unless the caller names another limit."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_trusted(
    path: "os.PathLike[str] | str",
    *,
    owner: Optional[int],
    or_public: bool = False,
    follows_links: bool = False,
    folder: Optional[int] = None,
) -> BinaryIO:
    """Open a regular file for reading. It is judged after it was opened, and never waits for a writer.

    `owner` is the uid to which the file must belong; None: the user named this file, so it may be anybody's.
    A file of root also passes where `owner` is this user: root may do what this user may. `or_public` admits
    a file of another owner if all users may read it: its mode and the folders above it say so. Without
    `follows_links`, `path` itself must not be a symbolic link. `folder`: the descriptor of the folder in
    which a relative path lies. A path inside `coach.pyz` leads to a file of coach itself, and only its own
    method opens it.

    Raises OSError, whose `strerror` says what is wrong.
    """
    if isinstance(path, Path) and type(path) is not type(Path()):
        packed: BinaryIO = path.open("rb")
        return packed
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags if follows_links else flags | os.O_NOFOLLOW, dir_fd=folder)
    except ValueError:
        raise OSError(errno.EINVAL, "a path with a null character", str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP and not follows_links:
            raise _refused(path, "a symbolic link, not a file") from None
        if error.errno == errno.ENXIO:
            raise _refused(path, "a socket or device, not a file") from None
        raise
    try:
        found = os.fstat(descriptor)
        refuse_special(found.st_mode, path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if owner is not None and not (or_public and found.st_uid != owner and _is_public(descriptor, found)):
            _refuse_others(found.st_uid, owner, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def place_of(file: BinaryIO, name: Path) -> Path:
    """The path of an opened file without links; `name`, by which it was opened, where there is no /proc."""
    try:
        return _place(file.fileno())
    except OSError:
        return name


def read_trusted(
    path: "os.PathLike[str] | str",
    *,
    owner: Optional[int],
    limit: int = MAX_BYTES,
    follows_links: bool = False,
    folder: Optional[int] = None,
) -> bytes:
    """Read a whole file of at most `limit` bytes at once; the other arguments are `open_trusted`'s. Raises
    OSError, also if the file is longer."""
    with open_trusted(path, owner=owner, follows_links=follows_links, folder=folder) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit:,} bytes", str(path))
    return data


def read_tail(
    path: "os.PathLike[str] | str", limit: int, *, owner: Optional[int], follows_links: bool = False
) -> bytes:
    """Read the last bytes of a file, `limit` at most; the other arguments are `open_trusted`'s. Raises
    OSError."""
    with open_trusted(path, owner=owner, follows_links=follows_links) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
        return file.read(limit)


def read_text(
    path: "os.PathLike[str] | str",
    *,
    owner: Optional[int],
    limit: int = MAX_BYTES,
    follows_links: bool = False,
    encoding: str = "utf-8",
    errors: str = "strict",
) -> str:
    """Read a whole file as `read_trusted` does, as text whose lines all end in a newline. Raises OSError,
    also if it is not text."""
    data = read_trusted(path, owner=owner, limit=limit, follows_links=follows_links)
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding, errors).read()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "not UTF-8 text", str(path)) from None


def read_small(path: "os.PathLike[str] | str") -> str:
    """Read a file of the kernel, below /proc or /sys, without surrounding blanks; empty if it cannot be
    read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except (OSError, ValueError):  # ValueError: a path with a null character names no file
        return ""


def refuse_special(mode: int, path: "os.PathLike[str] | str") -> None:
    """Refuse pipes and devices: reading one takes data from its real reader, or never ends. Raises
    OSError."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise OSError(errno.EINVAL, f"a {kind}, not a file", str(path))


def private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, accessible only to their owner, or see that nobody else may
    change what is in it: it belongs to this user, and only this user may write there.

    Raises OSError, whose `strerror` says what is wrong and what would be right.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    problem = why_not_private(folder)
    if problem is not None:
        raise _refused(folder, problem)


def why_not_private(folder: Path) -> Optional[str]:
    """Why others could change what is in a folder, which need not exist yet; None if they cannot. A folder
    above counts if everybody, or its owner among everybody, may rename what is in it. Raises OSError if the
    folder cannot be looked at."""
    if folder.exists():
        found = folder.stat()
        if not stat.S_ISDIR(found.st_mode):
            return "not a folder"
        problem = why_not_mine(found)
        if problem is not None:
            is_mine = found.st_uid == os.geteuid()
            return f"{problem}: {f'chmod go-w {folder}' if is_mine else 'name a folder of your own'}"
    for above in folder.resolve().parents:
        if above.exists() and _lets_all_rename(above.stat()):
            return f"everybody may write in {above}, and rename it: name another folder"
    return None


def _lets_all_rename(found: os.stat_result) -> bool:
    """True if everybody may write in this folder and somebody besides root and this user may rename what
    others made in it."""
    is_sticky = found.st_mode & stat.S_ISVTX and found.st_uid in (0, os.geteuid())
    return bool(found.st_mode & stat.S_IWOTH) and not is_sticky


def why_not_mine(found: os.stat_result) -> Optional[str]:
    """Why somebody else could have written what has this owner and mode; None if only this user could."""
    if found.st_uid != os.geteuid():
        return f"belongs to {user_name(found.st_uid)}"
    return "others may write to it" if found.st_mode & _OTHERS_WRITE else None


def user_name(uid: int) -> str:
    """The login name, or the uid as text."""
    if uid == UNKNOWN_USER:
        return "an unknown user"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _refuse_others(uid: int, owner: int, path: "os.PathLike[str] | str") -> None:
    if uid != owner and not (uid == 0 and owner == os.geteuid()):
        raise _refused(path, f"belongs to {user_name(uid)}, not to {user_name(owner)}")


def _is_public(descriptor: int, found: os.stat_result) -> bool:
    """True if every user may read the opened file: its mode and the folders above it say so."""
    if not found.st_mode & stat.S_IROTH:
        return False
    try:
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in _place(descriptor).parents)
    except OSError:
        return False


def _place(descriptor: int) -> Path:
    # The link's text is needed: the place of the file that was opened, whatever its name leads to now.
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115


def _refused(path: "os.PathLike[str] | str", problem: str) -> OSError:
    return OSError(errno.EPERM, problem, str(path))
