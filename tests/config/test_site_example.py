"""coach accepts the site's file in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from coach.config.file import FileKind, read_file
from tests.installed import REPOSITORY


def test_the_example_for_sites_has_no_problem() -> None:
    (example,) = re.findall(
        r"```toml\n(.*?)```", (REPOSITORY / "docs" / "site" / "settings.md").read_text(), re.DOTALL
    )
    found = read_file(Path("site.toml"), example, FileKind.SITE, {"SCRATCH": "/scratch/ada", "USER": "ada"})
    assert found.problems == []
    assert {"launch.partition", "limits.max_gpus", "advice.MEM001", "runs_roots"} <= set(found.values)
    assert "launch.partition" in found.locks
