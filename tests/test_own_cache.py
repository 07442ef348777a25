"""Tests leave the cache of the person who runs them as it is."""

from __future__ import annotations

import os
from pathlib import Path

from coach.runs import default_cache_dir
from tests.own_cache import OwnCache


def test_the_programs_of_a_test_get_a_cache_of_their_own() -> None:
    assert os.environ["XDG_CACHE_HOME"]
    person = {name: os.environ[name] for name in ("HOME", "COACH_HOME") if name in os.environ}
    assert default_cache_dir(os.environ) != default_cache_dir(person)
    assert Path(os.environ["XDG_CACHE_HOME"]) in default_cache_dir(os.environ).parents


def test_a_file_that_a_test_writes_into_a_persons_cache_is_named(tmp_path: Path) -> None:
    folder = default_cache_dir({"HOME": str(tmp_path)})
    folder.mkdir(parents=True)
    (folder / "kept").write_text("before")
    cache = OwnCache.of({"HOME": str(tmp_path)})
    assert cache.changed() == []
    (folder / "verdicts.jsonl").write_text("{}")
    assert cache.changed() == [str(folder / "verdicts.jsonl")]
