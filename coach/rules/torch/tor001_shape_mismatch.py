"""TOR001: tensor shapes do not fit the operation."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class ShapeMismatch(EndingRule):
    """Tensor shapes do not fit the operation.

    What it sees
        The error of the operation with its sizes: "mat1 and mat2 shapes cannot be multiplied", "The size of
        tensor a (34) must match the size of tensor b (32)", "shape '[…]' is invalid for input of size …",
        "Given groups=1, weight of size …", stacking samples of unequal size, and the wordings of NumPy,
        einops, TensorFlow, Keras and JAX.
    Why it matters
        It is a mistake in the program or its data, and recurs at the same place each time.
    When it stays silent
        When a logger reports it only as a warning, and where a checkpoint's sizes do not fit the model
        (TOR002). The finding is info if the program caught it.
    What to do
        Print the shapes at the quoted line of your own code. Usual causes: an image size or number of
        channels that the model does not expect, a flatten before the first linear layer, odd sizes in down-
        and upsampling, a collate function that does not pad, a smaller last batch.
    Sources
        torch aten shape checks (1.x to 2.13); numpy broadcasting; tensorflow and jax shape errors.
    """

    code = "TOR001"
    name = "shape-mismatch"
    cause = "shape_mismatch"
    general = (Fix("Print the shapes that reach that line, and compare them with the shapes of the layer"),)
    sentences = by_field(
        otherwise="Shapes do not fit: {words:.160}",
    )
