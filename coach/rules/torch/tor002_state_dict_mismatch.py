"""TOR002: a checkpoint's names or sizes are not those of the model it is loaded into."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of

_MISMATCH = re.compile(
    UNHEEDED + r".*?(?:\bKeyError: '(?:\w+\.)+\w*(?:\.weight|\.bias|\.running_mean|\.qweight"
    r"|\.weight_scale(?:_inv)?)'$|Error\(s\) in loading state_dict for (?P<model>[\w.]+)"
    r"|(?:Error|Exception): .*?(?:Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict"
    r"|copying a param with shape|loaded state dict (?:contains|has) a (?:parameter group|different)"
    r"|You set `ignore_mismatched_sizes` to `False`|Missing key in checkpoint state_dict"
    r"|[Uu]nexpected key \S+ in state_dict|missing keys in state_dict: |Size mismatch between saved "
    r"torch\.Size|While copying the parameter named|Trying to (?:set|load) a tensor of shape"
    r"|You are trying to load a weight file containing \d+ layers|(?:Layer|Weight) count mismatch (?:when "
    r"loading weights|for )"
    r"|Shape mismatch in (?:layer #\d|top-level weight)|Layer shape .+ not compatible with weight shape"
    r"|Layer '\S+' expected \d+ variables, but received"
    r"|Cannot load model parameters from checkpoint .*architectures match|Global shape mismatch for loaded"
    r"|Received incompatible tensor with shape .* when attempting to restore variable"
    r"|There is no module or parameter named '[\w.]+' in \w|Following weights were not initialized from "
    r"checkpoint: |User-provided restore item and on-disk value metadata tree structures do not match"
    r"|Trying to restore (?:optimizer|training) state but checkpoint contains only the model"
    r"|A total of \d+ objects could not be loaded|Shape of variable \S+ \(\(.*?\)\) doesn't match with shape "
    r"of tensor|Variable Shape not match, Variable \[|The target dict keys and state dict keys do not match"
    r"|The checkpoint being loaded used a DP world size of"
    r"|Requested shape: .* is not compatible with the stored shape"
    r"|Restoring from checkpoint failed\. This is most likely due to a (?:Variable name|mismatch)))"
)
_DETAIL = re.compile(
    r"^\s*(?P<detail>size mismatch for (?P<name>\S+?): copying a param with shape .*"
    r"|(?:Missing|Unexpected) key\(s\) in state_dict: .*)"
)

_PLANNER = re.compile(r"^\s*md = metadata\.state_dict_metadata\[fqn\]$")
"""torch's own line: the KeyError that it raises says a name and nothing else."""


class StateDictMismatch(EndingRule):
    """A checkpoint's names or sizes are not those of the model it is loaded into.

    What it sees
        "Error(s) in loading state_dict for MODEL" with the keys that are missing, unexpected or of another
        size; an optimizer's "loaded state dict contains a parameter group that doesn't match"; a `KeyError`
        whose key is a parameter's name; Keras' and TensorFlow's words for layers and weights that differ.
    Why it matters
        Checkpoint and program belong to different versions or settings of the model. Nothing was trained.
    When it stays silent
        Where a logger gives it as a warning. Info when the program went on without the checkpoint.
    What to do
        Build the model with the checkpoint's own settings (sizes, number of classes, vocabulary). Keys that
        all begin with `module.` or `_orig_mod.` come from DDP or torch.compile: save
        `model.module.state_dict()`, or strip the prefix. `strict=False` hides missing keys: those stay
        random.
    Sources
        torch.nn.Module.load_state_dict; torch.optim.Optimizer.load_state_dict; transformers modeling_utils.
    """

    code = "TOR002"
    name = "state-dict-mismatch"
    cause = "state_dict_mismatch"
    confidence = 0.97
    signatures = (
        Signature(
            "TOR002",
            "mismatch",
            (
                "in loading state_dict for",
                "in state_dict",
                "copying a param with shape",
                "loaded state dict",
                "ignore_mismatched_sizes",
                "in checkpoint state_dict",
                "a tensor of shape",
                "While copying the parameter",
                "trying to load a weight file",
                "Size mismatch between saved",
                "count mismatch ",
                "Shape mismatch in ",
                "not compatible with weight shape",
                "variables, but received",
                "Restoring from checkpoint failed",
                "Cannot load model parameters from",
                "Global shape mismatch for loaded",
                "Received incompatible tensor",
                "not compatible with the stored shape",
                "There is no module or parameter named",
                "The target dict keys and state dict",
                "weights were not initialized from",
                "User-provided restore item and",
                "state but checkpoint contains only",
                "objects could not be loaded",
                "match with shape of tensor",
                "Variable Shape not match",
                "being loaded used a DP world size",
                ".weight'",
                ".bias'",
                ".running_mean'",
                ".qweight'",
                ".weight_scale",
            ),
            _MISMATCH,
        ),
        Signature("TOR002", "planner", ("state_dict_metadata[fqn]",), _PLANNER, reads_source=True),
        Signature("TOR002", "detail", ("size mismatch for ", "key(s) in state_dict: "), _DETAIL),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return hit.signature in ("mismatch", "planner")

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        model = hit.fields.get("model")
        into = f" {model}" if model else " the model"
        details = [found.fields["detail"] for found in hits_of(snapshot, self.code, "detail")]
        return f"The checkpoint does not fit{into}" + (f": {details[0].strip()[:160]}" if details else "")

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
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
