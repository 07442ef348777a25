"""Reports on traces with known answers: one written by hand as torch writes it for a GPU, and one from two
real ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.analysis.measured.trace_report import merged, report, short_name, top_operators
from coach.model.errors import UserError
from coach.model.training.trace import Trace, TraceReport
from coach.sources.io import SystemIo
from coach.sources.metrics.trace_file import event_of, read_trace

FIXTURE = Path(__file__).parents[2] / "fixtures" / "trace" / "ddp-rank-0.json.gz"
HOST, STREAM, SECOND = (4000, 4000), (0, 7), (0, 20)
"""Process and thread of the host; device and stream of the GPU."""


Place = tuple[int, int]
Row = tuple[str, str, float, float, Place]


def trace(*rows: Row, num_bytes: int = 0) -> Trace:
    """Rows of category, name, begin and end in microseconds, and place. `num_bytes`: size of each copy."""
    events = []
    for category, name, begin, end, (pid, tid) in rows:
        args = {"bytes": num_bytes} if category == "gpu_memcpy" else {}
        said = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args}
        made = event_of({**said, "ts": begin, "dur": end - begin})
        assert made is not None, name
        events.append(made)
    return Trace(tuple(events), 0, 2, None)


def test_threads_that_wait_at_the_same_time_wait_no_longer_than_the_trace() -> None:
    made = report(
        trace(
            ("user_annotation", "ProfilerStep#5", 0, 1000, HOST),
            ("kernel", "ampere_sgemm_128x64_tn", 0, 500, STREAM),
            ("cuda_runtime", "cudaStreamSynchronize", 0, 900, HOST),
            ("cuda_runtime", "cudaStreamSynchronize", 100, 1000, (4000, 4001)),
            ("cuda_driver", "cuStreamSynchronize", 110, 990, (4000, 4001)),
        )
    )
    assert made.waits is not None
    assert (made.waits.share, made.waits.num_calls) == (1.0, 3)


def gpu_trace() -> Trace:
    """Two steps of 1000 us. The device computes for 900 us (400 of them during a collective of 600 us),
    copies for 100, and waits 400 for the loader and 400 for Python."""
    return trace(
        ("user_annotation", "ProfilerStep#5", 0, 1000, HOST),
        ("user_annotation", "ProfilerStep#6", 1000, 2000, HOST),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 390, HOST),
        ("cpu_op", "aten::empty", 10, 20, HOST),
        ("user_annotation", "nccl:all_reduce", 900, 910, HOST),
        ("cuda_runtime", "cudaLaunchKernel", 480, 490, HOST),
        ("cuda_runtime", "cudaStreamSynchronize", 1500, 1600, HOST),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 400, 500, STREAM),
        ("kernel", "ampere_sgemm_128x64_tn", 500, 1000, STREAM),
        ("kernel", "void at::native::relu_kernel<float>(float*)", 1000, 1400, STREAM),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 1000, 1600, SECOND),
        ("gpu_memset", "Memset (Device)", 1000, 1001, STREAM),
        num_bytes=400_000,
    )  # fmt: skip


def told_gpu() -> TraceReport:
    return report(gpu_trace())


def test_idle_time_is_covered_by_neither_kernels_nor_copies_and_names_the_host_s_work() -> None:
    told = told_gpu()
    assert (told.is_gpu, told.num_steps, told.num_kernels) == (True, 2, 2)
    assert told.window_s == pytest.approx(2e-3)
    assert told.compute_share == pytest.approx(900 / 2000)
    assert told.idle_share == pytest.approx(800 / 2000)  # 0 to 400, and 1600 to 2000
    assert told.longest_gap_s == pytest.approx(400e-6)
    gaps = {gap.name: gap.share for gap in told.gaps}
    assert gaps == pytest.approx(
        {
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 0.5,
            "Python between the operators": 0.5,
        }
    )
    assert told.waits is not None
    assert told.waits.share == pytest.approx(100 / 2000)


def test_communication_is_hidden_as_far_as_something_is_computed_beside_it() -> None:
    told = told_gpu().communication
    assert told is not None
    assert (told.num_calls, told.time_s) == (1, pytest.approx(600e-6))
    assert told.hidden_share == pytest.approx(400 / 600)
    assert told.exposed_share == pytest.approx(200 / 2000)


def test_copies_have_a_direction_a_rate_and_the_kind_of_memory() -> None:
    copy, fill = told_gpu().copies
    assert (copy.name, copy.num_bytes) == ("host to device, pageable", 400_000)
    assert copy.bytes_per_s == pytest.approx(4e9)
    assert (fill.name, fill.num_bytes, fill.bytes_per_s) == ("fill", None, None)


def test_remarks_come_with_the_largest_share_first() -> None:
    first, second, third = told_gpu().remarks
    assert first.startswith("the device waits for data 20% of the time")
    assert second.startswith("collectives that do not overlap with computing take 10% of the time")
    assert third.startswith("copies from ordinary memory take 5% of the time")


def test_short_kernels_with_much_idle_time_mean_that_the_host_is_too_slow() -> None:
    rows: list[Row] = [("user_annotation", "ProfilerStep#1", 0, 1000, HOST)]
    rows += [("kernel", "add", at, at + 5, STREAM) for at in range(0, 1000, 20)]
    (remark,) = report(trace(*rows)).remarks
    assert "75% of the time" in remark
    assert "the host cannot launch them fast enough" in remark


def test_the_time_of_an_operator_excludes_its_calls_on_the_same_thread() -> None:
    told = {
        row.name: row.time_s
        for row in top_operators(
            trace(
                ("cpu_op", "aten::conv2d", 0, 100, HOST),
                ("cpu_op", "aten::convolution", 10, 90, HOST),
                ("cpu_op", "aten::mkldnn_convolution", 20, 80, HOST),
                ("cpu_op", "aten::mm", 30, 70, (4000, 4001)),
                ("cpu_op", "aten::conv2d", 100, 110, HOST),
            ).events
        )
    }
    assert told == pytest.approx(
        {
            "aten::mkldnn_convolution": 60e-6,
            "aten::mm": 40e-6,
            "aten::conv2d": 30e-6,
            "aten::convolution": 20e-6,
        }
    )


def test_the_trace_of_two_real_ranks_shows_how_little_gloo_is_hidden() -> None:
    told = report(read_trace(SystemIo(dict(os.environ)), FIXTURE))
    assert (told.is_gpu, told.num_steps, told.rank, told.world_size) == (False, 3, 0, 2)
    assert told.top[0].name == "aten::mm"
    assert told.communication is not None
    assert told.communication.num_calls == 6  # two buckets in each of three steps
    assert told.communication.exposed_share == pytest.approx(0.40, abs=0.01)
    whole = told.compute_share + told.communication.exposed_share + told.idle_share
    assert whole == pytest.approx(1)
    assert told.remarks[0].startswith("collectives that do not overlap with computing take 40%")


def test_a_trace_without_steps_is_judged_from_its_first_event_to_its_last() -> None:
    told = report(trace(("kernel", "a", 100, 200, STREAM), ("kernel", "a", 300, 400, STREAM)))
    assert (told.num_steps, told.window_s) == (None, pytest.approx(300e-6))
    assert told.idle_share == pytest.approx(1 / 3)
    with pytest.raises(UserError, match="neither kernels nor operators"):
        report(trace(("user_annotation", "ProfilerStep#1", 0, 10, HOST)))


def test_names_of_kernels_are_short_and_still_tell_them_apart() -> None:
    elementwise = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, 3>"
    assert short_name(elementwise) == "vectorized_elementwise_kernel (CUDAFunctor_add)"
    assert short_name("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64>(Params)") == (
        "cutlass_80_tensorop_s1688gemm_128x64"
    )
    assert short_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)") == (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    )


def test_intervals_that_touch_or_overlap_are_one() -> None:
    assert merged([(5, 6), (0, 2), (2, 3), (1, 4)]) == [(0, 4), (5, 6)]
