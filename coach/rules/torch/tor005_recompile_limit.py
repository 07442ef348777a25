"""TOR005: torch.compile gave a function up after too many compilations, and runs it eagerly."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import hits_of, quote


class RecompileLimit(Rule):
    """torch.compile reached its limit of compilations for a function, and runs it without compilation.

    What it sees
        "torch._dynamo hit config.recompile_limit (8)", by its older name config.cache_size_limit, and the
        accumulated limits of both names. The function and the reason that dynamo prints behind it are quoted:
        the guard that failed last says what kept changing.
    Why it matters
        Each compilation took seconds to minutes, and from here on the function runs eagerly: the run pays for
        compilation and does not have its speed.
    When it stays silent
        Nothing else silences it. It is info: the training goes on, and whether the function matters to its
        speed is not measured here. With `fullgraph=True` torch raises FailOnRecompileLimitHit, which is
        TOR003.
    What to do
        Where the reason names a size, mark that dimension (`torch._dynamo.mark_dynamic`) or compile with
        `dynamic=True`, or pad the batches to few shapes. Where it names a number or a counter, make it a
        tensor or keep it out of the compiled part. `TORCH_LOGS=recompiles` prints each reason. Raise
        `torch._dynamo.config.recompile_limit` only where the number of variants is known and small.
    Sources
        torch/_dynamo/convert_frame.py and config.py (recompile_limit 8, accumulated_recompile_limit 256);
        torch.compile troubleshooting: recompilation.
    """

    code = "TOR005"
    name = "recompile-limit"
    cause = "recompile_limit"
    severity = Severity.INFO
    needs = (frozenset({Need.LOG}),)
    thresholds = (
        Threshold(
            "reason_lines", 6, "lines", "dynamo prints the function and the reason next; ranks may mix theirs"
        ),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        limits = hits_of(snapshot, self.code, "limit")
        if not limits:
            return
        first = limits[0]
        function = self._behind(first, snapshot, "function")
        reason = self._behind(first, snapshot, "reason")
        places = {hit.fields["function"] for hit in hits_of(snapshot, self.code, "function")}
        name = f" of {function.fields['function']}" if function is not None else ""
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        because = f": {_words(reason)}" if reason is not None else ""
        yield Hit(
            summary=(
                f"torch.compile reached {first.fields['limit']} ({first.fields['number']}){name}{more}, "
                f"which runs eagerly from there on{because}"
            ),
            evidence=tuple(_quotes(first, function, reason)),
            confidence=0.9,
            fixes=(
                Fix(
                    "Mark the dimension that changes (torch._dynamo.mark_dynamic), or compile with "
                    "dynamic=True"
                ),
                Fix("Print the reason of each compilation", {"env": {"TORCH_LOGS": "recompiles"}}),
            ),
            since_s=first.time_s,
        )

    def _behind(self, limit: LogHit, snapshot: TargetSnapshot, kind: str) -> LogHit | None:
        """The line of a kind that stands close behind the limit, of the same rank."""
        last = limit.line + self.values["reason_lines"]
        return next(
            (
                hit
                for hit in hits_of(snapshot, self.code, kind)
                if hit.file == limit.file and hit.rank == limit.rank and limit.line < hit.line <= last
            ),
            None,
        )


def _words(reason: LogHit) -> str:
    """The guard that failed, without the source line that dynamo sets behind it as a comment."""
    return reason.fields["reason"].partition("   #")[0].strip()[:120]


def _quotes(*hits: LogHit | None) -> Iterable[Evidence]:
    return (quote(hit) for hit in hits if hit is not None)
