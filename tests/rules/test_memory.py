from __future__ import annotations

from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import RankExit, RunExit
from coach.model.training.telemetry import HostSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.sources.runs.run_files import parse_exit
from tests.rules.examples import causes, diagnose_log, run, scan
from tests.rules.recorded import diagnose

OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 2; 15.00 GiB total capacity; 14.00 "
    "GiB already allocated;"
    " 20.00 MiB free; 14.20 GiB reserved in total by PyTorch)"
)


def test_cuda_out_of_memory_is_read_with_its_numbers() -> None:
    diagnosis = diagnose("typed/cuda-oom.log")
    assert causes(diagnosis) == ["cuda_oom"]
    evidence = {item.text: item.value for item in diagnosis.findings[0].evidence}
    assert evidence["requested in one allocation"] == 1536.0
    assert evidence["memory of the device"] == pytest.approx(39.39 * 1024)
    assert any("train.py" in text and "line 61" in text for text in evidence)


@pytest.mark.parametrize(
    "line",
    [
        OLD,
        "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 63.98 GiB of which 0 bytes is free."
        ),
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_every_wording_of_cuda_out_of_memory_is_known(line: str) -> None:
    assert causes(diagnose_log(line)) == ["cuda_oom"]


def test_an_out_of_memory_that_a_batch_size_finder_caught_is_only_info() -> None:
    diagnosis = diagnose("typed/cuda-oom-caught.log")
    assert [finding.severity for finding in diagnosis.findings] == [Severity.INFO]


def test_losses_flushed_after_a_traceback_do_not_make_a_crash_look_caught() -> None:
    crash = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n' + OLD
    assert causes(diagnose_log(crash + "\nstep 1 loss: 2.31\nstep 2 loss: 2.30\n")) == ["cuda_oom"]


def test_the_fix_keeps_the_global_batch_and_never_asks_for_host_memory() -> None:
    launched = run(
        {"model": "gpt", "batch_size": 64, "gradient_accumulation": 2, "activation_checkpointing": False}
    )
    finding = diagnose_log(OLD, launched).findings[0]
    assert finding.fixes[0].changes == {"batch_size": 32, "gradient_accumulation": 4}
    assert not finding.fixes[0].changes_learning
    assert "BatchNorm" not in finding.fixes[0].title
    assert finding.fixes[1].changes == {"activation_checkpointing": True}
    assert not any("mem" in fix.changes for fix in finding.fixes)


@pytest.mark.parametrize(("unallocated", "is_offered"), [("300.00 MiB", False), ("6.00 GiB", True)])
def test_expandable_segments_are_offered_only_where_much_is_reserved_but_unused(
    unallocated: str, is_offered: bool
) -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
        "of 40.00 GiB of which"
        " 1.00 GiB is free. Including non-PyTorch memory, this process has 39.00 GiB memory in use. Of the "
        "allocated memory 32.00 GiB"
        f" is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
    )
    fixes = diagnose_log(line, run({"batch_size": 8, "gradient_accumulation": 1})).findings[0].fixes
    assert any("env" in fix.changes for fix in fixes) is is_offered


def test_memory_held_by_another_process_is_named_and_comes_first() -> None:
    line = OLD.replace("14.00 GiB already", "2.00 GiB already").replace(
        "14.20 GiB reserved", "2.20 GiB reserved"
    )
    finding = diagnose_log(line).findings[0]
    assert "other processes" in finding.fixes[0].title


KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some tasks were killed."
ARRAY = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 10.0 MiB for an array with shape (9,)"


@pytest.mark.parametrize("line", [KILLED, ARRAY])
def test_a_run_that_had_all_the_memory_of_its_nodes_is_not_told_to_ask_for_none(line: str) -> None:
    ended = run(resources={"mem": "0"}, state="FAILED")
    snapshot = TargetSnapshot("run", None, run=ended, log_hits=scan(f"{line}\n"))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert finding.rule == "MEM007"
    assert "had all the memory of its nodes (--mem=0)" in finding.fixes[0].title
    assert not any(fix.changes for fix in finding.fixes)


def test_a_run_killed_for_its_memory_gets_the_amount_to_ask_for() -> None:
    diagnosis = diagnose("host-oom")
    assert causes(diagnosis) == ["host_oom"]
    assert diagnosis.findings[0].fixes[0].changes == {"mem": "512M"}


@pytest.mark.parametrize(
    "line",
    [
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=17.0. Some of your processes may have "
            "been killed by the cgroup out-of-memory handler."
        ),
        (
            "slurmstepd-node1: error: Detected 2 oom_kill events in StepId=17.batch. Some of the step tasks "
            "have been OOM Killed."
        ),
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 17.0 cgroup.",
        "srun: error: node1: task 0: Out Of Memory",
        "slurmstepd: error: StepId=17.batch exceeded memory limit (329789440 > 52428800), being killed",
        "slurmstepd: error: Step 17.0 exceeded memory limit (2052 > 1024), being killed",
        "=>> PBS: job killed: mem 38427376kb exceeded limit 33554432kb",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9000000kB",
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 4 bytes"
        ),
    ],
)
def test_every_version_of_a_schedulers_words_for_it_is_known(line: str) -> None:
    assert causes(diagnose_log(line)) == ["host_oom"]


KILLED = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "


@pytest.mark.parametrize(
    ("used_mib", "expected"),
    [(None, ["dataloader_worker_killed"]), (3900.0, ["host_oom", "dataloader_worker_killed"])],
)
def test_a_killed_worker_proves_lack_of_memory_only_where_that_was_measured(
    used_mib: float | None, expected: list[str]
) -> None:
    history = History()
    if used_mib is not None:
        history.add_samples([HostSample("node1", 1.0, memory_used_mib=used_mib, memory_limit_mib=4096.0)])
    snapshot = TargetSnapshot("train.log", 2.0, log_hits=scan(KILLED))
    assert causes(Engine(build()).diagnose(snapshot, history)) == expected


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"])
def test_workers_that_slurm_killed_for_another_reason_prove_nothing(state: str) -> None:
    found = diagnose_log(KILLED, run(state=state)).findings
    assert found[0].cause.startswith("slurm_")
    assert "host_oom" not in {finding.cause for finding in found}


@pytest.mark.parametrize(("used_mib", "expected"), [(3900.0, ["host_oom"]), (1000.0, ["unknown_failure"])])
def test_a_rank_killed_by_signal_9_counts_only_with_memory_near_its_limit(
    used_mib: float, expected: list[str]
) -> None:
    history = History()
    history.add_samples([HostSample("node1", 1.0, memory_used_mib=used_mib, memory_limit_mib=4096.0)])
    ended = RunExit("FAILED", 137, 2.0, (RankExit(0, None, 9, None, False),))
    snapshot = TargetSnapshot("run", 2.0, run=run(state="FAILED"), exit=ended)
    assert causes(Engine(build()).diagnose(snapshot, history)) == expected


@pytest.mark.parametrize(("state", "is_told"), [("FAILED", True), ("COMPLETED", False)])
def test_the_kernel_s_own_count_names_the_memory_of_a_job_that_failed(state: str, is_told: bool) -> None:
    ended = parse_exit({"state": state, "exit_code": 137, "nodes": {"node2": {"oom_kills": 1}}})
    launched = replace(run(resources={"mem": "300M"}, state=state), job_id="17")
    found = Engine(build()).diagnose(TargetSnapshot("run", 2.0, run=launched, exit=ended), History()).findings
    assert ("host_oom" in {finding.cause for finding in found}) is is_told
    if is_told:
        assert (found[0].rule, found[0].subject.node) == ("MEM007", "node2")
        assert dict(found[0].fixes[0].changes) == {"mem": "640M"}


def test_a_node_s_tasks_are_one_node() -> None:
    parts = {"node2": {"oom_kills": 1}, "node2.1": {"oom_kills": 2}, "node3": {}}
    assert parse_exit({"nodes": parts}).oom_kills == {"node2": 3}


@pytest.mark.parametrize(("need_mib", "mem"), [(5120.0, "5G"), (350.0, "448M"), (None, "448M")])
def test_the_first_raise_is_enough_for_what_the_recipe_needs(need_mib: float | None, mem: str) -> None:
    history = History()
    history.add_samples([HostSample("node1", 1.0, memory_used_mib=306.0)])
    launched = replace(run(resources={"mem": "300M"}, state="OUT_OF_MEMORY"), mem_need_mib=need_mib)
    snapshot = TargetSnapshot("run", 2.0, run=launched)
    (finding,) = Engine(build()).diagnose(snapshot, history).findings
    assert dict(finding.fixes[0].changes) == {"mem": mem}
    assert ("what the recipe needs" in finding.fixes[0].title) == (mem == "5G")


def test_the_measured_peak_decides_how_much_memory_is_asked_for() -> None:
    history = History()
    history.add_samples([HostSample("node1", 1.0, memory_used_mib=8000.0)])
    launched = run({"num_workers": 8}, {"mem": "8G"}, state="OUT_OF_MEMORY")
    finding = Engine(build()).diagnose(TargetSnapshot("run", 2.0, run=launched), history).findings[0]
    assert [dict(fix.changes) for fix in finding.fixes] == [{"mem": "11G"}, {"num_workers": 4}]


def test_a_healthy_run_has_no_finding() -> None:
    assert not diagnose("healthy").findings
