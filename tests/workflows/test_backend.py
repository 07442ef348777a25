"""The choice of `auto`: never this machine where Slurm is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.workflows import backend
from coach.workflows.backend import resolve_backend


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_CONFIGURATIONS", ())


@pytest.mark.parametrize("client", ["sbatch", "squeue"])
def test_a_client_on_the_path_means_slurm_answered_or_not(tmp_path: Path, client: str) -> None:
    (tmp_path / client).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / client).chmod(0o755)
    assert resolve_backend("auto", {"PATH": str(tmp_path)}) == "slurm"


def test_a_configuration_means_slurm_even_without_a_client(tmp_path: Path) -> None:
    assert resolve_backend("auto", {"PATH": str(tmp_path), "SLURM_CONF": "/x/slurm.conf"}) == "slurm"


def test_without_both_it_is_this_machine(tmp_path: Path) -> None:
    assert resolve_backend("auto", {"PATH": str(tmp_path)}) == "local"


def test_a_named_backend_is_used_and_a_misspelling_refused(tmp_path: Path) -> None:
    assert resolve_backend("local", {"PATH": str(tmp_path), "SLURM_CONF": "/x"}) == "local"
    with pytest.raises(UserError, match="expected one of auto, slurm, local"):
        resolve_backend("slrum", {})
