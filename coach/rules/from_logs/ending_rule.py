"""Base of the rules about an error that ended a program: it decides if the program ended, and reads
exit.json.

Each rule explains the meaning of its messages. `aftermath.py` decides whether the program went on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import ClassVar

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.model.training.run import Refusal
from coach.rules.advice.circumstances import fixes_of_wording
from coach.rules.advice.remedies import without_node
from coach.rules.base import Need, Rule
from coach.rules.from_logs.aftermath import is_of_the_site, lines_below, only_error, went_on
from coach.rules.from_logs.library_exceptions import exceptions_of
from coach.rules.from_logs.outcome import told_as_hidden, told_of_the_dead
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, own_frame, quote, ranks_text

_MESSAGE_LINES = 2
"""Lines of an exception's message in which a more exact wording is looked for."""
_IS_RAISED = re.compile(r"(?:Error|Exception|Failed)\b")
UNHEEDED = (
    r"^(?!\[[WI]\d{0,4} |[WI]\d{4} "
    r"|(?>.*?(?:(?<!=)\b(?:WARN(?:ING)?|INFO|DEBUG)\b|(?:Error|Exception): ))(?<!: ))"
)
"""Skips lines that a logger prints below level ERROR, also c10d's `[W1121 …]`: the program caught that error.
`NCCL_DEBUG=INFO` is not a level. A level behind the exception's type belongs to the message, or to another
torn line."""


REFUSED = Signature("refused", "refused", ("coach: ",), r"^coach: (?P<cause>[a-z]+_[a-z_]+): (?P<text>.+)")
"""The line with which coach's batch script refuses to start."""
OTHERWISE = "otherwise"
"""Key of the summary of a line whose fields and kind have none."""
NO_LINE = LogHit(REFUSED.rule, REFUSED.name, file="", line=0, text="", fields={})
"""The place of that line where only exit.json has the refusal, or no line shows the condition."""


def by_field(**sentences: str) -> Mapping[str, str]:
    """Summaries by the field or the kind of a line; `otherwise` is that of all other lines. `{words:.160}`
    stands for at most 160 characters of the field `words`, `{first}` for the first field, `{line}` for the
    whole line. A line without such a field is a mistake of its row, which `coach config --check` tells."""
    return MappingProxyType(sentences)


class EndingRule(Rule):
    """A rule about an error that ends its program. Subclasses define the patterns, the summary and the
    fixes."""

    severity = Severity.CRITICAL
    needs: ClassVar[tuple[Need | frozenset[Need], ...]] = (Need.LOG, Need.JOB_STATE)
    confidence: ClassVar[float] = 0.9
    general: ClassVar[tuple[Fix, ...]] = ()
    """The fixes for a wording that has none of its own."""
    details: ClassVar[tuple[str, ...]] = ()
    """Kinds of lines that only add details to the error."""
    waits_for_peers: ClassVar[bool] = False
    """True for messages of ranks that wait for a rank that has ended: the finding then names that rank."""
    other_node: ClassVar[str] = ""
    """Why another node may help, as in `whose mount is stale`. The node that refused the job is then left
    out."""
    is_lasting: ClassVar[bool] = False
    """True if a process cannot go on after the error, even if it catches it."""
    sentences: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Summaries by the field of the line or by its kind (`by_field`); the first that the line has holds."""

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        """One line that says what happened. Override it where the line alone does not tell."""
        fields = {name: value.strip() for name, value in hit.fields.items()}
        values = {**fields, "line": hit.text.strip(), "first": next(iter(fields.values()), "")}
        known = (hit.signature, *hit.fields, OTHERWISE)
        sentence = next(text for key, text in self.sentences.items() if key in known)
        return sentence.format_map(values)

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        """The fixes to offer where the wording has none. `hit` is one of REFUSED if the job refused to
        start."""
        yield from self.general
        if self.other_node:
            yield from without_node(snapshot, self.other_node)

    def is_mine(self, refusal: Refusal) -> bool:
        """True if the refusal belongs to this rule. Rules that share a cause compare the text."""
        return refusal.cause == self.cause

    def cause_of(self, hit: LogHit) -> str | None:
        """A more exact cause than the rule's own, if the line names one."""
        return hit.wording.cause if hit.wording is not None else None

    def confidence_of(self, hit: LogHit) -> float:
        """Confidence, 0 to 1. Override it where some lines prove less than others."""
        return self.confidence

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        """Evidence besides the line itself and the program's own frame."""
        return ()

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """True if a hit is the error itself; False if it is irrelevant for this job."""
        return True

    def severity_of(self, hit: LogHit) -> Severity | None:
        """Severity if the program did not go on; None: the rule's own severity."""
        return None

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        """Severity if the program went on despite the error."""
        return Severity.INFO

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        lines = [hit for hit in hits_of(snapshot, REFUSED.rule) if self.is_mine(_refusal_of(hit))]
        refusal = snapshot.exit.refused if snapshot.exit is not None else None
        if refusal is None and lines and snapshot.state != "COMPLETED":
            refusal = _refusal_of(lines[0])
        if refusal is not None and self.is_mine(refusal):
            yield self._refused(refusal, lines, snapshot)
            return
        hits = self.lines_that_count(snapshot) or exceptions_of(self.code, snapshot)
        hits = [hit for hit in hits if not _was_of_the_site(hit, snapshot)]
        if hits:
            yield self._ended(hits, snapshot)

    def lines_that_count(self, snapshot: TargetSnapshot) -> list[LogHit]:
        """The lines of the error itself."""
        lines = [hit for hit in hits_of(snapshot, self.code) if hit.signature not in self.details]
        return [hit for hit in lines if self.counts(hit, snapshot)]

    def _worst(self, hits: Sequence[LogHit]) -> Severity | None:
        """The severity of the line that says most; None: the rule's own."""
        severities = [self.severity_of(hit) for hit in hits]
        return None if None in severities else severities[0]

    def _is_suspect(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """True if a failed job's log has no other error, and no process goes on after this one."""
        only = only_error(snapshot) if self.is_lasting else None
        return only is not None and only.block == hit.block

    def _refused(self, refusal: Refusal, lines: list[LogHit], snapshot: TargetSnapshot) -> Hit:
        """The finding of a refusal, from exit.json or from the lines of the log."""
        run_dir = snapshot.run.run_dir if snapshot.run is not None else None
        proof = [quote(lines[0])] if lines else []
        if snapshot.exit is not None and snapshot.exit.refused is not None:
            where = f" on {refusal.node}" if refusal.node else ""
            proof.append(
                Evidence(f"the job itself stopped{where}", f"{run_dir}/exit.json" if run_dir else None)
            )
        return Hit(
            summary=refusal.text,
            evidence=tuple(proof),
            confidence=0.99,
            subject=Subject(node=refusal.node),
            fixes=tuple(self.fixes(lines[0] if lines else NO_LINE, snapshot)),
            cause=refusal.cause,
        )

    def _ended(self, hits: list[LogHit], snapshot: TargetSnapshot) -> Hit:
        deadly = _deadly(hits, snapshot)
        first = earliest(deadly or hits)
        ranks = sorted({hit.rank for hit in deadly or hits if hit.rank is not None})
        summary = self.summary(first, snapshot) + (f" ({ranks_text(ranks)})" if ranks else "")
        severity, confidence = self._worst(deadly or hits), self.confidence_of(first)
        if not deadly and self._is_suspect(first, snapshot):
            below = f"{lines_below(first, snapshot):,} lines before the end of the log"
            summary, confidence = f"{summary}: the only error, but {below}", min(confidence, 0.5)
        elif not deadly:
            summary, confidence = f"{summary}; the program went on", min(confidence, 0.6)
            severity = self.severity_if_it_goes_on(hits, snapshot)
        frame = own_frame(first)
        hit = Hit(
            summary=summary,
            evidence=(quote(first), *([frame] if frame else []), *self.more_evidence(first, snapshot)),
            confidence=confidence,
            subject=Subject(rank=ranks[0] if len(ranks) == 1 else None),
            fixes=_of_wordings(first, hits, snapshot) or tuple(self.fixes(first, snapshot)),
            severity=severity,
            cause=self.cause_of(first),
            since_s=first.time_s,
        )
        hit = told_of_the_dead(hit, snapshot) if self.waits_for_peers else hit
        return told_as_hidden(hit, snapshot) if deadly else hit


def _refusal_of(line: LogHit) -> Refusal:
    return Refusal(line.fields["cause"], line.fields["text"], None)


def _was_of_the_site(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a script of the site raised it, and the job went on: that is no matter of the job's."""
    return is_of_the_site(hit.block) and went_on(hit, snapshot)


def _of_wordings(first: LogHit, hits: list[LogHit], snapshot: TargetSnapshot) -> tuple[Fix, ...]:
    """The fixes of the first wording that has some: that of the hit, or of a line of its message below."""
    below = (hit for hit in hits if hit.file == first.file and 0 < hit.line - first.line <= _MESSAGE_LINES)
    near = [hit for hit in below if hit.block == first.block and _IS_RAISED.search(first.text)]
    return next(filter(None, (fixes_of_wording(hit, snapshot) for hit in (first, *near))), ())


def _deadly(hits: list[LogHit], snapshot: TargetSnapshot) -> list[LogHit]:
    """The hits that ended the program: neither they nor a later error that they led to was caught."""
    are_caught = [went_on(hit, snapshot) for hit in hits]
    survived = [hit.block for hit in compress(hits, are_caught) if hit.block is not None]
    led_on = [block for later in survived for block in later.chain]
    return [
        hit
        for hit, is_caught in zip(hits, are_caught, strict=True)
        if not is_caught
        and not any(
            (hit.file, hit.rank) == (block.file, block.rank)
            and block.first_line <= hit.line <= block.last_line
            for block in led_on
        )
    ]
