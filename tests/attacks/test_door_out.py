"""What leaves coach: saved files and their secrets, and what a terminal sees."""

from __future__ import annotations

import ast
import gzip
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from coach.cli import COMMANDS
from tests.forked import typed_coach
from tests.hostile import BIDI, CONTROLS, assert_harmless
from tests.ignored_signals import let_children_hear
from tests.installed import REPOSITORY
from tests.waiting import PATIENCE

KEY = [f"Mi5+{number:02}x1" * 8 for number in range(5)]
"""Lines of a private key in PEM: 64 characters each."""
SECRETS = {
    "hf_s3cretBehindColour01": "\x1b[32mhf_s3cretBehindColour01\x1b[0m",
    "s3cretBearer0001": "Bearer  s3cretBearer0001",
    "s3cretOption0001": "--api-key   s3cretOption0001",
    "s3cretBlanks0001": "TOKEN =  s3cretBlanks0001",
    "s3cretNoName0001": "redis://:s3cretNoName0001@host/0",
}
"""Secret → how a program prints it."""


HARMFUL = (CONTROLS + BIDI).replace("/", "")
"""Sequences that act on a terminal, in a form that a file may have as its name."""
PAST_THE_STREAMS = {
    "coach/cli/__init__.py": "the null device in place of a closed stream",
    "coach/cli/data.py": "coach's own progress line, of numbers alone",
    "coach/cli/text.py": "a script in a pipe or a file, without what acts on a terminal",
    "coach/node/judge.py": "lines that `coach why` printed",
    "coach/node/output.py": "one line, through `printable`",
    "coach/node/sample.py": "JSON",
    "coach/sources/machine/terminal.py": "it asks for the size",
}
"""Modules of commands and node code that name a standard stream's descriptor, and what for."""


COACH = ("-m", "coach")


def run_coach(
    home: Path,
    *words: object,
    max_file_bytes: int | None = None,
    text: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = COACH,
) -> subprocess.CompletedProcess[str]:
    """`coach WORDS` in the folder `home`. With `max_file_bytes`, a longer file fails as on a full disk."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "COACH_AS_ROOT") if name in os.environ},
        "HOME": str(home),
        "COACH_HOME": str(home / "coach"),
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",  # a limit of file sizes would leave half a compiled module
        **(env or {}),
    }
    if program == COACH and max_file_bytes is None:
        return typed_coach(words, environment, cwd=cwd or home, stdin=text)

    def limit() -> None:
        if max_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))

    let_children_hear()
    return subprocess.run(
        [sys.executable, *program, *map(str, words)],
        cwd=cwd or home,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60 * PATIENCE,
        preexec_fn=limit,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a program that prints secrets, and fails with the begin of a private key."""
    path = tmp_path / "train.log"
    lines = [*SECRETS.values(), "Traceback (most recent call last):", '  File "t.py", line 3, in <module>']
    lines += ["ValueError: bad key -----BEGIN OPENSSH PRIVATE KEY-----", *KEY]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_ticket_holds_no_secret_and_no_line_of_a_key(log: Path, tmp_path: Path) -> None:
    saved = tmp_path / "ticket.md"
    done = run_coach(tmp_path, "ticket", log, "--save", saved, "--yes")
    assert done.returncode == 0, done.stderr
    assert "ValueError: bad key" in saved.read_text()
    for text in (saved.read_text(), done.stdout):
        assert [each for each in (*SECRETS, *KEY) if each in text] == []
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_an_anonymized_recording_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    words = "\n".join((*SECRETS.values(), "loss 0.5", *KEY)) + "\n"
    # The command line of a run is struck word by word: so the program reads them from a file.
    (tmp_path / "words").write_text(words)
    program = f"print(open({str(tmp_path / 'words')!r}).read(), flush=True)"
    interpreter = ("-u", *COACH)  # a run measures a process of its own, no fork of the tests
    ran = run_coach(tmp_path, "run", "--", sys.executable, "-c", program, program=interpreter)
    assert ran.returncode == 0, ran.stderr
    (run,) = (tmp_path / "coach" / "runs").glob("2*")
    file = tmp_path / "kept.coach"
    recorded = run_coach(
        tmp_path,
        "record",
        file,
        "--anonymize",
        "--run",
        run.name,
        "--for",
        "2",
        "--backend",
        "local",
        program=interpreter,
    )
    assert recorded.returncode == 0, recorded.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    data = gzip.decompress(file.read_bytes()).decode()
    assert "loss" in data
    assert [each for each in (*SECRETS, *KEY) if each in data] == []
    assert {path.name for path in tmp_path.iterdir()} == {"words", "coach", "kept.coach"}


def test_a_ticket_that_does_not_fit_leaves_nothing_and_can_be_saved_again(log: Path, tmp_path: Path) -> None:
    saved = tmp_path / "ticket.md"
    words = ("ticket", log, "--save", saved, "--yes")
    failed = run_coach(tmp_path, *words, max_file_bytes=500)
    assert failed.returncode == 2, failed.stdout
    assert f"coach: {saved}: cannot be written: File too large" in failed.stderr
    assert not saved.exists()
    again = run_coach(tmp_path, *words)
    assert again.returncode == 0, again.stderr


def test_copies_of_a_recipe_are_private_and_half_a_copy_does_not_stay(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    words = ("recipes", "eject", "baseline", folder)
    assert run_coach(tmp_path, *words, max_file_bytes=3000).returncode == 2
    assert not folder.exists()
    done = run_coach(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_no_link_with_the_name_of_a_new_file_is_followed(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    link = tmp_path / "link"
    link.symlink_to(other)
    for words in (("ticket", log, "--save", link, "--yes"), ("record", link, "--for", "0.1")):
        refused = run_coach(tmp_path, *words, "--backend", "local")
        assert refused.returncode == 2
        assert f"coach: {link}: exists already" in refused.stderr
    assert not other.exists()


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder with a hostile name, and with a batch file and a program that hold such text."""
    folder = tmp_path / f"here{HARMFUL}"
    folder.mkdir()
    (folder / "job.sh").write_text(f"#!/bin/bash\n#SBATCH -J x\n# {HARMFUL}\n\techo hi\n")
    (folder / "train.py").write_text(f"# {HARMFUL}\nimport argparse, torch\n")
    (folder / "coach.toml").write_text("[training.mine\x1b[31m]\nscript = 'train.py'\n")
    return folder


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_argument_and_no_name_of_the_working_directory_reaches_a_terminal(
    command: str, hostile_folder: Path, tmp_path: Path
) -> None:
    env = {"SCRATCH": str(hostile_folder), "SLURM_JOB_ID": HARMFUL, "COACH_RUNS_ROOT": str(hostile_folder)}
    for words in ([f"--x{HARMFUL}"], ["--format", HARMFUL], [HARMFUL, HARMFUL], ["--", HARMFUL]):
        done = run_coach(tmp_path, command, *words, cwd=hostile_folder, env=env)
        assert "Traceback" not in done.stderr
        assert_harmless(done.stdout + done.stderr, f"{command} {words[0]!r}")


@pytest.mark.parametrize(
    "words",
    [
        (f"--x{HARMFUL}",),
        (f"x{HARMFUL}",),
        ("--replay", HARMFUL),
        ("init", "--dry-run"),
        ("launch", "--backend", "local", "--dry-run", "--", f"./a{HARMFUL}"),
        ("launch", "--backend", "local", "--dry-run", "--", "bash", "-c", HARMFUL),
        ("run", "--", f"./none{HARMFUL}"),
        ("run", "--run-dir", f"/proc/{HARMFUL}", "--", "true"),
        ("sample", "--interval", HARMFUL),
        ("config", "--check", f"none{HARMFUL}"),
    ],
)
def test_what_is_printed_verbatim_and_what_cannot_start_act_on_no_terminal(
    words: tuple[str, ...], hostile_folder: Path, tmp_path: Path
) -> None:
    done = run_coach(tmp_path, *words, cwd=hostile_folder)
    shown = (done.stdout + done.stderr).replace("\t", " ")  # a script keeps its tabs
    assert shown
    assert_harmless(shown, str(words))


@pytest.mark.parametrize("words", [("ended", f"--x{HARMFUL}"), ("segment", "--run-dir", HARMFUL)])
def test_the_messages_of_node_code_act_on_no_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_coach(tmp_path, *words, program=("-m", "coach.node"))
    assert done.returncode != 0
    assert_harmless(done.stderr, str(words))


def test_an_argument_makes_no_second_line_of_an_error(tmp_path: Path) -> None:
    done = run_coach(tmp_path, "check", "--x\ncoach: all is well")
    assert not any(line.startswith("coach: all is well") for line in done.stderr.splitlines())


def test_the_output_of_a_command_passes_through_unchanged(tmp_path: Path) -> None:
    program = "import sys; sys.stdout.write('\x1b[31mred\x1b[0m'); sys.stderr.write('\x1b[2K')"
    done = run_coach(tmp_path, "run", "--", sys.executable, "-c", program)
    assert done.stdout == "\x1b[31mred\x1b[0m"
    assert "\x1b[2K" in done.stderr


def test_no_module_writes_past_the_harmless_streams_without_a_reason() -> None:
    found = set()
    for room in ("cli", "node", "workflows", "launch", "sources", "config", "recorder"):
        for path in (REPOSITORY / "coach" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                words = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Call) else ""
                is_past = words in (
                    "sys.__stdout__",
                    "sys.__stderr__",
                    "sys.stdout.buffer",
                    "sys.stderr.buffer",
                )
                is_to_a_number = words.startswith(("os.write(1,", "os.write(2,", "os.write(self.of_command"))
                if is_past or is_to_a_number or words.startswith(("open(1,", "open(2,")):
                    found.add(str(path.relative_to(REPOSITORY)))
    assert found == set(PAST_THE_STREAMS)
