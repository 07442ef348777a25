"""`coach check`: diagnose a run, a job or a log; without a target, all own jobs.

The object that `--format json` prints is a public contract: other programs act on it and on the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.cli.cluster import add_options
from coach.cli.text import print_line, printable
from coach.cli.verdict import Judged, verdict_lines, worst_first
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.finding import Diagnosis, Evidence, Finding, Severity, Subject
from coach.model.reading import JobList
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.sources.io import Io

if TYPE_CHECKING:
    from coach.sources.job_files import OutputPaths
    from coach.workflows.find_files import ForeignFiles
    from coach.workflows.targets import Target

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
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.workflows.diagnosing import rules_of

    engine = Engine(rules_of(settings))
    io = SystemIo(scrubbed_environment(os.environ))
    if args.target in (None, "-") and (args.log or args.metrics):
        raise UserError("--log and --metrics say what to read of one TARGET", "coach check JOB --log FILE")
    if args.target is not None:
        named = [tuple(_existing(path) for path in paths) for paths in (args.log, args.metrics)]
        checked = check_target(args.target, settings, io, engine, args.backend, *named)
        diagnoses = [checked.diagnosis]
        if args.format == "json":
            print(json.dumps(diagnosis_object(checked.diagnosis, checked.files), indent=2))
        else:
            for line in diagnosis_lines(checked.diagnosis, checked.files, settings.muted_rules):
                print_line(line)
    else:
        judged, num_left_out = _judge_own_jobs(settings, io, engine, args.backend)
        if num_left_out:
            print(
                f"coach: {num_left_out} more jobs were not judged: name them, coach check JOB",
                file=sys.stderr,
            )
        diagnoses = [each.diagnosis for each in judged]
        if args.format == "json":
            print(json.dumps({"schema": 1, "jobs": [diagnosis_object(each) for each in diagnoses]}, indent=2))
        else:
            for line in verdict_lines(judged, io.now()):
                print_line(line)
    limit = _FAIL_ON[args.fail_on]
    return int(any(finding.severity >= limit for found in diagnoses for finding in found.findings))


def _existing(text: str) -> Path:
    path = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 (Path raises for an unknown ~user)
    if not path.is_file():
        raise UserError(f"{text}: no such file")
    return path


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of a foreign target. `problem` says why it was not read."""

    path: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What was read of a target whose files had to be found, and what was looked for in vain."""

    files: tuple[ReadFile, ...]
    not_found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    diagnosis: Diagnosis
    snapshot: TargetSnapshot
    files: FilesRead | None


def diagnose(text: str, settings: Settings, io: Io, engine: Engine, backend: str | None) -> Diagnosis:
    """Read one target whole and judge it. Raises UserError when it cannot be read."""
    return check_target(text, settings, io, engine, backend).diagnosis


def check_target(
    text: str,
    settings: Settings,
    io: Io,
    engine: Engine,
    backend: str | None,
    logs: tuple[Path, ...] = (),
    metrics: tuple[Path, ...] = (),
) -> Checked:
    """The same, with what was read. Files that are named take the place of those that would be found."""
    from coach.sources.user import user_name
    from coach.workflows.backend import resolve_backend
    from coach.workflows.targets import resolve_target

    chosen = resolve_backend(backend or settings.launch.backend, os.environ)
    target = resolve_target(text, settings, io, chosen, user_name())
    return _judge(replace(target, logs=logs, metrics=metrics), settings, io, engine, chosen)


def _judge_own_jobs(
    settings: Settings, io: Io, engine: Engine, backend: str | None
) -> tuple[list[Judged], int]:
    """Worst first, and how many were left out; the queue is asked once for them all. Raises UserError when it does not answer."""
    from coach.model.finding import NotMeasured
    from coach.sources.user import user_name
    from coach.workflows.backend import resolve_backend
    from coach.workflows.own_targets import own_targets

    chosen = resolve_backend(backend or settings.launch.backend, os.environ)
    own = own_targets(settings, io, user_name(), chosen)
    judged = []
    for target in own.targets:
        try:
            checked = _judge(target, settings, io, engine, chosen, own.queue, own.output_paths)
            judged.append(Judged(checked.diagnosis, checked.snapshot))
        except UserError as error:
            # That its files cannot be read is said in its place, and the others are judged all the same.
            because = NotMeasured("job", error.message, error.hint or "name its log file")
            diagnosis = Diagnosis(target.name, None, (), (because,))
            judged.append(Judged(diagnosis, TargetSnapshot(target.name, None)))
    return worst_first(judged), own.num_left_out


def _judge(
    target: Target,
    settings: Settings,
    io: Io,
    engine: Engine,
    backend: str,
    queue: JobList | None = None,
    output_paths: OutputPaths | None = None,
) -> Checked:
    from coach.rules.registry import signatures
    from coach.sources.user import user_name
    from coach.workflows.diagnosing import with_advice
    from coach.workflows.read import read_once
    from coach.workflows.targets import TargetKind, foreign_files, output_paths_of

    paths = output_paths or output_paths_of(io, settings)
    is_foreign = target.kind in (TargetKind.JOB, TargetKind.DIRECTORY)
    files = foreign_files(target, io, paths) if is_foreign else None
    snapshot, history = read_once(
        *(target, settings, io, backend, user_name(), signatures(engine.rules)),
        queue=queue,
        output_paths=paths,
        files=files,
    )
    binary = [tail.file for tail in snapshot.log_tails if tail.is_binary]
    if binary and snapshot.run is None and snapshot.job is None:
        raise UserError(
            f"{printable(target.name)}: a binary file, not a log", "give a text log, a run or a job id"
        )
    diagnosis = with_advice(engine.diagnose(snapshot, history), settings.advice)
    return Checked(diagnosis, snapshot, None if files is None else _files_read(snapshot, files))


def _files_read(snapshot: TargetSnapshot, files: ForeignFiles) -> FilesRead:
    logs = [
        ReadFile(file.path, file.problem or (None if file.is_found else "no such file, or not yet"))
        for file in snapshot.log_files
    ]
    return FilesRead((*logs, *(ReadFile(str(path)) for path in files.metrics())), tuple(files.lines()))


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
    from coach.runs import encode_number

    encoded: float | str | None = encode_number(value)
    return encoded


def diagnosis_lines(
    diagnosis: Diagnosis, files: FilesRead | None = None, muted: Iterable[str] = ()
) -> Iterable[str]:
    """The diagnosis for people: root cause first, what it caused indented below it."""
    yield printable(diagnosis.target) + (f"  {printable(diagnosis.state)}" if diagnosis.state else "")
    if not diagnosis.findings:
        yield "  nothing found in what was measured"
    for finding in diagnosis.findings:
        yield from _finding_lines(finding, "    " if finding.consequence_of else "  ")
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


def _finding_lines(finding: Finding, indent: str) -> Iterable[str]:
    because = f", consequence of {finding.consequence_of}" if finding.consequence_of else ""
    yield (
        f"{indent}{finding.severity.word} {finding.rule} {finding.name}{_where(finding.subject)}"
        f" (confidence {finding.confidence:.0%}{because})"
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
