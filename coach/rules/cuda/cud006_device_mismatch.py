"""CUD006: tensors of one operation are on different devices."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule
from coach.rules.from_logs.tensor_types import are_on_two_devices, two_types

_MISMATCH = re.compile(
    UNHEEDED
    + r"(?>.*?(?:Error: |Exception: |what\(\): |Failed running|\bERROR\b|^(?=Expected all tensors to be on "
    r"the same device, but)))"
    r".*?(?:"
    r"[Ee]xpected all tensors to be on the same device(?:.*?, (?P<one>[a-z]+(?::\d+)?) and "
    r"(?P<other>[a-z]+(?::\d+)?)!)?"
    r"|Expected (?:object|tensor|a '?\w+'?).{0,60}?device type.{0,60}?but"
    r"|should be a 1D CPU int64 tensor, but got \dD cuda|must be on the (?:same|current) device"
    r"|can't convert CUDA tensor to numpy"
    r"|tensors are not at the same device|to have the same device as tensor|(?:arguments"
    r"|tensors) are located on different GPUs|expected both inputs to be on same device"
    r"|should be either on (?:the )?(?:cpu|same device)|must have its parameters and buffers on device"
    r"|can't convert \w+(?::\d+)? device type tensor to numpy|tensor to be on (?:CPU|GPU)|is on (?:CPU|GPU"
    r"|cpu|cuda).{0,20}?, but expected"
    r"|cannot be accessed from Triton \(cpu tensor|No backend type associated with device type"
    r"|(?:[Ee]xpect(?:s|ed)?|[Mm]ust|need)\b.{0,80}?\b(?:on|in|have) (?:the )?same device\b"
    r"|need to be on the same GPU"
    r"|\b\w+ must be (?:on CUDA\b|(?:a )?CUDA tensor)|Tensors must be CUDA and dense"
    r"|Expected \w+\.is_cuda\(\) to be true, but got false"
    r"|on device \S+ to a graph on device|Received incompatible devices for jitted computation"
    r"|Trying to access resource \S+ located in device \S+ from device"
    r"|Encountered different devices in metric calculation|[Dd]evice must be same as the current device"
    r"|Tensors on conflicting devices: "
    r"|Cannot copy out of meta tensor|[Tt]ensor on device (?P<found>\S+) is not on the expected device "
    r"(?P<expected>[\w:]+)"
    r")"
)


class DeviceMismatch(EndingRule):
    """Tensors of one operation are on different devices.

    What it sees
        "Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!" and
        its older and narrower wordings: input and weight types, generators, indices, module parameters,
        `numpy()` of a CUDA tensor; extensions' "must be on CUDA", and the same of DGL, JAX and TensorFlow.
    Why it matters
        The program ends at that operation: nothing moves data between devices by itself.
    When it stays silent
        Where the types that are named lie on one device and differ in dtype alone (TOR004). Where a logger
        gives it as a warning; info when the program caught it and went on.
    What to do
        Move what the traceback's line uses to one device. Often forgotten: tensors made inside `forward`
        (give them `device=x.device`), plain attributes (use `register_buffer`), the loss's weights, the
        batch's other fields. cuda:0 beside cuda:1: call `torch.cuda.set_device(local_rank)`, and never mix
        `device_map="auto"` or DataParallel with own `.cuda()` calls.
    Sources
        torch/csrc and aten TensorIterator checks (1.x to 2.13); torch.nn.Module.register_buffer.
    """

    code = "CUD006"
    name = "device-mismatch"
    cause = "device_mismatch"
    confidence = 0.95
    signatures = (
        Signature(
            "CUD006",
            "mismatch",
            (
                "same device",
                "current device",
                "1D CPU int64 tensor",
                "CUDA tensor to numpy",
                "device type",
                "different GPUs",
                "either on",
                "parameters and buffers on device",
                "to be on CPU",
                "to be on GPU",
                ", but expected",
                "expected device",
                "accessed from Triton",
                "out of meta tensor",
                "on the same GPU",
                "must be on CUDA",
                "must be CUDA tensor",
                "must be a CUDA tensor",
                "must be CUDA and dense",
                ".is_cuda() to be true",
                "to a graph on device",
                "incompatible devices for jitted",
                "Trying to access resource",
                "different devices in metric",
                "evice must be same as the current",
                "Tensors on conflicting devices",
            ),
            _MISMATCH,
        ),
        two_types("CUD006"),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return hit.signature != "types" or are_on_two_devices(hit)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        named = list(hit.fields.values())
        where = f": {named[0]} and {named[1]}" if len(named) == 2 else ""
        return f"Tensors of one operation are on different devices{where}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Move the operands of that line to one device; what forward makes itself needs device=x.device"
        )
