"""A cohort as a table, and the page of one of its rows.

Each person has one row for each recipe and drill: the newest run, with the best result. One more row stands
for all people without runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.explaining.words import Explained
from coach.analysis.teaching.cohort_standing import (
    best_words,
    count_words,
    counts_of,
    finding_words,
    progress_words,
    state_words,
    step_words,
    verdict_words,
    without_a_run,
)
from coach.model.teaching.cohort import Cohort, Person, Summary
from coach.render.severity import job_state_tone, severity_sign, severity_tone
from coach.render.text import Line, Span, Tone, age, fit, line, number, printable, wrap
from coach.tui.render.table import Cell, Column, Row, searchable

COHORT_COLUMNS = (
    Column("user", "USER", 10, grow=2),
    Column("thing", "RECIPE OR DRILL", 15, grow=2),
    Column("state", "NEWEST", 14, grow=1),
    Column("rate", "SAMPLES/S", 9, align="right", priority=2),
    Column("finding", "FINDING", 12, grow=1),
    Column("best", "BEST", 9, grow=1),
    Column("step", "LAST STEP", 9, align="right", priority=3),
    Column("progress", "PROGRESS", 12, align="right", priority=4),
    Column("job", "JOB", 8, align="right", priority=5),
)
MAX_VERDICT_ROWS = 5
"""The most lines of verdicts, so that the table keeps most of the screen."""
MAX_COUNT_ROWS = 2
"""The most lines of counts for each recipe."""
EMPTY_KEY = "people without a run"
"""Key of the row of all people without a run. No user's row has it: a user name has no space."""


def cohort_rows(cohort: Cohort, now_s: float) -> list[Row]:
    """The rows, by person, then one row for all people without runs."""
    rows = [_row(person, each, now_s) for person in cohort.people for each in person.runs]
    return [*rows, _empty_row(idle)] if (idle := without_a_run(cohort)) else rows


def row_key(person: Person, run_id: str = "") -> str:
    """The key of a row, which keeps the cursor in place."""
    return f"{person.user} {run_id}"


def _row(person: Person, each: Summary, now_s: float) -> Row:
    user, thing, state = (printable(text) for text in (person.user, each.thing, state_words(each, now_s)))
    finding, best = printable(finding_words(each)), person.best_of(each)
    tone: Tone = "muted"
    if each.severity is not None:
        finding, tone = f"{severity_sign(each.severity).text} {finding}", severity_tone(each.severity)
    needs_help = each.silent_s(now_s) is not None or each.stalled_s(now_s) is not None
    last_s, reached = each.last_step_s(now_s), printable(best_words(best))
    is_sound = best.is_finished and (best.rungs or reached in ("COMPLETED", "solved"))
    cells = (
        Cell(user),
        Cell(thing),
        Cell(state, "warning" if needs_help else job_state_tone(each.state)),
        Cell(number(each.samples_per_s)),
        Cell(finding, tone),
        Cell(reached, "good" if is_sound else "warning" if best.is_finished else "muted"),
        Cell("" if last_s is None else age(last_s), "muted"),
        Cell(progress_words(each).removeprefix("step "), "muted"),
        Cell(printable(each.job_id or ""), "muted"),
    )
    return Row(row_key(person, each.run_id), cells, searchable(user, thing, state, finding, reached))


def _empty_row(idle: Sequence[str]) -> Row:
    count = len(idle)
    told = f"{count} {'person' if count == 1 else 'people'}"
    cells = (Cell(told, "warning"), Cell("nothing yet", "warning"), *[Cell("")] * 7)
    return Row(EMPTY_KEY, cells, searchable(told, "nothing yet", *map(printable, idle)))


def cohort_title(cohort: Cohort) -> str:
    count = len(cohort.people)
    return f"{count} {'person' if count == 1 else 'people'} · {printable(cohort.directory)}"


def verdict_lines(cohort: Cohort, now_s: float, width: int) -> list[Line]:
    """The people who need help, and why, one line each; then the counts of each recipe."""
    told = verdict_words(cohort, now_s)
    rows = [line(Span(f" ▲ {fit(printable(words), width - 4).rstrip()}", "warning")) for words in told]
    counts = " · ".join(printable(count_words(count)) for count in counts_of(cohort))
    parts = wrap(counts, width - 3) if counts else []
    if len(parts) > MAX_COUNT_ROWS:
        parts = [*parts[: MAX_COUNT_ROWS - 1], fit(parts[MAX_COUNT_ROWS - 1], width - 5).rstrip() + " …"]
    return [*rows[:MAX_VERDICT_ROWS], *(line(Span(f"   {part}")) for part in parts)]


_SUMMARY = "the summary that the run shares"


def run_page(cohort: Cohort, person: Person, each: Summary, now_s: float) -> tuple[Explained, ...]:
    """What an instructor may read of another person's run, and what that person can do."""
    user, best = printable(person.user), person.best_of(each)
    page = [Explained("STATE", printable(state_words(each, now_s)), _times(each, now_s), _SUMMARY)]
    last_s = each.last_step_s(now_s)
    if last_s is not None:
        speed = (
            f"{number(each.samples_per_s)} samples/s" if each.samples_per_s is not None else "no speed known"
        )
        page.append(Explained("STEP", progress_words(each), f"{step_words(last_s)}; {speed}", _SUMMARY))
    reached = printable(best_words(best)) or "none"
    of_best = "its best result so far" if best is each else f"of the earlier run {printable(best.run_id)}"
    page.append(Explained("BEST", reached, of_best, _SUMMARY))
    if each.code is not None:
        page.append(
            Explained(
                "FINDING",
                printable(finding_words(each)),
                f"`coach explain {each.code}` has its rule",
                _SUMMARY,
            )
        )
    page.append(_help_of(cohort, person, each))
    job = f" · job {printable(each.job_id)}" if each.job_id else ""
    what = f"the newest run of {printable(each.thing)} by {user}; the queue lists its job until it ends"
    page.append(Explained("RUN", printable(each.run_id) + job, what, _SUMMARY))
    return tuple(page)


def _times(each: Summary, now_s: float) -> str:
    """How long ago the run was launched, started, ended, and shared its summary."""
    moments = (
        ("launched", each.created_time_s),
        ("started", each.started_time_s),
        ("ended", each.ended_time_s),
        ("summary written", each.updated_time_s),
    )
    return ", ".join(
        f"{word} {age(max(0.0, now_s - at_s))} ago" for word, at_s in moments if at_s is not None
    )


def _help_of(cohort: Cohort, person: Person, each: Summary) -> Explained:
    """The ticket of the run, or how the person makes one: evidence and log are only theirs to show."""
    user, name = printable(person.user), printable(each.run_id)
    if person.uid is not None and (person.uid, each.run_id) in cohort.tickets:
        path = f"{printable(cohort.directory)}/{person.uid}-{name}.ticket.md"
        return Explained(
            "TICKET", path, f"the evidence, as {user} shared it: less FILE", "the shared directory"
        )
    if each.is_drill:
        what, todo = (
            "an open drill shows nothing to others",
            f"{user} can ask for a hint: coach drill {printable(each.thing)}",
        )
        return Explained("TO HELP", "only the person can open it", what, "the run's mode 0700", todo)
    todo = f"{user} can type: coach why {name}; coach ticket {name} --share puts the evidence here"
    what = "log and evidence are private: only their owner can open them"
    return Explained("TO HELP", f"only {user} can open it", what, "the run's mode 0700", todo)


def idle_page(cohort: Cohort) -> tuple[Explained, ...]:
    """The names of the people without any run."""
    names = ", ".join(map(printable, without_a_run(cohort)))
    what = "on the roster or in the group, but no run of theirs has shared a summary"
    return (Explained("NOTHING YET", names, what, "the roster, and the shared directory"),)
