"""Values of slurm.conf on this machine, read without the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.slurm import conf_file as module
from coach.sources.slurm.conf_file import (
    cluster_name,
    keep_message_timeout,
    kept_message_timeout_s,
    message_timeout_s,
)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILES", ())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("MessageTimeout=100\n", 100.0),
        ("  messagetimeout = 30 # for the old switch\n", 30.0),
        ("MessageTimeout=10\nMessageTimeout=20\n", 20.0),
        ("ClusterName=tiger MessageTimeout=25\n", 25.0),
        ("#MessageTimeout=100\n", None),
        ("TCPTimeout=2\nUnkillableStepTimeout=60\n", None),
        ("MessageTimeout=soon\n", None),
        ("MessageTimeout=0\n", None),
    ],
)
def test_the_message_timeout_is_read(tmp_path: Path, text: str, seconds: float | None) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text(text)
    said = message_timeout_s({"SLURM_CONF": str(file)})
    assert said == (None if seconds is None else (seconds, str(file)))


def test_the_file_of_another_cluster_does_not_answer_for_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = tmp_path / "here.conf", tmp_path / "other.conf"
    other.write_text("MessageTimeout=100\n")
    monkeypatch.setattr(module, "_FILES", (str(other),))
    assert message_timeout_s({"SLURM_CONF": str(here)}) == (100.0, str(other))
    here.write_text("ClusterName=here\n")
    assert message_timeout_s({"SLURM_CONF": str(here)}) is None


def test_included_files_count_and_an_include_loop_ends(tmp_path: Path) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text("Include common.conf\nInclude slurm.conf\n")
    (tmp_path / "common.conf").write_text(f"MessageTimeout=40\nInclude {file}\n")
    assert message_timeout_s({"SLURM_CONF": str(file)}) == (40.0, str(file))


def test_a_missing_or_unreadable_file_gives_no_timeout(tmp_path: Path) -> None:
    assert message_timeout_s({"SLURM_CONF": str(tmp_path)}) is None
    assert message_timeout_s({"SLURM_CONF": str(tmp_path / "none")}) is None
    assert message_timeout_s({"SLURM_CONF": "/dev/zero"}) is None
    assert message_timeout_s({}) is None


@pytest.mark.parametrize("text", ["[]", '{"tiger": 2', "\0", '{"tiger": true}'])
def test_a_damaged_file_of_kept_timeouts_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "message-timeouts.json").write_text(text)
    assert kept_message_timeout_s(tmp_path, "tiger") is None
    keep_message_timeout(tmp_path, "tiger", 50.0)
    assert kept_message_timeout_s(tmp_path, "tiger") == 50.0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ClusterName=tiger\n", "tiger"),
        ("# c\nSlurmctldHost=a\n clustername = tiger # ours\n", "tiger"),
        ("ClusterName=\n", None),
        ("ClusterName\n", None),
        ("SlurmctldHost=a\n", None),
    ],
)
def test_the_cluster_name_is_read_from_slurm_conf(tmp_path: Path, text: str, name: str | None) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text(text)
    assert cluster_name({"SLURM_CONF": str(file)}) == name


def test_the_variable_overrides_slurm_conf_and_without_both_it_is_unknown(tmp_path: Path) -> None:
    assert cluster_name({"SLURM_CLUSTER_NAME": "lion", "SLURM_CONF": str(tmp_path)}) == "lion"
    assert cluster_name({"SLURM_CONF": str(tmp_path / "none")}) is None
    assert cluster_name({}) is None
