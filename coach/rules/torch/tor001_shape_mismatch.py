"""TOR001: shapes of tensors do not fit the operation they are given to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_WORDINGS = (
    ("mat1 and mat2", r"mat1 and mat2 shapes cannot be multiplied"),
    ("mat1 and mat2", r"mat1 and mat2 must have the same(?! dtype)"),
    ("must match the size of tensor", r"The size of tensor a \(\d+\) must match the size of tensor b"),
    ("is invalid for input of size", r"shape '\[.*?\]' is invalid for input of size"),
    ("Given normalized_shape", r"Given normalized_shape="),
    ("weight of size", r"Given (?:groups|transposed)=\S+,? weight of size"),
    ("Given input size", r"Given input size: "),
    ("Sizes of tensors must match", r"Sizes of tensors must match except in dimension"),
    ("Tensors must have same number", r"Tensors must have same number of dimensions"),
    ("stack expects each tensor", r"stack expects each tensor to be equal size"),
    ("Expected input batch_size", r"Expected input batch_size \(\d+\) to match target batch_size"),
    ("Target size (", r"Target size \(.*?\) must be the same as input size"),
    ("Using a target size", r"Using a target size \(.*?\) that is different to the input size"),
    ("Expected target size", r"Expected target size"),
    ("xpected ", r"[Ee]xpected \d[-D]\S* .{0,60}?(?:input|tensor)"),
    ("The expanded size of", r"The expanded size of the tensor"),
    ("the number of sizes provided", r"expand\(.*?\): the number of sizes provided"),
    ("The shape of the ", r"The shape of the (?:mask|\dD attn_mask)"),
    ("shape mismatch", r"shape mismatch: "),
    ("size mismatch", r"size mismatch,? (?:m1|\(got|get|got|input)"),
    ("inconsistent tensor size", r"inconsistent tensor sizes?"),
    ("output with shape [", r"output with shape \[.*?\] doesn't match the broadcast shape"),
    ("could not be broadcast", r"operands could not be broadcast together"),
    ("could not broadcast", r"could not broadcast input array"),
    ("must be equal to input_size", r"input\.size\(-1\) must be equal to input_size"),
    ("Expected ", r"Expected (?:hidden|size for first two dimensions)"),
    ("view size is not compatible", r"view size is not compatible with input tensor's size"),
    ("running_mean should contain", r"running_mean should contain \d+ elements"),
    ("einsum(): ", r"einsum\(\): (?:subscript|operands|the number of)"),
    ("all the input array", r"all the input array(?:s| dimensions)"),
    ("matmul: Input operand", r"matmul: Input operand \d has a mismatch"),
    ("Dot product shape", r"Dot product shape mismatch"),
    ("inhomogeneous shape", r"inhomogeneous shape"),
    ("must match mat2 dim", r"mat1 dim 1 must match mat2 dim 0"),
    ("Expected tensor to have size", r"Expected tensor to have size"),
    ("only batches of spatial", r"only batches of spatial targets supported"),
    ("input must have ", r"input must have \d dimensions"),
    ("split_with_sizes expects", r"split_with_sizes expects"),
    ("Padding size should be less", r"Padding size should be less"),
    ("utput size is too small", r".{0,40}?[Oo]utput size is too small"),
    ("Shape mismatch", r"Shape mismatch"),
    ("dot_general requires", r"dot_general requires contracting dimensions"),
    ("Kernel size can't", r"Kernel size can't be greater than actual input size"),
    ("Calculated padded input", r"Calculated padded input size per channel"),
    ("Incompatible shapes:", r"Incompatible shapes:"),
    ("Shape", r"Shapes? \(.*?\) (?:and|must|are) .*(?:incompatible|same rank)"),
    ("is incompatible with the layer", r"Input \d+ of layer .* is incompatible with the layer"),
    ("logits and labels must ", r"logits and labels must (?:have|be)"),
    ("Dimensions must be equal", r"Dimensions must be equal"),
    ("ncompatible shapes for", r"[Ii]ncompatible shapes for broadcasting"),
    ("but got ", r"but got (?:unpacked sizes|weight of size|input of size|mat1)"),
    ("tensors used as indices must", r"tensors used as indices must"),
    ("tensor with negative dimension", r"Trying to create tensor with negative dimension"),
    ("-reduction pattern", r"Error while processing \S+-reduction pattern"),
    ("cannot reshape array of size", r"cannot reshape array of size"),
    ("more than 1 value per channel", r"Expected more than 1 value per channel"),
    ("is invalid for input with", r"size '\[.*?\]' is invalid for input with"),
    ("Error when checking ", r"Error when checking (?:model )?(?:input|target)"),
    ("Input to reshape is a tensor", r"Input to reshape is a tensor with"),
    ("Matrix size-incompatible", r"Matrix size-incompatible"),
    ("Cannot feed value of shape", r"Cannot feed value of shape"),
    ("in both shapes must be equal", r"Dimension \d+ in both shapes must be equal"),
    ("Dimensions of inputs should match", r"(?:ConcatOp : )?Dimensions of inputs should match"),
    ("required broadcastable shapes", r"required broadcastable shapes"),
    (
        "Unable to create tensor, you",
        r"Unable to create tensor, you should probably activate (?:truncation|padding)",
    ),
    ("), but is ", r"(?:Attention \w+|`attn_output`) should be of size \(.{0,80}?\), but is "),
    ("batch1 and batch2 must", r"batch1 and batch2 must have same number of batches"),
    ("batch2_sizes[", r"Expected batch2_sizes\[0\] == bs"),
    ("ordering of dimensions", r"permute\(sparse_coo\): number of dimensions .*?ordering of dimensions"),
    ("match in permute", r"number of dims don't match in permute"),
    ("expecting embedding dimension", r"was expecting embedding dimension of"),
    ("divisible by num_groups", r"Expected number of channels in input to be divisible by num_groups"),
    ("1D target tensor", r"(?:0D or )?1D target tensor expected"),
    ("tokens do not match", r"(?<!\w)\w++ features and \w++ tokens do not match"),
    ("multiply up to the size of dim", r"unflatten: Provided sizes .* don't multiply up to the size of dim"),
    ("cannot reshape array of shape", r"cannot reshape array of shape"),
    ("Cannot concatenate arrays with", r"Cannot concatenate arrays with shapes that differ"),
    ("Cannot batch tensors with", r"Cannot batch tensors with different shapes"),
    ("Data cardinality is", r"Data cardinality is ambiguous"),
    ("expected to generate shape", r"Initializer expected to generate shape"),
)
"""Each with what every line of it contains."""

_MISMATCH = re.compile(
    UNHEEDED + r"(?:(?>.*?(?:Error: |Exception: |what\(\): |Failed running)).*?"
    # TensorFlow says it in a line of its own, below "Graph execution error:".
    r"|(?=mat1 and mat2 shapes cannot be multiplied \(|The size of tensor a \(\d+\) must match the size of "
    r"tensor b|Incompatible shapes: \[|required broadcastable shapes|Matrix size-incompatible: "
    r"))(?P<words>(?:" + "|".join(pattern for _, pattern in _WORDINGS) + r").*)"
)


class ShapeMismatch(EndingRule):
    """Shapes of tensors do not fit the operation they are given to.

    What it sees
        The error of the operation with its sizes: "mat1 and mat2 shapes cannot be multiplied", "The size of
        tensor a (34) must match the size of tensor b (32)", "shape '[…]' is invalid for input of size …",
        "Given groups=1, weight of size …", stacking samples of unequal size, and the wordings of NumPy,
        einops, TensorFlow, Keras and JAX.
    Why it matters
        It is a mistake of the program or of its data: it comes back at the same place each time.
    When it stays silent
        Where a logger gives it as a warning, and where a checkpoint's sizes do not fit the model (TOR002).
        Info when it was caught.
    What to do
        Print the shapes at the line of the own code that is shown. The usual suspects: image size or channels
        other than the model's, a flatten before the first linear layer, odd sizes beside down- and
        upsampling, a collate function that does not pad, the last batch being smaller.
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
            tuple(dict.fromkeys(literal for literal, _ in _WORDINGS)),
            _MISMATCH,
        ),
    )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"Shapes do not fit: {hit.fields['words'][:160]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Print the shapes that reach that line, and compare them with what the layer was made for")
