"""GPU003: allocated GPUs do little work. Low utilization is a symptom, so the finding names the cause if it
was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.telemetry import ProcessSample
from coach.rules.advice.launched_with import int_parameter, int_resource
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.job_means import CONFIDENCE, MEAN, MIN_MEAN_S, GpuMean, gpu_means
from coach.rules.from_numbers.telemetry_windows import WINDOW, GpuUse, gpu_uses
from coach.rules.from_numbers.training_windows import data_shares

_MAX_GPUS_SHOWN = 16
_MAX_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Cause:
    """The measured reason why the GPUs have little to do."""

    text: str
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    confidence: float = 0.8


class LowGpuUtilization(Rule):
    """GPUs that the job holds are idle most of the time.

    What it sees
        The mean utilization of each GPU over the newest window of training, or over all kept training samples
        once the run has ended. For a job without a sampler that coach did not launch: the mean of each GPU
        over the whole job, if the site's jobstats left it in the accounting. Each GPU is judged separately,
        because a mean over all would hide that one of two does nothing. Power and memory are shown too. The
        finding names a cause if the data show one: no process of the job uses a GPU or CPU time (an
        allocation left open, a program that ended and left its shell), a GPU that was never used, waiting for
        input, too little work per step. CPUs at their limit are GPU006, slow storage is DAT006. Otherwise the
        finding is called unexplained and says what to measure next.
    Why it matters
        An idle GPU is paid for, and nobody else can use it. But utilization is only the share of time in
        which any kernel ran: a low value is a symptom, and a high value proves nothing.
    When it stays silent
        Before the first step (without metrics: before the GPU's first use, for `startup_s`), in evaluation,
        checkpoints and compilation, and until the window holds enough seconds and samples. On the mean over a
        short job, which includes its start. When power is high, or in the warning band when the memory is
        well used: the job then needs this GPU.
    What to do
        Follow the named cause. If it is unexplained, profile some steps and look for synchronisation in each
        step (`.item()`), many small kernels, communication and checkpoints.
    Sources
        Princeton jobstats (15 % and 25 %) and job_defense_shield (memory efficiency); TraceML's bands (30 %)
        and its "unexplained"; NVML's definition of utilization.
    """

    code = "GPU003"
    name = "low-gpu-utilization"
    cause = "low_gpu_utilization"
    severity = Severity.WARNING
    needs = (Need.GPU_TELEMETRY, Need.GPU_SUMMARY)
    keep_s = 10.0
    warning_pct = Threshold(30, "percent", "TraceML's lower band: two thirds of the time are lost")
    critical_pct = Threshold(15, "percent", "jobstats' red line")
    window_s, min_samples, startup_s = WINDOW
    min_mean_s = MIN_MEAN_S
    power_share = Threshold(
        0.5, "of the power limit", "a GPU that draws half its limit is working, even at a low utilization"
    )
    memory_share = Threshold(
        0.8, "of the GPU's memory", "a job that fills the memory needs this GPU: no warning, only critical"
    )
    input_share = Threshold(0.10, "of step time", "waiting for data this long explains idle GPUs")
    small_memory_share = Threshold(0.3, "of the GPU's memory", "so much room is left that the batch can grow")
    empty_mib = Threshold(
        1024,
        "MiB of a GPU",
        "the driver holds some hundreds; more belongs to a process, even to one that NVML hides",
    )
    quiet_cpu_pct = Threshold(20, "percent of one CPU", "shells, sleep and the sampler take less")
    fresh_s = Threshold(30, "seconds", "an older list of processes says nothing of the GPUs now")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        uses = gpu_uses(snapshot, history, self.values)
        low = [use for use in uses if self._is_low(use.mean_pct, use.power_share, use.memory_share)]
        if not uses:
            yield from self._of_summary(snapshot)
        if not low:
            return
        worst = min(low, key=lambda use: use.mean_pct)
        is_critical = worst.mean_pct < self.critical_pct
        found = self._cause_of(snapshot, history, low, uses)
        shown = sorted(low, key=lambda use: (use.node, use.gpu))
        evidence = _listed([(_text(use), use.mean_pct) for use in shown])
        yield Hit(
            summary=f"{_which(low, len(uses), worst)}: {found.text}",
            evidence=(*evidence, *found.evidence),
            confidence=found.confidence,
            subject=Subject(node=worst.node, gpu=worst.gpu) if len(low) == 1 else Subject(),
            fixes=found.fixes,
            severity=Severity.CRITICAL if is_critical else Severity.WARNING,
            since_s=min(use.first.time_s for use in low),
        )

    def _is_low(self, mean_pct: float, power_share: float | None, memory_share: float | None) -> bool:
        if mean_pct >= self.warning_pct:
            return False
        if (power_share or 0) >= self.power_share:
            return False
        is_warning_band = mean_pct >= self.critical_pct
        return not (is_warning_band and (memory_share or 0) >= self.memory_share)

    def _of_summary(self, snapshot: TargetSnapshot) -> Iterable[Hit]:
        """Hits from the means over a whole ended job."""
        means = gpu_means(snapshot, self.min_mean_s)
        low = [gpu for gpu in means if self._is_low(gpu.mean_pct, None, gpu.memory_share)]
        if not low:
            return
        worst = min(low, key=lambda gpu: gpu.mean_pct)
        is_critical = worst.mean_pct < self.critical_pct
        found = _cause_of_means(low, means)
        yield Hit(
            summary=f"{_which(low, len(means), worst, 'was', 'were')}: {found.text}",
            evidence=_listed([(_mean_text(gpu), gpu.mean_pct) for gpu in low]),
            confidence=found.confidence,
            subject=Subject(node=worst.node, gpu=worst.gpu) if len(low) == 1 else Subject(),
            fixes=found.fixes,
            severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        )

    def _cause_of(
        self, snapshot: TargetSnapshot, history: History, low: list[GpuUse], uses: list[GpuUse]
    ) -> _Cause:
        if not snapshot.has_ended and len(low) == len(uses) and (empty := self._empty(history, uses)):
            return empty
        unused = [use for use in low if use.is_never_used]
        if unused and len(unused) == len(low):
            return _never_used(snapshot.run, len(unused), len(uses))
        return (
            self._input(snapshot, history)
            or (self._small_work(snapshot.run, low) if len(low) == len(uses) else None)
            or _unexplained(history, num_others=len(uses) - len(low))
        )

    def _empty(self, history: History, uses: list[GpuUse]) -> _Cause | None:
        """The cause if no process of the job uses a GPU; None if one does or may do so."""
        if not all(use.is_idle and self._holds_nothing(use) for use in uses):
            return None
        evidence = []
        for node in sorted({use.node for use in uses}):
            newest_s = max(use.newest.time_s for use in uses if use.node == node)
            left = self._processes_beside(history.processes(node), newest_s)
            if not left:
                return None
            names = sorted({process.name for process in left if process.name})
            listed = ", ".join(names[:_MAX_NAMES_SHOWN]) or "without a name"
            evidence.append(Evidence(f"processes of the job on {node}, none on a GPU: {listed}"))
        return _Cause(
            "no process of the job is on a GPU and none works: its program ended, waits, or never started",
            tuple(evidence[:_MAX_GPUS_SHOWN]),
            (
                Fix(
                    "End the job if its work is done; a training that sbatch starts gives its GPUs back "
                    "when it ends"
                ),
            ),
            0.95,
        )

    def _holds_nothing(self, use: GpuUse) -> bool:
        memory_mib = use.newest.memory_used_mib
        return memory_mib is not None and memory_mib <= self.empty_mib

    def _processes_beside(self, listed: Sequence[ProcessSample], newest_s: float) -> list[ProcessSample]:
        """The processes of an idle node. Empty if one uses a GPU, if they use the CPUs (a training that found
        no GPU or prepares its data), or if the list is too old."""
        fresh = [process for process in listed if process.time_s >= newest_s - self.fresh_s]
        is_on_gpu = any(process.gpus or process.gpu_memory_mib for process in fresh)
        cpu_pct = [process.cpu_pct for process in fresh if process.cpu_pct is not None]
        is_quiet = len(cpu_pct) == len(fresh) and sum(cpu_pct) < self.quiet_cpu_pct
        return fresh if is_quiet and not is_on_gpu else []

    def _input(self, snapshot: TargetSnapshot, history: History) -> _Cause | None:
        shares = data_shares(snapshot, history, 20)
        if not shares or max(shares.values()) < self.input_share:
            return None
        rank = max(shares, key=lambda key: shares[key])
        return _Cause(
            f"the steps wait for data {shares[rank]:.0%} of their time",
            (
                Evidence(
                    f"share of step time waiting for data, rank {rank}",
                    value=round(shares[rank], 4),
                    unit="of step time",
                ),
            ),
            (Fix("Make the input faster: see the finding input-bound"),),
            0.9,
        )

    def _small_work(self, run: Run | None, low: list[GpuUse]) -> _Cause | None:
        batch = int_parameter(run, "batch_size")
        if batch is None:
            return None
        shares = [share for use in low if (share := use.memory_share) is not None]
        if not shares or max(shares) >= self.small_memory_share:
            return None
        return _Cause(
            "little work per step, and most of the memory is free",
            (
                Evidence(
                    "share of GPU memory in use, the fullest of these GPUs",
                    value=round(max(shares), 3),
                    unit="of memory",
                ),
            ),
            (
                Fix(
                    f"Batch size {batch} → {batch * 2}: more work per step",
                    {"batch_size": batch * 2},
                    changes_learning=True,
                ),
            ),
            0.65,
        )


def _which(
    low: Sequence[GpuUse] | Sequence[GpuMean],
    num_gpus: int,
    worst: GpuUse | GpuMean,
    one: str = "is",
    more: str = "are",
) -> str:
    of_all = f" (of {num_gpus})" if num_gpus > 1 else ""
    busy = f"busy {worst.mean_pct:.0f} % of the time"
    if len(low) == 1:
        return f"GPU {worst.gpu} on {worst.node}{of_all} {one} {busy}"
    return f"{len(low)} GPUs{of_all} {more} {busy} or little more"


def _listed(texts: Sequence[tuple[str, float]]) -> tuple[Evidence, ...]:
    """One line for each GPU with its percentage, up to a maximum number of lines."""
    lines = [Evidence.percent(text, pct) for text, pct in texts[:_MAX_GPUS_SHOWN]]
    if len(texts) > _MAX_GPUS_SHOWN:
        lines.append(Evidence(f"and {len(texts) - _MAX_GPUS_SHOWN} more GPUs like these"))
    return tuple(lines)


def _cause_of_means(low: list[GpuMean], means: list[GpuMean]) -> _Cause:
    """The cause that means can show: no kernel ran, or the GPUs were used unevenly; else unexplained."""
    if not any(gpu.mean_pct for gpu in low):
        return _never_used(None, len(low), len(means))
    what = _uneven(len(means) - len(low), "worked", "worked")
    again = "measure the next run: start its training with `srun … coach run -- COMMAND`"
    return _Cause(f"{what}; {again}", (), (Fix(f"{again[0].upper()}{again[1:]}"),), CONFIDENCE)


def _mean_text(gpu: GpuMean) -> str:
    used, total = gpu.means.memory_used_mib, gpu.means.memory_total_mib
    of_total = "" if total is None else f" of {size_text(total)}"
    memory = "memory –" if used is None else f"memory {size_text(used)}{of_total} at most"
    return f"GPU {gpu.gpu} on {gpu.node}: busy {gpu.mean_pct:.0f} % of the time, {memory} {MEAN}"


def _never_used(run: Run | None, num_unused: int, num_gpus: int) -> _Cause:
    if num_unused < num_gpus:
        ranks = int_resource(run, "nproc_per_node")
        started = f" ({ranks} ranks per node were started)" if ranks else ""
        return _Cause(
            f"no kernel ever ran on {'it' if num_unused == 1 else 'them'}, "
            f"while {_others(num_gpus - num_unused, 'works', 'work')}{started}",
            fixes=(Fix("Start one rank per GPU (--nproc-per-node), or ask for fewer GPUs"),),
            confidence=0.95,
        )
    return _Cause(
        "no kernel ever ran: allotted and never used",
        fixes=(
            Fix(
                "Check torch.cuda.is_available() inside the job; if the program needs no GPU, request none "
                "(--gpus 0)"
            ),
        ),
        confidence=0.95,
    )


def _others(number: int, one: str, more: str) -> str:
    return f"the other GPU {one}" if number == 1 else f"the other GPUs {more}"


def _uneven(num_others: int, one: str, more: str) -> str:
    return f"uneven, {_others(num_others, one, more)}" if num_others else "unexplained"


def _unexplained(history: History, num_others: int) -> _Cause:
    missing = [] if history.ranks else ["step and data times (training metrics)"]
    missing += [] if history.nodes else ["CPU use (the sampler's host records)"]
    measure = "; measure next: " + ", ".join(
        [*missing, "a profile of some steps (synchronisation, small kernels, communication)"]
    )
    return _Cause(
        _uneven(num_others, "works", "work") + measure,
        (),
        (Fix("Profile twenty steps with torch.profiler and look for gaps between kernels"),),
        0.6,
    )


def _text(use: GpuUse) -> str:
    """One GPU's figures. Power and memory stand beside utilization, which does not show how much of the GPU a
    kernel used."""
    power, memory = use.mean("power_w"), use.mean("memory_used_mib")
    limit, total = use.newest.power_limit_w, use.newest.memory_total_mib
    parts = [f"GPU {use.gpu} on {use.node}: busy {use.mean_pct:.0f} % of the time"]
    parts.append(
        "power –" if power is None else f"power {power:.0f} W" + (f" of {limit:.0f} W" if limit else "")
    )
    parts.append(
        "memory –"
        if memory is None
        else f"memory {size_text(memory)}" + (f" of {size_text(total)}" if total else "")
    )
    return ", ".join(parts) + f" (mean of {use.num_samples} samples over {use.span_s:.0f} s)"
