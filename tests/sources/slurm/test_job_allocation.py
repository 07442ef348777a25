"""The resources of a running job and their use, from Slurm's output."""

from __future__ import annotations

from coach.sources.slurm.job_allocation import memory_peak_mib, parse_allocation, parse_steps
from tests.sources.scripted_io import captured


def test_a_step_must_request_gpus_that_came_with_the_whole_node() -> None:
    whole = parse_allocation(captured("allocation-whole-node-22.05.txt").decode())
    part = parse_allocation(captured("allocation-two-nodes-22.05.txt").decode())
    assert whole is not None
    assert (whole.num_nodes, whole.num_gpus_untold, whole.memory_mib) == (1, 2, 16000)
    assert part is not None
    assert (part.num_nodes, part.num_gpus_untold, part.memory_mib) == (2, None, 600)


def test_a_missing_memory_limit_is_none_and_a_pending_job_has_no_allocation() -> None:
    text = captured("allocation-two-nodes-22.05.txt").decode()
    unlimited = parse_allocation(text.replace("Mem=600 ", "Mem=0 "))
    assert unlimited is not None
    assert unlimited.memory_mib is None
    assert parse_allocation("JobId=17 JobName=x\n   NumNodes=1 NumCPUs=1\n") is None


def test_the_sum_of_all_steps_peaks_bounds_the_memory_of_a_node() -> None:
    steps = parse_steps(captured("steps-22.05.txt").decode())
    assert [step.step_id.partition(".")[2] for step in steps] == ["batch", "0", "batch", "0"]
    peak = memory_peak_mib(steps[2:], 2)
    assert peak is not None
    assert round(peak, 1) == round((10696 + 1656) / 1024, 1)
    assert memory_peak_mib([], 2) is None
    assert memory_peak_mib(parse_steps("17.0|1||"), 1) is None


def test_steps_report_gpu_use_if_the_site_accounts_for_gpus() -> None:
    (step,) = parse_steps("17.0|8|2G|cpu=00:01:00,gres/gpumem=40000M,gres/gpuutil=613\n")
    assert (step.gpu_utilization_pct, step.gpu_memory_mib) == (613.0, 40000.0)
    assert parse_steps(captured("steps-22.05.txt").decode())[1].gpu_utilization_pct is None
