"""DST005: a collective operation timed out; the finding names the rank that the others waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.flight import Call, FlightRecord
from coach.model.training.log import MAX_FIRST_HITS, LogHit
from coach.rules.advice.launched_with import int_resource
from coach.rules.base import Need
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of, ranks_text
from coach.rules.from_numbers.collective_order import (
    OddRanks,
    disagreement,
    hit_by_dumps,
    odd_ranks,
    rank_table,
)

_LOOK = (Fix("Look at the named ranks: their last lines, their nodes, a collective inside `if rank == 0:`"),)


@dataclass(slots=True)
class _Rank:
    """One rank's report of the collective in which it waited."""

    seq: int | None = None
    op: str | None = None
    num_elements: int | None = None
    """Number of elements of the rank's own input."""
    enqueued: int | None = None
    completed: int | None = None
    group: str | None = None
    """The name of its process group; each group numbers its own operations."""

    def __str__(self) -> str:
        where = f"waits in {self.op}" if self.op else "says no operation"
        where += f" {self.seq}" if self.seq is not None else ""
        where += f" of {self.num_elements} elements" if self.num_elements is not None else ""
        if self.enqueued is None:
            return where
        return f"{where}, enqueued up to {self.enqueued}, completed up to {self.completed}"


class CollectiveTimeout(EndingRule):
    """A collective operation timed out: some rank did not take part in it.

    What it sees
        NCCL's watchdog: "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=…, OpType=…)" of each
        rank, with the last work that it enqueued and completed, in old and new wordings. The lines of all
        ranks are compared, and the odd rank is named: it reports nothing, waits in an earlier or another
        operation, or had no work left. Dumps of torch's flight recorder (`*trace_rank_N`, `*_dump_N`) take
        precedence: they hold each rank's calls by process group and number. If they name another rank than
        the log, the finding says so. Dumps alone are enough, without a line in a log. Also XLA's rendezvous
        of devices that reached its termination timeout, and the stall for which Horovod shuts down.
    Why it matters
        The rank that reports the timeout is the victim: it waited for the rank that did not join. All GPUs
        were held for that time.
    When it stays silent
        On NCCL's settings and INFO lines. On dumps alone, if the training went on or ended well after them.
        If another error came first (out of memory, an exception of one
        rank), that is the cause, and the timeout its consequence.
    What to do
        Look at the odd rank: its last lines, its node, `py-spy dump` if it still lives. Often: `if rank ==
        0:` around a collective, an evaluation or a checkpoint that one rank does alone, unequal numbers of
        batches (`drop_last=True`, `Join`), a data loader that hangs. A longer timeout helps only if one rank
        is known to work that long, not if a rank never comes. TORCH_NCCL_TRACE_BUFFER_SIZE=2000 makes torch
        keep which calls each rank made.
    Sources
        torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (1.13 to 2.13); PyTorch flight recorder tutorial.
    """

    code = "DST005"
    name = "collective-timeout"
    cause = "nccl_timeout"
    needs = (*EndingRule.needs, Need.DUMPS)
    details = ("status",)
    confidence = 0.95
    sentences = by_field(otherwise="A collective operation timed out")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = [*super().check(snapshot, history)]
        if not hits:
            yield from hit_by_dumps(
                self.code, "A collective operation never completed", _LOOK, snapshot, history
            )
        for hit in hits:
            ranks = self._ranks(snapshot)
            recorded = odd_ranks(snapshot.flight)
            logged = _odd_one(ranks, _num_ranks(snapshot), self._has_all_lines(snapshot))
            odd = recorded or logged
            table = rank_table(snapshot, odd, {number: str(rank) for number, rank in ranks.items()})
            yield Hit(
                summary=self._text(ranks, odd),
                evidence=(
                    *hit.evidence,
                    *(disagreement(recorded.ranks, logged.ranks, "the log") if recorded and logged else ()),
                    *(table if len(ranks) > 1 or odd else ()),
                ),
                confidence=hit.confidence,
                subject=Subject(rank=odd.ranks[0]) if odd and len(odd.ranks) == 1 else Subject(),
                fixes=tuple(_fixes(odd, _is_first(ranks), has_dumps=recorded is not None)),
                severity=hit.severity,
                cause="rank_mismatch_collective" if odd and odd.is_mismatch else None,
                since_s=hit.since_s,
            )

    def _ranks(self, snapshot: TargetSnapshot) -> dict[int, _Rank]:
        ranks: dict[int, _Rank] = {}
        for hit in hits_of(snapshot, self.code):
            who = _rank_of(hit)
            if who is None:
                continue
            rank = ranks.setdefault(who, _Rank())
            if "op" in hit.fields and rank.op is None:
                rank.op, rank.seq = hit.fields["op"], _int(hit.fields.get("seq"))
                rank.num_elements = _int(hit.fields.get("numel"))
            if "enqueued" in hit.fields and rank.enqueued is None:
                rank.enqueued, rank.completed = int(hit.fields["enqueued"]), int(hit.fields["completed"])
                rank.group = hit.fields.get("group")
        return ranks

    def _has_all_lines(self, snapshot: TargetSnapshot) -> bool:
        """True if one kind of line that several ranks wrote is kept whole: then a rank without a line wrote
        none. Of a frequent line, only the first and the last ones are kept."""
        hits = hits_of(snapshot, self.code)
        num_lines = Counter((hit.file, hit.signature) for hit in hits)
        frequent = {signature for (_, signature), count in num_lines.items() if count >= MAX_FIRST_HITS}
        whole = [hit for hit in hits if hit.signature not in frequent]
        return not frequent or len({_rank_of(hit) for hit in whole} - {None}) > 1

    def _text(self, ranks: dict[int, _Rank], odd: OddRanks | None) -> str:
        said = next((rank for rank in ranks.values() if rank.op), None)
        operation = f"{said.op} {said.seq}" if said and said.seq is not None else (said.op if said else None)
        text = f"The collective {operation} timed out" if operation else "A collective operation timed out"
        if odd is None:
            return f"{text}: a rank did not take part"
        return f"{text}: {ranks_text(odd.ranks)} {odd.how}"


def _num_ranks(snapshot: TargetSnapshot) -> int | None:
    nodes, per_node = int_resource(snapshot.run, "num_nodes"), int_resource(snapshot.run, "nproc_per_node")
    return nodes * per_node if nodes and per_node else None


def _rank_of(hit: LogHit) -> int | None:
    return hit.rank if hit.rank is not None else _int(hit.fields.get("who") or hit.fields.get("stuck"))


def _odd_one(ranks: dict[int, _Rank], num_ranks: int | None, has_all_lines: bool) -> OddRanks | None:
    """The ranks that the others waited for, by the watchdog's lines; None if these do not show it."""
    waiting = {number: rank for number, rank in ranks.items() if rank.op}
    if not waiting:
        return None
    absent = _absent(ranks, waiting, num_ranks) if has_all_lines else None
    odd = absent or odd_ranks(_waits(ranks)) or odd_ranks(_enqueued(ranks))
    return replace(odd, calls={}) if odd is not None else None  # its lines are shown as the log has them


def _waits(ranks: Mapping[int, _Rank]) -> Iterable[FlightRecord]:
    """The operation in which each rank waits, with its size if all report one."""
    has_sizes = all(rank.num_elements is not None for rank in ranks.values() if rank.op)
    for number, rank in ranks.items():
        if rank.op and rank.seq is not None:
            sizes = ((rank.num_elements or 0,),) if has_sizes else ()
            yield _record(number, rank, ranks, Call(rank.seq, rank.op, sizes))


def _enqueued(ranks: Mapping[int, _Rank]) -> Iterable[FlightRecord]:
    """The last operation that each rank enqueued."""
    for number, rank in ranks.items():
        if rank.enqueued is not None:
            yield _record(number, rank, ranks, Call(rank.enqueued, "a collective", ()))


def _record(number: int, rank: _Rank, ranks: Mapping[int, _Rank], call: Call) -> FlightRecord:
    """A rank's line as its record. If at most one process group is named, all ranks belong to it."""
    is_one_group = len({each.group for each in ranks.values()} - {None}) < 2
    group = "" if is_one_group else rank.group or ""
    return FlightRecord(number, group, (), (call,), "", rank.seq)


def _absent(
    ranks: Mapping[int, _Rank], waiting: Mapping[int, _Rank], num_ranks: int | None
) -> OddRanks | None:
    """The ranks that reported nothing, if they are fewer than the others."""
    expected = range(max(num_ranks or 0, max(ranks) + 1))
    absent = tuple(number for number in expected if number not in ranks)
    if absent and len(absent) < len(expected) / 2 and len(waiting) > 1:
        return OddRanks(absent, "logged nothing and did not join")
    return None


def _is_first(ranks: Mapping[int, _Rank]) -> bool:
    """True if no rank is known to have completed any collective."""
    known = [rank.seq if rank.completed is None else rank.completed + 1 for rank in ranks.values()]
    return bool(known) and all(number is not None and number <= 1 for number in known)


def _fixes(odd: OddRanks | None, is_first: bool, *, has_dumps: bool) -> Iterable[Fix]:
    if is_first and odd is None:
        yield Fix(
            "See with NCCL_DEBUG=INFO how the ranks connect: not even the first collective completed, so the "
            "network, or GPUs that do not reach each other, is as likely as a rank that did not join",
            {"env": {"NCCL_DEBUG": "INFO"}},
        )
        yield Fix(
            "Try one way after the other on two ranks: NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1, and "
            "NCCL_SOCKET_IFNAME with the interface that all nodes have (ip -br address)",
            command="NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=2 PROGRAM",
        )
        yield Fix(
            "See that each rank has its own GPU: torch.cuda.set_device(local_rank) before any collective"
        )
        return
    whom = ranks_text(odd.ranks) if odd else "the rank that did not join"
    its = "their" if odd and len(odd.ranks) > 1 else "its"
    yield Fix(f"Look at {whom}: {its} last lines, {its} node, a collective inside `if rank == 0:`")
    if has_dumps:
        return
    yield Fix(
        "Let torch record the collectives of each rank, and dump them at a timeout",
        {"env": {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}},
    )


def _int(text: str | None) -> int | None:
    return int(text) if text is not None else None
