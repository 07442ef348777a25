"""DST001: a distributed call came before the process group was initialized."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class NoProcessGroup(EndingRule):
    """A distributed call came before the process group was initialized.

    What it sees
        "Default process group has not been initialized, please make sure to call init_process_group", as
        torch, DeepSpeed, Megatron, detectron2 and Horovod word it, and an MPI call before MPI_INIT.
    Why it matters
        Mostly the program was written for torchrun and started as one plain process, or a layer
        (SyncBatchNorm, DDP) was built before `init_process_group`.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program caught it and went on.
    What to do
        Start it with `torchrun --nproc-per-node=N` (also with N = 1), and call `init_process_group()` before
        anything distributed. On one GPU without torchrun, remove SyncBatchNorm and DDP. A DataLoader worker
        or a child has no process group of its own.
    Sources
        torch/distributed/distributed_c10d.py (RuntimeError in 1.x, ValueError since 2.1); deepspeed/comm.
    """

    code = "DST001"
    name = "no-process-group"
    cause = "pg_not_initialized"
    general = (
        Fix("Start it with torchrun, and call torch.distributed.init_process_group() before that line"),
    )
    confidence = 0.95
    sentences = by_field(
        otherwise="A distributed call was made without a process group",
    )
