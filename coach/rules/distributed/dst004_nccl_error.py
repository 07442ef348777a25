"""DST004: NCCL gave up a call, because of an error in a layer below it."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of, quote


class NcclError(EndingRule):
    """NCCL gave up a call.

    What it sees
        "NCCL error in: …", ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidUsage,
        "Duplicate GPU detected", with NCCL's own "Last error"; a communicator that could not be set up
        because rank 0 had ended ("got error: Connection reset by peer"); and "Distributed package doesn't
        have NCCL built in".
    Why it matters
        All ranks of the communicator stop. The error names the layer: CUDA (mostly memory), the system
        (sockets, shared memory, the network), or wrong usage (two ranks on one GPU).
    When it stays silent
        On the bare word NCCL, on NCCL INFO, on warnings that NCCL survives ("Accept failed Resource
        temporarily unavailable"), and on "destroy_process_group() was not called". An earlier error (out of
        memory, a network error) is the cause, and this finding is its consequence.
    What to do
        First read the lines above it. Then run once with NCCL_DEBUG=INFO: the last WARN before the error
        names the call. Out of memory: NCCL needs some hundred MiB besides the model. "Duplicate GPU": call
        `torch.cuda.set_device(local_rank)` before `init_process_group`.
    Sources
        NCCL user guide: ncclResult_t, troubleshooting; torch/csrc/distributed/c10d/NCCLUtils.hpp.
    """

    code = "DST004"
    name = "nccl-error"
    cause = "nccl_error"
    details = ("last_error",)
    waits_for_peers = True

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        said = self._said(snapshot)
        what = hit.fields.get("what", "").strip(" :'")
        if said is not None:
            return f"NCCL gave up: {said.fields['words'][:160]}"
        return (
            f"NCCL gave up: {hit.text.partition(what)[2].strip(' :,')[:160] or what}"
            if what
            else "NCCL gave up"
        )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a collective that timed out, even if the communicator is aborted for it: that is
        DST005."""
        return "collective operation timeout" not in hit.text

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        said = self._said(snapshot)
        if said is not None:
            yield quote(said)

    def _said(self, snapshot: TargetSnapshot) -> LogHit | None:
        return next(iter(hits_of(snapshot, self.code, "warn", "last_error")), None)

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        said = self._said(snapshot)
        if any(each is not None and "Duplicate GPU" in each.text for each in (hit, said)):
            yield Fix(
                "Give each rank its own GPU: torch.cuda.set_device(local_rank) before init_process_group"
            )
        else:
            yield Fix(
                "Run once with NCCL_DEBUG=INFO: its last WARN names the call", {"env": {"NCCL_DEBUG": "INFO"}}
            )
