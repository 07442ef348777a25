"""TOR005: torch.compile stopped compiling a function after too many compilations, and runs it eagerly."""

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
        "torch._dynamo hit config.recompile_limit (8)", the older name config.cache_size_limit, and the
        accumulated limits with both names. The finding quotes the function and dynamo's reason: the last
        failed guard shows the value that kept changing.
    Why it matters
        Each compilation took seconds to minutes, and now the function runs eagerly: the run pays for
        compilation without its speed.
    When it stays silent
        Never, but it is only info: the training goes on, and the function's share of the run time is not
        measured. With `fullgraph=True` torch raises FailOnRecompileLimitHit, which is TOR003.
    What to do
        If the reason names a size, mark that dimension (`torch._dynamo.mark_dynamic`), compile with
        `dynamic=True`, or pad the batches to a few shapes. If it names a number or a counter, make it a
        tensor or keep it out of the compiled part. `TORCH_LOGS=recompiles` prints each reason. Raise
        `torch._dynamo.config.recompile_limit` only if the number of variants is known and small.
    Sources
        torch/_dynamo/convert_frame.py and config.py (recompile_limit 8, accumulated_recompile_limit 256);
        torch.compile troubleshooting: recompilation.
    """

    code = "TOR005"
    name = "recompile-limit"
    cause = "recompile_limit"
    severity = Severity.INFO
    needs = (Need.LOG,)
    reason_lines = Threshold(
        6, "lines", "dynamo prints the function and the reason next; ranks may mix theirs"
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
        """The line of this kind close below the limit's line, of the same rank."""
        last = limit.line + self.reason_lines
        return next(
            (
                hit
                for hit in hits_of(snapshot, self.code, kind)
                if hit.file == limit.file and hit.rank == limit.rank and limit.line < hit.line <= last
            ),
            None,
        )


def _words(reason: LogHit) -> str:
    """The failed guard, without the source line that dynamo appends as a comment."""
    return reason.fields["reason"].partition("   #")[0].strip()[:120]


def _quotes(*hits: LogHit | None) -> Iterable[Evidence]:
    return (quote(hit) for hit in hits if hit is not None)
