"""An Io with prepared answers of commands, and the real file system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query, SystemIo

CONTROLLER_DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
PING_UP = b"Slurmctld(primary) at head is UP\n"
PING_DOWN = b"Slurmctld(primary) at head is DOWN\n"


class ScriptedIo(SystemIo):
    """`answers`: kind of a query → stdout, or (exit status, stderr). Records the kinds of all queries in
    order."""

    def __init__(self, answers: Mapping[str, bytes | tuple[int, str]], now_s: float = 1000.0) -> None:
        super().__init__({})
        self.answers = dict(answers)
        self.now_s = now_s
        self.asked: list[str] = []
        self.num_reads = 0

    def now(self) -> float:
        return self.now_s

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        self.num_reads += 1
        return super().read(path, offset, limit, owner)

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        self.asked.append(query.kind)
        answer = self.answers[query.kind]
        # The captured answers have fixed separators; a replayed recording brings its own in the same way.
        asked = Query(query.kind, query.argv, "|SEPARATOR", "|RECORDEND")
        if isinstance(answer, tuple):
            return CommandResult(asked, answer[0], b"", answer[1], self.now_s, 0.1)
        returncode = 1 if query.kind == "ping" and b" is UP" not in answer else 0
        return CommandResult(asked, returncode, answer, "", self.now_s, 0.1)


def captured(name: str) -> bytes:
    """A file of tests/fixtures/slurm."""
    return (Path(__file__).parent.parent / "fixtures" / "slurm" / name).read_bytes()


def make_run(root: Path, run_id: str, run_json: str, exit_json: str | None = None) -> Path:
    """Create a run directory with these files."""
    run_dir = root / run_id
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_text(run_json)
    if exit_json is not None:
        (run_dir / "exit.json").write_text(exit_json)
    return run_dir
