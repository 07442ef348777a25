"""Complete verdicts in files: their owner, and how long they are valid."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coach.sources.runs.verdict_files import (
    MAX_BYTES,
    keep_verdict_of_job,
    keep_verdict_of_run,
    read_verdict,
    verdict_of_job,
    verdict_of_run,
)

VERDICT = {"schema": 1, "target": "x", "findings": []}
RUN = "20261121-142233-ddp-4f2a"


def written(path: Path, time_s: float) -> None:
    path.touch()
    os.utime(path, (time_s, time_s))


def test_a_run_that_ended_again_after_its_verdict_is_judged_again(tmp_path: Path) -> None:
    assert verdict_of_run(tmp_path) is None
    assert keep_verdict_of_run(tmp_path, VERDICT)
    assert verdict_of_run(tmp_path) == VERDICT
    written(tmp_path / "verdict.json", 1000)
    for ended_s, kept in ((999, VERDICT), (1000, VERDICT), (1001, None)):
        written(tmp_path / "exit.json", ended_s)
        assert verdict_of_run(tmp_path) == kept


def test_a_verdict_is_read_only_from_a_small_regular_file_of_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "verdict.json"
    own.write_text(json.dumps(VERDICT))
    (tmp_path / "link").symlink_to(own)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "newer").write_text('{"schema": 2}')
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "large").write_text(json.dumps({**VERDICT, "more": "x" * MAX_BYTES}))
    names = ("verdict.json", "link", "pipe", "newer", "list", "large", "gone")
    assert [read_verdict(tmp_path / name) for name in names] == [VERDICT, *[None] * 6]
    if os.geteuid() == 0:
        os.chown(own, 4242, -1)  # a file of root is anybody's
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert read_verdict(own) is None


def test_a_job_s_verdict_is_not_that_of_an_earlier_job_with_its_number(tmp_path: Path) -> None:
    assert keep_verdict_of_job(tmp_path, "17_3", 1000.0, VERDICT)
    assert verdict_of_job(tmp_path, "17_3", 1000.0) == VERDICT
    others = (("17_3", 1001.0), ("17_3", None), ("17", 1000.0), ("../17_3", 1000.0))
    assert [verdict_of_job(tmp_path, *other) for other in others] == [None] * 4
    assert not keep_verdict_of_job(tmp_path, "../../etc", 1000.0, VERDICT)
    assert (tmp_path / "verdicts").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    assert not keep_verdict_of_job(tmp_path / "file", "17", 1000.0, VERDICT)
