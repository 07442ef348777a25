"""The errors of ranks that do not meet or that lose each other, in the wordings of many versions of their
libraries."""

from __future__ import annotations

import pytest

from coach.model.judging.finding import Severity
from tests.rules.examples import of_a_whole_log
from tests.rules.recorded import diagnose

FRAMES = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
_SETTING_UP = (
    "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
    "key '0', but store->get('0') got error:"
)
WORDINGS = {
    "port_in_use": [
        (
            "RuntimeError: Only one usage of each socket address (protocol/network address/port) is normally "
            "permitted."
        ),
        "UnknownError: Could not start gRPC server",
        (
            "RuntimeError: Failed to bind to address [::]:2222; set GRPC_VERBOSITY=debug environment "
            "variable to see detailed error message."
        ),
    ],
    "rendezvous_timeout": [
        "RuntimeError: Connection reset by peer",
        "RuntimeError: Broken pipe",
        "[rank1]: torch.distributed.DistNetworkError: Connection reset by peer",
        "[rank1]: torch.distributed.DistNetworkError: Broken pipe",
        "RuntimeError: connect() timed out. Original timeout was 60000 ms.",
        (
            "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: "
            "[Init]Wait_for_all_tasks_to_register::0. This usually happens because …"
        ),
        (
            "E1121 17:26:32.07 17 coordination_service.cc:9] Stopping coordination service as cluster "
            "registration failed. This may be due to 1) …"
        ),
    ],
    "nccl_timeout": [
        (
            f"RuntimeError: {_SETTING_UP.replace('retrieving', 'retreiving')} Timeout waiting for key: "
            "default_pg/0/0 after 1800000 ms"
        ),
        (
            f"torch.distributed.DistBackendError: {_SETTING_UP} wait timeout after 600000ms, keys: "
            "/default_pg/0//cuda//0"
        ),
    ],
    "nccl_error": [
        (
            "OSError: (External)  Nccl error, unhandled cuda error  (at "
            "/paddle/paddle/fluid/platform/collective_helper.cc:100)"
        ),
        "OSError: (External) NCCL error(5), invalid usage.",
        "Failed, NCCL error main.cu:227 'unhandled cuda error'",
        "cupy_backends.cuda.libs.nccl.NcclError: NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error",
        "UnknownError: Error invoking NCCL: unhandled cuda error",
        (
            "XGBoostError: [09:20:12] src/tree/updater_gpu_hist.cu:794: Exception in gpu_hist: NCCL failure "
            ":unhandled system error"
        ),
        "node1:9:18 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
        f"torch.distributed.DistBackendError: {_SETTING_UP} Connection reset by peer",
        (
            f"torch.distributed.DistBackendError: {_SETTING_UP} Failed to recv, got 0 bytes. Connection was "
            "likely closed."
        ),
        f"RuntimeError: {_SETTING_UP.replace('retrieving', 'retreiving')} Broken pipe",
    ],
    "gloo_connect": [
        (
            "[E ProcessGroupGloo.cpp:138] Rank 3 successfully reached monitoredBarrier, but received errors "
            "while waiting for send/recv from rank 0."
        ),
        "[E ProcessGroupGloo.cpp:138] Gloo connectFullMesh failed with Connection reset by peer",
        (
            "[rank8]:[E1121 08:52:46.16 ProcessGroupGloo.cpp:145] Gloo connectFullMesh failed with "
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
        ),
    ],
    "rank_mismatch_collective": [
        (
            "node1:9:10 [0] init.cc:1247 NCCL WARN Mismatched collective detected, please check your "
            "collective calls at and around rank 39."
        ),
        (
            "node1:9:10 [0] src/transport/net_socket.cc:200 NCCL WARN NET/Socket : message truncated : "
            "receiving 696320 bytes instead of 32768"
        ),
        (
            "node1:9:10 [0] transport/net_ib.cc:667 NCCL WARN NET/IB : collective mismatch error local size "
            "32768 remote 1048576 addr 0 rkey 3beac3 seq adf/adf"
        ),
        (
            "Last error:\nNET/Socket : peer 10.0.0.1<42> message truncated : receiving 1024 bytes instead of "
            "512. There may be a mismatch in collective sizes"
        ),
    ],
    "nccl_network": [
        "node1:9:18 [0] NCCL WARN socketPollConnect: exceeded retries (20000)",
        (
            "2026-11-21 15:08:13.12: E tensorflow/core/common_runtime/ring_reducer.cc:369] Aborting "
            "RingReduce with Unavailable: Socket closed"
        ),
    ],
    "fsdp_error": [
        f'{FRAMES}  File "/env/site-packages/torch/distributed/fsdp/_runtime_utils.py", line 9, in '
        "_lazy_init\n    _p_assert(\n"
        '  File "/env/site-packages/torch/distributed/utils.py", line 145, in _p_assert\n    raise '
        "AssertionError(s)\nAssertionError: Invalid state",
        f'{FRAMES}  File "/env/site-packages/fairscale/nn/data_parallel/fully_sharded_data_parallel.py", '
        "line 9, in _use_full_params\n"
        "    assert self.has_full_params\nAssertionError",
    ],
    "pg_not_initialized": [
        "ValueError: Horovod has not been initialized; use hvd.init().",
        "AssertionError: data parallel group with context parallel combined is not initialized",
        "AssertionError: torch.distributed is not yet initialized but process group is requested.",
    ],
    "env_vars_missing": [
        (
            'InterpolationResolutionError: KeyError raised while resolving interpolation: "Environment '
            "variable 'PROJECT_ROOT' not found\""
        ),
        (
            f'{FRAMES}  File "/env/lib/python3.10/os.py", line 680, in __getitem__\n    raise '
            "KeyError(key) from None\nKeyError: 'DATA_ROOT'"
        ),
    ],
    "code_error": [f"{FRAMES}KeyError: 'DATA_ROOT'"],
    "hostname_resolution": [
        "ssh: Could not resolve hostname worker-0: Temporary failure in name resolution\n----\n"
        "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:\n\n* not finding "
        "the required libraries",
    ],
    "invalid_device_ordinal": [
        (
            "[13:58:56] mshadow/./tensor_gpu-inl.h:35: Check failed: e == cudaSuccess CUDA: invalid device "
            "ordinal"
        ),
        (
            "F0728 10:12:31.12  4242 common.cpp:152] Check failed: error == cudaSuccess (10 vs. 0)  invalid "
            "device ordinal"
        ),
        "THCudaCheck FAIL file=torch/csrc/cuda/Module.cpp line=34 error=10 : invalid device ordinal",
        (
            "InternalError: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE: invalid "
            "device ordinal"
        ),
        (
            "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "
            '"../aten/src/ATen/cuda/CUDAContext.cpp":49'
        ),
    ],
    "sigterm_signal": [
        "*** SIGTERM (@0xe) received by PID 134 (TID 0x7f0c2b50c700) from PID 14; stack trace: ***",
        "Command terminated by signal 15",
        "mpirun noticed that process rank 1 with PID 17 on node node1 exited on signal 15 (Terminated).",
    ],
    "xid_hw_error": [
        (
            "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware "
            "error"
        ),
        "Nov 21 16:50:10 node1 kernel: NVRM: GPU 0000:09:00.0: RmInitAdapter failed! (0x22:0x56:894)",
        "[ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in "
        "this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.",
    ],
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in WORDINGS.items() for text in texts]
)
def test_every_wording_at_the_end_of_a_log_leads_to_its_cause(cause: str, text: str) -> None:
    assert of_a_whole_log("Epoch 1 done", *text.split("\n"))[:1] == [cause]


def test_the_first_rank_s_error_is_the_cause_of_a_communicator_that_is_not_set_up() -> None:
    died = (
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/home/user/train.py", line 3, in <module>',
        "[rank0]:     main()",
        "[rank0]: KeyError: 'lr'",
    )
    assert (
        of_a_whole_log(
            *died, f"[rank1]: torch.distributed.DistBackendError: {_SETTING_UP} Connection reset by peer"
        )[0]
        == "code_error"
    )


def test_a_connection_that_a_rank_closed_because_cuda_failed_it_is_no_fault_of_the_network() -> None:
    said = (
        (
            "torch.distributed.DistBackendError: NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1296, internal "
            "error, NCCL version 2.18.1"
        ),
        "node1:9:18 [0] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes",
        (
            "node1:9:19 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
            "node2<40031>"
        ),
    )
    assert of_a_whole_log("Epoch 1 done", *said) == ["nccl_error"]
    assert of_a_whole_log("Epoch 1 done", said[0], said[2])[0] == "nccl_network"


@pytest.mark.parametrize(
    "line",
    [
        (
            "2026-11-21 04:41:23.06: W tensorflow/platform_util.cc:256] failed call to "
            "cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal"
        ),
        "[W ProcessGroupGloo.cpp:138] Gloo connectFullMesh failed with Connection reset by peer",
    ],
)
def test_a_warning_of_the_same_is_no_alarm(line: str) -> None:
    assert not of_a_whole_log(line, "Epoch 1 done")


def test_nn_data_parallel_gets_advice_to_use_ddp_and_ddp_gets_none() -> None:
    findings = {finding.rule: finding for finding in diagnose("ended/data-parallel.log").findings}
    assert next(iter(findings)) == "TOR001", "what ended it comes first"
    advice = findings["DST016"]
    assert advice.severity is Severity.INFO
    assert advice.evidence[0].line == 10
    assert "DST016" not in [finding.rule for finding in diagnose("ended/unused-parameters.log").findings]
