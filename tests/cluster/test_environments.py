"""coach in an environment without torch, on a real Slurm: torch is reached by a venv's path, by a module, and
inside an image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach import runs
from tests.cluster import apptainer, lmod
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.train, pytest.mark.environments]

SMALL = ("--cpus-per-task", "1", "--time", "5:00", "--set", "max_steps=3", "--set", "width=16")
SMALLER = ("--set", "num_workers=0", "--set", "batch_size=8", "--set", "eval_every_epoch=false")
MODULE = "torch-of-the-tests/2.1"


@pytest.fixture
def site(open_directory: Path) -> Path:
    """A folder that every node sees, for a site's installed software."""
    folder = open_directory / "site"
    folder.mkdir()
    return folder


def test_recipes_train_with_telemetry_in_a_venv_by_a_module_and_inside_an_image(
    bare_coach: InstalledCoach, train_python: Path, slurm: SlurmCluster, site: Path
) -> None:
    image = site / "torch.sif"
    apptainer.make_image(image, train_python)
    env = {
        "PATH": f"{apptainer.install(site)}:/usr/local/bin:/usr/bin:/bin",
        "MODULEPATH": str(lmod.write_module(site, MODULE, train_python)),
    }
    environments = (
        (f"venv={train_python.parent.parent}", "baseline"),
        (f"modules={MODULE}", "ddp"),
        (f"apptainer={image}", "baseline"),
        (f"apptainer={image}", "ddp"),
    )
    launched = {}
    for spelling, recipe in environments:
        done = bare_coach(
            *("launch", recipe, "--env", spelling, *SMALL, *SMALLER, "--format", "json"), env=env
        )
        assert done.returncode == 0, done.stderr
        launched[spelling.partition("=")[0], recipe] = json.loads(done.stdout)
    for (kind, recipe), run in launched.items():
        state = slurm.wait_state(run["job_id"], "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", timeout_s=90)
        paths = runs.RunPaths(run["run_dir"])
        log = paths.stderr_log.read_text() if paths.stderr_log.exists() else "no log"
        assert state == "COMPLETED", f"{kind}, {recipe}: {log[-2000:]}"
        record = runs.read_json(paths.run_json)
        assert record["environment"]["kind"] == kind
        assert record["versions"]["torch"]
        assert runs.read_json(paths.exit_json)["state"] == "COMPLETED"
        num_ranks = len(list(paths.metrics_dir.iterdir()))
        assert num_ranks == (1 if recipe == "baseline" else 2)
        (telemetry,) = paths.telemetry_dir.glob("*.jsonl")
        kinds = {json.loads(line)["kind"] for line in telemetry.read_text().splitlines()}
        assert {"host", "process"} <= kinds, f"{kind}, {recipe}: {kinds}"
