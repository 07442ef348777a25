"""The summary of a target's past for one row of a list."""

from __future__ import annotations

from coach.lookback.glance import DeviceUse, glance_of, together
from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.model.training.telemetry import GpuSample, HostSample


def gpu(node: str, index: int, use_pct: float | None, time_s: float = 10.0) -> GpuSample:
    return GpuSample(
        node,
        time_s,
        index,
        None,
        utilization_pct=use_pct,
        memory_used_mib=100,
        memory_total_mib=400,
        power_w=50,
    )


def test_a_glance_is_the_same_value_until_something_is_added() -> None:
    history = History()
    assert glance_of(history).is_empty
    history.add_steps([Step(0, 1, 1.0, loss=2.0)])
    first = glance_of(history)
    assert glance_of(history) is first
    history.add_steps([Step(0, 2, 2.0, loss=1.0)])
    assert [point.loss for point in glance_of(history).curve] == [2.0, 1.0]
    assert [point.loss for point in first.curve] == [2.0]


def test_the_newest_sample_of_each_gpu_counts_and_the_oldest_time_of_them() -> None:
    history = History()
    history.add_samples([gpu("n1", 0, 10, 5.0), gpu("n1", 0, 80, 9.0), gpu("n1", 1, 40, 8.0)])
    history.add_samples([HostSample("n1", 9.0, 50.0)])
    glance = glance_of(history)
    assert glance.gpus["n1"] == DeviceUse(2, 8.0, 60.0, 200, 800, 100, None)
    assert glance.cpus["n1"].use_pct == 50.0


def test_nodes_together_weigh_by_their_gpus_and_an_unknown_part_makes_a_sum_unknown() -> None:
    one, three = DeviceUse(1, 5.0, 80.0, power_w=100), DeviceUse(3, 7.0, 40.0)
    whole = together([one, three])
    assert whole is not None
    assert (whole.num_devices, whole.time_s, whole.use_pct, whole.power_w) == (4, 5.0, 50.0, None)
    assert together([]) is None
