from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer, read_records, steps_in


@pytest.mark.train
def test_data_parallel_without_gpus_is_the_baseline_and_says_so(trainer: Trainer, tmp_path: Path) -> None:
    for name in ("baseline", "data_parallel"):
        done = trainer.run(f"{name}.py", tmp_path / name, max_steps=3)
        assert done.returncode == 0, done.stderr
    assert "DataParallel: 0 GPUs, so nothing is split" in done.stdout
    baseline, replicas = (
        [step["loss"] for step in steps_in(read_records(tmp_path / name))]
        for name in ("baseline", "data_parallel")
    )
    assert len(baseline) == 3
    assert replicas == baseline
