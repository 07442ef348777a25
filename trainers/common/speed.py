"""How fast a language model trains: tokens per second, and their share of the peak of its devices (MFU)."""

from __future__ import annotations

from typing import Any

import torch

from common.distributed import compute_capability, print_rank0
from common.training import Training

PEAKS = {
    "NVIDIA H200": (989e12, 67e12),
    "NVIDIA GH200": (989e12, 67e12),
    "NVIDIA H100 PCIe": (756e12, 51e12),
    "NVIDIA H100 NVL": (835e12, 60e12),
    "NVIDIA H100": (989e12, 67e12),
    "NVIDIA A100": (312e12, 19.5e12),
    "NVIDIA A30": (165e12, 10.3e12),
    "NVIDIA L40S": (362e12, 91.6e12),
}
"""Operations a second without sparsity, by the first words of a device's name that fit, as NVIDIA's data
sheets have them: in 16 bits, and in 32 bits without TF32."""


def flops_per_token(num_weights: int, layers: int, embedding: int, length: int) -> int:
    """Operations for one token, forward and backward: 6N + 12 L H Q T (PaLM, arXiv 2204.02311, appendix B).

    Each of N weights is multiplied and added once forward and twice backward, and each of L layers compares
    H heads of size Q (together the embedding) with T positions. An embedding that is only looked up is not in
    N; one that also predicts the next token is. The half of the comparisons that the mask hides is counted.
    So nanoGPT counts (karpathy/nanoGPT, model.py, estimate_mfu).
    """
    return 6 * num_weights + 12 * layers * embedding * length


def computes_in_bf16(precision: str, device: torch.device) -> bool:
    """True if products are to be made in 16 bits: `auto` says so of a GPU that was built for bf16."""
    return precision == "bf16" or (precision == "auto" and (compute_capability(device) or 0.0) >= 8.0)


def peak_of(device: torch.device, is_16_bit: bool) -> float | None:
    """The peak of this device, in operations a second. None on a CPU, and where it is not known."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    both = next((PEAKS[start] for start in PEAKS if name.startswith(start)), None)
    return None if both is None else both[0 if is_16_bit else 1]


def report_speed(
    training: Training,
    device: torch.device,
    of_token: int,
    tokens_per_sample: int,
    is_16_bit: bool,
    **fields: Any,
) -> None:
    """Record and print tokens per second of all ranks together, and their share of the peak of all devices.

    `of_token` are the operations of one token. `fields` go into the record.
    """
    samples_per_s = training.metrics.timing.summary()["samples_per_s"]
    tokens_per_s = samples_per_s * tokens_per_sample if samples_per_s else None
    of_device = peak_of(device, is_16_bit)
    peak = None if of_device is None else of_device * training.world_size
    mfu = tokens_per_s * of_token / peak if tokens_per_s and peak else None
    training.metrics.event(
        "mfu",
        training.step,
        tokens_per_s=tokens_per_s,
        flops_per_token=of_token,
        peak_flops_per_s=peak,
        mfu=mfu,
        **fields,
    )
    if tokens_per_s:
        by = "".join(f" by {value}" for value in fields.values())
        share = "of a peak that is not known" if mfu is None else f"{mfu:.1%} of {peak / 1e12:g}"
        tflops = tokens_per_s * of_token / 1e12
        print_rank0(f"{tokens_per_s:,.0f} tokens/s{by}: {tflops:.4g} TFLOP/s, {share}")
