"""TOR001: shapes of tensors do not fit the operation they are given to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.finding import Fix
from coach.model.log import LogHit, Signature
from coach.model.snapshot import TargetSnapshot
from coach.rules.ending import UNHEEDED, EndingRule

_WORDS = (
    r"mat1 and mat2 shapes cannot be multiplied",
    r"mat1 and mat2 must have the same",
    r"The size of tensor a \(\d+\) must match the size of tensor b",
    r"shape '\[.*?\]' is invalid for input of size",
    r"Given normalized_shape=",
    r"Given (?:groups|transposed)=\S+,? weight of size",
    r"Given input size: ",
    r"Sizes of tensors must match except in dimension",
    r"Tensors must have same number of dimensions",
    r"stack expects each tensor to be equal size",
    r"Expected input batch_size \(\d+\) to match target batch_size",
    r"Target size \(.*?\) must be the same as input size",
    r"Expected target size",
    r"[Ee]xpected \d[-D]\S* .{0,60}?(?:input|tensor)",
    r"The expanded size of the tensor",
    r"expand\(.*?\): the number of sizes provided",
    r"The shape of the (?:mask|\dD attn_mask)",
    r"shape mismatch: ",
    r"size mismatch,? (?:m1|\(got|get|got|input)",
    r"inconsistent tensor sizes?",
    r"output with shape \[.*?\] doesn't match the broadcast shape",
    r"operands could not be broadcast together",
    r"could not broadcast input array",
    r"input\.size\(-1\) must be equal to input_size",
    r"Expected (?:hidden|size for first two dimensions)",
    r"view size is not compatible with input tensor's size",
    r"running_mean should contain \d+ elements",
    r"einsum\(\): (?:subscript|operands|the number of)",
    r"all the input array(?:s| dimensions)",
    r"matmul: Input operand \d has a mismatch",
    r"Dot product shape mismatch",
    r"inhomogeneous shape",
    r"mat1 dim 1 must match mat2 dim 0",
    r"Expected tensor to have size",
    r"only batches of spatial targets supported",
    r"input must have \d dimensions",
    r"split_with_sizes expects",
    r"Padding size should be less",
    r".{0,40}?[Oo]utput size is too small",
    r"Shape mismatch",
    r"dot_general requires contracting dimensions",
    r"Kernel size can't be greater than actual input size",
    r"Calculated padded input size per channel",
    r"Incompatible shapes:",
    r"Shapes? \(.*?\) (?:and|must|are) .*(?:incompatible|same rank)",
    r"Input \d+ of layer .* is incompatible with the layer",
    r"(?:logits and labels|Dimensions) must (?:have|be)",
    r"[Ii]ncompatible shapes for broadcasting",
    r"but got (?:unpacked )?(?:sizes|weight of size|input of size|mat1|batch)",
    r"tensors used as indices must|Trying to create tensor with negative dimension",
)
_MISMATCH = re.compile(
    UNHEEDED
    + r".*?(?:Error: |Exception: |what\(\): |Failed running).*?(?P<words>(?:"
    + "|".join(_WORDS)
    + r").*)"
)


class ShapeMismatch(EndingRule):
    """Shapes of tensors do not fit the operation they are given to.

    What it sees
        The error of the operation with its sizes: "mat1 and mat2 shapes cannot be multiplied", "The size of tensor a (34) must match
        the size of tensor b (32)", "shape '[…]' is invalid for input of size …", "Given groups=1, weight of size …", stacking samples
        of unequal size, and the wordings of NumPy, TensorFlow and JAX.
    Why it matters
        It is a mistake of the program or of its data: it comes back at the same place each time.
    When it stays silent
        Where a logger gives it as a warning, and where a checkpoint's sizes do not fit the model (TOR002). Info when it was caught.
    What to do
        Print the shapes at the line of the own code that is shown. The usual suspects: image size or channels other than the model's,
        a flatten before the first linear layer, odd sizes beside down- and upsampling, a collate function that does not pad, the last
        batch being smaller.
    Sources
        torch aten shape checks (1.x to 2.13); numpy broadcasting; tensorflow and jax shape errors.
    """

    code = "TOR001"
    name = "shape-mismatch"
    cause = "shape_mismatch"
    signatures = (
        Signature(
            "TOR001",
            "mismatch",
            ("Error: ", "Exception: ", "what(): ", "Failed running"),
            _MISMATCH,
        ),
    )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"Shapes do not fit: {hit.fields['words'][:160]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Print the shapes that reach that line, and compare them with what the layer was made for")
