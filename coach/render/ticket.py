"""A ticket as Markdown: headings in coach's own words, everything else in fences. Pure.

Text by other people stands in a fence longer than any fence inside it, so none of it acts as Markdown, HTML
or a mention, wherever the ticket is pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coach.analysis.judging.verdict_object import finding_of
from coach.analysis.spelling.printable import cut, printable
from coach.model.judging.finding import Severity
from coach.render.finding import Detail, finding_lines
from coach.render.text import plain
from coach.runs import RUN_ID

_MAX_WIDTH = 400
_TICKS = re.compile("`+")
PLAIN_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_+-]{0,60}[A-Za-z0-9])?")
"""A name that cannot contain Markdown."""
_NONE = "none"


def ticket_markdown(told: Mapping[str, Any]) -> list[str]:
    """The lines of a ticket, each harmless for a terminal."""
    return list(_lines(told))


def fenced(lines: Iterable[str], language: str = "") -> list[str]:
    """The lines in a fence that none of them can close."""
    shown = [cut(printable(line.expandtabs(4)).rstrip(), _MAX_WIDTH) for line in lines]
    longest = max((len(ticks) for line in shown for ticks in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {_title(told)}"
    yield from _section("Verdict", [*told["verdict"], *_evidence(told["findings"])])
    yield from _section("Times", _pairs(told["times"]))
    yield from _section("Job", _pairs(told["job"]) or ["not known: this is no job and no run"])
    if told["parts"]:
        yield from _section("Its parts", told["parts"])
    yield from _section("Nodes, as they are now", _nodes(told["nodes"]))
    yield from _section("Modules", _pairs(told["modules"]))
    yield from _section("Environment", _pairs(told["environment"]) or [_UNKNOWN_ENVIRONMENT])
    yield from _error(told["error"])
    yield from _log_ends(told["log_ends"], told["error"], told["logs"])
    yield from _section("What was tried", list(_tried(told["tried"])) or [_NOT_TRIED])
    yield from _script(told["script"])
    yield from _record(told["slurm_record"])
    if told["not_measured"]:
        yield from _section(
            "Not measured", [f"{item['what']}: {item['because']}" for item in told["not_measured"]]
        )
    yield from ("", *fenced([f"written {told['written']} by {told['written_by']}"]))


_UNKNOWN_ENVIRONMENT = "not known: Slurm keeps no environment of a job, and no other source has it"
_NOT_TRIED = "no other run or job of the same program is known here"


def _title(told: Mapping[str, Any]) -> str:
    """The title, made only of words that cannot be Markdown."""
    target, state = str(told["target"]), str(told["state"] or "")
    kind = "Run" if RUN_ID.match(target) else "Job"
    what = f"{kind} {target}" if target[:1].isdigit() and PLAIN_WORD.fullmatch(target) else "A job"
    return what + (f": {state}" if PLAIN_WORD.fullmatch(state) and "_" not in state else "")


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "", *fenced(lines, "text"))


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """`name: value` lines with aligned values; a list or a table gets lines of its own."""
    width = max((len(name) for name in values), default=0) + 1
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{name}:", *(f"  {key} = {each}" for key, each in value.items())]
        elif _is_list(value) and value:
            lines += [f"{name}:", *(f"  {each}" for each in value)]
        else:
            is_empty = _is_list(value) or isinstance(value, Mapping)
            lines.append(f"{name + ':':<{width}} {_NONE if is_empty else value}")
    return lines


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _evidence(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The proof of each finding above info."""
    for finding in map(finding_of, findings):
        if finding.severity > Severity.INFO:
            yield ""
            yield from map(plain, finding_lines(replace(finding, fixes=()), Detail.WHOLE))


def _error(error: Mapping[str, Any] | None) -> Iterator[str]:
    if error is None:
        yield from _section("Last error", ["no log shows an error that coach knows as one"])
        return
    rank = "" if error["rank"] is None else f", rank {error['rank']}"
    yield from _section("Last error", [f"{error['file']}:{error['line']}{rank}", "", *error["lines"]])


def _log_ends(
    ends: Sequence[Mapping[str, Any]], error: Mapping[str, Any] | None, places: Sequence[str]
) -> Iterator[str]:
    for end in ends:
        size = "" if end["num_lines"] is None else f", {end['num_lines']} lines"
        yield from _section("End of a log", [f"{end['file']}{size}", "", *end["lines"]])
    if not ends and error is None:
        yield from _section("End of a log", ["no log has a line that can be shown", *places])


def _script(script: Mapping[str, Any]) -> Iterator[str]:
    told = []
    if script["command"]:
        told.append(f"command: {script['command']}")
    told.append(f"batch script: {script['origin'] or 'not known'}")
    if script["problem"]:
        told.append(script["problem"])
    yield from _section("Script", told)
    if script["text"]:
        yield from ("", *fenced(script["text"].split("\n"), "bash"))


def _nodes(nodes: Mapping[str, Any]) -> list[str]:
    told = [f"names: {nodes['names'] or 'not known'}", *nodes["nodes"]]
    return [*told, f"not available: {nodes['problem']}"] if nodes["problem"] else told


def _tried(tried: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in tried:
        ended = f", ended {each['ended']}" if each["ended"] else ""
        yield f"{each['target']}: {each['state'] or 'state not known'}{ended}"
        found = "nothing wrong was found" if each["is_judged"] else "not checked"
        yield f"  {each['found'] or found}"
        yield from (f"  {line}" for line in (*each["how"], *each["measured"]))


def _record(record: Mapping[str, Any] | None) -> Iterator[str]:
    if record is None:
        return
    if record["text"] is None:
        yield from _section("Slurm's record", [f"not available any more: {record['problem']}"])
        return
    yield from _section("Slurm's record", [f"$ {record['command']}", "", *record["text"].split("\n")])
