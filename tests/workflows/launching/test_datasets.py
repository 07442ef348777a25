"""Data sets: present ones are listed, and a fetched one is stored whole, with the published checksums, or not
at all."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.workflows.launching.datasets import CIFAR10, Archive, fetch, list_data

FILES = {"data_batch_1": b"images", "batches.meta": b"names"}


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


BYTES = packed({**{f"folder/{name}": content for name, content in FILES.items()}, "../escaped": b"x"})
ARCHIVE = Archive(
    "cifar10",
    "http://127.0.0.1:9/x.tar.gz",
    hashlib.sha256(BYTES).hexdigest(),
    len(BYTES),
    "folder",
    {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()},
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


class Answer(BaseHTTPRequestHandler):
    status, body = 200, BYTES

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        pass


def serve(body: bytes = BYTES, status: int = 200) -> Iterator[Archive]:
    handler = type("Handler", (Answer,), {"body": body, "status": status})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield replace(ARCHIVE, url=f"http://127.0.0.1:{server.server_port}/x.tar.gz")
    server.shutdown()
    server.server_close()


def test_fetched_data_lie_where_trainers_look_and_count_as_verified(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    seen: list[int] = []
    for archive in serve():
        final = fetch(settings, env, lambda done, whole: seen.append(done), archive=archive)
    assert final == settings.cache_dir / "folder"
    assert {path.name: path.read_bytes() for path in final.iterdir()} == FILES
    assert seen[-1] == len(BYTES)
    assert not (tmp_path / "escaped").exists()
    assert sorted(path.name for path in final.parent.iterdir()) == ["folder"]
    first = list_data(settings, env, ARCHIVE)[0]
    assert (first.kind, first.state, first.is_used) == ("real", "verified", True)


def test_without_a_network_the_error_says_so_and_names_the_remedy(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"no network here: 127.0.0.1 cannot be reached") as caught:
        fetch(settings, env, lambda done, whole: None, archive=ARCHIVE)
    assert "login node" in (caught.value.hint or "")
    assert "coach data fetch --file x.tar.gz" in (caught.value.hint or "")
    assert list(settings.cache_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [(BYTES[:-9], 200, "its SHA-256 is"), (b"", 404, "answered 404")],
    ids=["cut short", "missing"],
)
def test_a_wrong_or_failed_download_is_not_kept(
    settings: Settings, env: dict[str, str], tmp_path: Path, body: bytes, status: int, words: str
) -> None:
    for archive in serve(body, status):
        with pytest.raises(UserError, match=words):
            fetch(settings, env, lambda done, whole: None, archive=archive)
    assert list(settings.cache_dir.iterdir()) == []


def test_a_copied_archive_does_without_a_network(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(BYTES)
    fetch(settings, env, lambda done, whole: None, file=file, folder=tmp_path / "here", archive=ARCHIVE)
    assert (tmp_path / "here" / "folder" / "data_batch_1").read_bytes() == b"images"
    assert file.exists()


def test_a_user_s_files_are_not_overwritten(settings: Settings, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache" / "folder").mkdir(parents=True)
    with pytest.raises(UserError, match="something else is there"):
        fetch(settings, env, lambda done, whole: None, archive=ARCHIVE)


def test_damaged_and_incomplete_data_are_named_with_their_files(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    folder = settings.cache_dir / "folder"
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"images")
    assert list_data(settings, env, ARCHIVE)[0].detail == "missing: batches.meta"
    (folder / "batches.meta").write_bytes(b"other names")
    damaged = list_data(settings, env, ARCHIVE)[0]
    assert (damaged.state, damaged.detail) == ("damaged", "other checksums than published: batches.meta")


def test_a_data_dir_that_names_the_folder_of_the_set_is_found_as_the_trainers_find_it(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "copied.tar.gz"
    file.write_bytes(BYTES)
    named = replace(settings, data_dir=tmp_path / "sets" / "folder")
    assert fetch(named, env, lambda done, total: None, file=file, archive=ARCHIVE) == named.data_dir
    used = next(place for place in list_data(named, env, ARCHIVE) if place.is_used)
    assert (used.path, used.state) == (str(tmp_path / "sets"), "verified")


def test_other_files_are_never_called_real_whatever_lies_beside_them(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "folder"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(b"other")
    (folder / "SYNTHETIC").touch()
    assert [place.state for place in list_data(settings, env, ARCHIVE)[:2]] == ["missing", "damaged"]
    (settings.cache_dir / "cifar-10-generated-10-2-v2").mkdir(parents=True)
    assert [place.kind for place in list_data(settings, {}, CIFAR10)] == [
        *("real", "generated", "text"),
        *("real", "brought"),  # the digits beside the trainers, and a user's own data
    ]


def test_generated_data_never_replace_the_folder_that_the_config_names(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    (settings.cache_dir / "cifar-10-generated-10-2-v2").mkdir(parents=True)
    assert [place.kind for place in list_data(settings, env, ARCHIVE) if place.is_used] == [
        "generated",
        "text",
    ]
    elsewhere = replace(settings, data_dir=tmp_path / "nowhere")
    assert [place.kind for place in list_data(elsewhere, env, ARCHIVE) if place.is_used] == ["text"]


def test_read_only_fetches_nothing(settings: Settings, env: dict[str, str]) -> None:
    with pytest.raises(UserError, match="fetches nothing"):
        fetch(replace(settings, is_readonly=True), env, lambda done, whole: None, archive=ARCHIVE)


def test_the_digits_beside_the_trainers_and_data_of_one_s_own_are_listed(
    settings: Settings, env: dict[str, str]
) -> None:
    digits, own = list_data(settings, env, ARCHIVE)[-2:]
    assert (digits.dataset, digits.kind, digits.state, digits.is_used) == ("digits", "real", "there", False)
    assert Path(digits.path).is_file()
    assert "--set data=digits" in digits.detail
    assert (own.kind, own.is_used) == ("brought", False)
    assert "--set data=PATH" in own.detail
