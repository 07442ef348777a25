"""Caches go where the site says, unless somebody has said otherwise."""

from __future__ import annotations

import subprocess

from coach.launch.caches import CACHES, cache_lines


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


def test_a_job_compiles_and_downloads_off_home() -> None:
    said = variables("/scratch/my caches/$(touch pwned)", {"HOME": "/home/u"})
    assert {name: said[name] for name in CACHES} == {
        name: f"/scratch/my caches/$(touch pwned)/{folder}" for name, folder in CACHES.items()
    }
    assert said["HF_HOME"].endswith("/huggingface")


def test_what_the_user_has_chosen_is_kept() -> None:
    said = variables("/scratch/u", {"HF_HOME": "/project/hub", "TORCH_HOME": ""})
    assert said["HF_HOME"] == "/project/hub"
    assert said["TORCH_HOME"] == "/scratch/u/torch"


def test_a_site_that_says_nothing_changes_nothing() -> None:
    assert cache_lines(None) == []
