"""Find the output of a run: in its directory, or in another file to which `coach run` found its output
connected. run.json names such a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.errors import UserError
from coach.sources.follow import read_whole
from coach.sources.io import Io
from coach.sources.runs.run_files import parse_json
from coach.sources.values import table, text, whole


class RunLogs:
    """The logs of one run. run.json is read until it names them.

    `of_job` returns Slurm's output files of a job. A batch file names its own, and run.json does not have
    them until it starts; tasks of a step may leave their output to Slurm.
    """

    def __init__(
        self, io: Io, run_dir: Path, of_job: Callable[[str], tuple[Path, ...]] = lambda job_id: ()
    ) -> None:
        self._io = io
        self._of_job = of_job
        self._job_id: str | None = None
        self._run_dir = run_dir
        paths = runs.RunPaths(run_dir)
        self._own = {"stdout.log": paths.stdout_log, "stderr.log": paths.stderr_log}
        self._paths: tuple[Path, ...] | None = None
        self._starts: Mapping[Path, int] = {}
        self._is_own_program: bool | None = None

    def paths(self) -> tuple[Path, ...]:
        """The logs, stdout first. Raises OSError if Slurm must be asked for them."""
        if self._paths is None:
            self._learn()
        of_job = self._of_job(self._job_id) if self._job_id is not None and not self._paths else ()
        return self._paths or of_job or tuple(self._own.values())

    def start_of(self, path: Path) -> int:
        """Number of bytes that the file held before the run began."""
        return self._starts.get(path, 0)

    def is_own_program(self) -> bool | None:
        """True if a user's own program writes the logs, False for coach's trainers; None: run.json does not
        say yet."""
        if self._is_own_program is None:
            self._learn()
        return self._is_own_program

    def _learn(self) -> None:
        path = runs.RunPaths(self._run_dir).run_json
        try:
            value = parse_json(read_whole(self._io, path), path)
        except (OSError, UserError):
            return
        self._is_own_program = "own" in table(value.get("launch")) or "command" in value
        if "command" in value and value.get("backend") == "slurm":
            self._job_id = text(value.get("job_id"))
        if "command" in value and "output" not in value:
            return  # the run is there, but `coach run` has not started its command yet
        output = table(value.get("output"))
        places: dict[Path, int] = {}
        for stream in ("stdout", "stderr"):
            place = self._place(output, stream)
            if place is not None:
                places.setdefault(place, max(0, whole(output.get(f"{stream}_start_bytes")) or 0))
        self._starts = {place: start for place, start in places.items() if start}
        self._paths = tuple(places)

    def _place(self, output: Mapping[str, Any], stream: str) -> Path | None:
        named = text(output.get(stream))
        if named in self._own:
            return self._own[named]
        return Path(named) if named is not None and named.startswith("/") else None
