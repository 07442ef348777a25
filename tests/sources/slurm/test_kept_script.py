"""A job's batch script: the best copy that still exists."""

from __future__ import annotations

import pytest

from coach.model.errors import UserError
from coach.sources.io import CommandResult, Query
from coach.sources.slurm.kept_script import find_script, parse_kept
from tests.sources.fake_io import FakeIo

TEXT = "#!/bin/bash\ndeepspeed train.py --deepspeed ds.json --deepspeed_config=gone.json\n"
RULE = "-" * 80
ACCOUNTING = f"Batch Script for 16\n{RULE}\nold\n\nBatch Script for 17\n{RULE}\n{TEXT}\n"


def asked(answers: dict[str, tuple[int, str]], job_id: str = "17_3") -> tuple[FakeIo, list[str]]:
    """(an Io whose clients give these answers, the list of commands that it ran)."""
    io, argvs = FakeIo(), []

    def answer(query: Query) -> CommandResult:
        argvs.append(" ".join(query.argv))
        status, text = answers.get(query.argv[0], (1, ""))
        return CommandResult(query, status, text.encode(), "Invalid job id", 0.0, 0.0)

    io.answers["batch-script"] = answer
    io.write("/home/ada/ds.json", b"{}")
    io.write("/home/ada/now.sh", b"#!/bin/bash\necho now\n")
    return io, argvs


def test_slurm_s_own_copy_is_taken_with_the_files_that_it_names() -> None:
    io, argvs = asked({"scontrol": (0, TEXT), "sacct": (0, ACCOUNTING)})
    found = find_script(io, "17_3", "/home/ada/now.sh", "/home/ada", "ada")
    assert (found.text, dict(found.files), found.why_not_kept) == (TEXT, {"ds.json": "{}"}, None)
    assert found.origin == "as Slurm keeps it (scontrol write batch_script 17 -)"
    assert argvs == ["scontrol write batch_script 17 -"]


def test_a_forgotten_jobs_script_comes_from_accounting_or_else_from_its_file() -> None:
    io, argvs = asked({"sacct": (0, ACCOUNTING)})
    found = find_script(io, "17", None, "/home/ada", "ada")
    assert (found.text, found.origin) == (TEXT, "as accounting keeps it (sacct -B -j 17)")
    assert argvs[1:] == ["sacct -B -j 17"]
    io, _ = asked({"sacct": (0, f"Batch Script for 17\n{RULE}\nNONE\n")})
    found = find_script(io, "17", "/home/ada/now.sh --lr 1", "/home/ada", "ada")
    assert found.text == "#!/bin/bash\necho now\n"
    assert found.why_not_kept == "scontrol: Invalid job id; sacct: Invalid job id"
    for command in (None, "train.sh", "/home/ada/gone.sh"):
        with pytest.raises(UserError, match="its batch script is not available"):
            find_script(io, "17", command, "/home/ada", "ada")


def test_the_newest_jobs_script_is_used_if_accounting_has_two_with_one_id() -> None:
    assert parse_kept(ACCOUNTING) == TEXT
    assert parse_kept("") == parse_kept("sacct: error: no accounting\n") == ""
