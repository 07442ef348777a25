"""Run the short benchmarks one after the other, and keep all that they print as one page of one commit.

    make figures [ARGS="--only echo,single --write FILE"]

Each benchmark is a process of its own with a time limit. A part that cannot run here stands on the page with
its reason, never without a word. The load average stands beside each part: figures taken beside other work
are worth less.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 1200


@dataclass(frozen=True)
class Part:
    """One benchmark. `needs` are variables that name its data, `commands` the programs it runs, and
    `interpreter` the variable that names its Python, if it needs packages of its own."""

    name: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    interpreter: str | None = None
    made_by: str | None = None
    """A program that makes what the benchmark measures."""

    @property
    def shown(self) -> str:
        return " ".join(("python", f"benchmarks/{self.name}.py", *self.arguments))

    def why_not(self) -> str | None:
        """The reason why it cannot run here."""
        needs = (*self.needs, *([self.interpreter] if self.interpreter else []))
        unset = [name for name in needs if not os.environ.get(name)]
        missing = [name for name in self.commands if shutil.which(name) is None]
        if unset:
            return f"{', '.join(unset)} is not set"
        return f"{', '.join(missing)}: not on this machine" if missing else None


PARTS = (
    Part("house"),
    Part("score_corpus", needs=("COACH_LOG_CORPUS",)),
    Part("calibration", needs=("COACH_LOG_CORPUS",)),
    Part("silence", needs=("COACH_HEALTHY_LOGS",)),
    Part("first_frame", ("--rounds", "5")),
    Part("echo"),
    Part("single", ("--rounds", "3"), made_by="single/build.py"),
    Part("diagnosis", ("200",)),
    Part("diagnosis", ("1000",)),
    Part("sampler", ("60",), interpreter="COACH_PEERS_PYTHON"),
    Part("stack_cost", ("--seconds", "50")),
    Part("logging_cost", ("--pairs", "12", "--width", "64", "--threads", "1")),
    Part("training", ("--beside_plain", "7", "--steps", "60", "--width", "16")),
    Part("first_verdict", ("--minutes", "1.5"), commands=("slurmctld", "slurmd")),
)


def main() -> int:
    """Exit status 1 if a benchmark failed or took too long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME,NAME", help="only these benchmarks")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there as well")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else [part.name for part in PARTS]
    if unknown := set(wanted) - {part.name for part in PARTS}:
        known = ", ".join(dict.fromkeys(part.name for part in PARTS))
        parser.error(f"--only {', '.join(sorted(unknown))}: choose from {known}")
    page, failed = [_head()], []
    for part in (part for part in PARTS if part.name in wanted):
        text, is_well = _run(part)
        print(text, flush=True)
        page.append(text)
        if not is_well:
            failed.append(part.shown)
        if args.write is not None:
            args.write.write_text("\n".join(page), encoding="utf-8")
    print(f"failed: {', '.join(failed)}" if failed else "all parts are done", file=sys.stderr)
    return 1 if failed else 0


def _head() -> str:
    commit = subprocess.run(
        ("git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"), capture_output=True, text=True, check=True
    ).stdout.strip()
    day = datetime.datetime.now(datetime.UTC).date()
    return (
        "# Figures of one commit\n\n"
        "This page keeps what the short benchmarks print, one after the other; measure again with\n"
        "`make figures`.\n\n"
        f"Commit `{commit}`, {day}, {os.cpu_count()} cores, {platform.system()} on {platform.machine()}, "
        f"Python {platform.python_version()}.\n"
    )


def _run(part: Part) -> tuple[str, bool]:
    """The part of the page, and False if the benchmark failed."""
    title = f"## {part.shown}\n"
    if (why := part.why_not()) is not None:
        return f"{title}\nNot measured here: {why}.\n", True
    python = os.environ[part.interpreter] if part.interpreter else sys.executable
    command = (python, str(ROOT / "benchmarks" / f"{part.name}.py"), *part.arguments)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if part.made_by is not None:
        subprocess.run((sys.executable, str(ROOT / part.made_by)), cwd=ROOT, check=True, stdout=sys.stderr)
    before, start_s = os.getloadavg()[0], time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        said, status = done.stdout.rstrip() or done.stderr.rstrip(), done.returncode
    except subprocess.TimeoutExpired as late:
        said, status = (late.stdout or b"").decode("utf-8", "replace").rstrip(), None
    took_s = time.monotonic() - start_s
    how = f"{took_s:.0f} s, load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    if status is None:
        how = f"**ended after {LIMIT_S} s**, load {before:.1f} before"
    elif status:
        how += f", **exit status {status}**"
    return f"{title}\n{how}\n\n```\n{said}\n```\n", status == 0


if __name__ == "__main__":
    sys.exit(main())
