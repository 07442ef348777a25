"""The rank that did otherwise is found among the calls of all ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.flight import Call, FlightRecord
from coach.model.training.log import LogTail
from coach.model.training.stacks import StackBurst
from coach.rules.engine import Engine
from coach.rules.from_numbers.collective_order import odd_ranks
from coach.rules.registry import build
from coach.sources.metrics.flight_recorder import parse_dump
from tests.rules.examples import history, run, steps

DUMPS = Path(__file__).parents[2] / "fixtures" / "flight"
TIMEOUT = (
    "[rank0]:[E1121 03:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)


def records_of(kind: str) -> list[FlightRecord]:
    dumps = sorted((DUMPS / kind).iterdir())
    return [record for dump in dumps for record in parse_dump(dump.read_bytes(), dump) or ()]


def test_the_rank_that_called_fewer_collectives_is_named() -> None:
    odd = odd_ranks(records_of("behind"))
    assert odd is not None
    assert (odd.ranks, odd.is_mismatch) == ((1,), False)
    assert odd.how == "called 3 collectives where others called 4 and wait in gloo:all_reduce of 4"


@pytest.mark.parametrize("kind", ["operation", "json"])
def test_the_rank_that_called_something_else_is_named(kind: str) -> None:
    odd = odd_ranks(records_of(kind))
    assert odd is not None
    assert (odd.ranks, odd.is_mismatch) == ((1,), True)
    assert odd.how == "called gloo:broadcast of 4 as number 4 where the others called gloo:all_reduce of 4"


def test_of_as_many_ranks_with_each_call_neither_are_the_odd_ones() -> None:
    ours = records_of("operation")
    by_rank = {record.rank: record for record in ours}
    both = [replace(by_rank[kind], rank=rank) for rank, kind in enumerate((0, 1, 0, 1))]
    odd = odd_ranks(both)
    assert odd is not None
    assert (odd.ranks, odd.is_mismatch) == ((0, 1, 2, 3), True)
    assert odd.how.startswith(
        "did not make the same call: rank 0 called gloo:all_reduce of 4, rank 1 called "
    )


def test_the_rank_that_brought_another_shape_is_named() -> None:
    first = records_of("operation")[0]
    ranks = [replace(first, rank=0), replace(first, rank=1), replace(first, rank=2)]
    other = replace(ranks[1], calls=(*first.calls[:-1], Call(4, "gloo:all_reduce", ((8,),))))
    odd = odd_ranks([ranks[0], other, ranks[2]])
    assert odd is not None
    assert odd.ranks == (1,)
    assert "gloo:all_reduce of 8" in odd.how


@pytest.mark.parametrize(
    ("sizes", "ranks", "words"),
    [
        ((4, 4, 4, 8, 9), (3, 4), "called gloo:all_reduce of 8 or gloo:all_reduce of 9 as number 4 where "),
        ((4, 4, 8, 8, 9), (0, 1, 2, 3, 4), "did not make the same call: rank 0 called gloo:all_reduce of 4"),
    ],
)
def test_of_three_different_calls_the_odd_ones_are_those_that_fewer_ranks_made(
    sizes: tuple[int, ...], ranks: tuple[int, ...], words: str
) -> None:
    first = records_of("operation")[0]
    calls = [(*first.calls[:-1], Call(4, "gloo:all_reduce", ((size,),))) for size in sizes]
    odd = odd_ranks(replace(first, rank=rank, calls=of_rank) for rank, of_rank in enumerate(calls))
    assert odd is not None
    assert (odd.ranks, odd.is_mismatch) == (ranks, True)
    assert odd.how.startswith(words)


def test_the_rank_that_left_no_dump_is_named_where_the_others_agree() -> None:
    first = records_of("operation")[0]
    odd = odd_ranks([first, replace(first, rank=2)])
    assert odd is not None
    assert (odd.ranks, odd.how) == ((1,), "left no dump")


def test_the_odd_ranks_of_all_process_groups_are_named_and_stand_first() -> None:
    first = records_of("operation")[0]
    ranks = {
        "a": [replace(first, rank=rank, group="a", members=(0, 1, 2, 3)) for rank in (0, 1, 3)],
        "b": [replace(first, rank=rank, group="b", members=(4, 5, 6)) for rank in (4, 6)],
        "c": [replace(first, rank=rank, group="c", members=(7, 8)) for rank in (7, 8)],
    }
    odd = odd_ranks(record for group in ranks.values() for record in group)
    assert odd is not None
    assert (odd.ranks, odd.how) == ((2, 5), "left no dump")


def test_the_rank_whose_gpu_stopped_first_is_named_though_all_made_the_same_calls() -> None:
    first = records_of("operation")[0]
    oldest = {0: 4, 1: 2, 2: 4, 3: None}
    odd = odd_ranks(replace(first, rank=rank, first_unfinished=each) for rank, each in oldest.items())
    assert odd is not None
    assert odd.ranks == (1,)
    assert odd.how == "did not finish call 2, which others finished: they wait in call 4"
    assert odd.calls[1].text == "last called 4, gloo:all_reduce of 4, unfinished since 2"


def test_the_oldest_call_that_is_not_completed_is_read(tmp_path: Path) -> None:
    entries = [
        {
            "process_group": ["0", "x"],
            "collective_seq_id": number,
            "profiling_name": "nccl:all_reduce",
            "state": state,
        }
        for number, state in ((1, "completed"), (2, "started"), (3, "scheduled"), (4, "nonsense"))
    ]
    (record,) = parse_dump(json.dumps({"entries": entries}).encode(), tmp_path / "_dump_3") or ()
    assert (record.rank, record.first_unfinished) == (3, 2)


def test_ranks_that_agree_and_a_single_rank_name_no_odd_rank() -> None:
    first = records_of("operation")[0]
    assert odd_ranks([]) is None
    assert odd_ranks([replace(first, rank=rank) for rank in range(3)]) is None
    assert odd_ranks([replace(first, members=())]) is None


def checked(folder: Path) -> list[dict[str, Any]]:
    """The findings about distributed training of `coach check FOLDER`."""
    options = ("--format", "json", "--backend", "local")
    command = [sys.executable, "-m", "coach", "check", str(folder), *options]
    env = {**os.environ, "COACH_HOME": str(folder / ".home")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return [one for one in json.loads(done.stdout)["findings"] if one["rule"].startswith("DST")]


def test_dumps_of_more_ranks_than_logs_are_read_at_once_are_all_compared(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("started\n")
    for rank in range(130):
        kind = "nccl_trace_rank_1" if rank == 3 else "nccl_trace_rank_0"
        shutil.copy(DUMPS / "operation" / kind, tmp_path / f"nccl_trace_rank_{rank}")
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", (1000.0 + rank, 1000.0 + rank))
    (finding,) = checked(tmp_path)
    assert finding["subject"]["rank"] == 3
    assert finding["evidence"][1]["text"].startswith("rank 3: last called 4, gloo:broadcast")


def py_spy_dump(folder: Path, rank: int, frame: str) -> None:
    """The text that `py-spy dump` prints of one rank."""
    (folder / f"pyspy_rank{rank}.txt").write_text(
        f"Process {200 + rank}: /usr/bin/python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
        'Thread 0x7F3A (idle): "Thread-1 (_run)"\n    wait (threading.py:331)\n'
        f'Thread {200 + rank} (idle): "MainThread"\n    {frame}\n'
        "    main (train.py:41)\n    <module> (train.py:60)\n"
    )


@pytest.mark.parametrize("odd", [1, 2])
def test_the_places_by_py_spy_are_joined_to_the_calls_and_another_odd_rank_is_told(
    odd: int, tmp_path: Path
) -> None:
    for dump in (DUMPS / "behind").iterdir():
        shutil.copy(dump, tmp_path)
    for rank in range(3):
        collective = "all_reduce (torch/distributed/distributed_c10d.py:2810)"
        py_spy_dump(tmp_path, rank, "save (train.py:77)" if rank == odd else collective)
    (finding,) = checked(tmp_path)
    texts = [one["text"] for one in finding["evidence"]]
    rows = [text for text in texts if text.startswith("rank ")]
    assert [row[:6] for row in rows] == ["rank 1", "rank 0", "rank 2"]
    assert rows[1].endswith("unfinished since 1; its stack: waits in all_reduce, at train.py:41 main")
    assert rows[0].endswith("its stack: is in save, at train.py:77 save") is (odd == 1)
    other = "the dumps point to rank 1, the stacks that were taken to rank 2"
    assert any(text.startswith(other) for text in texts) is (odd == 2)


def test_check_of_a_directory_names_the_rank_that_the_dumps_show(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(TIMEOUT)
    for dump in (DUMPS / "operation").iterdir():
        shutil.copy(dump, tmp_path)
    (finding,) = checked(tmp_path)
    assert finding["rule"] == "DST005"
    assert finding["subject"]["rank"] == 1
    assert finding["cause"] == "rank_mismatch_collective"
    assert not any("Let torch record" in fix["title"] for fix in finding["fixes"])
    assert "rank 1 called gloo:broadcast" in finding["summary"]
    assert any(one["file"] == str(tmp_path / "nccl_trace_rank_1") for one in finding["evidence"])
    texts = [one["text"] for one in finding["evidence"]]
    assert "rank 0: last called 4, gloo:all_reduce of 4" in "\n".join(texts)
    assert any(text.endswith("; its log: waits in ALLREDUCE 4 of 4 elements") for text in texts)


def test_of_a_directory_with_dumps_alone_the_odd_rank_is_found(tmp_path: Path) -> None:
    for kind, rule, words in (
        ("behind", "DST005", "never completed: rank 1 called 3 collectives where others called 4"),
        ("operation", "DST006", "The ranks did not make the same call: rank 1 called gloo:broadcast of 4"),
    ):
        traces = tmp_path / kind / "comm_traces"
        traces.mkdir(parents=True)
        for rank in range(3):
            shutil.copy(DUMPS / kind / f"nccl_trace_rank_{rank}", traces / f"rank_{rank}")
        for folder in (tmp_path / kind, traces):
            (finding,) = checked(folder)
            assert (finding["rule"], finding["subject"]["rank"]) == (rule, 1)
            assert words in finding["summary"]
            assert finding["evidence"][1]["file"] == str(traces / "rank_1")
    shutil.rmtree(tmp_path / "behind" / "comm_traces")
    (tmp_path / "behind" / "_dump_0").write_bytes((DUMPS / "behind/nccl_trace_rank_0").read_bytes())
    assert checked(tmp_path / "behind") == []


def test_where_the_log_and_the_dumps_name_different_ranks_one_sentence_says_so(tmp_path: Path) -> None:
    late = TIMEOUT.replace("SeqNum=4", "SeqNum=3")
    lines = [TIMEOUT, TIMEOUT.replace("ank0", "ank1").replace("ank 0", "ank 1")]
    lines.append(late.replace("ank0", "ank2").replace("ank 0", "ank 2"))
    (tmp_path / "job.log").write_text("".join(lines))
    for dump in (DUMPS / "behind").iterdir():
        shutil.copy(dump, tmp_path)
    (finding,) = checked(tmp_path)
    texts = [one["text"] for one in finding["evidence"]]
    sentence = (
        "the dumps point to rank 1, the log to rank 2: the dumps count, as they hold the calls of each rank"
    )
    assert texts.count(sentence) == 1
    assert finding["subject"]["rank"] == 1
    (tmp_path / "job.log").write_text("".join(lines[:1]))
    assert not any("point to" in one["text"] for one in checked(tmp_path)[0]["evidence"])


WRITTEN_S = 5000.0


def judged(past: History | None = None, **more: Any) -> list[Finding]:
    """The findings of a run whose rank 1 called fewer collectives than the others, by its dumps."""
    flight = tuple(replace(each, written_s=WRITTEN_S) for each in records_of("behind"))
    state = more.pop("state", "RUNNING")
    snapshot = TargetSnapshot("run", WRITTEN_S + 120, run=run(state=state), flight=flight)
    findings = Engine(build()).diagnose(replace(snapshot, **more), past or History()).findings
    return [finding for finding in findings if finding.rule.startswith("DST")]


def test_a_running_job_hangs_if_it_wrote_nothing_after_dumps_that_differ() -> None:
    (finding,) = judged()
    assert (finding.rule, finding.severity, finding.subject.rank) == ("DST007", Severity.CRITICAL, 1)
    assert finding.summary.startswith("The training stands still: rank 1 called 3 collectives")
    # The dumps of other ranks may still come.
    assert judged(now_s=WRITTEN_S + 30) == []
    # It prints, or makes steps, after them.
    assert judged(log_tails=(LogTail("out", 1, ("x",), 2, 1, written_s=WRITTEN_S + 90),)) == []
    assert judged(history([replace(steps([1.0])[0], time_s=WRITTEN_S + 90)])) == []


def test_dumps_alone_explain_a_failed_job_but_not_one_that_went_on_or_ended_well() -> None:
    (finding,) = judged(state="FAILED")
    assert (finding.rule, finding.severity) == ("DST005", Severity.CRITICAL)
    assert judged(state="COMPLETED") == []
    assert judged(history([replace(steps([1.0])[0], time_s=WRITTEN_S + 90)]), state="FAILED") == []
    done = LogTail("out", 1, ("Training finished.",), 18, 1)
    assert judged(state=None, log_tails=(done,)) == []
    assert [finding.rule for finding in judged(state=None)] == ["DST005"]


def test_one_table_shows_each_rank_s_call_and_stack_with_the_odd_rank_first() -> None:
    def standing(rank: int, category: str, place: str) -> StackBurst:
        values = (
            "node1",
            7 + rank,
            rank,
            WRITTEN_S,
            True,
            True,
            400.0,
            20,
            {category: 20},
            ((place, 20),),
            1.0,
        )
        return StackBurst(*values)

    waiting = [standing(rank, "collective", "train.py:31 main") for rank in (0, 1)]
    bursts = (*waiting, standing(2, "other", "train.py:50 save"))
    (finding,) = judged(bursts=bursts)
    texts = [evidence.text for evidence in finding.evidence]
    assert finding.rule == "DST007"
    assert "the dumps point to rank 1, the stacks to rank 2" in "\n".join(texts)
    assert [text for text in texts if text.startswith("rank ") and "last called" in text] == [
        f"rank {rank}: last called {number}, gloo:all_reduce of 4, unfinished since 1; "
        f"20 of 20 stacks {words}, 1 % of a CPU"
        for rank, number, words in (
            (1, 3, "in a collective, train.py:31 main()"),
            (0, 4, "in a collective, train.py:31 main()"),
            (2, 4, "in its own code, train.py:50 save()"),
        )
    ]
