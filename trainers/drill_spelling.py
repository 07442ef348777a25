"""DeepSpeed with a configuration from a colleague.

torchrun --standalone --nproc_per_node=2 trainers/drill_spelling.py --epochs 1
"""

from __future__ import annotations

from typing import Any

import deepspeed_zero
from common.deepspeed_start import checked_config
from common.distributed import run

CONFIG = {"zero_optimisation": {"stage": 2, "overlap_comm": False}, "steps_per_print": 1000}


def my_config(config: dict[str, Any], file: str | None) -> dict[str, Any]:
    return checked_config({**config, **CONFIG}, file)


deepspeed_zero.checked_config = my_config

if __name__ == "__main__":
    run(deepspeed_zero.main)
