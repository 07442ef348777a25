"""Tell apart two tensor types in one error: different devices, or different dtypes on the same device.

"Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor)" is about dtypes, and with
"(torch.FloatTensor)" in place of one of them about devices. The message is the same, so the two rules that
match it decide here.
"""

from __future__ import annotations

import re

from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED

_NAMED = (
    r"(?:Variable\[)?(?:torch\.[\w.]+|(?:CPU|CUDA|MPS|HIP|XPU|XLA)\w*|(?:cpu|cuda|mps|xpu|npu|hpu"
    r"|xla)(?::\d+)?\b)\]?"
)
"""A type with its device: torch.cuda.HalfTensor, CUDAHalfType, cuda:0. torch.HalfTensor is on the CPU."""
_ANY = rf"(?:{_NAMED}|c10::\w+|(?:unsigned |signed )?\w+)"
_TWO_TYPES = (
    UNHEEDED + r"(?>.*?(?:Error: |Exception: |what\(\): |Failed running|\bERROR\b)).*?(?:"
    rf"Input type \((?P<input>{_ANY})\) and (?:weight|bias) type \((?P<weight>{_ANY})\) should be the same"
    rf"|[Ee]xpected (?:object of |tensor of )?(?:type |backend |device )?(?P<wanted>{_NAMED})"
    rf"(?: and dtype \w+)? (?:but |\()(?:got|found)(?: type| backend| device)? (?P<found>{_NAMED})"
    rf"|; but type (?P<one>{_NAMED}) does not equal (?P<other>{_NAMED})"
    r")"
)
_LITERALS = ("weight type (", "bias type (", "but got ", "but found ", " (got ", " does not equal ")
_DEVICE = re.compile(r"(?:cuda|mps|hip|xpu|npu|hpu|xla)(?::\d+)?")
_ON_THE_CPU = re.compile(r"tensor|cpu")


def two_types(rule: str) -> Signature:
    """Matches lines with two tensor types. The rule then calls `are_on_two_devices` for each hit."""
    return Signature(rule, "types", _LITERALS, _TWO_TYPES)


def are_on_two_devices(hit: LogHit) -> bool:
    """True if the two types of a hit name different devices: then the dtypes are not the problem."""
    devices = {_device_of(name) for name in hit.fields.values()} - {None}
    return len(devices) == 2


def _device_of(name: str) -> str | None:
    """The device in a type's name; None for a bare dtype such as `float` or `c10::Half`."""
    lowered = name.lower()
    found = _DEVICE.search(lowered)
    if found is not None:
        return found[0]
    return "cpu" if _ON_THE_CPU.search(lowered) else None
