"""One job as a page, launched by coach or not: why it ended, the proof and the fix, then its course or its
wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coach.analysis.queueing.arrays import unfold
from coach.model.errors import OTHERS_JOBS, hidden_by_site
from coach.render.text import BLANK, Line, beside, line, mib, muted, printable
from coach.tui.job_subject import JobSubject
from coach.tui.question import Question
from coach.tui.render import finding as findings
from coach.tui.render import job as facts
from coach.tui.render import run as runs
from coach.tui.render.answer import answer_line
from coach.tui.render.history import efficiency_lines
from coach.tui.render.job_course import course_rows
from coach.tui.render.job_devices import device_lines
from coach.tui.render.pending import failed_alike_lines, labelled, place_lines, task_lines, why_lines
from coach.tui.render.progress import progress_lines

if TYPE_CHECKING:
    from coach.analysis.queueing.ahead import Standing

_MIB = 1 << 20
WIDE = 108
"""From this width on the charts stand beside the cause."""
_MIN_LEFT, _MAX_LEFT = 50, 84
_LEAST_RIGHT = 16
_GAP = 2


def hidden_job_words(job_id: str) -> tuple[str, str]:
    """Two lines for an unknown job, if the site hides other users' jobs."""
    known = f"no job {printable(job_id)} is known here"
    return known, f"if it is somebody else's: {hidden_by_site(OTHERS_JOBS)}"


def page_lines(page: JobSubject, width: int, height: int) -> list[Line]:
    """The page, with the cause first. The charts fill up to `height` lines; further lines make the page
    longer."""
    top = [_head(page, width), *_progress(page, width)]
    if width >= WIDE:
        return [*top, *_wide_lines(page, width, height - len(top))]
    top += _told_lines(page, width)
    below = [*device_lines(page, width), *_about_lines(page, width, 0 if page.is_read else height)]
    below += facts.place_node_lines(
        page.job,
        page.place.nodes,
        page.now_s,
        width,
        height - len(top) - len(below),
        page.place.nodes_read_s,
    )
    course = course_rows(page, width, height - len(top))
    return [*top, *course, *([BLANK] if course and below else []), *below]


def _wide_lines(page: JobSubject, width: int, height: int) -> list[Line]:
    """The page in two columns: the cause and the devices at the left, the charts at the right, the facts
    below both."""
    left_width = max(_MIN_LEFT, min(_MAX_LEFT, width * 2 // 5))
    right_width = width - left_width - _GAP
    left = [*_told_lines(page, left_width), *device_lines(page, left_width)]
    right = course_rows(page, right_width, max(height, _LEAST_RIGHT))
    if right:
        left += _about_lines(page, left_width, max(height, len(right)) - len(left))
        return beside(left, right, left_width, _GAP)
    rows = [*_told_lines(page, width), *device_lines(page, width), *_about_lines(page, width, height)]
    place, room = page.place, height - len(rows)
    nodes = facts.place_node_lines(page.job, place.nodes, page.now_s, width, room, place.nodes_read_s)
    return [*rows, *nodes]


def _about_lines(page: JobSubject, width: int, room: int) -> list[Line]:
    """The launch parameters and the facts in the queue, as many as have room."""
    rows = runs.parameters_lines(page.run, width) if page.run is not None else []
    if page.job is None:
        return rows
    known = facts.job_lines(page.job, page.now_s, width)
    if page.is_read and len(rows) + len(known) > room:
        main = facts.job_lines(page.job, page.now_s, width, facts.MAIN_FACTS)
        rest = main if len(rows) + len(main) < room else []
        return [*rows, facts.facts_line(page.job, page.now_s, width, page.label), *rest]
    return [*rows, *([BLANK] if rows and len(rows) + len(known) < room else []), *known]


def _told_lines(page: JobSubject, width: int) -> list[Line]:
    """How the job ended, its parent run, and why it waits."""
    rows = [*_verdict(page, width)]
    rows += _run_lines(page, width)
    if page.past is not None:
        rows += [*efficiency_lines(page.past, page.now_s, width), BLANK]
    rows += _waiting(page, width)
    if page.folded is not None and page.folded.num_tasks > 1:
        rows += [*failed_alike_lines(page.folded, page.task_findings, width, page.label)]
        rows += task_lines(page.folded, unfold(page.folded), page.now_s, width, page.task_findings)
    return rows


def _run_lines(page: JobSubject, width: int) -> list[Line]:
    """The parent, the restarts and the target of its run."""
    if page.run is None:
        return []
    parent, segments = runs.parent_lines(page.run, width, page.label), runs.segment_lines(page.run, width)
    return [*parent, *segments, *runs.target_lines(page.followed, width)]


def facts_lines(page: JobSubject, width: int, height: int) -> list[Line]:
    """All facts in the queue about the job."""
    rows = [_head(page, width), BLANK]
    rows += _run_lines(page, width)
    if page.run is not None:
        rows += [*runs.parameters_lines(page.run, width), BLANK]
    if page.job is None:
        return [*rows, line(muted(" it has no job in the queue"))]
    return [*rows, *facts.job_lines(page.job, page.now_s, width if width >= WIDE else 0)]


def _head(page: JobSubject, width: int) -> Line:
    if page.run is None and page.job is not None:
        return facts.job_head(page.job, page.user, width)
    return runs.head_line(page.run, page.followed, page.state, page.now_s, width)


def _progress(page: JobSubject, width: int) -> list[Line]:
    """The progress of a running job."""
    if not page.is_live:
        return []
    used_s: float | None = None
    limit_s: float | None = None
    if page.job is not None and page.folded is not None and page.folded.num_tasks == 1:
        used_s, limit_s = page.job.time_used_s, page.job.time_limit_s
    elif page.run is not None and page.run.started_time_s is not None:
        used_s = max(0.0, page.now_s - page.run.started_time_s)
        limit = page.run.resources.get("time_limit_s")
        limit_s = float(limit) if isinstance(limit, (int, float)) else None
    return progress_lines(page.progress, used_s or None, limit_s, width)


def _verdict(page: JobSubject, width: int) -> list[Line]:
    """The cause, or the line for no finding."""
    if page.diagnosis is not None:
        found = findings.findings_lines(page.diagnosis, width, page.can_fix, page.label)
        key = page.label("resume") if page.can_fix else None
        return [*findings.outcome_lines(page.diagnosis, width, key), *found, BLANK]
    if not page.is_read:
        return []
    return [(*findings.look_line(None), muted(_reading_text(page))), BLANK]


def _reading_text(page: JobSubject) -> str:
    """The progress of reading its files, until the first verdict."""
    snapshot = page.followed
    if snapshot is None:
        return " · looking for its files…"
    size = sum(tail.size_bytes for tail in snapshot.log_tails)
    unread = sum(tail.unread_bytes for tail in snapshot.log_tails)
    if not unread:
        return " · reading its log…"
    return f" · reading its log: {mib((size - unread) / _MIB)} of {mib(size / _MIB)}"


def _in_the_queue(standing: Standing, width: int) -> list[Line]:
    """The rank of a waiting job, and the jobs that it waits behind, as far as the queue was read."""
    ahead, num = standing.num_ahead, standing.num_waiting
    among = f"number {ahead + 1} of the {num} rows that wait for its partition, by priority"
    if standing.first:
        more = f" and {ahead - len(standing.first)} more" if ahead > len(standing.first) else ""
        among += f"; ahead: {', '.join(standing.first)}{more}"
    rows = labelled("in the queue", among, width) if num else []
    if standing.same_name:
        rows += labelled("same name", ", ".join(standing.same_name), width)
    return rows


def _waiting(page: JobSubject, width: int) -> list[Line]:
    """Why the job waits, and its place in the queue."""
    folded = page.folded
    if folded is None or (page.run is not None and not page.is_live):
        return []  # the queue may be older than the run's end
    waiting = next((part for part in folded.parts if part.state == "PENDING"), None)
    partitions = page.place.partitions
    rows = why_lines(waiting, page.now_s, width, partitions, page.place.jobs) if waiting is not None else []
    if rows and page.place.standing is not None:
        rows += _in_the_queue(page.place.standing, width)
    rows += [BLANK] if rows else []
    if Question.PLACE_IN_QUEUE in page.questions:
        answer = page.answers[Question.PLACE_IN_QUEUE]
        rows.append(answer_line("place in the queue", answer, page.now_s, page.label))
        if answer.value is not None:
            rows += place_lines(answer.value, folded.job, page.now_s, width)
        rows.append(BLANK)
    return rows
