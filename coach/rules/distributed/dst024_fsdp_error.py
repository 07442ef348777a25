"""DST024: FSDP refused the model, or its parameters are not where an operation expects them."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule


class FsdpError(EndingRule):
    """FSDP refused the model, or an operation met parameters that are sharded.

    What it sees
        FSDP's own errors: "Must flatten tensors with uniform dtype", "… uniform requires_grad", "FSDP does
        not support …", "got mixed torch.Tensor and DTensor", a hook that meets a state it does not expect,
        "Could not find the transformer layer class to wrap", "'weight' must be 2-D" and storages of size 0,
        which are parameters used outside of the forward pass that gathers them.
    Why it matters
        The wrapping does not fit the model. It comes back at the same place each time.
    When it stays silent
        Where a logger gives it as a warning; info when the program went on.
    What to do
        Mixed dtypes: cast the model to one before wrapping. Frozen beside trained parameters:
        `use_orig_params=True`, or wrap them apart. A layer class that is not found: name the class that this
        model really has. Parameters that are used outside of their module's forward (tied embeddings,
        generate, losses): wrap the module that uses them, or gather them with `summon_full_params`.
    Sources
        torch/distributed/fsdp `_flat_param.py`, `_init_utils.py`; torch.distributed.tensor dispatch;
        accelerate and transformers FSDP.
    """

    code = "DST024"
    name = "fsdp-error"
    cause = "fsdp_error"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"FSDP: {hit.fields['words'][:180]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        words = hit.fields["words"] if hit is not None else ""
        if "dtype" in words:
            yield Fix(
                "Cast the model to one dtype before it is wrapped; mixed precision is FSDP's own option"
            )
        elif "requires_grad" in words:
            yield Fix("use_orig_params=True, or wrap frozen and trained modules apart")
        elif "layer class" in words:
            yield Fix("Name the class of this model's own blocks (print the model to see it)")
        else:
            yield Fix(
                "Use parameters only inside of the forward pass of the module that is wrapped, or gather "
                "them first"
            )
