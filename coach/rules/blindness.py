"""Decide which rules can judge with the data at hand, and explain why the others cannot.

Unknown is not healthy: a rule without its data is listed with reason and remedy, and does not count as
silent.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.lookback.history import History
from coach.model.judging.finding import NotMeasured
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age, told
from coach.model.training.run import Run
from coach.rules.base import Need, Rule
from coach.rules.from_numbers.job_means import cpu_means, gpu_means, node_means, peaks_of_memory

_DENIED = "ermission denied"
"""In the reason why a log was not read: then a sampler's record beside it could not be seen either."""
_REMEDIES = {
    Need.LOG: ("no log was found, or it is empty", "name the log file: coach check FILE"),
    Need.METRICS: (
        "no training metrics were found",
        "launch it with `coach launch`, or write metrics/rank-<r>.jsonl as the trainers do",
    ),
    Need.GPU_TELEMETRY: ("no sampler ran beside it", "start the training with `srun … coach run -- COMMAND`"),
    Need.GPU_LINKS: (
        "no record of a GPU's PCIe and NVLink came: MIG instances and virtual GPUs have none",
        "the sampler writes one every ten seconds: start the training with `srun … coach run -- COMMAND`",
    ),
    Need.GPU_HEALTH: (
        "no record of a GPU's memory errors came",
        "the sampler writes one every ten seconds: start the training with `srun … coach run -- COMMAND`",
    ),
    Need.HOST_TELEMETRY: (
        "no sampler ran beside it",
        "start the training with `srun … coach run -- COMMAND`",
    ),
    Need.STACKS: (
        "no stacks were sampled beside it",
        "launch it with `coach launch`: 20 stacks of each rank are taken after a minute",
    ),
    Need.JOB_STATE: (
        "the target is not a job or run in the queue or in a run directory",
        "name the job id",
    ),
    **dict.fromkeys(
        (Need.GPU_SUMMARY, Need.CPU_SUMMARY, Need.MEMORY_SUMMARY),
        ("there is no summary of jobstats", "start the training with `srun … coach run -- COMMAND`"),
    ),
}
_OF_A_RUN = {
    Need.METRICS: ("no training metrics were found", "write metrics/rank-<r>.jsonl as the trainers do"),
    Need.GPU_TELEMETRY: (
        "no sample came from its sampler",
        (
            "the sampler starts and ends with the training: the standard error of the training says why no "
            "sample came"
        ),
    ),
    Need.GPU_LINKS: (
        _REMEDIES[Need.GPU_LINKS][0],
        "the sampler writes one every ten seconds, where the driver has them: the run has to last that long",
    ),
}
_OF_A_RUN[Need.GPU_HEALTH] = (_REMEDIES[Need.GPU_HEALTH][0], _OF_A_RUN[Need.GPU_LINKS][1])
_OF_A_RUN[Need.HOST_TELEMETRY] = _OF_A_RUN[Need.GPU_TELEMETRY]
"""The text for a run that coach recorded: advice to use `coach launch` or `coach run` would be wrong."""
_NO_STEP = (
    "its trainer writes metrics/rank-<r>.jsonl from the first step on: stderr.log shows how far it came"
)
_NOT_PRINTED = (
    "neither its output nor its files contain a loss",
    "print the loss with its step, write TensorBoard or CSV, or call coach_report.step(loss=…)",
)
"""The text for a program that was not written for coach."""
_DIRECTORY_OF_ITS_OWN = (
    "let each run write to a directory of its own, print the loss with its step, or call "
    "coach_report.step(loss=…)"
)
_INSTEAD = frozenset({Need.STACKS, Need.DUMPS})
_TELEMETRY = frozenset({Need.GPU_TELEMETRY, Need.HOST_TELEMETRY})


@dataclass(frozen=True, slots=True)
class Sight:
    """The needs that are met for one target, and the reasons why others are not."""

    met: frozenset[Need]
    asked_no_gpu: bool
    gaps: tuple[NotMeasured, ...]
    """Values that the sampler reported as unreadable, and metric files that were skipped."""
    snapshot: TargetSnapshot

    @classmethod
    def of(cls, snapshot: TargetSnapshot, history: History) -> Sight:
        """Check the available data. One utilization value of one GPU is enough for GPU telemetry."""
        met = _met(snapshot, history)
        elsewhere = _elsewhere(snapshot)
        if snapshot.state is not None and not elsewhere:
            met.add(Need.JOB_STATE)
        asked_no_gpu = snapshot.run is not None and snapshot.run.num_gpus == 0
        gaps = elsewhere + _gaps(snapshot, asked_no_gpu)
        return cls(frozenset(met), asked_no_gpu, gaps, snapshot)

    def can_judge(self, rule: Rule) -> bool:
        return not rule.needs or any(needs <= self.met for needs in _alternatives(rule))

    def not_measured(self, rule: Rule) -> list[NotMeasured]:
        """The data that a blind rule lacks, for the alternative with the fewest gaps."""
        # Stacks and dumps only replace missing numbers, so the report names the numbers.
        alternatives = _alternatives(rule)
        by_numbers = [needs for needs in alternatives if needs.isdisjoint(_INSTEAD)] or alternatives
        missing = min((needs - self.met for needs in by_numbers), key=len)
        if Need.GPU_TELEMETRY in missing:  # GPU telemetry as a whole is already listed
            missing -= {Need.GPU_LINKS, Need.GPU_HEALTH}
        return [self._missing(need) for need in sorted(missing)]

    def _missing(self, need: Need) -> NotMeasured:
        if need is Need.GPU_TELEMETRY and self.asked_no_gpu:
            return NotMeasured(
                need.value, "the run requested no GPU", "launch with --gpus 1 or more to train on GPUs"
            )
        run, unread = self.snapshot.run, _unread_logs(self.snapshot)
        if need is Need.LOG and unread:
            return NotMeasured(need.value, unread, _REMEDIES[need][1])
        if run is None and _DENIED in unread and need in _TELEMETRY:  # a job of another user
            return NotMeasured(
                need.value, "its files may not be read by you", "ask its owner: coach check JOB"
            )
        said = next((gap for gap in self.gaps if gap.what == need.value), None)
        if said is None and need in _TELEMETRY:
            said = self._of_a_job(need)
        return said or NotMeasured(need.value, *_remedy(need, run))

    def _of_a_job(self, need: Need) -> NotMeasured | None:
        """Missing telemetry of a job that coach can still measure, or that jobstats measured."""
        because, how = _REMEDIES[need]
        if job_id := _unmeasured_job(self.snapshot):
            return NotMeasured(need.value, because, f"coach attach {job_id}; next time, {how}")
        if summary := _summary_told(self.snapshot):
            return NotMeasured(need.value, f"{because}; {summary}", how)
        return None


def _alternatives(rule: Rule) -> list[frozenset[Need]]:
    return [needs if isinstance(needs, frozenset) else frozenset({needs}) for needs in rule.needs]


def _met(snapshot: TargetSnapshot, history: History) -> set[Need]:
    samples = (sample for key in history.gpus for sample in history.gpu(*key))
    is_met = {
        Need.LOG: bool(snapshot.log_hits or snapshot.log_tails),
        Need.METRICS: bool(history.ranks),
        Need.GPU_TELEMETRY: any(sample.utilization_pct is not None for sample in samples),
        Need.GPU_LINKS: any(history.gpu_link(*key) for key in history.gpus),
        Need.GPU_HEALTH: any(history.gpu_health(*key) for key in history.gpus),
        Need.STACKS: bool(snapshot.bursts),
        Need.DUMPS: bool(snapshot.flight),
        Need.HOST_TELEMETRY: bool(history.nodes),
        Need.GPU_SUMMARY: bool(gpu_means(snapshot, 0.0)),
        Need.CPU_SUMMARY: bool(cpu_means(snapshot, 0.0)),
        Need.MEMORY_SUMMARY: bool(peaks_of_memory(node_means(snapshot, 0.0))),
    }
    return {need for need, known in is_met.items() if known}


def _remedy(need: Need, run: Run | None) -> tuple[str, str]:
    """Why a need is not met, and what the user can do that was not done yet."""
    if run is None or need not in _OF_A_RUN:
        return _REMEDIES[need]
    if need is Need.METRICS and run.launch.get("own"):
        return _NOT_PRINTED
    because, how = _OF_A_RUN[need]
    return because, _NO_STEP if need is Need.METRICS and run.parameters else how


def _elsewhere(snapshot: TargetSnapshot) -> tuple[NotMeasured, ...]:
    """Explain for a local run of another machine that its current state can be read only there."""
    run = snapshot.run
    if run is None or run.is_visible or snapshot.has_ended:
        return ()
    now_s, spoke_s = snapshot.now_s, run.last_word_time_s
    age = None if now_s is None or spoke_s is None else rough_age(now_s - spoke_s)
    because = told(run.host, snapshot.state, age)
    return (NotMeasured(Need.JOB_STATE.value, because, f"look on {run.host}: coach check {run.run_id}"),)


def _unmeasured_job(snapshot: TargetSnapshot) -> str | None:
    """Id of a running Slurm job without a known sampler: coach can start one in it as a job step."""
    job = snapshot.job
    is_foreign = snapshot.run is None and job is not None and job.raw_job_id is not None
    return job.job_id if job is not None and is_foreign and job.state == "RUNNING" else None


def _summary_told(snapshot: TargetSnapshot) -> str:
    """Explain what a job summary leaves open: it holds means, so rules that need a course over time stay
    blind."""
    summary = snapshot.summary
    if summary is None or summary.gap:
        return summary.gap if summary is not None else ""
    has_gpus = any(node.gpus for node in summary.nodes)
    if has_gpus and not gpu_means(snapshot, 0.0):
        return "the summary of jobstats has no GPU utilization"
    return "jobstats reports only the means of the whole job, not the values over time"


def _unread_logs(snapshot: TargetSnapshot) -> str:
    """Where logs were searched for, and the result; empty if no place is known."""
    return "; ".join(
        file.problem or f"{file.path}: {'empty' if file.is_found else 'no such file'}"
        for file in snapshot.log_files
    )


def _gaps(snapshot: TargetSnapshot, asked_no_gpu: bool) -> tuple[NotMeasured, ...]:
    sensors = (
        NotMeasured(gap.what, gap.because, gap.how)
        for gap in snapshot.sensor_gaps
        if not (asked_no_gpu and gap.what.startswith("gpu"))
    )
    aside = snapshot.left_aside
    files = [NotMeasured(Need.METRICS.value, aside, _DIRECTORY_OF_ITS_OWN)] if aside else []
    return tuple(dict.fromkeys([*sensors, *files]))
