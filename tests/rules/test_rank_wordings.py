"""The wordings of many libraries, launchers and servers for ranks that do not meet, do not agree or lose each
other."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.rules.examples import of_a_whole_log

WORDINGS = {
    "nccl_error": [
        (
            "cupy_backends.cuda.libs.nccl.NcclError: NCCL_ERROR_INTERNAL_ERROR: internal error - please "
            "report this issue"
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclCommInitRankConfig(&comm, "
            "nranks, AsNcclUniqueId(id), rank) failed: unhandled cuda error"
        ),
    ],
    "nccl_network": [
        (
            "XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error. Last "
            "NCCL warning(error) log entry (may be unrelated) 'socketStartConnect: Connect to "
            "10.0.4.2<38123> failed : Connection refused'."
        ),
        "ORTE has lost communication with a remote daemon.",
        (
            "MPIDI_OFI_handle_cq_error(1067): OFI poll failed "
            "(ofi_events.c:1069:MPIDI_OFI_handle_cq_error:Input/output error - UNDELIVERABLE)"
        ),
    ],
    "nccl_timeout": [
        "RuntimeError: Operation timed out!",
        (
            "RuntimeError: [Rank 1] Work WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=60000) "
            "timed out in blocking wait (NCCL_BLOCKING_WAIT=1)."
        ),
        (
            "Rank 0] Received a dump signal due to a collective timeout from  rank 7 and we will try our "
            "best to dump the debug info."
        ),
        (
            "F rendezvous.cc:49] Termination timeout for `acquire clique` of 40 seconds exceeded. Exiting to "
            "ensure a consistent program state."
        ),
        (
            "E stall_inspector.cc:120] One or more rank (marked by `*`) were stalled for longer than 120 "
            "seconds. Will shutdown.\nHorovodInternalError: Horovod has been shut down. This was caused by "
            "an exception on one of the ranks"
        ),
    ],
    "rank_mismatch_collective": [
        (
            "HorovodInternalError: Mismatched allreduce tensor shapes: One rank sent a tensor of shape [32, "
            "10], but another rank sent a tensor of shape [16, 10]."
        ),
        (
            "Abort(1006252) on node 3 (rank 3 in comm 0): Fatal error in internal_Bcast: Message truncated, "
            "error stack:"
        ),
        "RuntimeError: disagreement between rank0 and rank2: rank0: [0, 1, 2, 3], rank2: [0, 1, 3]",
        (
            "DistributedOperationException: Cannot apply desired operation due to shape mismatches. All "
            "shapes across devices must be valid."
        ),
        (
            "AssertionError: sync_global_devices name mismatch ('checkpoint_500'). Expected: 1234567; got: "
            "7654321."
        ),
        (
            "tensorflow.python.framework.errors_impl.InternalError: Graph execution error:\nShape mismatch "
            "in the collective instance 100. Op at device /job:worker/task:1 expected shape [8]"
        ),
    ],
    "rendezvous_timeout": [
        (
            "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\nRPC: "
            "/tensorflow.CoordinationService/RegisterTask"
        ),
        (
            "RuntimeError: Unable to meet other processes at the rendezvous store. If you are using P2P "
            "communication,"
        ),
        (
            "TimeoutException: Timed out waiting for tasks to start. Please check connectivity between "
            "servers. You may need to increase"
        ),
        (
            "ERROR 06-07 10:10:10 [core.py:586] torch.distributed.DistNetworkError: The client socket has "
            "timed out after 600000ms while trying to connect to (10.20.0.3, 51217).\nRuntimeError: Engine "
            "core initialization failed. See root cause above. Failed core proc(s): {}"
        ),
    ],
    "gloo_connect": [
        (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:207] writev [10.1.2.3]:44021: "
            "Broken pipe"
        ),
    ],
    "port_in_use": [
        "ValueError: nccl_port at 28000 is not available in 30 seconds.",
        "OSError: Cannot find empty port in range: 7860-7860. You can specify a different port",
        "ConnectionError: Ray is trying to start at 10.1.1.3:6379, but is already running at 10.1.1.3:6379.",
        (
            "E0115 10:00:01.1 99 main.cc:231] failed to start GRPC service: Unavailable - Socket "
            "'0.0.0.0:8001' already in use "
        ),
    ],
    "hostname_resolution": [
        (
            "XlaRuntimeError: UNAVAILABLE: DNS resolution failed for node01:12345: C-ares status is not "
            "ARES_SUCCESS"
        ),
        (
            "n1:55:55 [0] misc/socket.cc:237 NCCL WARN Net : error encountered when getting address info : "
            "Name or service not known"
        ),
        (
            "[proxy:0:1@n02] HYDU_sock_connect (utils/sock/sock.c:113): unable to get host address for "
            "n01.cluster (1)"
        ),
    ],
    "pg_not_initialized": [
        "AssertionError: Local process group is not created! Please use launch() to spawn processes!",
        (
            "*** The MPI_Comm_rank() function was called before MPI_INIT was invoked.\n[n1:31] Local abort "
            "before MPI_INIT completed completed successfully, but am not able to"
        ),
        "Attempting to use an MPI routine (internal_Comm_size) before initializing or after finalizing MPICH",
        "AssertionError: Distributed backend is not initialized. Please set dist_init_required to True",
    ],
    "env_vars_missing": [
        "ValueError: coordinator_address should be defined.",
        (
            'Traceback (most recent call last):\n  File "/home/user/t.py", line 3, in <module>\n    rank = '
            'int(os.environ.get("RANK"))\nTypeError: int() argument must be a string, a bytes-like object or '
            "a real number, not 'NoneType'"
        ),
    ],
    "fsdp_error": [
        (
            "ValueError: Manual wrapping with ShardingStrategy.HYBRID_SHARD requires explicit specification "
            "of process group or device_mesh."
        ),
    ],
    "ddp_unused_parameters": [
        (
            "AssertionError: Communication call has not been issued for this bucket (230/232 params have "
            "grad available)"
        ),
    ],
    "ddp_inplace_or_marked_ready_twice": [
        "RuntimeError: leaf variable has been moved into the graph interior",
        "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
        (
            "RuntimeError: Output 0 of UnbindBackward0 is a view and is being modified inplace. This view is "
            "the output of"
        ),
        (
            "AssertionError: The parameter 447 has already been reduced.             Gradient computed twice "
            "for this partition."
        ),
    ],
    "code_error": [
        (
            'Traceback (most recent call last):\n  File "/home/user/t.py", line 3, in <module>\n    width = '
            'int(config.get("width"))\nTypeError: int() argument must be a string, a bytes-like object or a '
            "real number, not 'NoneType'"
        ),
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ],
}
HEALTHY = {
    "a rendezvous that came about late": """
        E rendezvous.cc:38] This thread has been waiting for `acquire clique` for 20 seconds and may be stuck. Expected 4 threads to join
        E rendezvous.cc:43] Thread is unstuck! Warning above was a false-positive. Perhaps the timeout is too short.
        step 1 loss 0.3
        step 2 loss 0.2""",
    "a rank that Horovod waited for": """
        W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting
        epoch 1 loss 0.3
        epoch 2 loss 0.2""",
    "a port that was passed over": """
        [I 2024-01-01 10:00:00.000 ServerApp] The port 8888 is already in use, trying another port.
        TensorBoard could not bind to port 6006, it was already in use
        epoch 1 loss 0.3
        epoch 2 loss 0.2""",
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in WORDINGS.items() for text in texts]
)
def test_wordings_of_ranks_about_each_other_lead_to_their_cause(cause: str, text: str) -> None:
    assert of_a_whole_log("Epoch 1 done", *text.split("\n"))[:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_ranks_that_met_in_the_end_are_no_alarm(name: str) -> None:
    assert not of_a_whole_log(*dedent(HEALTHY[name]).strip("\n").split("\n"))
