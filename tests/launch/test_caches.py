"""Caches go to the site's directory, unless the user has set another one."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

from coach.launch.activation import CACHES, cache_lines
from coach.model.launching.environment import Environment, EnvironmentKind
from tests.launch.examples import PATHS, plan


def variables(cache_dir: str | None, env: dict[str, str]) -> dict[str, str]:
    script = "\n".join(["set -eu", *cache_lines(cache_dir), "env"])
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_a_job_compiles_and_downloads_off_home(tmp_path: Path) -> None:
    place = f"{tmp_path}/my caches/$(touch pwned)"
    said = variables(place, {"HOME": "/home/u"})
    assert {name: said[name] for name in CACHES} == {
        name: f"{place}/{folder}" for name, folder in CACHES.items()
    }
    assert said["HF_HOME"].endswith("/huggingface")
    assert Path(place).is_dir()  # a container can only get existing directories


def test_cache_variables_that_the_user_has_set_are_kept(tmp_path: Path) -> None:
    said = variables(str(tmp_path), {"HF_HOME": "/project/hub", "TORCH_HOME": ""})
    assert said["HF_HOME"] == "/project/hub"
    assert said["TORCH_HOME"] == f"{tmp_path}/torch"


def test_a_site_without_settings_changes_nothing() -> None:
    assert cache_lines(None) == []


def test_the_script_exports_the_caches_before_the_launch_s_own_variables(tmp_path: Path) -> None:
    paths = replace(PATHS, scratch_cache_dir="/scratch/u/cache")
    lines = plan(tmp_path, paths=paths, env={"HF_HOME": "/project/hub"}).script.splitlines()
    ours = lines.index('export HF_HOME="${HF_HOME:-$CACHES/huggingface}"')
    assert lines.index("CACHES=/scratch/u/cache") < ours < lines.index("export HF_HOME=/project/hub")


def test_a_container_sees_the_caches(tmp_path: Path) -> None:
    paths = replace(PATHS, scratch_cache_dir="/scratch/u/cache")
    image = Environment(EnvironmentKind.APPTAINER, image="/images/torch.sif")
    script = plan(tmp_path, paths=paths, trained_in=image).script
    assert "--bind /scratch/u/cache" in script
    assert re.search(r"^export .*TRITON_CACHE_DIR", script, re.MULTILINE)
