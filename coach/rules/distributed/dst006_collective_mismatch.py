"""DST006: ranks called different collectives, or the same one with different shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.base import Need
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of, own_frame
from coach.rules.from_numbers.collective_order import hit_by_dumps

_WHO = re.compile(r"mismatch between collectives on ranks\. Rank (\d+) .{0,300}?, but Rank (\d+) ")
_ASPECTS = re.compile(r"differ in the following aspects:(?P<aspects>.*)")
_ASPECT = re.compile(
    r"(?P<name>Sequence number|Op type|Tensor "
    r"\w++): ?(?P<one>\S(?:(?!vs).){0,200}+)vs ?(?P<other>\S(?:(?!\s{2}).){0,200}+)"
)
"""torch prints no space between the first value and `vs`."""


class CollectiveMismatch(EndingRule):
    """Ranks called different collectives, or the same one with different shapes.

    What it sees
        "Detected mismatch between collectives on ranks" (TORCH_DISTRIBUTED_DEBUG=DETAIL), ranks that "failed
        to pass monitoredBarrier", DDP's "expects same model across all ranks", gloo's "op.preamble.length <=
        op.nbytes" (two ranks gave tensors of different size), NCCL's "Mismatched collective detected" and
        "message truncated" (MPI's, too), the messages of Horovod, Accelerate, DeepSpeed, JAX and TensorFlow
        about shapes that differ by rank, and the flight recorder's analysis. Dumps of torch's flight recorder
        in which a rank made another call under the same number, also without a line in a log. Ranks that
        waited for each other in gloo until the timeout, in different lines of the program: one in its
        backward pass, the other at a barrier.
    Why it matters
        A collective ends only if all ranks make the same call. The ranks took different paths through the
        program before it.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on.
    What to do
        Look for a collective inside `if rank == 0:`, an early `break` or `continue` on one rank, unequal
        numbers of batches (`drop_last=True`, DistributedSampler), metrics gathered with unequal sizes, a
        model built from each rank's own data or seed.
    Sources
        torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, reducer.cpp; gloo/transport/tcp/pair.cc; torch
        flight recorder.
    """

    code = "DST006"
    name = "collective-mismatch"
    cause = "rank_mismatch_collective"
    general = (
        Fix(
            "Make all ranks call the same collectives in the same order with the same shapes; see what "
            "differs by rank"
        ),
        Fix("Let torch compare the calls as they are made", {"env": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}),
    )
    confidence = 0.95
    needs = (*EndingRule.needs, Need.DUMPS)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = [*super().check(snapshot, history)]
        words = "The ranks did not make the same call"
        yield from hits or hit_by_dumps(self.code, words, self.general, snapshot, history)

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return hit.signature != "waited" or ("waited" in hit.fields and len(_places(hit, snapshot)) > 1)

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        yield from _places(hit, snapshot)[1:] if hit.signature == "waited" else ()

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if hit.signature == "waited":
            return f"The ranks waited for each other in different calls: {hit.fields['waited']}"
        who, differences = _WHO.search(hit.fields["words"]), _differences(hit.fields["words"])
        if who is not None and differences:
            return f"Ranks {who[1]} and {who[2]} did not make the same call: {differences}"
        return f"The ranks did not make the same call: {hit.fields['words'][:180]}"


def _differences(words: str) -> str:
    """The aspects in which two calls differ, as torch lists them at the end of its line."""
    found = _ASPECTS.search(words)
    aspects = _ASPECT.finditer(found["aspects"]) if found is not None else ()
    return ", ".join(
        f"{aspect['name'].lower()} {aspect['one'][:60]} and {aspect['other'].rstrip()[:60]}"
        for aspect in aspects
    )


def _places(hit: LogHit, snapshot: TargetSnapshot) -> list[Evidence]:
    """The program lines in which the ranks waited for each other, without repeats; the hit's own line comes
    first."""
    waited = [hit, *(each for each in hits_of(snapshot, hit.rule, "waited") if each.file == hit.file)]
    frames = [own_frame(each) for each in waited if not _is_mixed(each)]
    known = [frame for frame in frames if frame is not None]
    return list({frame.text: frame for frame in reversed(known)}.values())[::-1]


def _is_mixed(hit: LogHit) -> bool:
    """True if the tracebacks of two ranks are interleaved: a frame then occurs twice, and none can be
    trusted."""
    frames = [line.strip() for line in hit.traceback if line.lstrip().startswith('File "')]
    return len(frames) > len(set(frames))
