"""A small real set that every machine has: 1797 handwritten digits of 8x8 pixels in 17 grey values.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), UCI
Machine Learning Repository, https://doi.org/10.24432/C50P49, under the licence CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). Changed for `digits.npz`: bytes in the place of text. Thirteen
people wrote them, one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NUM_TEST = 360
"""The last fifth, which is largely by other writers."""


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Training images as bytes (image, row, column), their labels, and the same for the test."""
    with np.load(digits_file()) as packed:
        images, labels = packed["images"], packed["labels"]
    images = (images.astype(np.uint16) * 255 // 16).astype(np.uint8)
    return images[:-NUM_TEST], labels[:-NUM_TEST], images[-NUM_TEST:], labels[-NUM_TEST:]


def digits_file() -> Path:
    return Path(__file__).with_name("digits.npz")
