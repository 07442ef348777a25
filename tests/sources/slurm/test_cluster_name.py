"""The cluster's name, from the environment and the files of the login node."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.slurm import conf_file as module
from coach.sources.slurm.cluster_name import cluster_name


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILES", ())


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
