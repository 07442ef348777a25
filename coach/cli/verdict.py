"""The diagnoses of all own jobs on one small screen: the verdict first, then the jobs, worst first.

`coach check` prints it without a target. It must be readable half asleep, on any terminal, without scrolling.
"""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.judging.no_finding import Look, look_of, sign_of
from coach.analysis.judging.ranking import has_gone_wrong, num_gpus_of
from coach.analysis.judging.several_jobs import Judged, worst_first
from coach.analysis.spelling.printable import cut, display_width
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.cli.text import UNKNOWN, printable
from coach.model.training.other_machine import rough_age
from coach.render.severity import severity_sign
from coach.render.text import clock

WIDTH = 80
MAX_LINES = 24


def verdict_lines(
    judged: Sequence[Judged], now_s: float, width: int | None = WIDTH, user: str | None = None
) -> list[str]:
    """At most 24 lines of 80 columns; the first is the verdict. Without a `width` for a file: all lines,
    whole. `user`: whose jobs they are, if not the caller's."""
    ordered = worst_first(judged)
    blocks = _blocks(ordered, now_s, width)
    lines = [_verdict(ordered, user), ""] if blocks else [_verdict(ordered, user)]
    tail = ["", "coach check JOB shows one job in full, with its proof and its fixes"] if ordered else []
    if width is None:
        return [*lines, *(row for block in blocks for row in block), *tail]
    room = MAX_LINES - len(lines) - len(tail)
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        if len(block) + (not is_last) > room:
            lines.append(f"  … and {len(blocks) - number} more: --format json lists them all")
            break
        lines += block
        room -= len(block)
    return [cut(text, width) for text in (*lines, *tail)]


def _blocks(ordered: Sequence[Judged], now_s: float, width: int | None) -> list[list[str]]:
    """The lines of each job: those that went wrong, those that never start, and the others. A job that only
    waits has none."""
    blocks = [_block(each, now_s, width) for each in ordered if each.worst is not None]
    well = [each for each in ordered if each.worst is None]
    blocks += [_stuck_block(each, now_s) for each in well if each.why_never is not None]
    return blocks + [[_head(each, now_s, width)] for each in well if not each.is_waiting]


def _verdict(judged: Sequence[Judged], user: str | None) -> str:
    if not judged and user is not None:
        return f"{printable(user)} has no job in the queue, and none that Slurm still knows."
    if not judged:
        return "You have no job in the queue, and none that ended within a day."
    scope = _scope(judged)
    found = [(each.worst, each.snapshot.state) for each in judged if each.worst is not None]
    wrong = sum(has_gone_wrong(worst, state) for worst, state in found)
    never = sum(each.worst is None and each.why_never is not None for each in judged)
    if found:
        stuck = f", {never} will never start" if never else ""
        return f"{_counts(wrong, len(found) - wrong, len(judged))}{stuck} ({scope})"
    if never:
        return f"▲ {never} of {len(judged)} will never start with what it asks for ({scope})"
    return _of_no_finding(judged, scope)


def _of_no_finding(judged: Sequence[Judged], scope: str) -> str:
    if all(each.is_waiting for each in judged):
        return f"{sign_of(Look.NOT_LOOKED_AT)} Nothing to check yet: no job has started ({scope})"
    blind = sum(each.is_blind for each in judged)
    if blind:
        return f"? Nothing found, but {blind} of {len(judged)} could not be read ({scope})"
    held = sum(why_withheld(each.diagnosis) is not None for each in judged)
    if held:
        return f"? Nothing found, but {held} of {len(judged)} hidden, drill: answer first ({scope})"
    unknown = sum(look_of(each.diagnosis) in (Look.UNKNOWN, Look.SILENT) for each in judged)
    if unknown:
        return f"? Nothing found, but nothing is known about {unknown} of {len(judged)} ({scope})"
    early = sum(look_of(each.diagnosis) is Look.TOO_EARLY for each in judged)
    if early:
        sign = sign_of(Look.TOO_EARLY)
        return f"{sign} Nothing found, but it is too early for {early} of {len(judged)} ({scope})"
    return f"✓ No problem found in the measurements ({scope})"


def _scope(judged: Sequence[Judged]) -> str:
    """The numbers of jobs that run, wait and have ended."""
    running = sum(each.snapshot.state == "RUNNING" for each in judged)
    waiting = sum(each.is_waiting for each in judged)
    ended = sum(each.snapshot.has_ended for each in judged)
    numbers = {
        "running": running,
        "waiting": waiting,
        "ended": ended,
        "in another state": len(judged) - running - waiting - ended,
    }
    return ", ".join(f"{number} {word}" for word, number in numbers.items() if number)


def _counts(wrong: int, warned: int, number: int) -> str:
    """The numbers of jobs that went wrong and of those that warned, as the screens count them."""
    if number == 1:
        return "✖ The job went wrong" if wrong else "▲ The job warned"
    if not wrong:
        return f"▲ {warned} of {number} jobs warned"
    return f"✖ {wrong} of {number} jobs went wrong" + (f", {warned} warned" if warned else "")


def _block(each: Judged, now_s: float, width: int | None) -> list[str]:
    finding = each.worst
    assert finding is not None
    rows = [_head(each, now_s, width), f"    {printable(finding.summary)}"]
    fix = next(iter(finding.fixes), None)
    if fix is not None:
        rows.append(f"    → {printable(fix.title)}")
    return rows


def _stuck_block(each: Judged, now_s: float) -> list[str]:
    """A job that waits for what it cannot get."""
    why = each.why_never
    assert why is not None
    left = (
        f"▲ {printable(each.diagnosis.target)}  {_name(each)}{_state(each, now_s)}  {printable(why.reason)}"
    )
    return [left, f"    {printable(why.meaning)}", f"    → {printable(why.advice)}"]


def _head(each: Judged, now_s: float, width: int | None) -> str:
    """Sign, job, the problem, and at the right end its cost."""
    finding, lost = each.worst, each.lost_gpu_hours
    if finding is not None:
        sign, said = severity_sign(finding.severity).text, f"{finding.rule} {finding.name}"
    elif withheld := why_withheld(each.diagnosis):
        sign, said = "?", withheld.because
    elif each.is_unread:
        unread = (item.because for item in each.diagnosis.not_measured if item.what == "job")
        sign, said = "?", printable(next(unread, "no log and no metrics were found"))
    else:
        sign, said = sign_of(look_of(each.diagnosis)), each.word
    left = f"{sign} {printable(each.diagnosis.target)}  {_name(each)}{_state(each, now_s)}  {said}"
    if finding is None:
        return left
    right = f"{UNKNOWN if lost is None else f'{lost:.1f}'} GPU-h lost" if num_gpus_of(each.snapshot) else ""
    if width is None:
        return f"{left}  {right}".rstrip()
    room = width - display_width(right) - 2
    shown = cut(left, room)
    return f"{shown}{' ' * (room + 2 - display_width(shown))}{right}".rstrip()


def _name(each: Judged) -> str:
    job = each.snapshot.job
    return (
        f"{cut(printable(job.name), 16)}  " if job is not None and job.name != each.diagnosis.target else ""
    )


def _state(each: Judged, now_s: float) -> str:
    snapshot = each.snapshot
    state = snapshot.state
    if state is None:
        return "state not known"
    if snapshot.has_ended:
        ended_s = snapshot.job.end_time_s if snapshot.job is not None else snapshot.now_s
        ago = "" if ended_s is None else f" {rough_age(now_s - ended_s)} ago"
        return f"{printable(state)}{ago}"
    used = snapshot.job.time_used_s if snapshot.job is not None else None
    return f"{printable(state)} {clock(used)}" if used is not None else printable(state)
