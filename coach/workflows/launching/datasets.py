"""List the data sets that recipes train on, verify their checksums, and fetch them where there is a network.

Compute nodes often have no internet, so data are fetched once, on a node that has it, into a folder that the
trainers search. A folder counts as CIFAR-10 only if its files have the published checksums.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO
from urllib.parse import urlsplit

from coach.config import Settings, Switch
from coach.launch.recipe import data_dir
from coach.model.errors import UserError
from coach.trusted import open_trusted
from coach.workflows.readonly import refuse_if_readonly

TIMEOUT_S = 30.0
"""Longest silence of a server before the download fails, in seconds."""
_BITE_BYTES = 1 << 20

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and the total number, None if unknown."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A published data set. Its checksums are those of its publisher or of torchvision."""

    name: str
    url: str
    sha256: str
    num_bytes: int
    folder: str
    files: Mapping[str, str]
    """File name in the folder → MD5. MD5 alone would not stop an attacker; the archive's SHA-256 does."""


CIFAR10 = Archive(
    "cifar10",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    170_498_071,
    "cifar-10-batches-py",
    MappingProxyType(
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        }
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """One place where a data set may lie, and its state there."""

    dataset: str
    kind: str
    """`real` or `generated`; `text` for the language models' text; `brought` for a user's own data."""
    path: str
    state: str
    """`verified`, `there`, `incomplete`, `damaged`, `missing`."""
    detail: str
    is_used: bool = False
    """True if a launch from here would train on it."""


def data_places(settings: Settings, env: Mapping[str, str], archive: Archive = CIFAR10) -> tuple[Path, ...]:
    """The folders in which the trainers look for real data, best first. A folder that the config names
    replaces the usual ones; it may be the folder of the set itself."""
    named = settings.data_dir
    if named is not None:
        return (named.parent, named) if named.name == archive.folder else (named,)
    home = env.get("HOME")
    return (settings.cache_dir, *([Path(home) / "data"] if home else []))


def list_data(settings: Settings, env: Mapping[str, str], archive: Archive = CIFAR10) -> tuple[Place, ...]:
    """All places with their state; the one that a launch would use is marked."""
    searched = [_real(folder, archive) for folder in data_places(settings, env, archive)]
    found = searched + _generated(settings.cache_dir)
    # Generated data of the cache never replace the folder that the config names.
    eligible = found if settings.data_dir is None else searched
    used = next((place for place in eligible if place.state in ("verified", "there", "damaged")), None)
    listed = [Place(p.dataset, p.kind, p.path, p.state, p.detail, is_used=p is used) for p in found]
    text = "bytes of the standard library of the Python that trains: on any machine, nothing to fetch"
    return (
        *listed,
        Place("text", "text", "", "there", text, is_used=True),
        _digits(),
        Place("your own", "brought", "", "there", _BROUGHT),
    )


_BROUGHT = (
    "--set data=PATH: a folder of images by class, arrays of images and labels (.npz), or "
    "a Hugging Face set on "
    "disk"
)


def _digits() -> Place:
    """The small real set that lies beside the trainers."""
    file = data_dir() / "trainers" / "common" / "digits.npz"
    what = "1797 handwritten digits of 8x8 pixels (UCI, CC BY 4.0): --set data=digits"
    return Place("digits", "real", str(file), "there" if file.is_file() else "missing", what)


def _real(folder: Path, archive: Archive) -> Place:
    root = folder / archive.folder
    missing = [name for name in archive.files if not (root / name).is_file()]
    if len(missing) == len(archive.files):
        return Place(archive.name, "real", str(folder), "missing", f"no {archive.folder} there")
    if missing:
        return Place(archive.name, "real", str(folder), "incomplete", f"missing: {', '.join(missing)}")
    try:
        wrong = [name for name, md5 in archive.files.items() if _sum(root / name, "md5") != md5]
    except OSError as error:
        return Place(archive.name, "real", str(folder), "incomplete", f"{error.filename}: {error.strerror}")
    if wrong:
        detail = f"other checksums than published: {', '.join(wrong)}"
        return Place(archive.name, "real", str(folder), "damaged", detail)
    return Place(archive.name, "real", str(folder), "verified", "the published checksums")


def generated_folders(cache_dir: Path) -> list[Path]:
    """The folders of the generated sets; empty if the cache cannot be read."""
    try:
        return sorted(path for path in cache_dir.glob("cifar-10-generated-*") if path.is_dir())
    except OSError:
        return []


def _generated(cache_dir: Path) -> list[Place]:
    folders = generated_folders(cache_dir)
    detail = "results on it are not CIFAR-10 results"
    found = [Place("cifar10", "generated", str(path), "there", detail) for path in folders]
    missing = "made by the first run that finds no real data"
    return found or [Place("cifar10", "generated", str(cache_dir), "missing", missing)]


def fetch(
    settings: Settings,
    env: Mapping[str, str],
    on_progress: Progress,
    *,
    folder: Path | None = None,
    file: Path | None = None,
    archive: Archive = CIFAR10,
) -> Path:
    """Get the data set, check it and put it in its place, whole or not at all. Returns its folder.

    `file` is an archive that was copied here by hand. Raises UserError, with the command to type, where there
    is no network.
    """
    refuse_if_readonly(settings, "fetches nothing", Switch.FETCH)
    target = folder or data_places(settings, env, archive)[0]
    final = target / archive.folder
    if _real(target, archive).state == "verified":
        return final
    if final.exists():
        raise UserError(
            f"{final}: something else is there", "move it away, or name another folder with --dir"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{archive.name}.", dir=target) as name:
            temporary = Path(name)
            packed = file if file is not None else temporary / "archive"
            if file is None:
                _download(archive, packed, on_progress)
            _check_archive(packed, archive)
            _unpack(packed, temporary, archive)
            (temporary / archive.folder).rename(final)
    except OSError as error:
        raise UserError(f"{error.filename or target}: {error.strerror or error}") from None
    return final


def _download(archive: Archive, target: Path, on_progress: Progress) -> None:
    host = urlsplit(archive.url).hostname or archive.url
    try:
        with (
            urllib.request.urlopen(archive.url, timeout=TIMEOUT_S) as answer,
            target.open("wb") as out,
        ):
            _copy(answer, out, archive.num_bytes, on_progress)
    except urllib.error.HTTPError as error:
        raise UserError(
            f"{archive.url}: {host} answered {error.code} {error.reason}", _by_hand(archive)
        ) from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise UserError(f"no network here: {host} cannot be reached ({words})", _by_hand(archive)) from None


def _copy(source: IO[bytes], target: IO[bytes], num_bytes: int, on_progress: Progress) -> None:
    num_done = 0
    while bite := source.read(_BITE_BYTES):
        target.write(bite)
        num_done += len(bite)
        on_progress(num_done, num_bytes)


def _by_hand(archive: Archive) -> str:
    name = archive.url.rpartition("/")[2]
    return (
        f"run this on a node with internet (often the login node), or copy {name} here from {archive.url}"
        f" and run `coach data fetch --file {name}`; without it recipes train on generated data"
    )


def _check_archive(file: Path, archive: Archive) -> None:
    found = _sum(file, "sha256")
    if found != archive.sha256:
        raise UserError(
            (
                f"{file.name if file.name != 'archive' else archive.url}: its SHA-256 is {found}, not "
                f"{archive.sha256}"
            ),
            "it was cut or changed on its way: nothing was kept, fetch it again",
        )


def _unpack(file: Path, target: Path, archive: Archive) -> None:
    """Write only the files that belong to the set, by name; nothing else from the archive is written
    anywhere."""
    (target / archive.folder).mkdir()
    wanted = {f"{archive.folder}/{name}": name for name in archive.files}
    try:
        with (
            open_trusted(file, owner=None, follows_links=True) as packed,
            tarfile.open(fileobj=packed) as tar,
        ):
            for member in tar:
                inner = tar.extractfile(member) if member.name in wanted and member.isfile() else None
                if inner is not None:
                    with (target / archive.folder / wanted[member.name]).open("wb") as out:
                        shutil.copyfileobj(inner, out, _BITE_BYTES)
    except tarfile.TarError as error:
        raise UserError(f"{file}: not a tar archive: {error}") from None
    wrong = [
        name
        for name, md5 in archive.files.items()
        if not (target / archive.folder / name).is_file()
        or _sum(target / archive.folder / name, "md5") != md5
    ]
    if wrong:
        raise UserError(f"{file}: without {', '.join(wrong)} as published", "nothing was kept")


def _sum(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with open_trusted(path, owner=None, follows_links=True) as file:
        while bite := file.read(_BITE_BYTES):
            digest.update(bite)
    return digest.hexdigest()
