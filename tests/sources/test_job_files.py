"""Where a foreign job's output lies: squeue's paths, expanded as Slurm expands them, for all jobs at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.io import CommandResult, Query
from coach.sources.job_files import JobFiles, OutputPaths, parse_all_output_paths
from tests.sources.fake_io import FakeIo

HOME = "/home/ada"


def squeue(*rows: str) -> bytes:
    """Rows as squeue 22.05 printed them: jobarrayid jobid arrayjobid arraytaskid user nodes workdir stdout stderr name."""
    return "".join(row.replace(" ; ", "|SEP").replace("HOME", HOME) + "|END\n" for row in rows).encode()


def parsed(*rows: str) -> dict[str, tuple[Path, ...]]:
    return parse_all_output_paths(squeue(*rows).decode(), "|SEP", "|END")


@pytest.mark.parametrize(
    ("row", "paths"),
    [
        (
            "6777 ; 6777 ; 6777 ; N/A ; ada ; node1 ; HOME ; HOME/slurm-6777.out ; HOME/slurm-6777.out ; a b",
            ["HOME/slurm-6777.out"],
        ),
        (
            "6778_1 ; 6781 ; 6778 ; 1 ; ada ; node1 ; HOME ; /tmp/o-%j-%x.out ; /tmp/e-%A_%a.err ; named",
            ["/tmp/o-6781-named.out", "/tmp/e-6778_1.err"],
        ),
        (
            "6779 ; 6779 ; 6779 ; N/A ; ada ; node[07-09] ; HOME ; HOME/rel/%N-%u-%6j%%.out ; (null) ; j.sh",
            ["HOME/rel/node07-ada-006779%.out"],
        ),
        ("6790 ; 6790 ; 6790 ; N/A ; ada ; node2 ; HOME ; (null) ; (null) ; j.sh", ["HOME/slurm-6790.out"]),
        ("6791_4 ; 6795 ; 6791 ; 4 ; ada ; node2 ; HOME ; (null) ; (null) ; j.sh", ["HOME/slurm-6791_4.out"]),
        (
            "6792 ; 6792 ; 6792 ; N/A ; ada ; node2 ; HOME ; logs/%x.out ; logs/%x.out ; j.sh",
            ["HOME/logs/j.sh.out"],
        ),
    ],
    ids=["default", "array task", "host, width, percent", "24.11 default", "24.11 array", "relative"],
)
def test_a_path_is_where_slurm_writes(row: str, paths: list[str]) -> None:
    ((found),) = parsed(row).values()
    assert [str(path) for path in found] == [path.replace("HOME", HOME) for path in paths]


@pytest.mark.parametrize(
    "row",
    [
        "6780_[1-3] ; 6780 ; 6780 ; 1-3 ; ada ;  ; HOME ; /tmp/%N.out ; /tmp/%N.out ; j.sh",
        "6781 ; 6781 ; 6781 ; N/A ; ada ; node1 ; HOME ; /tmp/%q.out ; /tmp/x ; j.sh",
        "6782 ; 6782 ; 6782 ; N/A ; ada ; node1 ; HOME ; /tmp/a\\\\%j ; /tmp/x ; j.sh",
        "torn",
    ],
    ids=["no host yet", "unknown pattern", "escaped", "torn"],
)
def test_what_cannot_be_known_this_way_is_left_to_scontrol(row: str) -> None:
    assert parsed(row) == {}


def test_all_jobs_are_asked_about_at_once_and_only_what_is_left_over_one_by_one() -> None:
    io, asked = FakeIo(), []
    rows = [
        f"{number} ; {number} ; {number} ; N/A ; ada ; node1 ; HOME ; /o{number} ; /o{number} ; j.sh"
        for number in (17, 18)
    ]

    def answer(query: Query) -> CommandResult:
        asked.append(query.argv[0])
        known = Query(query.kind, query.argv, "|SEP", "|END")
        return CommandResult(known, 0, squeue(*rows), "", 1000.0, 0.1)

    io.answers["job-files"] = answer
    io.answer("job-files 19", lambda query: b"   StdOut=/o19\n")
    known = OutputPaths(io, "ada")
    paths = [JobFiles(io, job_id, known)() for job_id in ("17", "18", "19")]
    assert paths == [(Path("/o17"),), (Path("/o18"),), (Path("/o19"),)]
    assert asked == ["squeue"]
