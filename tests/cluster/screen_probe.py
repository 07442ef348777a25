"""The screens on a live cluster, measured from inside, without a terminal: `python screen_probe.py` prints
one JSON object.

It is its own program, because it measures a whole process: its CPU time, its memory, and the pauses of its
event loop. A heartbeat in that loop records each pause. Only this process's own CPU time within a pause
counts, because on a busy machine other programs cause the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from coach.config import load
from coach.tui.app import CoachApp
from coach.tui.arrangement import put_keys_first
from coach.tui.screens.cluster import ClusterScreen
from coach.tui.wiring import open_live
from coach.workflows.watching import world

BEAT_S = 0.004
NUM_REFRESHES = 2


class Heart:
    """Beats in the event loop."""

    def __init__(self) -> None:
        self._gaps_s: list[float] = []
        self._task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            await asyncio.sleep(BEAT_S)
            gap_s = time.perf_counter() - wall_s - BEAT_S
            self._gaps_s.append(min(gap_s, time.process_time() - cpu_s))

    def longest_ms(self) -> float:
        """The longest gap since this was last asked."""
        longest_s = max(self._gaps_s, default=0.0)
        self._gaps_s.clear()
        return 1e3 * longest_s


async def until(is_so: Callable[[], object], timeout_s: float = 60.0) -> float:
    """Seconds until something is so."""
    start_s = time.perf_counter()
    while not is_so():
        if time.perf_counter() - start_s > timeout_s:
            raise SystemExit(f"it did not happen in {timeout_s:g} s")
        await asyncio.sleep(BEAT_S)
    return time.perf_counter() - start_s


def memory_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


async def measure(num_jobs: int) -> dict[str, object]:
    put_keys_first()
    world.CLUSTER_INTERVAL_S = 0.5  # type: ignore[misc]  # a refresh of everybody's jobs need not be waited for
    settings = dataclasses.replace(load(os.environ), nodes_interval_s=0.5)
    app = CoachApp(open_live(settings, "slurm", is_readonly=True))
    found: dict[str, object] = {}
    async with app.run_test(size=(160, 50)) as pilot:
        heart = Heart()
        screen = app.screen
        assert isinstance(screen, ClusterScreen)
        queue = screen.queue

        async def seconds_for(key: str, is_so: Callable[[], object]) -> float:
            app.simulate_key(key)
            return await until(is_so)

        await until(lambda: screen.nodes.num_rows)
        found["first_blocked_ms"] = heart.longest_ms()
        await asyncio.sleep(1.0)
        found["own_view_mib"] = memory_mib("VmHWM")
        found["own_view_jobs"] = len(app.context.snapshot.jobs)
        found["all_s"] = await seconds_for("a", lambda: queue.num_rows == num_jobs)
        found["all_blocked_ms"] = heart.longest_ms()
        costs, gaps_ms = [], []
        for _ in range(NUM_REFRESHES):
            await asyncio.sleep(1.0)
            told_s, cpu_s = app.context.snapshot.sources["jobs"].data_time_s, time.process_time()
            app.context.session.refresh_soon()
            await until(lambda: app.context.snapshot.sources[("jobs")].data_time_s != told_s)  # noqa: B023 (it is awaited here)
            await asyncio.sleep(1.5)
            costs.append(time.process_time() - cpu_s)
            gaps_ms.append(heart.longest_ms())
        found |= {"refresh_cpu_s": max(costs), "refresh_blocked_ms": max(gaps_ms)}
        keys_s = {"cursor": await seconds_for("end", lambda: queue.cursor_key == queue.keys[-1])}
        await pilot.press("slash", *"gpu:")
        num_wanted = sum(job.num_gpus == 8 for job in app.context.snapshot.jobs)
        keys_s["filter"] = await seconds_for("8", lambda: queue.num_rows == num_wanted)
        await pilot.press("escape")
        await until(lambda: queue.num_rows == num_jobs)
        first = queue.keys[0]
        keys_s["sort"] = await seconds_for("s", lambda: queue.keys[0] != first)
        found["keys_ms"] = {name: 1e3 * seconds for name, seconds in keys_s.items()}
        found["keys_blocked_ms"] = heart.longest_ms()
        found["all_view_mib"] = memory_mib("VmHWM")
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(int(sys.argv[1])))))
