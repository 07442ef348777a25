"""Each number is shown with its source."""

from __future__ import annotations

from coach.analysis.measured.provenance import provenance, visible_gpus
from coach.lookback.history import History
from coach.model.training.telemetry import HostSample, Rung, SensorGap


def test_a_number_names_its_source_its_time_and_the_gpus_that_it_leaves_out() -> None:
    history = History()
    history.add_samples([SensorGap("n1", "gpu.utilization")])
    assert provenance(history, "n1", 10.0) is None
    history.add_samples([HostSample("n1", 8.0, num_gpus=8, num_gpus_allotted=8)])
    assert provenance(history, "n1", 10.0) == "the sampler beside the training, 2 s ago"
    history.add_samples([HostSample("n1", 9.0, num_gpus=6, num_gpus_allotted=8)], Rung.STEP)
    assert provenance(history.copy(), "n1", 10.0) == (
        "a step in the job (srun --overlap), 1 s ago; 6 of 8 GPUs visible"
    )


def test_gpus_without_a_known_number_are_not_called_hidden() -> None:
    assert visible_gpus(None) is None
    assert visible_gpus(HostSample("n1", 1.0, num_gpus=6)) is None
    assert visible_gpus(HostSample("n1", 1.0, num_gpus=0, num_gpus_allotted=2)) == "0 of 2 GPUs visible"
