"""What the rules about an error that ended a program share: whether it did, and what the job itself said when
it refused to start.

What the words mean stays in each rule; whether the program lived on is told by rules/from_logs/aftermath.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import ClassVar

from coach.lookback.history import History
from coach.model.error_block import ErrorBlock
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.model.training.run import Refusal
from coach.rules.base import Need, Rule
from coach.rules.from_logs.aftermath import went_on
from coach.rules.from_logs.library_exceptions import exceptions_of
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, own_frame, quote, ranks_text

UNHEEDED = (
    r"^(?!\[[WI]\d{0,4} |[WI]\d{4} "
    r"|(?>.*?(?:(?<!=)\b(?:WARN(?:ING)?|INFO|DEBUG)\b|(?:Error|Exception): ))(?<!: ))"
)
"""A logger that gives an error less than its own level has caught it: also c10d's `[W1121 …]`.
`NCCL_DEBUG=INFO` is advice, no level, and what stands behind the error is of its own words, or of another
line that was torn."""


def ending_signatures(
    code: str, causes: Sequence[str], *own: Signature, refusal: str = ".+"
) -> tuple[Signature, ...]:
    """A rule's own signatures, with the line in which a job itself refuses to start. `refusal` narrows what
    that must say."""
    words = rf"^coach: (?P<cause>{'|'.join(causes)}): (?P<text>{refusal})"
    return (*own, Signature(code, "refused", tuple(f"coach: {cause}: " for cause in causes), words))


class EndingRule(Rule):
    """A rule about an error that ends the program it happens in. Subclasses say what to look for, what it
    means, and what to do."""

    severity = Severity.CRITICAL
    needs = (frozenset({Need.LOG}), frozenset({Need.JOB_STATE}))
    confidence: ClassVar[float] = 0.9

    @abstractmethod
    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        """What happened, in one line."""

    @abstractmethod
    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        """What to do; `hit` is None where the job said it in exit.json alone."""

    def is_mine(self, refusal: Refusal) -> bool:
        """Whether what the job said is this rule's; rules that share a cause tell themselves apart by its
        text."""
        return refusal.cause == self.cause

    def cause_of(self, hit: LogHit) -> str | None:
        """Another cause than the rule's own, where the words say so."""
        return None

    def confidence_of(self, hit: LogHit) -> float:
        """How sure the rule is, where the words of some lines say less than those of others."""
        return self.confidence

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        """What proves it beside the line itself and the program's own frame."""
        return ()

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """Whether a hit is the error itself; others only tell more of it."""
        return True

    def can_matter(self, snapshot: TargetSnapshot) -> bool:
        """Whether the error means anything for this job."""
        return True

    def severity_of(self, hit: LogHit) -> Severity | None:
        """How bad it is where nothing went on after it; None: as bad as the rule is."""
        return None

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        """How bad it is that the program went on without."""
        return Severity.INFO

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        said = hits_of(snapshot, self.code, "refused")
        refusal = snapshot.exit.refused if snapshot.exit is not None else None
        if refusal is not None and self.is_mine(refusal):
            yield self._refused(refusal.text, refusal.node, said, snapshot, refusal.cause)
            return
        if said and snapshot.state != "COMPLETED" and refusal is None:
            yield self._refused(said[0].fields["text"], None, said, snapshot, said[0].fields["cause"])
            return
        hits = [
            hit
            for hit in hits_of(snapshot, self.code)
            if hit.signature != "refused" and self.counts(hit, snapshot)
        ] or exceptions_of(self.code, snapshot)
        if hits and self.can_matter(snapshot):
            yield self._ended(hits, snapshot)

    def _refused(
        self, text: str, node: str | None, said: list[LogHit], snapshot: TargetSnapshot, cause: str
    ) -> Hit:
        run_dir = snapshot.run.run_dir if snapshot.run is not None else None
        proof = [quote(said[0])] if said else []
        if snapshot.exit is not None and snapshot.exit.refused is not None:
            where = f" on {node}" if node else ""
            proof.append(
                Evidence(f"the job itself stopped{where}", f"{run_dir}/exit.json" if run_dir else None)
            )
        return Hit(
            summary=text,
            evidence=tuple(proof),
            confidence=0.99,
            subject=Subject(node=node),
            fixes=tuple(self.fixes(said[0] if said else None, snapshot)),
            cause=cause,
        )

    def _ended(self, hits: list[LogHit], snapshot: TargetSnapshot) -> Hit:
        deadly = _deadly(hits, snapshot)
        first = earliest(deadly or hits)
        ranks = sorted({hit.rank for hit in deadly or hits if hit.rank is not None})
        summary = self.summary(first, snapshot) + (f" ({ranks_text(ranks)})" if ranks else "")
        severity, confidence = self.severity_of(first), self.confidence_of(first)
        if not deadly:
            summary, confidence = f"{summary}; the program went on", min(confidence, 0.6)
            severity = self.severity_if_it_goes_on(hits, snapshot)
        frame = own_frame(first)
        return Hit(
            summary=summary,
            evidence=(quote(first), *([frame] if frame else []), *self.more_evidence(first, snapshot)),
            confidence=confidence,
            subject=Subject(rank=ranks[0] if len(ranks) == 1 else None),
            fixes=tuple(self.fixes(first, snapshot)),
            severity=severity,
            cause=self.cause_of(first),
            since_s=first.time_s,
        )


def _deadly(hits: list[LogHit], snapshot: TargetSnapshot) -> list[LogHit]:
    """The hits after which the program did not go on, and that led to no later error that it survived."""
    are_caught = [went_on(hit, snapshot) for hit in hits]
    survived = [hit.block for hit in compress(hits, are_caught) if hit.block is not None]
    led_on = [block for later in survived for block in later.chain]
    return [
        hit
        for hit, is_caught in zip(hits, are_caught, strict=True)
        if not is_caught and not any(_is_of(hit, block) for block in led_on)
    ]


def _is_of(hit: LogHit, block: ErrorBlock) -> bool:
    return (
        hit.file == block.file and hit.rank == block.rank and block.first_line <= hit.line <= block.last_line
    )
