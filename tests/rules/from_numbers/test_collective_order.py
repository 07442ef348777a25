"""The rank that did otherwise is found among the calls of all ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.training.flight import Call, FlightRecord
from coach.rules.from_numbers.collective_order import odd_ranks
from coach.sources.metrics.flight_recorder import parse_dump

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


def test_the_rank_that_brought_another_shape_is_named() -> None:
    first = records_of("operation")[0]
    ranks = [replace(first, rank=0), replace(first, rank=1), replace(first, rank=2)]
    other = replace(ranks[1], calls=(*first.calls[:-1], Call(4, "gloo:all_reduce", ((8,),))))
    odd = odd_ranks([ranks[0], other, ranks[2]])
    assert odd is not None
    assert odd.ranks == (1,)
    assert "gloo:all_reduce of 8" in odd.how


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
    assert odd.evidence[0].text.startswith("rank 1: last called 4, ")
    assert odd.evidence[0].text.endswith(", unfinished since 2")


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


def test_check_of_a_directory_names_the_rank_that_the_dumps_show(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(TIMEOUT)
    for dump in (DUMPS / "operation").iterdir():
        shutil.copy(dump, tmp_path)
    command = [
        sys.executable,
        "-m",
        "coach",
        "check",
        str(tmp_path),
        "--format",
        "json",
        "--backend",
        "local",
    ]
    env = {**os.environ, "COACH_HOME": str(tmp_path / ".home")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    (finding,) = [one for one in json.loads(done.stdout)["findings"] if one["rule"] == "DST005"]
    assert finding["subject"]["rank"] == 1
    assert finding["cause"] == "rank_mismatch_collective"
    assert "rank 1 called gloo:broadcast" in finding["summary"]
    assert any(one["file"] == str(tmp_path / "nccl_trace_rank_1") for one in finding["evidence"])
