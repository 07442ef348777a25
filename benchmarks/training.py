"""Measure the cost of coach's calls in each trainer, the gain of a second rank, and the speed on a GPU.

    python benchmarks/training.py [--trainers baseline,ddp] [--pairs 5] [--width 64]
    python benchmarks/training.py --beside_plain 7 --steps 60 --width 16
    python benchmarks/training.py --gpu [--write DIRECTORY]

Every trainer runs as a process, as a job starts it. Time inside coach's calls is measured in the trainer,
step by step; its budget is 1 % of the steps' time. Comparisons are pairs in random order, with the 95 %
interval of the median difference. It needs the training environment (torch), and ends with status 1 when a
budget is exceeded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_training import Measured

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "trainers"), str(ROOT / "benchmarks")]

from coach.launch.recipe import find_recipes  # noqa: E402 - the repository is on the path only now
from coach.launch.trainer_arguments import TrainerArguments  # noqa: E402 - the same

BUDGET = 0.01
WARM_UP_STEPS = 3
NUM_RANKS = {"parallel_3d": 8}
"""Ranks of trainers that need more than two."""
LAUNCHED_BY_THEMSELVES = ("mpi_allreduce", "horovod_cnn")
FAST_GOAL = 600_000
PLACES = ("run_dir", "cache_dir", "gpus_per_node")
"""Flags that every trainer takes; `coach launch` passes them on, so they are no parameters of a recipe."""
OWN_FLAGS = {"fast": {"compile": "false"}}


@dataclass(frozen=True, slots=True)
class Trained:
    """The measurements that one run of a trainer wrote. `problem` is None if it ended well."""

    problem: str | None
    steps: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def share(self) -> float | None:
        """Time inside coach's calls over the time of the steps, warm-up left out."""
        steps = self.steps[WARM_UP_STEPS:]
        total = sum(step["step_time_s"] for step in steps)
        return sum(step["logging_time_s"] for step in steps) / total if total else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that training should reach, and the format in which both are printed."""

    what: str
    reached: float | None
    goal: float
    form: str

    @property
    def is_reached(self) -> bool:
        return self.reached is not None and self.reached >= self.goal

    @property
    def line(self) -> str:
        shown = "not measured" if self.reached is None else self.form.format(self.reached)
        verdict = "reached" if self.is_reached else "not reached"
        return f"- {self.what}: {shown}, goal {self.form.format(self.goal)}: {verdict}"


def train(name: str, args: argparse.Namespace, num_ranks: int = 1, **flags: object) -> Trained:
    """Run a trainer with the benchmark's sizes in a folder of its own. A flag of None is left to the
    trainer's default."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "run_dir": folder,
            "cache_dir": args.cache_dir,
            "max_steps": args.steps,
            "batch_size": args.batch_size,
            "width": args.width,
            "num_workers": 0,
            "num_train_samples": args.batch_size * num_ranks * args.steps,
            "eval_every_epoch": "false",
            "gpus_per_node": 0,
            **OWN_FLAGS.get(name, {}),
            **flags,
        }
        command = _command(ROOT / "trainers" / f"{name}.py", given, num_ranks)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            return Trained(lines[0] if done.returncode == 78 else lines[-1], [], {})
        lines = (Path(folder) / "metrics" / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    summaries = [record for record in records if record.get("event") == "summary"]
    return Trained(None, [record for record in records if "event" not in record], summaries[-1])


def _command(path: Path, given: Mapping[str, object], num_ranks: int) -> list[str]:
    """The trainer with those of the flags that it knows."""
    known = {*TrainerArguments(ROOT / "trainers").of(path), *PLACES}
    said = {key: value for key, value in given.items() if value is not None and key in known}
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    return [
        sys.executable,
        *(launcher if num_ranks > 1 else ()),
        str(path),
        *(f"--{key}={value}" for key, value in said.items()),
    ]


def cost_of_trainers(args: argparse.Namespace) -> bool:
    """One line for each trainer. Whether all keep the budget."""
    recipes = {recipe.trainer.removesuffix(".py"): recipe for recipe in find_recipes(ROOT)[0]}
    names = args.trainers.split(",") if args.trainers else sorted(recipes)
    print(f"{'trainer':<24}{'ranks':>6}{'steps':>7}{'step, median':>14}{'inside coach':>14}")
    is_kept = True
    for name in names:
        if "log_metrics" not in TrainerArguments(ROOT / "trainers").of(ROOT / "trainers" / f"{name}.py"):
            continue  # it measures something else than steps
        recipe = recipes[name]
        num_ranks = 1 if recipe.is_single_device else NUM_RANKS.get(name, 2)
        trained = train(name, args, num_ranks)
        if trained.problem is not None or trained.share is None:
            print(f"{name:<24}{num_ranks:>6}  not measured: {trained.problem or 'no steps after warm-up'}")
            is_kept = is_kept and trained.problem is not None and "module_not_found" in trained.problem
            continue
        median_s = trained.summary["step_time_median_s"]
        shown = 2 if name in LAUNCHED_BY_THEMSELVES else num_ranks
        print(f"{name:<24}{shown:>6}{len(trained.steps):>7}{1000 * median_s:>11.1f} ms{trained.share:>14.3%}")
        is_kept = is_kept and trained.share <= BUDGET
    print(f"budget {BUDGET:.0%} of the steps' time: {'kept by all' if is_kept else 'NOT kept'}")
    return is_kept


def pairs(args: argparse.Namespace) -> None:
    """Records on against off, and two ranks against one, in pairs."""
    from logging_cost import median_interval

    order = random.Random(1)
    differences, gains = [], []
    for _ in range(args.pairs):
        step_s, per_s = {}, {}
        for is_on in order.sample(("true", "false"), 2):
            step_s[is_on] = train("baseline", args, log_metrics=is_on).summary["step_time_median_s"]
        differences.append(step_s["true"] / step_s["false"] - 1)
        for num_ranks in order.sample((1, 2), 2):
            name = "baseline" if num_ranks == 1 else "ddp"
            per_s[num_ranks] = train(name, args, num_ranks).summary["samples_per_s"]
        gains.append(per_s[2] / per_s[1])
    for what, values, form in (
        ("records of steps, on against off: step time", differences, "{:+.1%}"),
        ("ddp on two ranks against baseline: throughput x", gains, "{:.2f}"),
    ):
        low, high = median_interval(values)
        text = (
            f"{form.format(statistics.median(values))} (95 % interval {form.format(low)} to "
            f"{form.format(high)})"
        )
        print(f"{what} {text}, median of {len(values)} pairs")


def beside_plain_loop(args: argparse.Namespace) -> None:
    """Samples per second of the plainest loop, of baseline and of fast, one after the other in random order,
    and each trainer's ratio to the plainest loop of its round."""
    from common.data import generate_cifar10
    from logging_cost import median_interval

    folder = generate_cifar10(Path(args.cache_dir))
    sizes = [str(size) for size in (args.steps, args.batch_size, args.width)]
    plain = [sys.executable, str(ROOT / "benchmarks" / "plain_loop.py"), str(folder), *sizes]
    order = random.Random(1)
    per_s: dict[str, list[float]] = {"plain loop": [], "baseline": [], "fast": []}
    for _ in range(args.beside_plain):
        for name in order.sample(list(per_s), len(per_s)):
            if name == "plain loop":
                done = subprocess.run(plain, capture_output=True, text=True, check=True)
                per_s[name].append(float(done.stdout))
            else:
                trained = train(name, args, num_train_samples=0)
                assert trained.problem is None, trained.problem
                per_s[name].append(trained.summary["samples_per_s"])
    for name, values in per_s.items():
        ratios = [value / beside for value, beside in zip(values, per_s["plain loop"], strict=True)]
        low, high = median_interval(ratios)
        middle = statistics.median(ratios)
        print(
            f"{name:<12}{statistics.median(values):>8.0f} samples/s, x {middle:.2f} of the plain loop "
            f"(95 % interval {low:.2f} to {high:.2f}), median of {len(values)} rounds"
        )


def on_gpu(args: argparse.Namespace) -> bool:
    """Print the tables, keep them where asked, and say which goals are reached."""
    import torch
    from gpu_training import TINY, Sizes, as_markdown, name_of, tables

    device = torch.device("cpu" if args.tiny else "cuda", None if args.tiny else 0)
    name = name_of(device)
    parts = [f"# Training, measured on {name}\n"]
    parts += [
        f"torch {torch.__version__}, {datetime.now(UTC):%Y-%m-%d}, by `python benchmarks/training.py --gpu`. "
        "Roofs are calculated from counted"
        " operations and bytes and the data sheet; a compiled step has fewer bytes and launches, and may be "
        "above the eager roofs.\n"
    ]
    print("\n".join(parts), flush=True)
    rows: dict[str, list[Measured]] = {}
    wanted = args.tables.split(",")
    for key, title, measured in tables(device, TINY if args.tiny else Sizes(), wanted):
        parts.append(as_markdown(title, measured))
        print(parts[-1], flush=True)
        rows[key] = measured
    goals = [_fast_goal(args)] if "fast" in wanted and not args.tiny else []
    goals += _goals_in(rows)
    parts.append("\n".join(["## Goals", "", *(goal.line for goal in goals)]) + "\n")
    print(parts[-1])
    if args.write:
        slug = name.lower().replace(" ", "-")
        path = Path(args.write) / f"training-{slug}.md"
        path.write_text("\n".join(parts), encoding="utf-8")
        print(f"kept in {path}", file=sys.stderr)
    return all(goal.is_reached for goal in goals)


def _fast_goal(args: argparse.Namespace) -> Goal:
    sizes = {"batch_size": None, "num_train_samples": None, "max_steps": 400}
    fast = train("fast", args, **sizes, width=64, gpus_per_node=1, compile="true")
    return Goal("recipe fast, samples/s", fast.summary.get("samples_per_s"), FAST_GOAL, "{:,.0f}")


def _goals_in(rows: Mapping[str, Sequence[Measured]]) -> Iterator[Goal]:
    """The goals that the tables tell of."""
    if "resnet18" in rows:
        per_s = {row.what.split(",")[0]: row.per_s for row in rows["resnet18"]}
        gain = per_s["bf16"] / per_s["fp32"]
        yield Goal("ResNet-18, bf16 against fp32 without TF32", gain, 2.0, "{:.2f} x")
    if "gpt" in rows:
        best = max((row.flops_share for row in rows["gpt"] if row.flops_share), default=None)
        yield Goal("GPT, model FLOP/s of peak", best, 0.45, "{:.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainers", default="", help="names with commas; empty: all")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=0, help="pairs of runs of the two comparisons")
    parser.add_argument(
        "--beside_plain", type=int, default=0, help="only this: rounds beside the plainest loop"
    )
    parser.add_argument("--cache_dir", default=str(Path(tempfile.gettempdir()) / "coach-benchmark"))
    parser.add_argument("--gpu", action="store_true", help="measure on the GPU instead")
    parser.add_argument(
        "--tiny", action="store_true", help="with --gpu: sizes that only show that it works, on the CPU"
    )
    parser.add_argument("--tables", default="simplecnn,resnet18,gpt,fast", help="with --gpu: which ones")
    parser.add_argument("--write", help="with --gpu: folder for the tables")
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed here: run this with the training environment's Python", file=sys.stderr)
        return 2
    if args.gpu:
        return 0 if on_gpu(args) or args.tiny else 1
    if args.beside_plain:
        beside_plain_loop(args)
        return 0
    is_kept = cost_of_trainers(args)
    if args.pairs:
        pairs(args)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
