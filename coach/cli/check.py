"""`coach check`: diagnose a run, a job or a log; without a target, all own jobs.

The object that `--format json` prints is a public contract: other programs act on it and on the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.analysis.judging.no_finding import Look, look_of, meaning_of
from coach.analysis.judging.several_jobs import Judged
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.cli.cluster import add_options
from coach.cli.text import earlier_runs_lines, print_line, printable
from coach.cli.verdict import verdict_lines
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Evidence, Finding, Severity, Subject
from coach.rules.engine import Engine
from coach.runs import encode_number
from coach.sources.io import Io, SystemIo, scrubbed_environment
from coach.workflows.judging.check import Checker
from coach.workflows.judging.lazy_engine import rules_of

if TYPE_CHECKING:
    from coach.workflows.judging.check import Checked, FilesRead

_MAX_NAMED = 20
_WENT_WRONG = "went wrong"
_FAIL_ON = {severity.word: severity for severity in Severity}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="a run id, a job id, a directory, a log file, or - for standard input"
        " (default: your jobs that run, wait or ended within a day)",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="read this log instead of those that are found; may be given many times",
    )
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="FILE",
        help="read metrics from this file instead of those that are found; may be given many times",
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(_FAIL_ON),
        default="warning",
        help="exit with status 1 from this severity on (default: warning)",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    io = SystemIo(scrubbed_environment(os.environ), timeout_s=settings.slurm_timeout_s)
    if args.target in (None, "-") and (args.log or args.metrics):
        raise UserError("--log and --metrics say what to read of one TARGET", "coach check JOB --log FILE")
    checker = Checker(settings, io, Engine(rules_of(settings)), args.backend)
    if args.target is not None:
        named = [tuple(_existing(path) for path in paths) for paths in (args.log, args.metrics)]
        checked = checker.target(args.target, *named)
        diagnoses = [checked.diagnosis]
        _tell_left_out(checked.num_left_out)
        if args.format == "json":
            print(json.dumps(checked_object(checked), indent=2))
        else:
            for line in checked_lines(checked, settings.muted_rules):
                print_line(line)
    else:
        judged, num_left_out = checker.own_jobs()
        _tell_left_out(num_left_out)
        diagnoses = [each.diagnosis for each in judged]
        if args.format == "json":
            print(json.dumps({"schema": 1, "jobs": [diagnosis_object(each) for each in diagnoses]}, indent=2))
        else:
            for line in verdict_lines(judged, io.now()):
                print_line(line)
    limit = _FAIL_ON[args.fail_on]
    return int(any(finding.severity >= limit for found in diagnoses for finding in found.findings))


def _tell_left_out(number: int) -> None:
    if number:
        print(f"coach: {number} more jobs were not judged: name them, coach check JOB", file=sys.stderr)


def _existing(text: str) -> Path:
    path = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 (Path raises for an unknown ~user)
    if not path.is_file():
        raise UserError(f"{text}: no such file")
    return path


def diagnose(text: str, settings: Settings, io: Io, engine: Engine, backend: str | None) -> Diagnosis:
    """Read one target whole and judge it. Raises UserError when it cannot be read."""
    return Checker(settings, io, engine, backend).target(text).diagnosis


def checked_object(checked: Checked) -> dict[str, Any]:
    """The public JSON of what was named. All of an array has its tasks as well, as `jobs`."""
    found = diagnosis_object(checked.diagnosis, checked.files)
    if checked.parts:
        found["jobs"] = [diagnosis_object(part.diagnosis) for part in checked.parts]
    return found


def diagnosis_object(diagnosis: Diagnosis, files: FilesRead | None = None) -> dict[str, Any]:
    """The public JSON of one target. Where its files had to be found, it has them as well."""
    more = {} if files is None else asdict(files)
    return {
        "schema": 1,
        "target": diagnosis.target,
        "state": diagnosis.state,
        "findings": [_finding_object(finding) for finding in diagnosis.findings],
        "not_measured": [asdict(item) for item in diagnosis.not_measured],
        **more,
    }


def _finding_object(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "cause": finding.cause,
        "severity": finding.severity.word,
        "confidence": round(finding.confidence, 2),
        "primary": finding.is_primary,
        "consequence_of": finding.consequence_of,
        "subject": asdict(finding.subject),
        "summary": finding.summary,
        "evidence": [{**asdict(item), "value": _json_number(item.value)} for item in finding.evidence],
        "fixes": [
            {
                "title": fix.title,
                "changes": dict(fix.changes),
                "command": fix.command,
                "changes_learning": fix.changes_learning,
            }
            for fix in finding.fixes
        ],
    }


def _json_number(value: float | None) -> float | str | None:
    encoded: float | str | None = encode_number(value)
    return encoded


def checked_lines(checked: Checked, muted: Iterable[str] = ()) -> Iterable[str]:
    """The same for people."""
    yield from diagnosis_lines(checked.diagnosis, checked.files, muted)
    if checked.parts:
        yield from _part_lines(checked.parts)


def _part_lines(parts: Sequence[Judged]) -> Iterable[str]:
    """Which went wrong with what, and which did not."""
    parts = sorted(parts, key=lambda part: (len(part.diagnosis.target), part.diagnosis.target))
    states = Counter(part.snapshot.state or "state not known" for part in parts)
    yield f"  parts: {', '.join(f'{number} {printable(state)}' for state, number in states.most_common())}"
    named = _parts_by_standing(parts)
    for word, group in named.items():
        if group:
            listed = ", ".join(printable(part.diagnosis.target) for part in group[:_MAX_NAMED])
            more = f" and {len(group) - _MAX_NAMED} more" if len(group) > _MAX_NAMED else ""
            yield f"  {word}: {listed}{more}"
    first = next(iter(named[_WENT_WRONG]), parts[0])
    yield f"  coach check {printable(first.diagnosis.target)} tells all of one"


def _parts_by_standing(parts: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The words for how a part stands, worst first → the parts. One that stands otherwise is in none."""
    named = {
        _WENT_WRONG: [part for part in parts if part.worst is not None],
        "could not be read": [part for part in parts if part.is_blind],
        "wait": [part for part in parts if part.is_waiting],
    }
    told = {part.diagnosis.target for group in named.values() for part in group}
    rest = [part for part in parts if part.diagnosis.target not in told]
    for look in (Look.HEALTHY, Look.NOTHING_KNOWN):
        named[look.value] = [part for part in rest if look_of(part.diagnosis) is look]
    return named


def diagnosis_lines(
    diagnosis: Diagnosis, files: FilesRead | None = None, muted: Iterable[str] = ()
) -> Iterable[str]:
    """The diagnosis for people: root cause first, what it caused indented below it."""
    yield printable(diagnosis.target) + (f"  {printable(diagnosis.state)}" if diagnosis.state else "")
    if withheld := why_withheld(diagnosis):
        yield f"  {withheld.because}: {printable(withheld.how)}"
        return
    if not diagnosis.findings:
        yield f"  {printable(meaning_of(diagnosis))}"
    for finding in diagnosis.findings:
        yield from finding_lines(finding, "    " if finding.consequence_of else "  ")
    yield from (f"  {line}" for line in earlier_runs_lines(diagnosis.outcome))
    if diagnosis.not_measured:
        yield "  not measured:"
        for item in diagnosis.not_measured:
            yield f"    {printable(item.what)}: {printable(item.because)}; {printable(item.how)}"
    if files is not None:
        yield from _file_lines(files)
    fired = {finding.rule for finding in diagnosis.findings}
    used = [
        f"{name} = {value:g}" for name, value in diagnosis.thresholds.items() if name.split(".")[0] in fired
    ]
    if used:
        yield f"  thresholds used: {', '.join(used)}"
    if silent := sorted(muted):
        yield f"  muted by the config: {', '.join(silent)}"


def _file_lines(files: FilesRead) -> Iterable[str]:
    if read := [file.path for file in files.files if file.problem is None]:
        yield "  read:"
        yield from (f"    {printable(path)}" for path in read)
    unread = [f"{file.path}: {file.problem}" for file in files.files if file.problem is not None]
    if missing := [*unread, *files.not_found]:
        yield "  looked for:"
        yield from (f"    {printable(text)}" for text in missing)


def finding_lines(finding: Finding, indent: str) -> Iterable[str]:
    """One finding with its proof and its fixes."""
    because = f"consequence of {finding.consequence_of}" if finding.consequence_of else ""
    remark = ", ".join(word for word in (finding.doubt, because) if word)
    yield (
        f"{indent}{finding.severity.word} {finding.rule} {finding.name}{_where(finding.subject)}"
        f"{f' ({remark})' if remark else ''}"
    )
    yield f"{indent}  {printable(finding.summary)}"
    for item in finding.evidence:
        yield f"{indent}    {_evidence_text(item)}"
    for fix in finding.fixes:
        asks = " [changes what is learned]" if fix.changes_learning else ""
        yield f"{indent}  fix: {printable(fix.title)}{asks}"
        if fix.command:
            yield f"{indent}       {printable(fix.command)}"


def _where(subject: Subject) -> str:
    parts = [
        f"{name} {printable(str(value))}"
        for name, value in (("node", subject.node), ("rank", subject.rank), ("GPU", subject.gpu))
        if value is not None
    ]
    return f" on {', '.join(parts)}" if parts else ""


def _evidence_text(item: Evidence) -> str:
    place = ""
    if item.file is not None:
        place = (
            f"{printable(item.file)}:{item.line}: " if item.line is not None else f"{printable(item.file)}: "
        )
    value = "" if item.value is None else f": {item.value:g}{f' {printable(item.unit)}' if item.unit else ''}"
    return f"{place}{printable(item.text)}{value}"
