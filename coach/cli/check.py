"""`coach check`: diagnose a run, a job or a log; without a target, all own jobs.

The object that `--format json` prints is a public contract: other programs act on it and on the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from coach.cli.cluster import add_options, look
from coach.cli.text import print_line, printable
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.finding import Diagnosis, Evidence, Finding, Severity, Subject
from coach.model.reading import JobList
from coach.rules.engine import Engine
from coach.sources.io import Io

if TYPE_CHECKING:
    from coach.sources.job_files import OutputPaths
    from coach.workflows.targets import Target

_FAIL_ON = {severity.word: severity for severity in Severity}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="a run id, a job id, a run directory, a log file, or - for standard input (default: all your jobs)",
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
    if args.target is not None:
        diagnoses = [diagnose(args.target, settings, io, engine, args.backend)]
    else:
        diagnoses = _diagnose_own_jobs(settings, io, engine, args.backend)
    if args.format == "json":
        objects = [diagnosis_object(diagnosis) for diagnosis in diagnoses]
        print(json.dumps(objects[0] if args.target is not None else {"schema": 1, "jobs": objects}, indent=2))
    else:
        _print_all(diagnoses)
    limit = _FAIL_ON[args.fail_on]
    return int(any(finding.severity >= limit for found in diagnoses for finding in found.findings))


def diagnose(text: str, settings: Settings, io: Io, engine: Engine, backend: str | None) -> Diagnosis:
    """Read one target whole and judge it. Raises UserError when it cannot be read."""
    from coach.sources.user import user_name
    from coach.workflows.backend import resolve_backend
    from coach.workflows.watch import resolve_target

    chosen = resolve_backend(backend or settings.launch.backend, os.environ)
    return _judge(resolve_target(text, settings, io, chosen, user_name()), settings, io, engine, chosen)


def _diagnose_own_jobs(settings: Settings, io: Io, engine: Engine, backend: str | None) -> list[Diagnosis]:
    """All own jobs; the queue is asked once for them all. Raises UserError when it does not answer."""
    from coach.sources.run_index import RunIndex
    from coach.workflows.backend import resolve_backend
    from coach.workflows.targets import list_runs, locate_target, output_paths_of

    jobs = look(settings, backend, source="jobs", is_all=False).jobs
    chosen = resolve_backend(backend or settings.launch.backend, os.environ)
    known = list_runs(io, settings.runs_root, RunIndex(settings.cache_dir, settings.runs_root))
    targets = [locate_target(job.job_id, settings, io, known, job) for job in jobs]
    queue, output_paths = JobList(jobs, False), output_paths_of(io, settings)
    output_paths.learn(jobs)
    return [_one_of_many(target, settings, io, engine, chosen, queue, output_paths) for target in targets]


def _one_of_many(
    target: Target,
    settings: Settings,
    io: Io,
    engine: Engine,
    backend: str,
    queue: JobList,
    output_paths: OutputPaths,
) -> Diagnosis:
    """That its files cannot be read is said in its place, and the others are judged all the same."""
    from coach.model.finding import NotMeasured

    try:
        return _judge(target, settings, io, engine, backend, queue, output_paths)
    except UserError as error:
        because = NotMeasured("job", error.message, error.hint or "name its log file")
        return Diagnosis(target.name, None, (), (because,))


def _judge(
    target: Target,
    settings: Settings,
    io: Io,
    engine: Engine,
    backend: str,
    queue: JobList | None = None,
    output_paths: OutputPaths | None = None,
) -> Diagnosis:
    from coach.rules.registry import signatures
    from coach.sources.user import user_name
    from coach.workflows.diagnosing import with_advice
    from coach.workflows.read import read_once

    wanted = signatures(engine.rules)
    snapshot, history = read_once(
        target, settings, io, backend, user_name(), wanted, queue=queue, output_paths=output_paths
    )
    binary = [tail.file for tail in snapshot.log_tails if tail.is_binary]
    if binary and snapshot.run is None and snapshot.job is None:
        raise UserError(
            f"{printable(target.name)}: a binary file, not a log", "give a text log, a run or a job id"
        )
    return with_advice(engine.diagnose(snapshot, history), settings.advice)


def diagnosis_object(diagnosis: Diagnosis) -> dict[str, Any]:
    """The public JSON of one target."""
    return {
        "schema": 1,
        "target": diagnosis.target,
        "state": diagnosis.state,
        "findings": [_finding_object(finding) for finding in diagnosis.findings],
        "not_measured": [asdict(item) for item in diagnosis.not_measured],
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


def _print_all(diagnoses: Sequence[Diagnosis]) -> None:
    if not diagnoses:
        print_line("You have no jobs.")
    for number, diagnosis in enumerate(diagnoses):
        if number:
            print_line("")
        for line in diagnosis_lines(diagnosis):
            print_line(line)


def diagnosis_lines(diagnosis: Diagnosis) -> Iterable[str]:
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
    fired = {finding.rule for finding in diagnosis.findings}
    used = [
        f"{name} = {value:g}" for name, value in diagnosis.thresholds.items() if name.split(".")[0] in fired
    ]
    if used:
        yield f"  thresholds used: {', '.join(used)}"


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
