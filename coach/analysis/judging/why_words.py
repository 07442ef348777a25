"""A verdict in at most six lines: the cause of the end, its place, the fix, and the work lost. Pure.

The words come from the verdict's JSON, not from the diagnosis, so that a stored verdict reads like a new one.
A stored verdict is a file that anybody may have written: a missing value, or one of another type, is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from coach.analysis.judging.no_finding import verdict_words
from coach.analysis.judging.outcome_words import end_text, lost_text
from coach.analysis.judging.verdict_object import GROUND, OUTCOME
from coach.analysis.judging.waiting import PENDING, waiting_lines
from coach.analysis.spelling.printable import cut, printable
from coach.analysis.teaching.withheld_findings import ANSWER_FIRST
from coach.model.judging.finding import EARLY_END, PROGRESS, SITE_ADVICE, NotMeasured, Severity, Verdict
from coach.model.judging.outcome import End, Outcome, RankEnd
from coach.model.judging.verdict import PastRun
from coach.model.slurm.cluster import is_final
from coach.runs import RUN_ID, SAID_OF_END

MAX_LINES = 6
_MAX_WIDTH = 300
"""A program's message may fill a page; commands are never cut."""
_FRAME = re.compile(r'File "([^"]+)", line (\d{1,9})')
_JOB_ID = re.compile(r"\d{1,18}(?:[_+]\d{1,9})?")
_GOOD = frozenset({"COMPLETED", "CANCELLED", "REVOKED"})
_WORDS = {severity.word: severity for severity in Severity}
_DENIED = "ermission denied"
_DRILL = "ended badly; `coach drill` asks you why"


def is_bad_state(state: str | None) -> bool:
    """True if a job ended in this state and nobody asked for it."""
    return is_final(state) and state not in _GOOD


def has_ended_badly(past: PastRun) -> bool:
    """True for a bad final state, and for a run that completed with a finding above info."""
    return is_final(past.state) and (is_bad_state(past.state) or past.rule is not None)


def worst_severity(verdict: Mapping[str, Any]) -> Severity | None:
    """The severity of its worst finding; None without a finding."""
    known = (_WORDS.get(str(finding.get("severity"))) for finding in _tables(verdict, "findings"))
    return max((each for each in known if each is not None), default=None)


def has_gone_wrong(verdict: Mapping[str, Any]) -> bool:
    """True with a finding above info, and for an open drill that ended in a bad state."""
    worst = worst_severity(verdict)
    if worst is not None and worst > Severity.INFO:
        return True
    return is_withheld(verdict) and is_bad_state(_text(verdict, "state"))


def is_withheld(verdict: Mapping[str, Any]) -> bool:
    """True for an open drill: its verdict names no cause."""
    return any(item.get("because") == ANSWER_FIRST for item in _tables(verdict, "not_measured"))


def pending_of(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why a job waits. None for a job that has ended: its verdict may come from a file, and only a file has
    both."""
    waiting = verdict.get(PENDING)
    return waiting if isinstance(waiting, dict) and not is_final(_text(verdict, "state")) else None


def _words_without_a_finding(verdict: Mapping[str, Any]) -> str:
    logs = (_text(item, "because") for item in _tables(verdict, "not_measured") if item.get("what") == "log")
    if unread := next((because for because in logs if because and _DENIED in because), None):
        return f"nothing is known: its log was not read: {unread}"
    items = [
        NotMeasured(*(_text(item, key) or "" for key in ("what", "because", "how")))
        for item in _tables(verdict, "not_measured")
    ]
    how = next((f"; {item.how}" for item in items if item.what in (PROGRESS, EARLY_END)), "")
    word = _text(verdict, "verdict") or Verdict.UNKNOWN
    return _cut(verdict_words(word, _text(verdict, GROUND) or "", items) + how)


def why_lines(verdict: Mapping[str, Any], now_s: float = 0.0) -> list[str]:
    """At most six lines, each safe for a terminal. `now_s` is needed for a job that waits."""
    target, state = _text(verdict, "target") or "–", _text(verdict, "state")
    if is_withheld(verdict):
        how = next((_text(item, "how") for item in _tables(verdict, "not_measured")), None)
        said = _DRILL if is_bad_state(state) else ANSWER_FIRST
        return [_cut(f"{target}  {state or 'state not known'}: {said}"), *([_cut(f"  {how}")] if how else [])]
    outcome = _outcome(verdict)
    ended = end_text(outcome) if outcome is not None else ""
    lines = [_cut(f"{target}  {state or 'state not known'}" + (f": {ended}" if ended else ""))]
    lines += _said(verdict, target, now_s)
    if outcome is not None and outcome.end is not End.COMPLETED and (lost := lost_text(outcome)):
        lines.append(_cut(f"  {lost}"))
    return [*lines, *_other_causes(verdict)][:MAX_LINES]


def _said(verdict: Mapping[str, Any], target: str, now_s: float) -> list[str]:
    """The first finding; without one, why the job waits, or that nothing was found."""
    finding, waiting = next(iter(_tables(verdict, "findings")), None), pending_of(verdict)
    if finding is not None:
        return list(_finding_lines(finding, target))
    if waiting is not None:
        return [_cut(f"  {line}") for line in waiting_lines(waiting, now_s)]
    return [f"  {_words_without_a_finding(verdict)}"]


def _other_causes(verdict: Mapping[str, Any]) -> Iterator[str]:
    """One line with the other causes: of a whole array, whose tasks may end for several reasons, those above
    info; of a job the critical ones that its first cause does not explain."""
    least = Severity.WARNING if len(_tables(verdict, "jobs")) > 1 else Severity.CRITICAL
    told = [
        f"{_text(each, 'rule') or ''}: {_text(each, 'summary') or ''}"
        for each in _tables(verdict, "findings")[1:]
        if (_WORDS.get(str(each.get("severity"))) or Severity.INFO) >= least
        and (least < Severity.CRITICAL or not _text(each, "consequence_of"))
    ]
    if told:
        yield _cut(f"  also {'; '.join(told)}")


def log_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The lines that a job writes about its own end into its log; none for a healthy job."""
    if not has_gone_wrong(verdict):
        return []
    if is_withheld(verdict):
        return [f"{SAID_OF_END}{_DRILL}"]
    return [f"{SAID_OF_END}{line}" for line in why_lines(verdict)]


def _finding_lines(finding: Mapping[str, Any], target: str) -> Iterator[str]:
    rule = f"{_text(finding, 'severity') or ''} {_text(finding, 'rule') or ''}"
    yield _cut(f"  {rule}{_where(finding)}: {_text(finding, 'summary') or ''}")
    if place := _place(finding):
        yield _cut(f"  at {place}")
    first, *others = _tables(finding, "fixes") or [{}]
    if first:
        yield from _fix_lines(first, target)
    for title in (_text(fix, "title") or "" for fix in others[-1:]):
        if title.startswith(SITE_ADVICE):
            yield _cut(f"  {title}")


def _where(finding: Mapping[str, Any]) -> str:
    subject = finding.get("subject")
    subject = subject if isinstance(subject, dict) else {}
    told = (
        ("node", _text(subject, "node")),
        ("rank", _whole(subject, "rank")),
        ("GPU", _whole(subject, "gpu")),
    )
    places = [f"{name} {value}" for name, value in told if value is not None]
    return f" on {', '.join(places)}" if places else ""


def _fix_lines(fix: Mapping[str, Any], target: str) -> Iterator[str]:
    asks = " (changes the training result)" if fix.get("changes_learning") is True else ""
    yield _cut(f"  fix: {_text(fix, 'title') or ''}{asks}")
    can_fix = bool(fix.get("changes")) and (RUN_ID.match(target) or _JOB_ID.fullmatch(target))
    command = _text(fix, "command") or (f"coach fix {target}" if can_fix else None)
    if command:
        yield f"       {printable(command)}"


def _place(finding: Mapping[str, Any]) -> str | None:
    """The program line that the traceback names, and the log line that shows it."""
    program = log = None
    for item in _tables(finding, "evidence"):
        if program is None and (frame := _FRAME.search(_text(item, "text") or "")):
            program = f"{frame[1]}:{frame[2]}"
        if log is None and (file := _text(item, "file")) is not None:
            line = _whole(item, "line")
            log = f"{file}:{line}" if line is not None else file
    return f"{program} (log {log})" if program and log else program or log


def _outcome(verdict: Mapping[str, Any]) -> Outcome | None:
    told = verdict.get(OUTCOME)
    if not isinstance(told, dict):
        return None
    try:
        end = End(str(told.get("end")))
    except ValueError:
        return None
    rank, node = _whole(told, "rank"), _text(told, "node")
    can_resume = told.get("can_resume")
    return Outcome(
        end,
        _text(told, "reason"),
        exit_code=_whole(told, "exit_code"),
        first=RankEnd(rank, node, None) if rank is not None else None,
        lost_steps=_whole(told, "lost_steps"),
        can_resume=can_resume if isinstance(can_resume, bool) else None,
    )


def _tables(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    listed = value.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


def _whole(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _cut(text: str) -> str:
    return cut(printable(text), _MAX_WIDTH)
