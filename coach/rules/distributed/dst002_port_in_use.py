"""DST002: the port of the ranks' rendezvous is used by another program."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.circumstances import NO_OTHER_SCHEDULER
from coach.rules.from_logs.ending_rule import EndingRule

_OF_RANKS = re.compile(
    r"torch|c10d|accelerate|lightning|deepspeed|horovod|tensorflow|grpc|mpi4py|server socket"
)
"""Words in the text or the files of an error about the port of the ranks, not a port of the program's own."""
_SEVERAL_TASKS = re.compile(r"^srun: error: \S+: tasks \[?\d+[-,]")


class PortInUse(EndingRule):
    """The port of the ranks' rendezvous is used by another program.

    What it sees
        c10d's "The server socket has failed to listen on any local network address … EADDRINUSE", Python's
        "[Errno 98] Address already in use", a launcher's "port N is already in use", gRPC's "Failed to bind
        to address" and TensorFlow's "Could not start gRPC server"; the corresponding messages of servers
        (vLLM, sglang, Ray, Triton, Gradio).
    Why it matters
        Two jobs on one node both took the default port (29500), and the second cannot start. Or a rank of an
        earlier run still lives.
    When it stays silent
        On c10d's warning about one of several addresses. The finding is info if the program went on, for
        example with another port.
    What to do
        On one node let torchrun choose: `--standalone`, or `--rdzv-endpoint=localhost:0`. On several nodes
        derive the port from the job id: `MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))`. Look for a left-over
        process of your own on the node. A port that the program itself opens may be open in it already:
        `ss -ltnp` on the node names the process.
    Sources
        torch/csrc/distributed/c10d/socket.cpp; torchrun's rendezvous options; errno 98.
    """

    code = "DST002"
    name = "port-in-use"
    cause = "port_in_use"
    confidence = 0.95

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        port = hit.fields.get("port")
        if port:
            return f"Port {port} was taken by another program"
        if _is_own_port(hit):
            return "A port that the program opens is already in use"
        return "Another program uses the rendezvous port"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _is_own_port(hit):
            yield Fix(
                "See if the program opens the port twice, or in each rank: open it once, or let the system "
                "choose a free one (port 0)"
            )
            yield Fix("See on the node which other process holds it", command=f"ss -ltnp{_only(hit)}")
            return
        if _is_of_own_tasks(hit, snapshot):
            yield Fix(
                "Start one torchrun on each node, not one in each task: it starts the ranks of its node "
                "itself, and the others find its port in use",
                command="srun --ntasks-per-node=1 torchrun --nproc-per-node=GPUS …",
            )
            yield Fix(
                "Or start one task for each rank without a launcher, and let the program read its rank from "
                "SLURM_PROCID"
            )
            return
        yield Fix("On one node let torchrun choose the port", command="torchrun --standalone …")
        yield Fix(
            "On several nodes derive the port from the job's number",
            command="export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
            needs=(NO_OTHER_SCHEDULER,),
        )
        yield Fix("See on the node which process holds the port", command=f"ss -ltnp{_only(hit)}")


def _only(hit: LogHit) -> str:
    """The end of a command that keeps the lines about the port, if the log names it."""
    port = hit.fields.get("port")
    return f" | grep -w {port}" if port else ""


def _is_of_own_tasks(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if several tasks of the job wanted the port: all but one on a node then fail."""
    hits = [each for each in snapshot.log_hits if each.rule == hit.rule and each.file == hit.file]
    ranks = {each.rank for each in hits if each.rank is not None}
    lines = (line for tail in snapshot.log_tails if tail.file == hit.file for line in tail.plain)
    return len(ranks) > 1 or any(map(_SEVERAL_TASKS.search, lines))


def _is_own_port(hit: LogHit) -> bool:
    """True if the error has a stack without any code of a launcher or of a library for ranks."""
    kind = (hit.block.type if hit.block is not None else None) or ""
    words = (hit.text, kind, *(frame.file for frame in hit.frames))
    return bool(hit.frames) and not any(map(_OF_RANKS.search, words))
