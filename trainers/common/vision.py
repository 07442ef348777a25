"""torchvision, also where its compiled part does not load: the one place that imports it.

PyPI's torchvision is built for CUDA, its compiled part does not load beside a torch for the CPU, and its
import then fails on an operator that nobody declared. Declaring it is all that datasets, transforms and
models need.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os

import torch

from common.needed import needed


def _declare_missing_operators() -> torch.library.Library | None:
    """The library is returned because its declarations end with it."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return None  # the import of torchvision says what is missing
    for compiled in glob.glob(os.path.join(spec.submodule_search_locations[0], "_C*.so")):
        with contextlib.suppress(OSError, ImportError):
            torch.ops.load_library(compiled)
            return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


_LIBRARY = _declare_missing_operators()
IS_COMPILED = _LIBRARY is None
"""False where torchvision's compiled part does not load: then its own operators are missing."""

with needed(f"pip install torchvision, in the release that belongs to torch {torch.__version__}"):
    try:
        from torchvision import datasets as datasets
        from torchvision import models as models
        from torchvision.transforms import v2 as v2
    except (RuntimeError, AttributeError) as error:  # of another release than torch
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ImportError(f"torchvision does not load ({reason})") from error
