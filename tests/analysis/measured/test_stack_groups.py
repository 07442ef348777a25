"""The rank that the others wait for, found from each rank's place in the code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.measured.stack_groups import merge, report, spell
from coach.analysis.measured.stack_places import place_of
from coach.model.training.stacks import Collective, Frame, Missed, RankStack, Stacks, WorkerStack

TORCH = "/home/ada/venv/lib/python3.11/site-packages/torch/"
TRAIN = Frame("train", "/home/ada/train.py", 41)
IN_ALL_REDUCE = (
    Frame("_exception_logger.<locals>.wrapper", TORCH + "distributed/c10d_logger.py", 83),
    Frame("all_reduce", TORCH + "distributed/distributed_c10d.py", 3252),
    TRAIN,
)
IN_BARRIER = (Frame("barrier", TORCH + "distributed/distributed_c10d.py", 5000), TRAIN)
IN_LOADER = (
    Frame("__getitem__", "/home/ada/data.py", 12),
    Frame("_BaseDataLoaderIter.__next__", TORCH + "utils/data/dataloader.py", 725),
    TRAIN,
)
IN_BACKWARD = (
    Frame("_engine_run_backward", TORCH + "autograd/graph.py", 979),
    Frame("backward", TORCH + "_tensor.py", 623),
    TRAIN,
)
IN_FORWARD = (
    Frame("forward", TORCH + "nn/modules/conv.py", 553),
    Frame("forward", "/home/ada/model.py", 7),
    TRAIN,
)


def at(rank: int | None, frames: tuple[Frame, ...] = (), **said: object) -> RankStack:
    facts: dict[str, object] = {"rung": "py-spy", "missed": (), "num_threads": 1, "collective": None}
    facts |= {
        "state": "S",
        "wait_channel": "futex_do_wait",
        "cpu_pct": 0.0,
        "num_sockets": 3,
        "world_size": None,
    }
    return RankStack(node="node1", pid=100 + (rank or 0), rank=rank, frames=frames, **{**facts, **said})  # type: ignore[arg-type]


def of(*ranks: RankStack, num_silent_nodes: int = 0) -> Stacks:
    return Stacks(ranks, "/runs/r/stacks/1", 2, num_silent_nodes)


def test_seven_ranks_wait_for_the_eighth() -> None:
    merged = merge(of(*(at(rank, IN_LOADER if rank == 3 else IN_ALL_REDUCE) for rank in range(8))))
    assert merged.sentence == "ranks 0-2,4-7 wait in all_reduce; rank 3 is in DataLoader.__next__"
    assert [rank.rank for rank in merged.odd] == [3]
    assert merged.groups[1].place.line == "data.py:12 __getitem__"


def test_the_same_stack_seen_by_two_means_is_one_group() -> None:
    plain = tuple(replace(frame, function=frame.name) for frame in IN_ALL_REDUCE)
    merged = merge(of(at(0, IN_ALL_REDUCE), at(1, plain, rung="faulthandler")))
    assert merged.sentence == "ranks 0-1 wait in all_reduce"
    assert merged.odd == ()


def test_of_two_ranks_the_one_that_does_not_wait_is_the_odd_one() -> None:
    assert [rank.rank for rank in merge(of(at(0, IN_ALL_REDUCE), at(1, IN_LOADER))).odd] == [1]
    idle_in_backward = merge(of(at(0, IN_BACKWARD), at(1, IN_LOADER)))
    assert idle_in_backward.sentence == "rank 0 waits in backward; rank 1 is in DataLoader.__next__"
    assert [rank.rank for rank in idle_in_backward.odd] == [1]


def test_a_rank_alone_in_a_collective_that_the_others_never_call_is_the_odd_one() -> None:
    merged = merge(of(at(0, IN_BARRIER), *(at(rank, IN_FORWARD) for rank in (1, 2, 3))))
    assert merged.sentence == "ranks 1-3 are in forward; rank 0 waits in barrier"
    assert [rank.rank for rank in merged.odd] == [0]
    both_wait = merge(of(at(0, IN_BARRIER), *(at(rank, IN_ALL_REDUCE) for rank in (1, 2))))
    assert [rank.rank for rank in both_wait.odd] == [0]


def test_a_training_that_computes_has_no_odd_rank() -> None:
    assert merge(of(*(at(rank, IN_BACKWARD, cpu_pct=99.0, state="R") for rank in range(4)))).odd == ()
    assert merge(of(at(0, IN_FORWARD), at(1, IN_BACKWARD, cpu_pct=99.0))).odd == ()


def test_the_rank_with_the_fewest_collectives_is_the_odd_one_whatever_its_stack() -> None:
    def with_last(rank: int, number: int, is_done: bool) -> RankStack:
        return at(
            rank, IN_BACKWARD, rung="faulthandler", collective=Collective("gloo:all_reduce", number, is_done)
        )

    merged = merge(
        of(with_last(0, 6, False), at(1, IN_FORWARD, collective=Collective("gloo:all_reduce", 5, True)))
    )
    assert [rank.rank for rank in merged.odd] == [1]


def test_without_a_stack_the_collectives_and_the_kernel_tell() -> None:
    waits, late = Collective("gloo:all_reduce", 6, False), Collective("gloo:all_reduce", 5, True)
    merged = merge(of(at(0, collective=waits), at(1, collective=late)))
    assert merged.sentence == (
        "rank 0 waits in collective 6 (gloo:all_reduce); rank 1 is after collective 5 (gloo:all_reduce), "
        "and not yet in the next"
    )
    kernel = merge(of(at(0), at(1), at(2, state="D", wait_channel="nfs_wait_bit_killable")))
    assert kernel.sentence == (
        "ranks 0-1 wait for something (futex_do_wait); rank 2 is held up by a disk or a file server "
        "(nfs_wait_bit_killable)"
    )
    assert [rank.rank for rank in kernel.odd] == [2]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"state": "R", "cpu_pct": 99.0}, "computing"),
        ({"state": "T"}, "stopped by a signal or a debugger"),
        ({"wait_channel": "hrtimer_nanosleep"}, "in a sleep call of its own (hrtimer_nanosleep)"),
        ({"wait_channel": None}, "for something"),
        ({"state": None}, "not visible: the process has ended, or belongs to another user"),
    ],
)
def test_the_kernel_s_facts_about_a_process_are_put_into_words(said: dict[str, object], words: str) -> None:
    assert place_of(at(0, **said)).words == words


def test_a_rank_without_a_process_is_missed_but_not_where_a_node_was_silent() -> None:
    ranks = [at(rank, IN_ALL_REDUCE, world_size=4) for rank in (0, 1, 3)]
    assert merge(of(*ranks)).sentence == "ranks 0-1,3 wait in all_reduce; rank 2 has no process"
    assert merge(of(*ranks, num_silent_nodes=1)).absent == ()
    assert merge(of()).sentence == "no Python process of this training was found"


def test_processes_without_a_rank_are_named_by_their_number() -> None:
    assert spell([at(None), at(2), at(1)]) == "ranks 1-2, pid 100 on node1"


def test_the_report_names_for_every_rank_its_method_and_the_reason_against_a_better_one() -> None:
    missed = (Missed("py-spy", "ptrace is refused here"),)
    stacks = of(at(0, IN_ALL_REDUCE), at(1, IN_LOADER, rung="faulthandler", missed=missed, cpu_pct=None))
    text = [row.text for row in report(stacks, merge(stacks))]
    assert text[:2] == [
        "rank 0 waits in all_reduce; rank 1 is in DataLoader.__next__",
        "not where the others are: rank 1 (node1 pid 101)",
    ]
    assert "rank 0: seen by py-spy" in text
    assert "rank 1: seen by faulthandler (not by py-spy: ptrace is refused here)" in text
    assert "rank 1: node1 pid 101, state S in futex_do_wait, CPU –, 3 sockets" in text
    assert "all_reduce  torch/distributed/distributed_c10d.py:3252" in text
    assert "train  /home/ada/train.py:41" in text
    assert text[-1] == "kept in /runs/r/stacks/1"
    silent = Stacks(stacks.ranks, "/x", 4, 3, "srun: error: node2: not responding")
    assert "3 of 4 nodes did not answer: srun: error: node2: not responding" in [
        row.text for row in report(silent, merge(silent))
    ]


_LOOP = Frame("_worker_loop", TORCH + "utils/data/_utils/worker.py", 320)
_IDLE = (Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113), _LOOP, TRAIN)
_LOADING = (
    Frame("Samples.__getitem__", "/home/ada/data.py", 12),
    Frame("_MapDatasetFetcher.fetch", TORCH + "utils/data/_utils/fetch.py", 54),
    _LOOP,
    TRAIN,
)


def worker(pid: int, frames: tuple[Frame, ...] = (), state: str = "S") -> WorkerStack:
    return WorkerStack(pid, "py-spy" if frames else "/proc", frames, state, "futex_do_wait", 0.0)


def test_the_worker_that_loads_is_named_when_its_rank_waits_for_data() -> None:
    below = (worker(7, _IDLE), worker(8, _LOADING), worker(9, _IDLE))
    stacks = of(at(0, IN_ALL_REDUCE), at(1, IN_LOADER, workers=below, num_workers=5))
    merged = merge(stacks)
    assert merged.sentence == (
        "rank 0 waits in all_reduce; rank 1 is in DataLoader.__next__; "
        "1 DataLoader worker of rank 1 is in __getitem__, at data.py:12"
    )
    text = [row.text for row in report(stacks, merged)]
    begin = text.index("1 DataLoader worker of rank 1 is in __getitem__, at data.py:12")
    assert text[begin + 1 : begin + 7] == [
        "pid 8, state S in futex_do_wait, CPU 0 %, seen by py-spy",
        "Samples.__getitem__  /home/ada/data.py:12",
        "_MapDatasetFetcher.fetch  torch/utils/data/_utils/fetch.py:54",
        "2 DataLoader workers of rank 1 wait for the next samples to load",
        "pids 7, 9, state S in futex_do_wait, CPU 0 %, seen by py-spy",
        "2 more processes below them were not looked at",
    ]


def test_a_worker_in_the_program_s_worker_init_fn_is_named_as_the_cause() -> None:
    starts = (Frame("open_files", "/home/ada/data.py", 30), _LOOP, TRAIN)
    merged = merge(of(at(1, IN_LOADER, workers=(worker(7, _IDLE), worker(8, starts)), num_workers=2)))
    assert merged.sentence == (
        "rank 1 is in DataLoader.__next__; 1 DataLoader worker of rank 1 is in open_files, at data.py:30"
    )


def test_a_worker_that_checks_if_its_rank_lives_is_idle_also_in_a_source_build_of_torch() -> None:
    source = "/home/ada/pytorch/torch/utils/data/_utils/worker.py"
    checks = (Frame("ManagerWatchdog.is_alive", source, 49), Frame("_worker_loop", source, 320))
    merged = merge(of(at(1, IN_LOADER, workers=(worker(7, checks),), num_workers=1)))
    assert merged.sentence == "rank 1 is in DataLoader.__next__"


def test_workers_are_no_cause_while_their_rank_computes() -> None:
    merged = merge(of(at(0, IN_FORWARD, workers=(worker(7, _LOADING),), num_workers=1)))
    assert merged.sentence == "rank 0 is in forward"


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ((worker(7, state="Z"),), "1 child process of rank 0 has ended, and is still a zombie"),
        (
            (worker(7, state="Z"), worker(8, state="Z")),
            "2 child processes of rank 0 have ended, and are still zombies",
        ),
        ((worker(7),), "1 child process of rank 0 waits for something (futex_do_wait)"),
        ((worker(7, (TRAIN,)),), "1 child process of rank 0 is in train, at train.py:41"),
    ],
)
def test_other_processes_below_a_rank_are_put_into_words(below: tuple[WorkerStack, ...], words: str) -> None:
    (group,) = merge(of(at(0, IN_LOADER, workers=below, num_workers=len(below)))).groups
    assert [workers.sentence for workers in group.workers] == [words]


def test_two_programs_in_one_job_are_told_apart_by_their_processes() -> None:
    second = [replace(at(rank, IN_ALL_REDUCE), pid=200 + rank) for rank in (0, 1)]
    stacks = of(at(0, IN_BACKWARD), at(1, IN_BACKWARD), *second, at(2, IN_BACKWARD))
    merged = merge(stacks)
    assert merged.sentence == (
        "rank 2, ranks 0-1 (pids 100, 101 on node1) wait in backward; "
        "ranks 0-1 (pids 200, 201 on node1) wait in all_reduce"
    )
    assert not merged.odd
    texts = [row.text for row in report(stacks, merged)]
    assert "ranks 0-1: more than one process; the job runs several programs" in texts
