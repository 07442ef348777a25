"""Resume every trainer that saves checkpoints, and print a table: where it was cancelled, where it went on,
and where it ended.

    python benchmarks/resumed.py [RECIPE…]

Each recipe is launched on this machine at a tiny size, cancelled after its first checkpoint, and resumed with
`coach resume`. Exit status 1: a run did not end at its last step, or under another id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coach import runs  # noqa: E402 (the repository is on the path only now)
from coach.launch import local  # noqa: E402
from coach.launch.recipe import Recipe, find_recipes  # noqa: E402
from coach.model.slurm.cluster import is_final  # noqa: E402

STEPS_ALONE, STEPS_TOGETHER = 240, 60
"""Steps of one process, and of several, which take longer: a cancel needs a second to arrive."""
SETS: Mapping[str, Any] = {
    "checkpoint_every": 4,
    "num_train_samples": 512,
    "batch_size": 4,
    "num_workers": 0,
    "width": 8,
    "eval_every_epoch": "false",
    "eval_at_end": "false",
    "compile": "false",
    "layers": 1,
    "heads": 2,
    "embedding": 16,
    "sequence_length": 32,
    "vocabulary": 300,
    "sample_tokens": 0,
    "text": ROOT / "trainers" / "common",
}
"""Values of a tiny size; each recipe gets those of its own parameters."""
SETS_OF: Mapping[str, Mapping[str, Any]] = {
    "tensor_parallel": {"model": "gpt", "width": 16},
    "pipeline_parallel": {"model": "gpt", "width": 16},
    "parallel_3d": {"tp": 2, "pp": 1, "width": 16},
}
PATIENCE_S = 400.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """One recipe's run. `problem`: why it could not be launched or resumed."""

    recipe: str
    num_steps: int
    num_ranks: int = 0
    cancelled_at: int | None = None
    """The newest step when it had ended."""
    resumed_at: int | None = None
    """The step of the checkpoint from which it went on."""
    ended_at: int | None = None
    num_repeated: int = 0
    """Steps that were trained twice."""
    state: str | None = None
    is_same_run: bool = False
    seconds: float = 0.0
    problem: str = ""

    @property
    def was_not_launched(self) -> bool:
        """True if coach refused the launch, because the recipe needs something that is not here."""
        return bool(self.problem) and self.cancelled_at is None

    @property
    def is_right(self) -> bool:
        went_on = self.cancelled_at is not None and self.resumed_at is not None and self.resumed_at > 0
        return went_on and self.ended_at == self.num_steps and self.state == "COMPLETED" and self.is_same_run


def recipes_with_checkpoints() -> list[Recipe]:
    """The recipes whose trainers save checkpoints: one launch each, no drills."""
    return [
        each for each in find_recipes()[0] if each.sweep is None and "checkpoint_every" in each.parameters
    ]


def resume_one(recipe: Recipe, home: Path) -> Resumed:
    """Launch, cancel and resume one recipe below `home`, the COACH_HOME of its run."""
    begun, coach = time.monotonic(), Coach(home)
    num_steps = STEPS_TOGETHER if recipe.devices == "multiple" else STEPS_ALONE
    said = {"max_steps": num_steps, **SETS, **SETS_OF.get(recipe.name, {})}
    sets = [f"--set={name}={value}" for name, value in said.items() if name in recipe.parameters]
    launched = coach("launch", recipe.name, "--backend", "local", *sets, "--format", "json")
    if launched.returncode != 0:
        return Resumed(recipe.name, num_steps, problem=first_line(launched.stderr))
    paths = runs.RunPaths(json.loads(launched.stdout)["run_dir"])
    until(lambda: list(paths.checkpoints_dir.glob("step-*")) or has_ended(paths), "a checkpoint")
    if not has_ended(paths):
        local.cancel(paths.run_dir)
    until(lambda: has_ended(paths), "its end")
    before = steps_of(paths)
    resumed = coach("resume", paths.run_dir.name, "--yes", "--format", "json")
    if resumed.returncode != 0:
        newest = max(before, default=None)
        return Resumed(recipe.name, num_steps, cancelled_at=newest, problem=first_line(resumed.stderr))
    until(lambda: has_ended(paths), "its second end")
    after, record = steps_of(paths), runs.read_json(paths.run_json)
    return Resumed(
        recipe.name,
        num_steps,
        record["resources"]["num_nodes"] * record["resources"]["nproc_per_node"],
        max(before, default=None),
        next((each["step"] for each in records_of(paths) if each.get("event") == "resume"), None),
        max(after, default=None),
        len(after) - len(set(after)),
        record["state"],
        json.loads(resumed.stdout)["run_id"] == paths.run_dir.name and len(record["attempts"]) == 1,
        time.monotonic() - begun,
    )


class Coach:
    """`coach` with a home of its own."""

    def __init__(self, home: Path) -> None:
        self._env = {**os.environ, "COACH_HOME": str(home), "COACH_AS_ROOT": "1", "TORCHDYNAMO_DISABLE": "1"}
        self._env.pop("SLURM_CONF", None)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "coach", *words]
        return subprocess.run(argv, env=self._env, cwd=ROOT, capture_output=True, text=True, check=False)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a state of the run. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"within {PATIENCE_S:.0f} s there was not {what}")
        time.sleep(0.05)


def has_ended(paths: runs.RunPaths) -> bool:
    """True once its supervisor has gone."""
    record = runs.read_json(paths.run_json)
    return is_final(record.get("state")) and not local.find_process(record)


def records_of(paths: runs.RunPaths) -> list[dict[str, Any]]:
    """The metric records of rank 0."""
    return runs.decode_records(paths.metrics_of(0).read_bytes())[0] if paths.metrics_of(0).exists() else []


def steps_of(paths: runs.RunPaths) -> list[int]:
    """The optimizer steps that rank 0 recorded."""
    return [each["step"] for each in records_of(paths) if "event" not in each]


def first_line(text: str) -> str:
    """coach's refusal, without what stands before it and its hint."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("coach: ")), "".join(lines[-1:]))


def table(rows: Sequence[Resumed]) -> str:
    """The rows as a table of fixed width."""
    lines = ["recipe                    ranks  cancelled  resumed   ended of  twice  state      same run"]
    for row in rows:
        if row.problem:
            lines.append(f"{row.recipe:<25} – {row.problem}")
            continue
        steps = f"{row.cancelled_at!s:>9}  {row.resumed_at!s:>7}  {row.ended_at!s:>5} {row.num_steps:>4}"
        same = "yes" if row.is_same_run else "no"
        lines.append(
            f"{row.recipe:<25} {row.num_ranks:>5}  {steps}  {row.num_repeated:>5}  {row.state!s:<10} {same}"
        )
    return "\n".join(lines)


def main() -> int:
    """Resume the named recipes, or all. Returns the exit status."""
    wanted = set(sys.argv[1:])
    chosen = [each for each in recipes_with_checkpoints() if not wanted or each.name in wanted]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for recipe in chosen:
            rows.append(resume_one(recipe, Path(folder)))
            print(table(rows[-1:]).splitlines()[-1], f"{rows[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
    return int(not all(row.is_right or row.was_not_launched for row in rows))


if __name__ == "__main__":
    sys.exit(main())
