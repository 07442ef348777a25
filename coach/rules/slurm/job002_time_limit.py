"""JOB002: the job reached its time limit. A longer limit helps only if the training still made progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Segment
from coach.rules.advice.launched_with import int_parameter, int_resource
from coach.rules.advice.remedies import more_time, saved_before_limit
from coach.rules.base import Threshold
from coach.rules.from_logs.printed_progress import (
    Counted,
    counted,
    last_step,
    reported_checkpoint,
    seen_silence_s,
    silence_s,
    stood_still_s,
)
from coach.rules.from_logs.quoted_evidence import hits_of, ranks_text
from coach.rules.from_numbers.training_windows import newest_times
from coach.rules.slurm.ended_by_slurm import EndedBySlurm


@dataclass(frozen=True, slots=True)
class _Behind:
    """Ranks whose steps ended long before those of the others."""

    ranks: list[int]
    step: int
    of_others: int


class TimeLimit(EndedBySlurm):
    """The job reached its time limit and was ended by Slurm.

    What it sees
        The state TIMEOUT or DEADLINE; slurmstepd's "CANCELLED AT … DUE TO TIME LIMIT"; submitit's "this job
        is timed-out" and "Job not requeued because: timed-out …"; the words of LSF, PBS, Moab, Grid
        Engine and Flux for the same.
        A job with the state DEADLINE that never ran could not end before its --deadline any more.
        Ranks whose last step lies far behind that of the others, in metrics or in lines that name their rank.
        The run's steps, the counter that it prints ("epoch 109/200"), its last line with the use of its CPUs,
        and the pause before Slurm's last words, if coach followed the job, show whether the training still
        made progress. Of a run that coach launched: exit.json, if its script got the signal before the limit
        and the program then ended with an exit status, which Slurm calls FAILED. Of a training in segments
        (`--until-done`) that was signalled before its limit: the reason in run.json why no further segment
        followed, whatever its exit status.
    Why it matters
        All work since the last checkpoint is lost. A job that hangs reaches any limit: find the cause of the
        hang, because a longer limit only wastes more hours.
    When it stays silent
        If something critical came before it (a rank died, a collective hung): that is the cause, and the
        limit only ended the wait. On steps of a job that completed, and on earlier attempts of a requeued
        job.
    What to do
        If it still made progress: write checkpoints and resume from the newest in the next job
        (`--signal=B:USR1@300` leaves time to write one), or request the time that the rest needs. If it stood
        still: first find out what it waited for (`coach check`, `coach stacks` on the next attempt).
    Sources
        slurmstepd (req.c, SIG_TIME_LIMIT); sbatch(1), --time and --signal; submitit's signal handler.
    """

    code = "JOB002"
    name = "time-limit"
    cause = "slurm_timeout"
    states = frozenset({"TIMEOUT", "DEADLINE"})
    standstill_steps = Threshold(
        10,
        "times the median step",
        "checkpoints and evaluations take several steps' time; a training that continues seldom "
        "pauses longer",
    )
    spare = Threshold(1.3, "times the time needed", "the pace varies, and so does the start", at_least=1)
    behind_steps = Threshold(10, "steps", "ranks that wait for each other are within one or two")
    behind_share = Threshold(0.3, "of the steps", "ranks that do not wait for each other drift apart")
    standstill_s = Threshold(300, "s", "shorter pauses are checkpoints, evaluations or compilation")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        refused = _refused(snapshot)
        if refused is None:
            yield from super().check(snapshot, history)
        else:
            yield _of_segment(refused, snapshot)

    def _told_state(self, snapshot: TargetSnapshot) -> str | None:
        if _is_signalled(snapshot):
            return "state TIMEOUT in exit.json"
        return super()._told_state(snapshot)

    def summary(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> str:
        if _never_ran(snapshot):
            return "The job never ran: it could not end before its --deadline any more, and Slurm gave it up"
        what = (
            "A step of the job"
            if hits and all(hit.fields.get("what") == "STEP" for hit in hits)
            else "The job"
        )
        others = [
            hit.fields.get("by") or hit.fields.get("pbs") or "Flux"
            for hit in hits
            if hit.signature == "other_scheduler"
        ]
        is_local = snapshot.run is not None and snapshot.run.backend == "local"
        by = "coach" if is_local else others[0] if others else "Slurm"
        done = counted(snapshot)
        where = f", at {done.word} {done.done} of {done.total}" if done is not None else _unsaved(snapshot)
        if _is_signalled(snapshot):
            return f"The program ended at {by}'s signal before the time limit{where}"
        limit = "--deadline" if snapshot.state == "DEADLINE" else "time limit"
        return f"{what} reached its {limit} and was ended by {by}{where}"

    def more_evidence(self, snapshot: TargetSnapshot, history: History) -> Iterable[Evidence]:
        limit_s, goal = _time_limit_s(snapshot), int_parameter(snapshot.run, "max_steps")
        if limit_s is not None:
            yield Evidence("time limit", value=float(limit_s), unit="s")
        if goal and history.ranks:
            yield Evidence("steps done", value=history.steps(history.ranks[0])[-1].step, unit=f"of {goal}")
        standstill_s = self._standstill_s(snapshot, history)
        if standstill_s is not None:
            yield Evidence("from the last step to the end", value=round(standstill_s, 1), unit="s")
        if (silent_s := silence_s(snapshot)) is not None:
            yield Evidence("from the last line of the program to the end", value=round(silent_s), unit="s")
        if (behind := self._behind(history)) is not None:
            yield Evidence(f"last step of {ranks_text(behind.ranks)}", value=behind.step, unit="step")
            yield Evidence("last step of the other ranks", value=behind.of_others, unit="step")
        if (saved := reported_checkpoint(snapshot)) is not None:
            yield saved

    def fixes(self, snapshot: TargetSnapshot, history: History) -> Iterable[Fix]:
        if _never_ran(snapshot):
            yield Fix(
                "Submit it again with a later --deadline or a shorter --time: it waited until too little "
                "time was left"
            )
            return
        standstill = self._of_standstill(snapshot, history)
        if standstill is not None:
            yield standstill
            return
        if (behind := self._behind(history)) is not None:
            yield Fix(
                f"Look at {ranks_text(behind.ranks)} (coach stacks on the next attempt), whose last step is "
                f"{behind.step}, that of the others {behind.of_others}: a rank that hangs reaches any limit, "
                "one that is far slower needs more time"
            )
            return
        done, needed_s = counted(snapshot), self._needed_s(snapshot, history)
        is_unsure = self._standstill_s(snapshot, history) is None and done is None
        if is_unsure and not history.ranks:
            yield Fix("First check that it still made progress: a hang reaches any limit")
        if needed_s is not None:
            why = f"at its pace all steps take {needed_s / 60:.1f} min"
            yield more_time(self.spare * needed_s, why)
        elif done is not None:
            yield self._by_counter(done, _ran_s(snapshot), snapshot)
        if snapshot.run is not None and snapshot.checkpoints:
            yield Fix("Launch it again: it resumes from its newest checkpoint")
        saved = reported_checkpoint(snapshot)
        if saved is not None and not snapshot.checkpoints:
            yield Fix(f"Resume from the newest checkpoint that it reports, in line {saved.line} of its log")
            title = "Let Slurm signal the job before its limit, so that it saves a last checkpoint"
        else:
            title = (
                "Write checkpoints, resume from the newest in the next job, and let Slurm signal the job "
                "before its limit"
            )
        yield from saved_before_limit(snapshot.run, _time_limit_s(snapshot), _step_time_s(history), title)
        if is_unsure and history.ranks:
            yield Fix(
                "If it had printed its last step long before the end, find out what it waited for (coach "
                "stacks on the next attempt): a hang reaches any limit"
            )

    def _of_standstill(self, snapshot: TargetSnapshot, history: History) -> Fix | None:
        """The only advice for a job that stood still; None if it worked, or if that is not known."""
        if silent_s := stood_still_s(snapshot, history, _ran_s(snapshot)):
            return Fix(
                "Find out what it waited for (coach stacks on the next attempt): in its last "
                f"{silent_s:.0f} s it printed nothing and used no CPU, and more time would not help"
            )
        standstill_s = self._standstill_s(snapshot, history)
        if standstill_s is not None and standstill_s > self._patience_s(history):
            return Fix(
                f"Find out what it waited for: there was no step in the last {standstill_s / 60:.0f} min, "
                "and more time would not help"
            )
        silent_s = seen_silence_s(snapshot, _ran_s(snapshot)) if standstill_s is None else None
        if silent_s is not None:
            return Fix(
                "Find out what it waited for (coach stacks on the next attempt), unless it keeps its output "
                f"in a buffer: its log had not grown for {silent_s // 60:.0f} min when it was ended"
            )
        return None

    def _behind(self, history: History) -> _Behind | None:
        """The ranks whose steps ended long before those of the others; None if there are none."""
        last = {rank: steps[-1].step for rank in history.ranks if (steps := history.steps(rank))}
        lead = max(last.values(), default=0)
        lag = max(self.behind_steps, self.behind_share * lead)
        behind = [rank for rank, step in last.items() if step <= lead - lag]
        others = [step for rank, step in last.items() if rank not in behind]
        if not behind or len(behind) >= len(others) or lead - min(others) >= self.behind_steps:
            return None
        return _Behind(behind, max(last[rank] for rank in behind), lead)

    def _by_counter(self, done: Counted, ran_s: float | None, snapshot: TargetSnapshot) -> Fix:
        if ran_s is None:
            factor = self.spare * done.total / done.num_here
            return Fix(
                f"Ask for {factor:.1f} times the time, if it made progress to the end: a hang reaches "
                "any limit"
            )
        needed_s = ran_s * done.total / done.num_here
        silent_s = silence_s(snapshot)
        is_sure = silent_s is not None and silent_s < 2 * ran_s / done.num_here
        first = "" if is_sure else ", if it made progress to the end: a hang reaches any limit"
        here = f"{done.num_here} of {done.total} {done.word}s"
        if done.before:
            here = f"{done.word}s {done.before + 1} to {done.done}"
        why = f"{here} took {ran_s / 60:.1f} min, all {done.total} need about {needed_s / 60:.1f} min{first}"
        return more_time(self.spare * needed_s, why)

    def _needed_s(self, snapshot: TargetSnapshot, history: History) -> float | None:
        """Seconds for the whole run at the pace of its newest steps, including its start; None if the number
        of steps is unknown."""
        goal, limit_s = int_parameter(snapshot.run, "max_steps"), _time_limit_s(snapshot)
        if not goal or limit_s is None or not history.ranks:
            return None
        pace_s = _step_time_s(history)
        num_left = max(0, goal - history.steps(history.ranks[0])[-1].step)
        return None if pace_s is None else limit_s + (num_left + _steps_before(history)) * pace_s

    def _standstill_s(self, snapshot: TargetSnapshot, history: History) -> float | None:
        """Seconds from the last step (or the last loss with a time stamp in the log) to the end; None if
        unknown."""
        ends = [hit.time_s for hit in hits_of(snapshot, self.code) if hit.time_s is not None]
        steps = [steps[-1].time_s for rank in history.ranks if (steps := history.steps(rank))]
        known = [time_s for time_s in steps if time_s is not None]
        end_s = (
            snapshot.now_s if snapshot.has_ended and snapshot.now_s is not None else max(ends, default=None)
        )
        # The node's clock may be ahead of the controller's.
        return max(0.0, end_s - max(known)) if known and end_s is not None else None

    def _patience_s(self, history: History) -> float:
        times = sorted(
            step.step_time_s
            for rank in history.ranks
            for step in history.steps(rank)
            if step.step_time_s is not None
        )
        median_s = times[len(times) // 2] if times else 0.0
        return max(self.standstill_s, self.standstill_steps * median_s)


def _unsaved(snapshot: TargetSnapshot) -> str:
    """Where it was if its log reports steps and no checkpoint; empty if the checkpoints are known."""
    step = last_step(snapshot)
    if step is None or snapshot.checkpoints or reported_checkpoint(snapshot) is not None:
        return ""
    return f", at step {step}; its log reports no checkpoint"


def _is_signalled(snapshot: TargetSnapshot) -> bool:
    """True if the script of a run ended after the signal before its time limit. Slurm calls the job FAILED,
    because it only sees the exit status."""
    return snapshot.state == "FAILED" and snapshot.exit is not None and snapshot.exit.state == "TIMEOUT"


def _refused(snapshot: TargetSnapshot) -> Segment | None:
    """The last segment of an ended training that was signalled before its limit and got no further one."""
    run = snapshot.run
    last = run.segments[-1] if run is not None and run.segments else None
    return last if last is not None and last.refusal and snapshot.has_ended else None


def _of_segment(segment: Segment, snapshot: TargetSnapshot) -> Hit:
    """The end of a training in segments, with the reason why it did not go on."""
    is_status_0 = snapshot.state == "COMPLETED"
    ended = "exited 0, so it may be incomplete" if is_status_0 else "ended"
    run_json = f"{snapshot.run.run_dir}/run.json" if snapshot.run is not None else None
    if segment.checkpoint is None:
        fix = Fix(
            "When the signal comes, let the program write a checkpoint there, under a name such as "
            "checkpoint-100, step-100.pt or epoch-3.ckpt"
        )
    else:
        fix = Fix("Launch it with more segments (--until-done N), and let it resume from that checkpoint")
    return Hit(
        summary=f"Signalled near its time limit, the training {ended}; no further segment: {segment.refusal}",
        evidence=(
            Evidence(f"the last segment ended: {segment.why or 'not known why'}", run_json),
            Evidence(f"state {snapshot.state}"),
        ),
        confidence=0.98,
        fixes=(fix,),
        since_s=segment.end_time_s,
    )


def _step_time_s(history: History) -> float | None:
    """Mean step time of the newest hundred steps."""
    times = newest_times(history, history.ranks[0]) if history.ranks else []
    return fmean(times) if times else None


def _steps_before(history: History) -> int:
    """Number of steps that an earlier job did of this training; 0 for one that began in this job."""
    first, *others = history.curve
    num_later = sum(point.num_steps for point in others)
    if not num_later:
        return 0
    interval = (others[-1].step - first.step) / num_later
    before = first.step - first.num_steps * interval
    return round(before) if before > interval else 0


def _never_ran(snapshot: TargetSnapshot) -> bool:
    """True for a job that Slurm gave up before its start, because it could not meet its --deadline."""
    job = snapshot.job
    return job is not None and job.state == "DEADLINE" and not job.time_used_s and not snapshot.log_tails


def _ran_s(snapshot: TargetSnapshot) -> float | None:
    """Seconds that it ran; its limit if only that is known."""
    run, job = snapshot.run, snapshot.job
    if run is not None and run.started_time_s is not None and snapshot.now_s is not None and run.ended_time_s:
        return run.ended_time_s - run.started_time_s
    used_s = job.time_used_s if job is not None else None
    return used_s or _time_limit_s(snapshot)


def _time_limit_s(snapshot: TargetSnapshot) -> int | None:
    """The time limit in seconds from the queue, else from the launch."""
    if snapshot.job is not None and snapshot.job.time_limit_s is not None:
        return snapshot.job.time_limit_s
    return int_resource(snapshot.run, "time_limit_s")
