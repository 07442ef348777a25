"""DST007: the training hangs: no rank has finished a step for a long time, and its GPUs or CPUs do no
work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.stacks import StackBurst
from coach.model.training.telemetry import HostSample
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import quote, ranks_text
from coach.rules.from_numbers.collective_order import disagreement, hit_by_dumps, odd_ranks, rank_table
from coach.rules.from_numbers.rhythm import Silence, silence_of, started_s
from coach.rules.from_numbers.stack_bursts import (
    burst_evidence,
    newest_bursts,
    stands_in_one_place,
    waiting_share,
)
from coach.rules.from_numbers.telemetry_windows import has_all_nodes, mean, means_of
from coach.rules.from_numbers.training_windows import last_sign, newest_end, newest_times

_CLOCK_S = 5.0
"""Tolerance in seconds between the clocks of nodes and file servers."""


class Hang(Rule):
    """No rank finishes a step any more, and the GPUs or CPUs show that no work is done.

    What it sees
        Two independent signs together. First, no rank finished a step for ten times the usual step time, and
        at least five minutes. Second, over the last two minutes on every node: GPUs that are busy but draw
        little power (ranks that spin in a collective), or idle GPUs with almost idle CPUs; without GPUs, idle
        CPUs. Or the stacks of the ranks, sampled after logs and metrics were silent for five minutes and ten
        times the usual step time: one rank stands in one line while the others wait for it, or all ranks
        stand and use no CPU. If the stacks show work, half an hour of silence is info. Or the dumps of
        torch's flight recorder differ by rank, and the job has written nothing since.

        A log alone, also of a job that coach did not launch: the program had reported at least twenty steps,
        and is silent for ten minutes, ten times its usual pause and three times its longest known pause. That
        is info; with idle CPUs where they are sampled, a warning. A warning too: silence since a task of srun
        failed while the other tasks still run, and a silence in which `coach stacks` showed that ranks wait
        for one that stands elsewhere.
    Why it matters
        The job holds its nodes until its time limit and trains nothing. A longer limit does not help.
    When it stays silent
        On silence of a program without a known rhythm: coach calls such a job silent, not healthy. If its
        last lines announce an evaluation, a checkpoint, a compilation or a download, end an epoch, or end
        where an output buffer was full. While the job reads or writes much data. While the newest samples are
        older than two minutes: they prove nothing about now. While a node or a rank is not measured: it may
        do the work for which the others wait. After a requeue, before the first new step.
    What to do
        Before you cancel the job, see where each rank stands: `coach stacks JOBID`. The others wait for the
        rank that stands elsewhere.
    Sources
        NVIDIA resiliency extension (heartbeats); SageMaker Debugger's StalledTraining; ML Engineering
        (Bekman), "hanging".
    """

    code = "DST007"
    name = "hang"
    cause = "hang"
    severity = Severity.CRITICAL
    needs = (
        frozenset({Need.METRICS, Need.GPU_TELEMETRY, Need.HOST_TELEMETRY}),
        frozenset({Need.METRICS, Need.HOST_TELEMETRY}),
        Need.STACKS,
        frozenset({Need.DUMPS, Need.JOB_STATE}),
        frozenset({Need.LOG, Need.JOB_STATE}),
    )
    silence_s = Threshold(300, "seconds", "shorter silences are checkpoints on slow file systems")
    silence_steps = Threshold(10, "times the median step", "long steps make long silences")
    lag_s = Threshold(90, "seconds", "a network file system may show new lines this late")
    window_s = Threshold(120, "seconds", "in this time an evaluation or a checkpoint shows some work")
    min_samples = Threshold(20, "samples", "fewer may be chance", at_least=1)
    spin_pct = Threshold(95, "percent", "a collective that waits keeps its kernel running")
    spin_power_share = Threshold(0.35, "of the power limit", "a kernel that only waits draws less")
    idle_cpu_pct = Threshold(5, "percent of the allotted CPUs", "no process computes, decodes or compresses")
    stack_share = Threshold(0.9, "of the stacks", "a rank that works is seen in several lines")
    told_s = Threshold(1800, "seconds", "a job that is silent this long deserves a note")
    noted_s = Threshold(600, "seconds", "an evaluation or a checkpoint that prints nothing is shorter")
    pauses = Threshold(3, "times the longest pause", "pauses differ, and the longest may be yet to come")
    idle_io_mib_s = Threshold(1, "MiB/s", "no process reads or writes much")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        look = _see_stacks(snapshot, "Take the stacks of all ranks now, before the job is cancelled")
        yield from (
            [*self._by_steps(snapshot, history)]
            or [*self._by_stacks(snapshot, history)]
            or [*hit_by_dumps(self.code, "The training stands still", (look,), snapshot, history)]
            or [*self._by_silence(snapshot, history)]
        )

    def _by_silence(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits from a silence that is long for this program, or that began when one task of srun failed."""
        silence, now_s = silence_of(snapshot, history), snapshot.now_s
        if silence is None or now_s is None:
            return
        signs = self._signs(snapshot, history, now_s)
        idle = next(iter(signs.values()), None)
        summary, failed = self._told_of_silence(silence, idle), silence.failed_task
        if summary is None:
            return
        is_sure = failed is not None or idle is not None
        yield Hit(
            summary=summary,
            evidence=(
                *([quote(failed)] if failed is not None else []),
                *_last_lines(snapshot),
                *(Evidence(f"{node}: {sign}") for node, sign in signs.items()),
            ),
            confidence=0.7 if is_sure else 0.5,
            fixes=tuple(_fixes_of_silence(snapshot, failed is not None)),
            severity=Severity.WARNING if is_sure else Severity.INFO,
            since_s=silence.last_s,
        )

    def _told_of_silence(self, silence: Silence, idle: str | None) -> str | None:
        """The summary; None if the silence may be usual for this program."""
        said = f"{silence.words[0].upper()}{silence.words[1:]}"
        if silence.failed_task is not None:
            return f"{said} since a task of srun failed: the others still run, and most likely wait for it"
        if silence.times is None or silence.does_other_work or not self._is_long(silence):
            return None
        return f"{said}, {silence.times:,.0f} times its usual pause{f', and {idle}' if idle else ''}"

    def _is_long(self, silence: Silence) -> bool:
        least = max(self.noted_s, self.silence_steps * (silence.usual_s or 0.0))
        return silence.silent_s >= max(least, self.pauses * silence.longest_s)

    def _by_stacks(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits from stacks that were sampled because logs and metrics went silent."""
        bursts, now = newest_bursts(snapshot, is_stall=True), snapshot.now_s
        if not bursts or now is None or snapshot.state != "RUNNING":
            return
        if last_sign(snapshot, history) > bursts[0].time_s + _CLOCK_S:
            return
        silent_s = now - bursts[0].time_s + (bursts[0].silent_s or 0.0)
        apart = self._standing_apart(bursts)
        nodes = {burst.node for burst in bursts}
        is_whole = len(bursts) >= len(history.ranks) and has_all_nodes(snapshot, nodes)
        summary, severity = self._told(bursts, apart, silent_s, is_whole=is_whole)
        if severity is None:
            return
        yield Hit(
            summary=summary,
            evidence=_standing(snapshot, bursts, apart),
            confidence=0.85 if severity is Severity.CRITICAL else 0.6,
            subject=Subject(node=apart[0].node, rank=apart[0].rank) if len(apart) == 1 else Subject(),
            fixes=(_see_stacks(snapshot, "Take the stacks of all ranks now, before the job is cancelled"),),
            severity=severity,
            since_s=now - silent_s,
        )

    def _told(
        self, bursts: Sequence[StackBurst], apart: Sequence[StackBurst], silent_s: float, *, is_whole: bool
    ) -> tuple[str, Severity | None]:
        """The summary and its severity; severity None if it is too early to report. `is_whole`: the bursts
        are those of all ranks, so none of them works unseen."""
        still = f"The training has stood still for {silent_s / 60:.0f} min"
        if apart:
            return f"{still}: {_stands_apart(apart[0], bursts)}", Severity.CRITICAL
        busy = next((burst for burst in bursts if not self._stands_idle(burst)), None)
        if busy is None and is_whole:
            return f"{still}: {_stands_in(bursts[0])}, without CPU", Severity.CRITICAL
        if silent_s < self.told_s:
            return "", None
        seen = f"{_stands_in(bursts[0])}, and other ranks are not measured"
        if busy is not None:
            seen = f"{busy.label} works in {busy.place}"
        return f"Nothing was printed for {silent_s / 60:.0f} min: {seen}", Severity.INFO

    def _standing_apart(self, bursts: Sequence[StackBurst]) -> list[StackBurst]:
        """The ranks that stand in a line of their own while all others wait for them; empty if any rank
        works."""
        least = self.stack_share
        waiting = [burst for burst in bursts if waiting_share(burst) >= least]
        apart = [
            burst
            for burst in bursts
            if burst not in waiting
            and stands_in_one_place(burst, least)
            and burst.share("other", "data") >= least
        ]
        return apart if waiting and len(waiting) + len(apart) == len(bursts) else []

    def _stands_idle(self, burst: StackBurst) -> bool:
        """True if a rank waits or stands in one line, and was measured to use no CPU."""
        least = self.stack_share
        is_idle = burst.cpu_pct is not None and burst.cpu_pct < self.idle_cpu_pct
        return is_idle and (waiting_share(burst) >= least or stands_in_one_place(burst, least))

    def _by_steps(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        now = snapshot.now_s
        if now is None or snapshot.state != "RUNNING" or not history.nodes or not history.ranks:
            return
        newest = newest_end(history)
        times = newest_times(history, history.ranks[0])
        if newest is None or not times or newest < (started_s(snapshot) or 0.0):
            return
        patience = max(self.silence_s, self.silence_steps * median(times))
        silence = now - newest
        if silence < patience + self.lag_s:
            return
        signs = self._signs(snapshot, history, now)
        if not signs:
            return
        first = next(iter(signs.values()))
        step = max(history.steps(rank)[-1].step for rank in history.ranks)
        yield Hit(
            summary=f"The training stands still: no step for {silence / 60:.0f} min, and {first}",
            evidence=(
                Evidence(f"newest step of any rank: {step}, ended before", value=round(silence), unit="s"),
                Evidence("step time, median", value=round(median(times), 3), unit="s"),
                *(Evidence(f"{node}: {sign}") for node, sign in list(signs.items())[:4]),
                *_standing(snapshot, newest_bursts(snapshot, is_stall=True)),
            ),
            confidence=0.9,
            fixes=(_see_stacks(snapshot, "Take the stacks of all ranks before the job is cancelled"),),
            since_s=newest,
        )

    def _signs(self, snapshot: TargetSnapshot, history: History, now: float) -> dict[str, str]:
        """Node → the sign that it does no work. Empty if any node may work. A node whose samples all lie
        before the job's start is of the time before a requeue."""
        start = started_s(snapshot) or 0.0
        nodes = [node for node in history.nodes if history.host(node)[-1].time_s >= start]
        signs = {node: self._sign(history, node, now) for node in nodes}
        idle = {node: sign for node, sign in signs.items() if sign is not None}
        return idle if len(idle) == len(signs) and has_all_nodes(snapshot, nodes) else {}

    def _sign(self, history: History, node: str, now: float) -> str | None:
        """The sign that a node does no work; None if it may work."""
        start, enough = now - self.window_s, self.min_samples
        hosts = [sample for sample in history.host(node) if sample.time_s > start]
        if len(hosts) < enough:
            return None
        gpus = [self._gpu_use(history, key, start) for key in history.gpus if key[0] == node]
        uses = [use for use in gpus if use is not None]
        if len(uses) < len(gpus) or self._reads_or_writes(history, node, hosts):
            return None
        if uses and all(self._spins(use) for use in uses):
            return "its GPUs spin: always busy, at little power"
        cpu = means_of(hosts, "cpu_pct")
        if cpu is None or cpu >= self.idle_cpu_pct or any(max(use.percents) > 0 for use in uses):
            return None
        return f"nothing works: CPUs {cpu:.0f} %" + (", GPUs 0 %" if uses else "")

    def _gpu_use(self, history: History, key: tuple[str, int], start: float) -> _GpuUse | None:
        """The GPU's use since `start`; None for too few samples."""
        samples = [s for s in history.gpu(*key) if s.time_s > start and s.utilization_pct is not None]
        if len(samples) < self.min_samples:
            return None
        shares = [s.power_w / s.power_limit_w for s in samples if s.power_w is not None and s.power_limit_w]
        return _GpuUse([sample.utilization_pct or 0.0 for sample in samples], mean(shares))

    def _reads_or_writes(self, history: History, node: str, hosts: Sequence[HostSample]) -> bool:
        """True if the disks' mean rate or any mount's present rate is above that of an idle node."""
        rates = [
            rate
            for sample in hosts
            for rate in (sample.disk_read_mib_s, sample.disk_write_mib_s)
            if rate is not None
        ]
        idle = self.idle_io_mib_s
        return (mean(rates) or 0.0) > idle or any(
            (mount.read_mib_s or 0.0) + (mount.write_mib_s or 0.0) > idle for mount in history.mounts(node)
        )

    def _spins(self, use: _GpuUse) -> bool:
        """True if a kernel always ran but the GPU drew little power."""
        return (
            min(use.percents) >= self.spin_pct
            and use.power_share is not None
            and use.power_share < self.spin_power_share
        )


@dataclass(frozen=True, slots=True)
class _GpuUse:
    """The use of one GPU in the judged window."""

    percents: list[float]
    power_share: float | None
    """Mean power draw over the power limit, 0 to 1."""


def _stands_in(burst: StackBurst) -> str:
    return f"{burst.label} stands in {burst.place}"


def _stands_apart(apart: StackBurst, bursts: Sequence[StackBurst]) -> str:
    others = [burst for burst in bursts if burst is not apart]
    who = f"{others[0].label} waits" if len(others) == 1 else "the others wait"
    return f"{_stands_in(apart)}, {who} for it in a collective"


def _see_stacks(snapshot: TargetSnapshot, title: str) -> Fix:
    return Fix(title, command=f"coach stacks {snapshot.job.job_id if snapshot.job else snapshot.target}")


def _standing(
    snapshot: TargetSnapshot, bursts: Sequence[StackBurst], apart: Sequence[StackBurst] = ()
) -> tuple[Evidence, ...]:
    """Where each rank stands. With dumps of torch's flight recorder: the rank that differs, whether the
    stacks name another one (`apart`), and each rank's last call. Without dumps the stacks alone."""
    odd = odd_ranks(snapshot.flight)
    if odd is None:
        return burst_evidence([*apart, *(burst for burst in bursts if burst not in apart)])
    by_stacks = [burst.rank for burst in apart if burst.rank is not None]
    return (
        Evidence(f"{ranks_text(odd.ranks)} {odd.how}"),
        *disagreement(odd.ranks, by_stacks, "the stacks"),
        *rank_table(snapshot, odd),
    )


def _last_lines(snapshot: TargetSnapshot) -> Iterable[Evidence]:
    """The last line of the log that was written last."""
    tail = max(snapshot.log_tails, key=lambda tail: tail.written_s or 0.0, default=None)
    if tail is not None and tail.lines:
        yield Evidence(tail.lines[-1].strip(), tail.file, tail.num_lines)


def _fixes_of_silence(snapshot: TargetSnapshot, has_failed: bool) -> Iterable[Fix]:
    yield _see_stacks(snapshot, "See where each process stands, before you cancel the job")
    if has_failed:
        yield Fix(
            "Start the tasks with `srun --kill-on-bad-exit=1`: a failed task then ends the step at once"
        )
