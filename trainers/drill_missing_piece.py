"""The baseline on images that are mixed with each other.

python trainers/drill_missing_piece.py --epochs 1
"""

from __future__ import annotations

import baseline
from common.distributed import run
from my_augmentations import mixed

baseline.load_data = mixed(baseline.load_data)

if __name__ == "__main__":
    run(baseline.main)
