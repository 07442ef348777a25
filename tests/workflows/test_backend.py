"""The backend `auto` never chooses this machine if Slurm is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.workflows import backend
from coach.workflows.backend import resolve_backend
from coach.workflows.launching.prepare import look_at_site
from tests.sources.scripted_io import ScriptedIo


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a slurm.conf that this machine may have."""
    monkeypatch.setattr(backend, "_CONFIGURATIONS", ())


@pytest.mark.parametrize("client", ["sbatch", "squeue"])
def test_a_slurm_client_on_the_path_means_slurm_even_if_it_fails(tmp_path: Path, client: str) -> None:
    (tmp_path / client).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / client).chmod(0o755)
    assert resolve_backend("auto", {"PATH": str(tmp_path)}) == "slurm"


def test_a_configuration_means_slurm_even_without_a_client(tmp_path: Path) -> None:
    assert resolve_backend("auto", {"PATH": str(tmp_path), "SLURM_CONF": "/x/slurm.conf"}) == "slurm"


def test_without_client_and_configuration_auto_means_this_machine(tmp_path: Path) -> None:
    assert resolve_backend("auto", {"PATH": str(tmp_path)}) == "local"


def test_a_named_backend_is_used_and_a_misspelling_refused(tmp_path: Path) -> None:
    assert resolve_backend("local", {"PATH": str(tmp_path), "SLURM_CONF": "/x"}) == "local"
    with pytest.raises(UserError, match="expected one of auto, slurm, local"):
        resolve_backend("slrum", {})


@pytest.mark.parametrize(
    ("said", "switched_off", "hint"),
    [
        (
            "Could not establish a configuration source",
            frozenset(),
            "SLURM_CONF names the cluster's slurm.conf; --backend local trains on this machine",
        ),
        (
            "Could not establish a configuration source",
            frozenset({Switch.LOCAL_BACKEND}),
            "SLURM_CONF names the cluster's slurm.conf",
        ),
        ("Unable to contact slurm controller (connect failure)", frozenset(), None),
    ],
)
def test_a_launch_where_slurm_knows_no_cluster_is_refused_with_a_remedy(
    said: str, switched_off: frozenset[Switch], hint: str | None
) -> None:
    io = ScriptedIo({"nodes": (1, f"scontrol: fatal: {said}\n")})
    settings = Settings(Path("/runs"), Path("/cache"), Path("/config"), switched_off=switched_off)
    with pytest.raises(UserError) as refused:
        look_at_site("slurm", io, settings)
    assert refused.value.message == f"Slurm does not answer: {said}"
    assert refused.value.hint == hint
