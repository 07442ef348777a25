"""The question before an action on jobs, as lines: commands, jobs left out with the reason, warnings, the
script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.cells import chop_cells

from coach.analysis.jobs.eligible_jobs import list_jobs
from coach.model.slurm.job_action import JobAction, Verb
from coach.render.text import BLANK, Line, Span, clip, line, muted, plural, printable, strong, wrap

_HEADS = {
    Verb.CANCEL: "Cancel",
    Verb.HOLD: "Hold",
    Verb.RELEASE: "Release",
    Verb.REQUEUE: "Requeue",
    Verb.TIMELIMIT: "Lower the time limit of",
    Verb.RESUBMIT: "Submit again",
    Verb.RESUME: "Resume",
    Verb.SHELL: "Open a shell in",
    Verb.ATTACH: "Measure inside",
}
_MAX_SCRIPT_LINES = 2000


def heading(verb: Verb, label: str, num_targets: int, width: int) -> Line:
    """The action and its jobs. A label may be other people's text."""
    what = printable(label) if num_targets == 1 else f"{plural(num_targets, 'job')}: {printable(label)}"
    return clip(line(strong(f" {_HEADS[verb]} "), what), width)


def action_lines(action: JobAction, width: int, progress: Mapping[str, str] | None = None) -> list[Line]:
    """The lines of the question. `progress`: job id → how far the job is."""
    rows: list[Line] = [BLANK]
    if jobs := list_jobs(action.jobs, progress or {}):
        rows += [*(clip(line("   ", job), width) for job in jobs), BLANK]
    rows += [*command_lines(action.commands, width), BLANK]
    for each in action.left_out:
        first, *more = wrap(printable(each.reason), max(20, width - 16 - len(each.job_id)))
        rows.append(line(Span("   – ", "warning"), printable(each.job_id), muted(" is left out: "), first))
        rows += [line("     ", part) for part in more]
    rows += note_lines(action.notes, width)
    if action.script is not None:
        rows += [BLANK, line(strong("   the script"))]
        texts = action.script.splitlines()[:_MAX_SCRIPT_LINES]
        rows += [line("   ", printable(text.replace("\t", "    "))) for text in texts]
    return rows


def note_lines(notes: Iterable[str], width: int) -> list[Line]:
    """Notes below the commands, wrapped."""
    return [line(muted(f"   {part}")) for note in notes for part in wrap(printable(note), max(20, width - 4))]


def command_lines(commands: Iterable[str], width: int) -> list[Line]:
    """The exact commands, wrapped, never cut, because the user confirms them."""
    rows: list[Line] = []
    for command in commands:
        parts = chop_cells(printable(command), max(20, width - 7))  # keeps every blank
        rows.append(line(muted("   $ "), Span(parts[0], "accent")))
        rows += [line("     ", Span(part, "accent")) for part in parts[1:]]
    return rows
