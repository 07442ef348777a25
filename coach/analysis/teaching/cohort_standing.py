"""The state of a cohort: who waits too long, who has no run, and each run in a few words. Pure; both front
ends use the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coach.model.teaching.cohort import Cohort, Person, Summary

LONG_WAIT_S = 600.0
"""Seconds. A learner who has waited this long needs help."""
_UNKNOWN = "–"


def people_of(
    summaries: Iterable[Summary], users: Mapping[int, str], expected: Mapping[str, int | None] | None
) -> tuple[Person, ...]:
    """All people who were seen or are expected, by name. `users` maps every user id that was seen to a
    name."""
    newest: dict[int, dict[tuple[bool, str], Summary]] = {}
    for each in sorted(summaries, key=_age):
        newest.setdefault(each.uid, {})[each.is_drill, each.thing] = each
    seen = {
        users[uid]: Person(
            users[uid],
            uid,
            users[uid] in expected if expected is not None else None,
            tuple(runs for _, runs in sorted(things.items())),
        )
        for uid, things in newest.items()
    }
    absent = {name: Person(name, uid, True) for name, uid in (expected or {}).items() if name not in seen}
    return tuple(person for _, person in sorted({**seen, **absent}.items()))


def _age(summary: Summary) -> tuple[float, str]:
    return (summary.created_time_s or 0.0, summary.run_id)


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
    """`PENDING 14 min`, `silent 12 min`, or Slurm's word alone."""
    waiting_s, silent_s = summary.waiting_s(now_s), summary.silent_s(now_s)
    if waiting_s is not None:
        return f"PENDING {minutes(waiting_s)}"
    if silent_s is not None:
        return f"silent {minutes(silent_s)}"
    return summary.state or _UNKNOWN


def finding_words(summary: Summary) -> str:
    """Never names a drill's cause: other learners have still to find it."""
    if summary.is_drill:
        return "answer first" if summary.is_solved is None else ""
    if not summary.is_judged:
        return _UNKNOWN
    return summary.code or "none"


def solved_words(summary: Summary) -> str:
    """Empty for a recipe: there is nothing to solve."""
    if not summary.is_drill:
        return ""
    return {True: "yes", False: "given up", None: "not yet"}[summary.is_solved]


def minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f} min"


def verdict_words(cohort: Cohort, now_s: float, long_s: float = LONG_WAIT_S) -> list[str]:
    """People who need help, one line each."""
    lines = []
    if waits := waiting_long(cohort, now_s, long_s):
        named = ", ".join(f"{user} {minutes(seconds)}" for user, seconds in waits)
        lines.append(f"pending for {minutes(long_s)} or longer: {named}")
    if idle := without_a_run(cohort):
        lines.append(f"nothing yet: {', '.join(idle)}")
    if cohort.bad_files:
        more = "" if len(cohort.bad_files) == 1 else f", and {len(cohort.bad_files) - 1} more like it"
        lines.append(f"not read: {cohort.bad_files[0]}{more}")
    if cohort.num_left_out:
        theirs = ", ".join(f"{count} of {user or 'unknown users'}" for user, count in cohort.left_out.items())
        lines.append(f"too many files: {cohort.num_left_out} were not read ({theirs})")
    return lines
