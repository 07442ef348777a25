"""Read the metrics of a training: follow metrics/rank-<r>.jsonl, one file per rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.reading import MetricsChunk, Reading
from coach.model.training.metrics import MetricEvent, Step
from coach.sources.follow import RecordFollower, describe
from coach.sources.io import Io
from coach.sources.values import Fields, finite, text, whole

INTERVAL_S = 1.0

_RANK_FILE = re.compile(r"^rank-(\d{1,6})\.jsonl$")
_STEP = Fields(
    Step,
    set(Step.__match_args__) - {"rank", "samples_per_s", "tokens_per_s", "mfu", "counter"},
    of_any_size=("loss", "lr", "grad_norm", "loss_scale"),
)


def parse_records(
    records: Iterable[Mapping[str, Any]], rank: int
) -> tuple[list[Step], list[MetricEvent], int]:
    """(steps, events, number of records that were neither)."""
    steps: list[Step] = []
    events: list[MetricEvent] = []
    num_bad = 0
    for record in records:
        if "event" in record:
            event = text(record["event"])
            if event is None:
                num_bad += 1
                continue
            time_s, step = finite(record.get("time_s")), whole(record.get("step"))
            events.append(MetricEvent(rank, event, time_s, step, record))
        elif (parsed := parse_step(record, rank)) is not None:
            steps.append(parsed)
        else:
            num_bad += 1
    return steps, events, num_bad


def parse_step(record: Mapping[str, Any], rank: int) -> Step | None:
    """One step record; None if it has no step number."""
    step = whole(record.get("step"))
    if step is None or step < 0:
        return None
    return Step(rank=rank, **_STEP.read(record))


class MetricsSource:
    """Follows the metric files of one run, including those of ranks that appear later."""

    name = "metrics"

    def __init__(self, io: Io, target: str, run_dir: Path, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._io = io
        self._target = target
        self._folder = runs.RunPaths(run_dir).metrics_dir
        self._followers: dict[int, RecordFollower] = {}

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        steps: list[Step] = []
        events: list[MetricEvent] = []
        num_bad, is_caught_up, errors = 0, True, []
        try:
            names = self._names()
            ranks = sorted(int(match[1]) for name in names if (match := _RANK_FILE.match(name)))
            for rank in ranks:
                follower = self._followers.get(rank)
                if follower is None:
                    path = self._folder / f"rank-{rank}.jsonl"
                    follower = self._followers[rank] = RecordFollower(self._io, path)
                try:
                    bite = follower.read()
                except OSError as problem:
                    errors.append(describe(problem))
                    continue
                new_steps, new_events, num_wrong = parse_records(bite.records, rank)
                steps += new_steps
                events += new_events
                num_bad += bite.num_bad + num_wrong
                is_caught_up = is_caught_up and bite.is_caught_up
        except OSError as problem:
            errors.append(describe(problem))
        now_s = self._io.now()
        if steps or events or num_bad or not errors:
            chunk = MetricsChunk(self._target, tuple(steps), tuple(events))
            yield Reading(
                self.name,
                now_s,
                now_s - start_s,
                chunk,
                None,
                self._target,
                num_bad,
                is_caught_up or bool(errors),
            )
        if errors:
            yield Reading(self.name, now_s, now_s - start_s, None, errors[0], self._target)

    def _names(self) -> list[str]:
        try:
            return self._io.list_dir(self._folder)
        except FileNotFoundError:
            return []  # the training has not started
