"""TOR004: tensors of one operation have different dtypes."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.tensor_types import are_on_two_devices, two_types


class DtypeMismatch(EndingRule):
    """Tensors of one operation have different dtypes.

    What it sees
        "expected scalar type Half but found Float", "mat1 and mat2 must have the same dtype", "Found dtype
        Double but expected Float", and "Input type (torch.cuda.HalfTensor) and weight type
        (torch.cuda.FloatTensor) should be the same", if both types are on the same device.
    Why it matters
        The program ends at that operation. Devices and shapes are correct.
    When it stays silent
        Where the two types name different devices (CUD006), and when a logger reports it only as a warning.
        The finding is info if the program went on.
    What to do
        Look at the quoted line of your own code. Usual causes: half or bf16 weights without autocast around
        the forward pass, float64 inputs from NumPy, class indices as floats (cross_entropy expects int64
        targets), a part of the model that was loaded in another precision. Take the dtype from the weights:
        x.to(layer.weight.dtype).
    Sources
        torch aten dtype checks (0.4 to 2.13); torch.autocast's documentation.
    """

    code = "TOR004"
    name = "dtype-mismatch"
    cause = "dtype_mismatch"
    general = (
        Fix(
            "Give that operation one dtype: autocast around the forward pass, or "
            "x.to(layer.weight.dtype) at that line"
        ),
    )
    signatures = (two_types("TOR004"),)

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return hit.signature != "types" or not are_on_two_devices(hit)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = hit.fields.get("words", "")[:160]
        if not words:  # two equal device names say nothing about dtypes, so quote the line
            names = tuple(hit.fields.values())
            words = " and ".join(names) if len(set(names)) > 1 else hit.text.rpartition("Error: ")[2][:160]
        return f"Tensors of one operation have different dtypes: {words}"
