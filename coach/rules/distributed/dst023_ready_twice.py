"""DST023: autograd saw a parameter twice in one step, or a tensor that was changed in place."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class ReadyTwice(EndingRule):
    """Autograd saw a parameter twice in one step, or a tensor that was changed in place.

    What it sees
        One of these errors. From DDP: "Expected to mark a variable ready only once", with the parameter that
        "has been marked as ready twice". From DeepSpeed: a parameter that "has already been reduced". From
        autograd: "one of the variables needed for gradient computation has been modified by an inplace
        operation", or a leaf or a view that must not be changed in place.
    Why it matters
        The error ends the backward pass. With DDP, the usual causes are re-entrant activation checkpointing,
        a parameter that is used in several forward passes, and buffers that DDP broadcasts between two
        forward passes.
    When it stays silent
        Never, but the finding is info if the program caught the error and went on.
    What to do
        For a parameter that was seen twice: set `use_reentrant=False` for activation checkpointing (in
        transformers `gradient_checkpointing_kwargs`), and do not combine it with
        `find_unused_parameters=True`; or set `static_graph=True`. For an in-place change: write `x = x + y`
        in place of `x += y`. `torch.autograd.set_detect_anomaly(True)` names the operation. With two forward
        passes before one backward pass, set `broadcast_buffers=False`.
    Sources
        torch/csrc/distributed/c10d/reducer.cpp; torch/csrc/autograd/saved_variable.cpp;
        torch.utils.checkpoint.
    """

    code = "DST023"
    name = "ready-twice"
    cause = "ddp_inplace_or_marked_ready_twice"
    general = (Fix("Activation checkpointing with use_reentrant=False, without find_unused_parameters=True"),)
    confidence = 0.95
    sentences = by_field(
        inplace="A tensor that the backward pass needs was changed in place",
        leaf="Autograd does not allow this tensor to be changed in place",
        otherwise="DDP met a parameter twice in one backward pass",
    )
