"""Measure the cost of stack samples for a training: the time of its steps during 20 samples beside the steps
before and after. It also checks that the losses equal those of the program without samples.

    python benchmarks/stack_cost.py [--seconds 60]

A step is some milliseconds of matrix products on one thread. The program logs a loss from the first step on,
so the burst comes ten seconds later and lasts ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = 0.001
"""Of the step time, averaged over the run."""
BURST_S = 10.0
LAUNCH = ("launch", "--backend", "local", "--gpus", "0", "--wait", "--format", "json", "--python")
PROGRAM = """
import sys, time
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(256, 256)
targets = inputs.sum(1, keepdim=True)
end_s, step = time.time() + float(sys.argv[1]), 0
with open(sys.argv[2], "w") as times, open(sys.argv[3], "w") as losses:
    while time.time() < end_s:
        started = time.perf_counter()
        for _ in range(5):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        step += 1
        times.write(f"{time.time()} {time.perf_counter() - started}\\n")
        losses.write(loss.detach().numpy().tobytes().hex() + "\\n")
        if step % 50 == 1:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
"""


def steps_of(file: Path) -> list[tuple[float, float]]:
    """(time at its end in Unix seconds, seconds) of each step."""
    return [(float(end), float(took)) for end, took in map(str.split, file.read_text().splitlines())]


def main() -> int:
    """Measure, print, and say if the budget is kept. Exit status 1 where it is not, or losses differ."""
    parser = argparse.ArgumentParser(description="Cost of the sampled stacks.")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the training, 40 at least")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="coach-stack-cost-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        program = home / "train.py"
        program.write_text(PROGRAM)
        alone = [
            sys.executable,
            str(program),
            str(seconds / 2),
            str(home / "times-alone"),
            str(home / "alone"),
        ]
        subprocess.run(alone, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "coach", *LAUNCH, sys.executable, "train.py", "--"),
                *(str(seconds), str(home / "times"), str(home / "with")),
            ],
            cwd=home,
            env={**os.environ, "COACH_HOME": str(home / "coach"), "COACH_AS_ROOT": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        if not done.stdout.startswith("{"):
            raise SystemExit(done.stderr)
        run_dir = Path(json.JSONDecoder().raw_decode(done.stdout)[0]["run_dir"])
        records = [json.loads(line) for file in run_dir.glob("stacks/*.jsonl") for line in file.open()]
        if not records:
            raise SystemExit(f"no stacks were taken: {done.stderr}")
        steps = steps_of(home / "times")
        end_s = records[0]["time_s"]
        within = [took for end, took in steps if end_s - BURST_S <= end <= end_s]
        beside = [took for end, took in steps if end_s - 1.8 * BURST_S <= end < end_s - BURST_S]
        beside += [took for end, took in steps if end_s < end <= end_s + BURST_S]
        both = list(
            zip((home / "alone").read_text().split(), (home / "with").read_text().split(), strict=False)
        )
    more = statistics.fmean(within) / statistics.fmean(beside) - 1
    share = max(0.0, more) * BURST_S / 3600
    print(f"step beside the burst  {1e3 * statistics.fmean(beside):.3f} ms, n {len(beside)}")
    print(f"step within the burst  {1e3 * statistics.fmean(within):.3f} ms, n {len(within)}: {more:+.2%}")
    print(f"of a run of an hour    {share:.6%} (budget {BUDGET:.1%})")
    print(f"stacks                 {records[0]['num_samples']} in {BURST_S:g} s")
    num_equal = sum(one == other for one, other in both)
    print(f"losses equal bit by bit: {num_equal} of {len(both)} steps")
    return 0 if share <= BUDGET and num_equal == len(both) else 1


if __name__ == "__main__":
    sys.exit(main())
