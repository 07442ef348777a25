"""The exact output of the listing commands for captured answers: faster readers and writers must print the
same.

`python -m tests.cli.test_same_output` stores the current output. Run it only for an intended change.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from coach.cli import jobs, nodes
from coach.config import load
from coach.sources.io import CommandResult, Query, SystemIo
from tests.json_documents import check_printed
from tests.sources.scripted_io import captured

KEPT = Path(__file__).with_name("same_output")
QUEUES = {"22.05": "squeue", "24.11": "cluster-own-jobs"}
"""The older one has hostile names."""
COMMANDS: dict[str, tuple[ModuleType, tuple[str, ...]]] = {
    "jobs": (jobs, ("--all",)),
    "own-jobs": (jobs, ("--sort", "-gpu,user", "state:pending,running")),
    "columns": (jobs, ("--all", "--columns", "id,state,class,limit,submit,nodes", "--unfold")),
    "nodes": (nodes, ()),
}


def printed(command: str, version: str, form: str, home: Path) -> str:
    """The output of a command when Slurm gives the captured answers of this version."""
    answers = {"jobs": QUEUES[version], "nodes": "cluster-nodes", "partitions": "cluster-partitions"}

    def answer(self: SystemIo, query: Query, timeout_s: float | None = None) -> CommandResult:
        whole = Query(query.kind, query.argv, "|SEPARATOR", "|RECORDEND")
        is_known = query.kind in answers
        out = captured(f"{answers[query.kind]}-{version}.txt") if is_known else b""
        return CommandResult(whole, 0 if is_known else 1, out, "", 1_795_600_000.0, 0.1)

    module, arguments = COMMANDS[command]
    parser = argparse.ArgumentParser()
    module.configure(parser)
    said = module.unmistakable([*arguments, "--format", form, "--backend", "slurm"])
    args = parser.parse_intermixed_args(said)
    out = io.StringIO()
    env = {"COACH_HOME": str(home), "TZ": "UTC", "PATH": os.environ["PATH"]}
    with (
        mock.patch.dict(os.environ, env),
        mock.patch.object(SystemIo, "run", answer),
        mock.patch.object(jobs, "user_name", return_value="root"),
        mock.patch.object(time, "time", return_value=1_795_600_000.0),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        time.tzset()
        try:
            assert module.run(args, load(os.environ)) == 0
        finally:
            os.environ.pop("TZ")
            time.tzset()
    check_printed([command.removeprefix("own-").replace("columns", "jobs"), *said], out.getvalue())
    return out.getvalue()


def compact(text: str) -> str:
    """One JSON object, however it is laid out, with a row in each line."""
    found: dict[str, Any] = json.loads(text)
    lists = {
        noun: "\n".join(json.dumps(row) for row in rows) for noun, rows in found.items() if noun != "schema"
    }
    return "".join(f"{noun}\n{rows}\n" for noun, rows in lists.items())


@pytest.mark.parametrize("version", QUEUES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_the_same_rows_for_the_same_answers(
    command: str, version: str, tmp_path: Path
) -> None:
    kept = KEPT / f"{command}-{version}"
    assert printed(command, version, "text", tmp_path) == kept.with_suffix(kept.suffix + ".txt").read_text()
    as_json = compact(printed(command, version, "json", tmp_path))
    assert as_json == kept.with_suffix(kept.suffix + ".jsonl").read_text()


if __name__ == "__main__":
    import tempfile

    KEPT.mkdir(exist_ok=True)
    for name in COMMANDS:
        for of_version in QUEUES:
            with tempfile.TemporaryDirectory() as scratch:
                texts = [printed(name, of_version, form, Path(scratch)) for form in ("text", "json")]
            (KEPT / f"{name}-{of_version}.txt").write_text(texts[0])
            (KEPT / f"{name}-{of_version}.jsonl").write_text(compact(texts[1]))
