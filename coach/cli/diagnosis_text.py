"""A diagnosis as lines for people: how the run ended, the root cause first, and what could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coach.analysis.comparing.time_to_target import target_words, time_to_target
from coach.analysis.jobs.segments import segment_words
from coach.analysis.judging.no_finding import Look, meaning_of
from coach.analysis.judging.outcome_words import earlier_runs_lines, outcome_text, resume_command
from coach.analysis.judging.several_jobs import PRINTED_NOTHING, Judged
from coach.analysis.judging.waiting import waiting_lines
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Finding, Verdict
from coach.render.finding import Detail, finding_lines
from coach.render.text import plain

if TYPE_CHECKING:
    from coach.workflows.judging.check import Checked, FilesRead

_MAX_NAMED = 20
_WENT_WRONG = "went wrong"


def checked_lines(checked: Checked, now_s: float, muted: Iterable[str] = ()) -> Iterable[str]:
    """All findings for the named target. For a job that waits, the reason: nothing could be measured yet."""
    if checked.waiting is not None and not checked.diagnosis.findings:
        yield from _waiting_lines(checked, checked.waiting, now_s)
        return
    yield from diagnosis_lines(checked.diagnosis, checked.files, muted)
    run = checked.snapshot.run
    yield from (f"  {words}" for words in segment_words(run.segments if run is not None else ()))
    target = time_to_target(checked.snapshot)
    if target is not None:
        yield f"  {target_words(target)}"
    if checked.parts:
        yield from _part_lines(checked.parts)


def _waiting_lines(checked: Checked, waiting: Mapping[str, Any], now_s: float) -> Iterable[str]:
    yield f"{checked.diagnosis.target}  {checked.diagnosis.state or ''}".rstrip()
    yield f"  {meaning_of(checked.diagnosis)}"
    yield from (f"  {line}" for line in waiting_lines(waiting, now_s))
    if len(checked.parts) > 1:
        yield from _part_lines(checked.parts)


def _part_lines(parts: Sequence[Judged]) -> Iterable[str]:
    """Lines that group the parts by their result."""
    parts = sorted(parts, key=lambda part: (len(part.diagnosis.target), part.diagnosis.target))
    states = Counter(part.snapshot.state or "state not known" for part in parts)
    yield f"  parts: {', '.join(f'{number} {state}' for state, number in states.most_common())}"
    named = _parts_by_standing(parts)
    for word, group in named.items():
        if group:
            listed = ", ".join(part.diagnosis.target for part in group[:_MAX_NAMED])
            more = f" and {len(group) - _MAX_NAMED} more" if len(group) > _MAX_NAMED else ""
            yield f"  {word}: {listed}{more}"
    first = next(iter(named[_WENT_WRONG]), parts[0])
    yield f"  coach check {first.diagnosis.target} shows one in full"


def _parts_by_standing(parts: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Word for a result, worst first → the parts with it. A part with another result is in no group."""
    named = {
        _WENT_WRONG: [part for part in parts if part.worst is not None],
        "could not be read": [part for part in parts if part.is_blind],
        "wait": [part for part in parts if part.is_waiting],
    }
    told = {part.diagnosis.target for group in named.values() for part in group}
    rest = [part for part in parts if part.diagnosis.target not in told]
    for word in (Look.HEALTHY, Look.TOO_EARLY, Look.SILENT, PRINTED_NOTHING, Look.UNKNOWN):
        named[word] = [part for part in rest if part.word == word]
    return named


def diagnosis_lines(
    diagnosis: Diagnosis, files: FilesRead | None = None, muted: Iterable[str] = ()
) -> Iterable[str]:
    """The diagnosis for people: the root cause first, its consequences indented below it."""
    yield diagnosis.target + (f"  {diagnosis.state}" if diagnosis.state else "")
    if withheld := why_withheld(diagnosis):
        yield f"  {withheld.because}: {withheld.how}"
        return
    if diagnosis.verdict is not Verdict.FINDING:
        yield f"  {meaning_of(diagnosis)}"
    if ended := outcome_text(diagnosis.outcome, resume_command(diagnosis.target)):
        yield f"  {ended}"
    for finding in diagnosis.findings:
        yield from finding_text(finding, "    " if finding.consequence_of else "  ")
    yield from (f"  {line}" for line in earlier_runs_lines(diagnosis.outcome))
    if diagnosis.not_measured:
        yield "  not measured:"
        for item in diagnosis.not_measured:
            yield f"    {item.what}: {item.because}; {item.how}"
    if files is not None:
        yield from _file_lines(files)
    yield from _threshold_lines(diagnosis)
    if silent := sorted(muted):
        yield f"  muted by the config: {', '.join(silent)}"


def _threshold_lines(diagnosis: Diagnosis) -> Iterable[str]:
    fired = {finding.rule for finding in diagnosis.findings}
    used = [
        f"{name} = {value:g}" for name, value in diagnosis.thresholds.items() if name.split(".")[0] in fired
    ]
    if used:
        yield f"  thresholds used: {', '.join(used)}"


def _file_lines(files: FilesRead) -> Iterable[str]:
    if read := [file.path for file in files.files if file.problem is None]:
        yield "  read:"
        yield from (f"    {path}" for path in read)
    unread = [f"{file.path}: {file.problem}" for file in files.files if file.problem is not None]
    if missing := [*unread, *files.not_found]:
        yield "  looked for:"
        yield from (f"    {text}" for text in missing)


def finding_text(finding: Finding, indent: str = "") -> Iterable[str]:
    """One finding with its evidence and its fixes."""
    return (indent + plain(row) for row in finding_lines(finding, Detail.WHOLE))
