"""The state of a cohort: who waits too long, who has no run, and each run in a few words. Pure; both front
ends use the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from coach.model.judging.finding import Severity
from coach.model.slurm.cluster import is_final
from coach.model.teaching.cohort import Cohort, Count, Person, Summary

LONG_WAIT_S = 600.0
"""Seconds. A learner who has waited this long needs help."""
_ENOUGH_STEPS = 19
"""Steps from which the table of a ladder has a ratio: 16 steady ones after 3 of warm-up."""
_UNKNOWN = "–"
_MAX_NAMED = 3
"""Runs without progress that get a line of their own."""


def people_of(
    summaries: Iterable[Summary], users: Mapping[int, str], expected: Mapping[str, int | None] | None
) -> tuple[Person, ...]:
    """All people who were seen or are expected, by name. `users` maps every user id that was seen to a
    name."""
    by_thing: dict[int, dict[tuple[bool, str], list[Summary]]] = {}
    for each in sorted(_with_ladders(summaries), key=_age):
        by_thing.setdefault(each.uid, {}).setdefault((each.is_drill, each.thing), []).append(each)
    seen = {}
    for uid, things in by_thing.items():
        is_expected = users[uid] in expected if expected is not None else None
        newest, best = [], {}
        for _, attempts in sorted(things.items()):
            newest.append(attempts[-1])
            if (found := max(attempts, key=_rank)) is not attempts[-1]:
                best[attempts[-1].run_id] = found
        seen[users[uid]] = Person(users[uid], uid, is_expected, tuple(newest), best)
    absent = {name: Person(name, uid, True) for name, uid in (expected or {}).items() if name not in seen}
    return tuple(person for _, person in sorted({**seen, **absent}.items()))


def _with_ladders(summaries: Iterable[Summary]) -> list[Summary]:
    """The summaries, with one in place of all runs of a ladder's group."""
    groups: dict[tuple[int, str], list[Summary]] = {}
    for each in summaries:
        groups.setdefault((each.uid, each.ladder.group_id if each.ladder else each.run_id), []).append(each)
    return [_of_ladder(runs) if runs[0].ladder else runs[0] for runs in groups.values()]


def _of_ladder(runs: Sequence[Summary]) -> Summary:
    """The run that goes, else one that waits, else one that failed, for all of them; with the best rung's
    speed."""
    shown = max(
        runs,
        key=lambda each: (
            each.state == "RUNNING",
            not is_final(each.state),
            each.state != "COMPLETED",
            each.severity or 0,
            _age(each),
        ),
    )
    name = shown.ladder.name if shown.ladder else ""
    best = max(_rates(runs).values(), default=shown.samples_per_s)
    return replace(shown, thing=f"ladder {name}", samples_per_s=best, rungs=tuple(runs))


def _rates(runs: Iterable[Summary]) -> dict[int, float]:
    """Rung → mean samples/s of its completed runs that have enough steps for a ratio, in the order of the
    rungs."""
    rates: dict[int, list[float]] = {}
    for each in runs:
        is_measured = each.state == "COMPLETED" and (each.step or 0) >= _ENOUGH_STEPS
        if each.ladder and each.samples_per_s and is_measured:
            rates.setdefault(each.ladder.rung, []).append(each.samples_per_s)
    return {rung: fmean(values) for rung, values in sorted(rates.items())}


def _ladder_words(runs: Sequence[Summary]) -> str:
    """`3/4 rungs, 1.9 ×`: rungs that reached their figure, of those that can be tested on these machines,
    and the best rung's speed over the first's. Empty before a rung was measured."""
    rates = _rates(runs)
    if not rates:
        return ""
    first, best = next(iter(rates.values())), max(rates.values())
    reached = {}
    for at in (each.ladder for each in runs if each.ladder):
        least = at.samples_per_s or (at.ratio or 0.0) * first
        if least:
            reached[at.rung] = rates.get(at.rung, 0.0) >= least
    counted = f"{sum(reached.values())}/{len(reached)} rungs, " if reached else ""
    return f"{counted}{best / first:.1f} ×"


def _age(summary: Summary) -> tuple[float, str]:
    return (summary.created_time_s or 0.0, summary.run_id)


def _rank(summary: Summary) -> tuple[object, ...]:
    """The greatest is the best run: finished before all others, without a severe finding before with one,
    then the newest. A drill that was given up counts more than an open one."""
    is_sound = summary.severity is None or summary.severity is Severity.INFO
    return (
        summary.is_finished,
        summary.is_solved is not None,
        summary.is_finished and is_sound,
        _age(summary),
    )


def counts_of(cohort: Cohort) -> tuple[Count, ...]:
    """How many people finished, run and failed, for each recipe and drill."""
    counts: dict[tuple[bool, str], list[int]] = {}
    for person in cohort.people:
        for newest in person.runs:
            best = person.best_of(newest)
            given_up = newest.is_drill and best.is_solved is False
            has_ended = given_up if newest.is_drill else is_final(newest.state)
            which = 0 if best.is_finished else 2 if has_ended else 1
            counts.setdefault((newest.is_drill, newest.thing), [0, 0, 0])[which] += 1
    return tuple(Count(thing, is_drill, *counts[is_drill, thing]) for is_drill, thing in sorted(counts))


def count_words(count: Count) -> str:
    """`baseline 12 finished, 3 active, 1 failed`, without the zeros; a drill is solved or given up."""
    words = ("solved", "open", "given up") if count.is_drill else ("finished", "active", "failed")
    numbers = (count.num_finished, count.num_active, count.num_failed)
    return f"{count.thing} " + ", ".join(f"{n} {word}" for n, word in zip(numbers, words, strict=True) if n)


def stalled(cohort: Cohort, now_s: float) -> Sequence[tuple[str, Summary, float]]:
    """Person, run and seconds since the last step of each run that makes no progress; the longest first."""
    found = [
        (person.user, run, seconds)
        for person in cohort.people
        for run in person.runs
        if (seconds := run.stalled_s(now_s)) is not None
    ]
    return sorted(found, key=lambda each: -each[2])


def without_a_run(cohort: Cohort) -> Sequence[str]:
    """Names of people without any run."""
    return [person.user for person in cohort.people if not person.runs]


def waiting_long(cohort: Cohort, now_s: float, long_s: float = LONG_WAIT_S) -> Sequence[tuple[str, float]]:
    """Names of people whose run waits too long, with the seconds; the longest first."""
    waits = {
        person.user: [wait_s for run in person.runs if (wait_s := run.waiting_s(now_s)) is not None]
        for person in cohort.people
    }
    found = [(user, max(seconds)) for user, seconds in waits.items() if seconds and max(seconds) >= long_s]
    return sorted(found, key=lambda wait: -wait[1])


def state_words(summary: Summary, now_s: float) -> str:
    """`PENDING 14 min`, `silent 12 min`, `no step 6 min`, or Slurm's word alone."""
    waiting_s, silent_s, stalled_s = (
        each(now_s) for each in (summary.waiting_s, summary.silent_s, summary.stalled_s)
    )
    if waiting_s is not None:
        return f"PENDING {minutes(waiting_s)}"
    if silent_s is not None:
        return f"silent {minutes(silent_s)}"
    if stalled_s is not None:
        return f"no step {minutes(stalled_s)}"
    return summary.state or _UNKNOWN


def best_words(summary: Summary) -> str:
    """The best result of a recipe or a drill, from its best run: `COMPLETED`, `COMPLETED NUM001`, `solved`.
    Empty for a recipe that did not complete. Of a ladder, what its rungs reached."""
    if summary.rungs:
        return _ladder_words(summary.rungs)
    if summary.is_drill:
        return {True: "solved", False: "given up", None: "not yet"}[summary.is_solved]
    if not summary.is_finished:
        return ""
    is_severe = summary.code is not None and summary.severity is not Severity.INFO
    return f"COMPLETED {summary.code}" if is_severe else "COMPLETED"


def progress_words(summary: Summary) -> str:
    """`step 40 of 400`; empty before the first step."""
    if summary.step is None:
        return ""
    return f"step {summary.step}" + (f" of {summary.max_steps}" if summary.max_steps else "")


def step_words(seconds: float) -> str:
    """The age of the last step: `last step 6 min ago`."""
    return f"last step {f'{seconds:.0f} s' if seconds < 60 else minutes(seconds)} ago"


def finding_words(summary: Summary) -> str:
    """Never names a drill's cause: other learners have still to find it."""
    if summary.is_drill:
        open_words = "spoiled" if summary.is_spoiled else "answer first"
        return open_words if summary.is_solved is None else ""
    if not summary.is_judged:
        return _UNKNOWN
    return summary.code or "none"


def minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f} min"


def verdict_words(cohort: Cohort, now_s: float, long_s: float = LONG_WAIT_S) -> list[str]:
    """People who need help, one line each."""
    lines = [
        f"{user} {run.thing}: {step_words(seconds)}, while it runs"
        for user, run, seconds in stalled(cohort, now_s)[:_MAX_NAMED]
    ]
    if (num_others := len(stalled(cohort, now_s)) - _MAX_NAMED) > 0:
        lines.append(f"no step for long: {num_others} more")
    if waits := waiting_long(cohort, now_s, long_s):
        named = ", ".join(f"{user} {minutes(seconds)}" for user, seconds in waits)
        lines.append(f"pending for {minutes(long_s)} or longer: {named}")
    if idle := without_a_run(cohort):
        lines.append(f"nothing yet: {len(idle)} of {len(cohort.people)}: {', '.join(idle)}")
    if cohort.bad_files:
        more = "" if len(cohort.bad_files) == 1 else f", and {len(cohort.bad_files) - 1} more like it"
        lines.append(f"not read: {cohort.bad_files[0]}{more}")
    if cohort.num_left_out:
        theirs = ", ".join(f"{count} of {user or 'unknown users'}" for user, count in cohort.left_out.items())
        lines.append(f"too many files: {cohort.num_left_out} were not read ({theirs})")
    return lines
