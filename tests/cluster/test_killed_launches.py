"""A launch on a real Slurm is killed at each boundary around sbatch: the next start finds its job by its
files, or knows that there is none, and no order is given twice.

With COACH_FAULTS_TABLE=FILE the rows are appended there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.faults import programs
from tests.faults.clients import Clients
from tests.faults.kill_points import CHANGING, Moment, forked, moments_of
from tests.faults.world import World, Worlds

pytestmark = [pytest.mark.cluster, pytest.mark.strace, pytest.mark.long, pytest.mark.timeout(1200)]

HELD = (*programs.LAUNCH, "--backend", "slurm", "--sbatch", "begin=now+1hour", "--", "sleep", "300")
CLIENT = {
    "before the client asks": 'kill -9 $(cat {home}/pid); exec {sbatch} "$@"',
    "while the client asks": '{sbatch} "$@" & kill -9 $(cat {home}/pid); wait',
    "after the job was taken, before its id is told": (
        'said=$({sbatch} "$@"); kill -9 $(cat {home}/pid); echo "$said"'
    ),
}
"""What stands for sbatch, and kills the coach that has started it."""


@dataclass(frozen=True, slots=True)
class Queue(Clients):
    """The orders that a real controller has taken from one home."""

    slurm: SlurmCluster

    @property
    def jobs(self) -> list[dict[str, Any]]:
        told = self.slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%i|%o"], as_root=True)
        assert told.returncode == 0, told.stderr
        rows = (line.split("|", 1) for line in told.stdout.splitlines())
        own = [(job_id, script) for job_id, script in rows if script.startswith(f"{self.folder.parent}/")]
        return [{"id": job_id, "script": script, "array": ""} for job_id, script in sorted(own)]


@pytest.fixture
def make(slurm: SlurmCluster, open_directory: Path) -> Iterator[Callable[[], World]]:
    """Homes of root's on the cluster."""
    worlds, made = Worlds(Path(tempfile.mkdtemp(dir=open_directory))), list[World]()

    def one() -> World:
        world = worlds.make()
        made.append(world)
        path = f"{world.home / 'real'}:/usr/local/bin:/usr/bin:/bin"
        (world.home / "real").mkdir()
        queue = Queue(world.clients.folder, slurm)
        return replace(world, clients=queue, env={**world.env, **slurm.env, "PATH": path})

    yield one
    for world in made:
        world.end()


@pytest.fixture
def tell() -> Iterator[Callable[[str, str, str], object]]:
    """Writes a row of the table."""
    with open(os.environ.get("COACH_FAULTS_TABLE", os.devnull), "a") as file:
        yield lambda moment, end, said: file.write(f"launch, real Slurm\t–\t{moment}\t{end}\t{said}\n")


def test_a_launch_that_is_killed_around_sbatch_is_found_again_or_known_as_never_submitted(
    slurm: SlurmCluster,
    make: Callable[[], World],
    tmp_path: Path,
    tell: Callable[[str, str, str], object],
) -> None:
    moments = around_sbatch(make(), tmp_path / "whole")
    slurm.cancel_all()
    assert len(moments) > 5
    for moment in moments:
        world = make()
        program = forked(world.body(HELD))
        inject = ("-e", f"trace={moment.call}", "-e", f"inject={moment.injection}")
        tracer = program.trace(tmp_path / "cut", *inject)
        status = program.wait()
        tracer.wait()
        assert status in (-9, 0), world.output
        said = programs.check_orders(world, HELD)
        tell(moment.what, "killed" if status == -9 else "ended first", said)
        slurm.cancel_all()


@pytest.mark.parametrize("moment", list(CLIENT))
def test_a_launch_that_is_killed_by_the_client_s_side_is_found_again_or_known_as_never_submitted(
    slurm: SlurmCluster, make: Callable[[], World], moment: str, tell: Callable[[str, str, str], object]
) -> None:
    world = make()
    client = world.home / "real" / "sbatch"
    client.write_text(f"#!/bin/sh\n{CLIENT[moment].format(home=world.home, sbatch='/usr/bin/sbatch')}\n")
    client.chmod(0o755)
    program = forked(world.body(HELD))
    (world.home / "pid").write_text(f"{program.pid}\n")
    program.go()
    assert program.wait() == -9, world.output
    world.wait_for_silence("a launch that was killed")
    client.unlink()
    tell(moment, "killed", programs.check_orders(world, HELD))
    slurm.cancel_all()


def around_sbatch(world: World, trace: Path) -> list[Moment]:
    """The changes of a launch from the moment on that its run is written down."""
    program = forked(world.body(HELD))
    tracer = program.trace(trace, "-y", "-e", f"trace={','.join(CHANGING)}")
    assert program.wait() == 0, world.output
    tracer.wait()
    found = moments_of(trace.read_text(errors="replace"), [world.root])
    first = next(index for index, each in enumerate(found) if each.what.startswith("rename .run.json"))
    return found[first:]
