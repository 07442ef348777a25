"""TOR002: parameter names or sizes of a checkpoint do not fit the model."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of


class StateDictMismatch(EndingRule):
    """Parameter names or sizes of a checkpoint do not fit the model.

    What it sees
        "Error(s) in loading state_dict for MODEL" with keys that are missing, unexpected or of another size;
        an optimizer's "loaded state dict contains a parameter group that doesn't match"; a `KeyError` whose
        key is a parameter's name; Keras' and TensorFlow's messages about layers and weights that differ.
    Why it matters
        Checkpoint and program belong to different versions or settings of the model. Nothing was trained.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on without the
        checkpoint.
    What to do
        Build the model with the checkpoint's own settings (sizes, number of classes, vocabulary). Keys that
        all begin with `module.` or `_orig_mod.` come from DDP or torch.compile: save
        `model.module.state_dict()`, or strip the prefix. `strict=False` hides missing keys, and these
        parameters stay random.
    Sources
        torch.nn.Module.load_state_dict; torch.optim.Optimizer.load_state_dict; transformers modeling_utils.
    """

    code = "TOR002"
    name = "state-dict-mismatch"
    cause = "state_dict_mismatch"
    details = ("detail",)
    confidence = 0.97

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if self.cause_of(hit) == "checkpoint_world_size":
            return "The checkpoint was saved by another number of ranks"
        model = hit.fields.get("model")
        into = f" {model}" if model else " the model"
        details = [found.fields["detail"] for found in hits_of(snapshot, self.code, "detail")]
        return f"The checkpoint does not fit{into}" + (f": {details[0].strip()[:160]}" if details else "")

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        keys = " ".join(found.fields["detail"] for found in hits_of(snapshot, self.code, "detail"))
        for prefix, origin in (("module.", "DDP"), ("_orig_mod.", "torch.compile")):
            if f'"{prefix}' in keys:
                yield Fix(
                    f"The names differ by {origin}'s prefix {prefix}: strip it from the keys, or save "
                    "without it"
                )
                return
        yield Fix(
            "Build the model with the settings that the checkpoint was saved with, or name the right "
            "checkpoint"
        )
