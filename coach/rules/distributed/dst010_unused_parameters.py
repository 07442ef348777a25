"""DST010: DDP waits for gradients of parameters that took no part in the loss."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of, quote


class UnusedParameters(EndingRule):
    """DDP waits for gradients of parameters that took no part in the loss.

    What it sees
        "Expected to have finished reduction in the prior iteration before starting a new one", Lightning's
        and Megatron's versions of it, and the indices or names of the parameters without a gradient.
    Why it matters
        The reduction of the last step never finished, so the next one cannot begin. The job is over.
    When it stays silent
        On DDP's note that `find_unused_parameters=True` found no such parameter: that is only advice. The
        finding is info if the program went on.
    What to do
        Run with TORCH_DISTRIBUTED_DEBUG=DETAIL, which names the parameters. Remove them, freeze them
        (`requires_grad_(False)` before DDP is built), or let them contribute to the loss.
        `find_unused_parameters=True` also works, but traverses the graph in each step.
    Sources
        torch/csrc/distributed/c10d/reducer.cpp; torch.nn.parallel.DistributedDataParallel.
    """

    code = "DST010"
    name = "unused-parameters"
    cause = "ddp_unused_parameters"
    details = ("which",)
    general = (
        Fix("Freeze or remove the parameters that take no part, before DDP is built"),
        Fix(
            "Let torch name them: TORCH_DISTRIBUTED_DEBUG=DETAIL",
            {"env": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        ),
    )
    confidence = 0.97
    sentences = by_field(
        otherwise="DDP waited for gradients of parameters that took no part in the loss",
    )

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        yield from (quote(which) for which in hits_of(snapshot, self.code, "which")[:1])
