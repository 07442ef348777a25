"""CUD006: tensors of one operation are on different devices."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.tensor_types import are_on_two_devices, two_types


class DeviceMismatch(EndingRule):
    """Tensors of one operation are on different devices.

    What it sees
        "Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!" and
        its older and narrower wordings: input and weight types, generators, indices, module parameters,
        `numpy()` of a CUDA tensor; extensions' "must be on CUDA", and the corresponding messages of DGL, JAX
        and TensorFlow.
    Why it matters
        The program ends at that operation: nothing moves data between devices by itself.
    When it stays silent
        If the two types are on the same device and differ only in dtype (TOR004). When a logger reports it
        only as a warning. The finding is info if the program caught it and went on.
    What to do
        Move all tensors in the traceback's line to one device. Often forgotten: tensors made inside `forward`
        (give them `device=x.device`), plain attributes (use `register_buffer`), the loss's weights, the
        batch's other fields. cuda:0 beside cuda:1: call `torch.cuda.set_device(local_rank)`, and do not
        combine `device_map="auto"` or DataParallel with your own `.cuda()` calls.
    Sources
        torch/csrc and aten TensorIterator checks (1.x to 2.13); torch.nn.Module.register_buffer.
    """

    code = "CUD006"
    name = "device-mismatch"
    cause = "device_mismatch"
    general = (
        Fix("Move the operands of that line to one device; tensors created in forward need device=x.device"),
    )
    confidence = 0.95
    signatures = (two_types("CUD006"),)

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return hit.signature != "types" or are_on_two_devices(hit)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        named = list(hit.fields.values())
        where = f": {named[0]} and {named[1]}" if len(named) == 2 else ""
        return f"Tensors of one operation are on different devices{where}"
