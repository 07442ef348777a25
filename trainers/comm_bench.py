"""Measure the messages that DDP, FSDP and all others pay for: six collectives over many sizes, the latency
and bandwidth that explain them, and every link between two ranks.

    torchrun --standalone --nproc-per-node=2 trainers/comm_bench.py --max_mib 4

Trains nothing. Times and bandwidths are counted as nccl-tests counts them (github.com/NVIDIA/nccl-tests,
doc/PERFORMANCE.md), and the results are checked. All of it ends up as tables in the log and in
comm_bench.json in --run_dir.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.distributed import (
    StopSignal,
    TrainerError,
    any_rank,
    describe_process,
    finish,
    gather,
    node_name,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
    why_stopped,
)
from common.messages import (
    BYTES_PER_NUMBER,
    KINDS,
    NUM_WARM_UP,
    count_wrong,
    exchange,
    free_memory,
    numbers_of,
    own_time_of,
    time_of,
)
from common.metrics import MetricsLog
from common.models import build_model, count_parameters

KIB, MIB, GIB = 1024, 1024**2, 1024**3
SHARE_OF_MEMORY = 0.8  # the library keeps the rest
COPIES_BY_GLOO = 2  # gloo copies the parts that it gathers and scatters
FITS = 0.3  # of the measured time: a larger error (rms) says that the model is not this network's
SLOW = 2.0  # times slower than the median of its kind
NUM_TRIES = 3  # in which the rounds of a link are taken
WIDEST = 16  # ranks or nodes of a matrix that a log can show


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_argument(
        "--max_steps",
        type=int,
        default=20,
        min=1,
        usual=(5, 1000),
        unit="rounds",
        help="Timed calls of every collective and size, after five that are not timed",
    )
    parser.add_shared("max_seconds")
    parser.change("max_seconds", help="Time after which no further size starts; 0: no limit")
    parser.add_argument(
        "--collectives",
        default="all",
        choices=["all", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"],
        help="All six, one after the other, or one of them",
    )
    parser.add_argument(
        "--min_kib",
        type=int,
        default=1,
        min=1,
        usual=(1, 65536),
        unit="KiB",
        help="Smallest message; each is four times the one before",
    )
    parser.add_argument(
        "--max_mib",
        type=int,
        default=64,
        min=1,
        max=8192,
        usual=(1, 8192),
        unit="MiB",
        help="Largest message; a size that does not fit into memory is skipped",
    )
    parser.add_argument(
        "--pair_kib",
        type=int,
        default=1024,
        min=0,
        usual=(64, 65536),
        unit="KiB",
        help="Message between each pair of ranks, to find a slow link; 0: none",
    )
    parser.add_shared("seed")
    parser.change("seed", help="Seed of the model whose gradients are the example; the messages are the same")
    parser.add_places()
    parser.change("run_dir", help="the directory of the results")
    parser.change("data_dir", help="not used: nothing is trained")
    parser.change("cache_dir", help="not used")
    parser.change("gpus_per_node", help="GPUs allotted; 0: use the CPU; unset: see environment")
    parser.change("resume_from", help="not used: a measurement always starts from the beginning")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    is_gpu = device.type == "cuda"
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    with MetricsLog(args.run_dir, device) as metrics:
        CommBench(args, device, metrics, stop).measure()


class CommBench:
    """One rank's part of all measurements. Rank 0 writes `found` to comm_bench.json."""

    def __init__(
        self, args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal
    ) -> None:
        self.args, self.device, self.metrics, self.stop = args, device, metrics, stop
        self.rank, self.ranks = metrics.rank, metrics.world_size
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.step, self.num_wrong = 0, 0
        self.found: dict[str, Any] = {}

    def measure(self) -> None:
        if self.ranks < 2:
            raise TrainerError("nothing to communicate: 1 rank was started, at least 2 are needed")
        torch.manual_seed(self.args.seed)
        # Its gradients are a message of known size.
        model = build_model("simplecnn", width=64).to(self.device)
        self_check(model, self.device)
        self.num_parameters = count_parameters(model)
        self.nodes = gather(node_name())
        self.found = {
            "schema": 1,
            "backend": self.backend,
            "num_rounds": self.args.max_steps,
            "nodes": self.nodes,  # of each rank
            "collectives": {},
            "pairs": None,
        }
        said = describe_process(self.device)
        size = {"world_size": self.ranks, "num_parameters": self.num_parameters}
        self.metrics.event("start", 0, rank=self.rank, backend=self.backend, **size, **said)

        wanted = list(KINDS) if self.args.collectives == "all" else [self.args.collectives]
        reason = "max_steps"
        for name in wanted:
            if any_rank(self.stop.is_requested):
                break
            self.found["collectives"][name] = self.sizes_of(name)
        if self.args.pair_kib and not any_rank(self.stop.is_requested):
            self.found["pairs"] = self.pairs()
        if any_rank(self.stop.is_requested):
            reason, why = why_stopped(self.stop)
            print_rank0(f"{why}: leaving with what was measured")
        if self.rank == 0:
            write_whole(Path(self.args.run_dir) / "comm_bench.json", self.found)
        if self.num_wrong:
            raise TrainerError(f"{self.num_wrong:,} results are wrong: the column #wrong shows which")
        finish(self.metrics, self.step, reason)

    def sizes_of(self, name: str) -> dict[str, Any]:
        """One collective at every size that time and memory allow, and the fit of its times."""
        kind, rows = KINDS[name], []
        stopped: str | None = None
        print_rank0(
            f"{name} of {self.ranks} ranks on {self.device.type} ({self.backend}), float32,"
            f" {self.args.max_steps} calls after {NUM_WARM_UP}:"
        )
        print_rank0("        bytes     time us   algbw GB/s   busbw GB/s  #wrong")
        num_bytes = self.args.min_kib * KIB
        while num_bytes <= self.args.max_mib * MIB and stopped is None:
            if any_rank(self.stop.is_requested):
                stopped, _ = why_stopped(self.stop)
                break
            stopped = self.why_not(kind.copies(self.ranks) * num_bytes)
            if stopped is None:
                row, stopped = self.one_size(name, num_bytes)
                rows += [row] if row else []
            num_bytes *= 4
        if stopped is not None:
            print_rank0(f"{name}: {'stopped' if rows else 'not measured'}: {stopped}")
        times = {row["num_bytes"]: row["call_time_s"] for row in rows}
        fit = fit_of(times)
        explanation = self.explain(name, fit) if fit else None
        return {"sizes": rows, "fit": explanation, "stopped": stopped}

    def why_not(self, needed: float) -> str | None:
        """Why a message of the next size does not fit on one rank at least; None if it fits on all."""
        needed += COPIES_BY_GLOO * needed if self.backend == "gloo" else 0
        free = gather(free_memory(self.device))
        least = min(free)
        if needed <= SHARE_OF_MEMORY * least:
            return None
        rank = free.index(least)
        return (
            f"the next size takes {needed / GIB:.3g} GiB of memory, rank {rank} on {self.nodes[rank]} has"
            f" {least / GIB:.3g} GiB free"
        )

    def one_size(self, name: str, num_bytes: int) -> tuple[dict[str, Any] | None, str | None]:
        """The row of one size; or nothing, and why the library does not do it."""
        kind = KINDS[name]
        num = num_bytes // BYTES_PER_NUMBER // self.ranks * self.ranks  # every rank has an equal part
        try:
            collective = kind.build(num, self.rank, self.ranks, self.device)
            seconds = time_of(collective.call, self.args.max_steps, self.device)
        except RuntimeError as error:  # also that of a backend without this collective
            if "connection" in str(error).lower() or "timed out" in str(error).lower():
                raise  # a rank is gone
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return None, f"{self.backend} of torch {torch.__version__} does not do it ({line})"
        num_wrong = collective.num_wrong(self.rank)
        self.num_wrong += num_wrong
        self.step += self.args.max_steps
        bandwidth = num * BYTES_PER_NUMBER / seconds / 1e9
        row = {
            "num_bytes": num * BYTES_PER_NUMBER,
            "call_time_s": seconds,
            "algorithm_bandwidth_gb_s": bandwidth,
            "bus_bandwidth_gb_s": bandwidth * kind.bus_factor(self.ranks),
            "num_wrong": num_wrong,
        }
        self.metrics.event("collective", self.step, collective=name, num_rounds=self.args.max_steps, **row)
        print_rank0(
            f"{row['num_bytes']:13,} {1e6 * seconds:11,.1f} {bandwidth:12.3f}"
            f" {row['bus_bandwidth_gb_s']:12.3f} {num_wrong:7,}"
        )
        return row, None

    def explain(self, name: str, fit: dict[str, Any]) -> dict[str, Any]:
        """The two numbers of a fit as latency and bus bandwidth, in words and as an event."""
        factor = KINDS[name].bus_factor(self.ranks)
        per_message, per_byte = fit["seconds_per_message"], fit["seconds_per_byte"]
        latency = per_message if per_message > 0 else None
        bus_bandwidth = factor / per_byte / 1e9 if per_byte > 0 else None
        found = {**fit, "latency_s": latency, "bus_bandwidth_gb_s": bus_bandwidth}
        if name == "all_reduce" and latency and bus_bandwidth:
            # A ring of p ranks passes a message on 2 (p-1) times.
            found["alpha_s"] = latency / (2 * (self.ranks - 1))
            found["gradient_bytes"] = BYTES_PER_NUMBER * self.num_parameters
            found["gradient_time_s"] = per_message + per_byte * found["gradient_bytes"]
        self.metrics.event("fit", self.step, collective=name, **found)
        print_rank0(in_words(name, found))
        return found

    def pairs(self) -> dict[str, Any]:
        """Every two ranks send each other a message, in rounds in which each rank has one partner at most."""
        num = self.args.pair_kib * KIB // BYTES_PER_NUMBER
        sent = numbers_of(self.rank, 0, num, self.device)
        received = torch.empty_like(sent)
        links: list[tuple[int, int, float]] = []  # two ranks, and GB/s in each direction
        for partners in rounds_of(self.ranks):
            if any_rank(self.stop.is_requested):
                break
            partner = partners.get(self.rank)
            call = nothing if partner is None else partial(exchange, sent, partner, received, partner)
            # The best round counts: other work on the machine makes no link slow.
            num_calls = -(-self.args.max_steps // NUM_TRIES)
            seconds = min(own_time_of(call, num_calls, self.device) for _ in range(NUM_TRIES))
            num_wrong = 0
            if partner is not None:
                expected = partial(numbers_of, partner, device=self.device)
                num_wrong = count_wrong(received, expected)
            said = gather((seconds, num_wrong))
            for rank, other in partners.items():
                if rank < other:
                    slower = max(said[rank][0], said[other][0])
                    links.append((rank, other, num * BYTES_PER_NUMBER / slower / 1e9))
            self.num_wrong += sum(wrong for _, wrong in said)
            self.step += self.args.max_steps
        found = {"num_bytes": num * BYTES_PER_NUMBER, "links": links, "slow": slow_links(links, self.nodes)}
        kinds = {kind: median(rates) for kind, rates in by_kind(links, self.nodes).items()}
        self.metrics.event("pairs", self.step, median_gb_s=kinds, slow=found["slow"][:WIDEST])
        print_rank0(
            f"links: {found['num_bytes']:,} bytes both ways between every two ranks, GB/s in each direction; "
            + ", ".join(f"median {rate:.3g} {kind}" for kind, rate in kinds.items())
        )
        print_rank0("\n".join(matrix_of(links, self.nodes)))
        for slow in found["slow"][:WIDEST]:
            print_rank0(
                f"slow: {slow['what']}: {slow['gb_s']:.3g} GB/s, {slow['ratio']:.1f} times below the median"
            )
        if links and not found["slow"]:
            a, b, rate = min(links, key=lambda link: link[2])
            ratio = kinds[kind_of(a, b, self.nodes)] / rate
            print_rank0(
                f"no slow link: the slowest, ranks {a} and {b}, is {ratio:.2f} times below the median"
            )
        return found


def fit_of(times: dict[int, float]) -> dict[str, Any] | None:
    """Explain the times of sizes by two numbers: the cost of every message, and of every byte.

    Least squares of the relative errors, that is, weighted by 1/time: of the absolute ones, the largest
    message alone would decide. None for fewer than three sizes, which a line always fits.
    """
    if len(times) < 3:
        return None
    sizes = list(times)
    rows = torch.tensor([[1.0, num_bytes] for num_bytes in sizes], dtype=torch.float64)
    measured = torch.tensor([times[num_bytes] for num_bytes in sizes], dtype=torch.float64)
    scale = rows.amax(0)  # both unknowns of one size, or the solver takes the smaller one for nothing
    fitted = torch.linalg.lstsq(rows / scale / measured[:, None], torch.ones_like(measured)).solution / scale
    errors = (rows @ fitted / measured - 1).abs()
    rms = errors.square().mean().sqrt().item()
    return {
        "seconds_per_message": fitted[0].item(),
        "seconds_per_byte": fitted[1].item(),
        "rms_error": rms,
        "largest_error": errors.max().item(),
        "largest_error_at_bytes": sizes[int(errors.argmax())],
        "num_sizes": len(sizes),
        "fits": bool((fitted > 0).all()) and rms <= FITS,
    }


def in_words(name: str, fit: dict[str, Any]) -> str:
    errors = (
        f"error of {fit['num_sizes']} sizes: {fit['rms_error']:.0%} rms, largest {fit['largest_error']:.0%}"
        f" at {fit['largest_error_at_bytes']:,} bytes"
    )
    if fit["latency_s"] is None or fit["bus_bandwidth_gb_s"] is None:
        return f"{name}: latency and bandwidth not measured: the times do not grow with the size ({errors})"
    numbers = f"{1e6 * fit['latency_s']:.1f} us a call and busbw {fit['bus_bandwidth_gb_s']:.3f} GB/s"
    if not fit["fits"]:
        return (
            f"{name}: latency and bandwidth alone do not explain the times; the best would be {numbers}"
            f" ({errors})"
        )
    text = f"{name}: {numbers} ({errors})"
    if "gradient_time_s" in fit:
        text += (
            f"\n{name}: so {fit['gradient_bytes'] / 1e6:.1f} MB of gradients, as SimpleCNN has, take"
            f" {1e3 * fit['gradient_time_s']:.2f} ms of every step of DDP, as far as the backward pass does"
            " not hide them"
        )
    return text


def rounds_of(ranks: int) -> list[dict[int, int]]:
    """Each rank's partner in each round, so that every two ranks meet once: the first stays, the others move
    around the table. With an odd number of ranks one is alone in each round."""
    table: list[int | None] = [*range(ranks), *([None] if ranks % 2 else [])]
    rounds = []
    for _ in range(len(table) - 1):
        partners: dict[int, int] = {}
        for one, other in zip(table, reversed(table)):  # noqa: B905 - no strict= in Python 3.9
            if one is not None and other is not None:
                partners[one] = other
        rounds.append(partners)
        table = [table[0], table[-1], *table[1:-1]]
    return rounds


def kind_of(one: int, other: int, nodes: list[str]) -> str:
    return "within a node" if nodes[one] == nodes[other] else "between nodes"


def by_kind(links: list[tuple[int, int, float]], nodes: list[str]) -> dict[str, list[float]]:
    """The rates of the links within nodes and of those between them, which are never compared."""
    rates: dict[str, list[float]] = {}
    for one, other, rate in links:
        rates.setdefault(kind_of(one, other, nodes), []).append(rate)
    return rates


def slow_links(links: list[tuple[int, int, float]], nodes: list[str]) -> list[dict[str, Any]]:
    """The slow parts, the slowest first: a node or a rank with all its links, else a link."""
    found: list[dict[str, Any]] = []
    explained: set[tuple[int, str]] = set()
    groups = [(f"node {node}", {rank for rank, at in enumerate(nodes) if at == node}) for node in set(nodes)]
    groups += [(f"rank {rank} on {node}", {rank}) for rank, node in enumerate(nodes)]
    for name, ranks in groups:
        for kind in ("between nodes", "within a node"):
            of_kind = [link for link in links if kind_of(*link[:2], nodes) == kind]
            rates = [rate for one, other, rate in of_kind if (one in ranks) != (other in ranks)]
            others = [rate for one, other, rate in of_kind if one not in ranks and other not in ranks]
            known = all((rank, kind) in explained for rank in ranks)
            if known or len(rates) < 2 or not others or median(others) / max(rates) < SLOW:
                continue
            what, usual = f"every link of {name} {kind}", median(others)
            found.append({"what": what, "gb_s": median(rates), "ratio": usual / median(rates)})
            explained |= {(rank, kind) for rank in ranks}
    medians = {kind: median(rates) for kind, rates in by_kind(links, nodes).items()}
    for one, other, rate in links:
        kind = kind_of(one, other, nodes)
        if medians[kind] / rate < SLOW or {(one, kind), (other, kind)} & explained:
            continue
        what = f"rank {one} on {nodes[one]} and rank {other} on {nodes[other]}"
        found.append({"what": what, "gb_s": rate, "ratio": medians[kind] / rate})
    return sorted(found, key=lambda slow: -float(slow["ratio"]))


def matrix_of(links: list[tuple[int, int, float]], nodes: list[str]) -> list[str]:
    """GB/s between ranks; with many ranks the slowest link between every two nodes."""
    places: list[Any] = list(range(len(nodes)))
    if len(places) > WIDEST:
        places = list(dict.fromkeys(nodes))
    if len(places) > WIDEST:
        return [f"  {len(places)} nodes: comm_bench.json has every link"]
    place_of = (lambda rank: rank) if len(nodes) <= WIDEST else (lambda rank: nodes[rank])
    slowest: dict[tuple[Any, Any], float] = {}
    for one, other, rate in links:
        for key in ((place_of(one), place_of(other)), (place_of(other), place_of(one))):
            slowest[key] = min(rate, slowest.get(key, rate))
    width = max(8, *(len(str(place)) + 1 for place in places))
    lines = [" " * width + "".join(f"{place!s:>{width}}" for place in places)]
    for row in places:
        cells = (slowest.get((row, column)) for column in places)
        texts = ("–" if cell is None else f"{cell:.3g}" for cell in cells)
        lines.append(f"{row!s:>{width}}" + "".join(f"{text:>{width}}" for text in texts))
    return lines


def nothing() -> None:
    """The call of a rank that has no partner in a round."""


def write_whole(path: Path, value: dict[str, Any]) -> None:
    """Write JSON under another name first: the file is whole as soon as it is visible."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


if __name__ == "__main__":
    run(main)
