"""DST024: FSDP refused the model, or an operation used sharded parameters."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class FsdpError(EndingRule):
    """FSDP refused the model, or an operation used sharded parameters.

    What it sees
        FSDP's own errors: "Must flatten tensors with uniform dtype", "… uniform requires_grad", "FSDP does
        not support …", "got mixed torch.Tensor and DTensor", a hook in an unexpected state, "Could not find
        the transformer layer class to wrap"; "'weight' must be 2-D" and storages of size 0, which come from
        parameters used outside of the forward pass that gathers them.
    Why it matters
        The wrapping does not fit the model. It comes back at the same place each time.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on.
    What to do
        Mixed dtypes: cast the model to one dtype before wrapping. Frozen and trained parameters together: set
        `use_orig_params=True`, or wrap them separately. Layer class not found: name a class that this model
        has. Parameters used outside of their module's forward (tied embeddings, generate, losses): wrap the
        module that uses them, or gather them with `summon_full_params`.
    Sources
        torch/distributed/fsdp `_flat_param.py`, `_init_utils.py`; torch.distributed.tensor dispatch;
        accelerate and transformers FSDP.
    """

    code = "DST024"
    name = "fsdp-error"
    cause = "fsdp_error"
    general = (
        Fix(
            "Use parameters only inside the forward pass of the module that is wrapped, or gather them first"
        ),
    )
    sentences = by_field(
        otherwise="FSDP: {words:.180}",
    )
