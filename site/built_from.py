"""Write the commit that coach is built from into its wheel and its source archive, as hatchling's build hook.

An installed coach has no checkout to ask. A build from a source archive takes the file of that archive. A
build from a folder with neither git nor such a file has none, and coach then names only its version.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltFrom(BuildHookInterface[Any]):
    """Adds `coach/commit.txt`. An editable installation reads its checkout, so it gets none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called once for each target, before its files are collected."""
        sys.path.insert(0, self.root)
        try:
            from coach.installed import COMMIT_FILE, commit_of_checkout
        finally:
            sys.path.remove(self.root)
        commit = commit_of_checkout(Path(self.root))
        if commit is None or version == "editable":
            return
        self._file = Path(self.directory, f".{self.target_name}-{COMMIT_FILE}")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(f"{commit}\n", encoding="utf-8")
        build_data["force_include"][str(self._file)] = f"coach/{COMMIT_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the target is written."""
        if hasattr(self, "_file"):
            self._file.unlink()
