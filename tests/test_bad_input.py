"""Bad input: one clear line, a second for the suggestion, a non-zero exit, no traceback, nothing lost."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forked import forked_coach

RECORDINGS = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Coach:
    """coach as a person starts it, on a machine without Slurm."""

    home: Path

    def __call__(self, *args: str, status: int | None = 2, stdin: bytes = b"") -> list[str]:
        """Run the command and return its lines on standard error, the only output of a refusal."""
        path = [str(self.home / "bin"), str(Path(sys.executable).parent)]
        (self.home / "bin").mkdir(exist_ok=True)
        env = {
            "COACH_HOME": str(self.home),
            "HOME": str(self.home),
            "PATH": ":".join(path),
            "LC_ALL": "C.UTF-8",
            "COACH_AS_ROOT": "1",  # the suite may run as root, its stories are a user's
        }
        done = forked_coach(args, env, stdin)
        stderr = done.stderr.decode()
        assert "Traceback" not in stderr, stderr
        assert done.returncode == status or (status is None and done.returncode), (
            done.returncode,
            done.stdout,
            stderr,
        )
        return [line for line in stderr.splitlines() if line]

    @property
    def runs(self) -> Path:
        path = self.home / "runs"
        path.mkdir(mode=0o700, exist_ok=True)
        return path


@pytest.fixture
def coach(tmp_path: Path) -> Coach:
    return Coach(tmp_path)


def test_an_option_before_a_command_is_named_as_the_cause(coach: Coach) -> None:
    for option, command in (
        (("--readonly",), ("cancel", "2549")),
        (("--backend", "local"), ("launch", "ddp")),
    ):
        said, hint = coach(*option, *command)
        assert said == (
            f"coach: {option[0]} stands before the command {command[0]}: "
            "options there are those of the screens"
        )
        assert f"options follow the command: coach {command[0]} " in hint
    assert "COACH_READONLY=1" in coach("--readonly", "cancel", "2549")[1]


def test_an_unknown_command_names_the_nearest(coach: Coach) -> None:
    assert coach("lauch") == ["coach: unknown command 'lauch'", "  did you mean `coach launch`?"]
    assert coach("wy", "8117") == ["coach: unknown command 'wy'", "  did you mean `coach why`?"]


def test_a_command_of_slurm_leads_to_coach_s_and_never_to_one_that_changes_jobs(coach: Coach) -> None:
    for word, meant in (("queue", "jobs"), ("status", "jobs"), ("logs", "why"), ("board", "cohort")):
        assert coach(word) == [f"coach: unknown command {word!r}", f"  did you mean `coach {meant}`?"]


def test_without_a_terminal_the_screens_are_refused_and_nothing_is_painted(coach: Coach) -> None:
    assert coach("--demo") == [
        "coach: the screens need a terminal",
        "  `coach jobs` and `coach why` print; `coach --help` lists all",
    ]


def test_options_of_an_own_program_in_front_of_the_dashes_are_told_where_they_go(coach: Coach) -> None:
    assert coach("launch", "train.py", "--epochs", "5") == [
        "coach: coach launch has no option --epochs",
        "  your program's own options follow --: `-- --epochs 5`",
    ]


def test_an_option_is_not_shortened_and_the_refusal_names_it(coach: Coach) -> None:
    assert coach("launch", "baseline", "--tim", "5") == [
        "coach: coach launch has no option --tim",
        "  did you mean --time?",
    ]
    assert coach("check", "17", "--form", "json")[-1].endswith(
        "unrecognized arguments: --form json: did you mean --format?"
    )


@pytest.mark.parametrize(
    ("typed", "files", "near"),
    [
        ("trian.py", ("train.py", "trian.log", "trian.py.bak"), "train.py"),
        ("job.sh", ("jobs.sh", "job.sbatch"), "job.sbatch"),
        ("nosuch.py", ("einops.py2", "einops.py", "nosuch.pyc"), None),
    ],
)
def test_a_misspelt_script_names_the_nearest_file_that_can_be_launched(
    coach: Coach, typed: str, files: tuple[str, ...], near: str | None
) -> None:
    for name in files:
        (coach.home / name).write_text("print(1)\n")
    (coach.home / typed).with_suffix(".bash").mkdir()
    misspelt = str(coach.home / typed)
    hint = [f"  did you mean {near}?"] if near is not None else []
    assert coach("launch", misspelt, "--backend", "local") == [f"coach: {misspelt}: no such file", *hint]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("drill", "spelin"), ["coach: unknown drill 'spelin'", "  did you mean spelling?"]),
        (
            ("launch", "ddp", "fsdp"),
            ["coach: coach launch does not expect 'fsdp'", "  a launch takes one recipe"],
        ),
        (
            ("launch", "train.py", "data.csv"),
            [
                "coach: coach launch does not expect 'data.csv'",
                "  your program's own options follow --: `-- data.csv`",
            ],
        ),
        (("drill", "xyz"), ["coach: unknown drill 'xyz'", "  `coach drill` lists them"]),
        (
            ("recipes", "eject"),
            [
                "coach: coach recipes eject: expected a recipe and a new folder",
                "  coach recipes eject ddp my-ddp",
            ],
        ),
        (
            ("config", "--explain", "launch.acount"),
            ["coach: there is no key launch.acount", "  did you mean launch.account?"],
        ),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    coach: Coach, arguments: tuple[str, ...], lines: list[str]
) -> None:
    assert coach(*arguments) == lines


@pytest.mark.parametrize(
    "arguments",
    [
        ("launch", "~nobody17/train.py"),
        ("recipes", "~nobody17/mine.toml"),
        ("config", "--check", "~nobody17/config.toml"),
        ("workshop", "check", "~nobody17/day.toml"),
        ("why", "~nobody17/log.txt"),
    ],
)
def test_a_path_below_the_home_of_an_unknown_user_is_refused_in_words(
    coach: Coach, arguments: tuple[str, ...]
) -> None:
    coach(*arguments)


@pytest.mark.parametrize("seconds", ["abc", "nan", "-1"])
def test_a_recording_of_no_time_is_refused(coach: Coach, tmp_path: Path, seconds: str) -> None:
    said = coach("record", str(tmp_path / "x"), "--for", seconds)
    assert (
        said[-1] == f"coach record: error: argument --for: {seconds!r}: expected a number of seconds above 0"
    )


def test_a_word_that_is_no_rule_leads_to_rules_about_it(coach: Coach) -> None:
    first, second = coach("explain", "out-of-memory")
    assert first == "coach: there is no rule 'out-of-memory'"
    assert second.startswith("  near it: MEM001 cuda-out-of-memory, ")


def test_an_unknown_recipe_names_the_nearest(coach: Coach) -> None:
    lines = coach("launch", "baselin", "--backend", "local", "--dry-run")
    assert "baselin" in lines[0]
    assert "baseline" in lines[1]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("lerning_rate=0.1", "lerning_rate"),
        ("lr=fast", "lr"),
        ("lr=0", "lr"),
        ("lr=nan", "lr"),
        ("batch_size=1.5", "batch_size"),
        ("batch_size=-3", "batch_size"),
        ("optimizer=sdg", "optimizer"),
        ("lr", "lr"),
    ],
)
def test_a_wrong_parameter_is_named(coach: Coach, assignment: str, words: str) -> None:
    lines = coach("launch", "baseline", "--backend", "local", "--dry-run", "--set", assignment)
    assert words in lines[0]
    assert len(lines) <= 2


def test_a_malformed_recipe_is_named_with_file_and_place(coach: Coach, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("schema = 1\nname = [\n")
    lines = coach("launch", str(recipe), "--backend", "local", "--dry-run")
    assert str(recipe) in lines[0]
    assert len(lines) <= 2


def test_each_mistake_in_a_recipe_is_one_line_with_its_file_and_key(coach: Coach, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'schema = 1\nname = "mine"\ntitle = "t"\nsummary = "s"\ntrainer = "baseline.py"\ndevises = "single"\n'
    )
    lines = coach("launch", str(recipe), "--backend", "local", "--dry-run")
    assert lines == [
        f"coach: {recipe}:6: unknown key devises",
        "  did you mean devices?",
        f'{recipe}: the key devices is missing: expected one of "single", "multiple", "one process"',
        f'{recipe}: the key time is missing: expected a time such as "00:30:00"',
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--time", "tomorrow"],
        ["--mem", "lots"],
        ["--nodes", "2"],
        ["--nodes", "0"],
        ["--gpus", "-1"],
        ["--nproc-per-node", "4"],
        ["--sbatch", "comment"],
        ["--python", "/no/such/python"],
        ["--share", ""],
        ["--sweep", "lr=0.1,0.2", "--sweep", "lr=0.3"],
    ],
)
def test_a_wrong_launch_option_is_one_line(coach: Coach, arguments: list[str]) -> None:
    lines = coach("launch", "baseline", "--backend", "local", "--dry-run", *arguments)
    assert len(lines) in (1, 2, 3), lines
    assert any(arguments[0].strip("-").split("-")[0] in line for line in lines), lines


def test_an_option_cannot_smuggle_lines_into_the_script(coach: Coach) -> None:
    lines = coach("launch", "baseline", "--backend", "local", "--dry-run", "--account", "a\ntouch /tmp/owned")
    assert "account" in lines[0]
    assert len(lines) <= 2


def test_a_torn_run_json_is_one_line_and_the_other_runs_are_listed(coach: Coach) -> None:
    torn = coach.runs / "20260101-000000-ddp-0000"
    torn.mkdir()
    (torn / "run.json").write_text('{"schema": 1, "run_')
    lines = coach("check", torn.name)
    assert "run.json" in lines[0]
    assert "not valid JSON" in lines[0]
    assert len(lines) <= 2
    listed = coach("runs", status=0)
    assert any("run.json" in line for line in listed)


def test_a_binary_file_is_not_a_log(coach: Coach, tmp_path: Path) -> None:
    binary = tmp_path / "core.1234"
    binary.write_bytes(b"\x7fELF\x00\x00\x01\x02" * 4000)
    lines = coach("check", str(binary))
    assert str(binary) in lines[0]
    assert "binary" in lines[0]
    assert len(lines) <= 2


def test_a_target_that_does_not_exist_is_one_line(coach: Coach) -> None:
    lines = coach("check", "99999")
    assert "99999" in lines[0]
    assert len(lines) <= 2
    assert coach("compare", "one", "two")


def test_a_ticket_of_no_job_and_one_that_cannot_be_saved_are_refused(coach: Coach) -> None:
    assert coach("ticket") == [
        "coach: no job of yours is known to have ended badly",
        "  name one: coach ticket JOB",
    ]
    log = coach.home / "a.log"
    log.write_text("ValueError: no\n")
    lines = coach("ticket", str(log), "-o", "/nowhere/t.md", "--yes")
    assert lines[-1] == "coach: /nowhere/t.md: cannot be written: No such file or directory"


def test_no_slurm_at_all_is_one_line(coach: Coach) -> None:
    for words in (["jobs"], ["nodes"], ["partitions"], ["nodes", "--reserved"]):
        lines = coach(*words, "--backend", "slurm")
        assert len(lines) <= 2, lines
        assert "command not found" in lines[0] or "not installed" in lines[0], lines


def test_a_file_that_is_no_trace_is_refused_in_one_line(coach: Coach) -> None:
    run = coach.runs / "20261121-043902-baseline-bca6"
    shutil.copytree(RECORDINGS / "healthy", run)
    assert "no trace in" in coach("trace", run.name)[0]
    for text, said in (
        ("hello", "not a trace of torch.profiler"),
        ('{"traceEvents": [{"ph": "X"', "the trace is cut short"),
        ('{"traceEvents": []}', "neither kernels nor operators"),
    ):
        path = coach.home / "trace.json"
        path.write_text(text)
        lines = coach("trace", str(path))
        assert said in lines[0]
        assert len(lines) <= 2
    assert "No such file" in coach("trace", "/nowhere/trace.json.gz")[0]
    (coach.home / "trace.json.gz").write_bytes(b"\x1f\x8bnothing of gzip")
    assert "cannot be unpacked" in coach("trace", str(coach.home / "trace.json.gz"))[0]


def test_an_unknown_rule_names_the_nearest(coach: Coach) -> None:
    lines = coach("explain", "MEM01")
    assert "MEM01" in lines[0]
    assert "MEM001" in lines[1]


def test_a_broken_config_stops_every_command_with_file_and_line(coach: Coach) -> None:
    (coach.home / "config.toml").write_text('[launch]\nnodes = "two"\n')
    (line,) = coach("recipes")
    assert f"{coach.home / 'config.toml'}:2" in line


def test_a_file_that_is_no_recording_is_refused_in_one_line(coach: Coach, tmp_path: Path) -> None:
    wrong = tmp_path / "notes.txt"
    wrong.write_text("hello")
    for path in (wrong, tmp_path / "missing"):
        lines = coach("--replay", str(path))
        assert str(path) in lines[0]
        assert len(lines) <= 2


def test_a_healthy_log_from_a_pipe_is_silent(coach: Coach) -> None:
    assert os.linesep == "\n"
    assert coach("check", "-", status=0, stdin=b"epoch 1 loss 0.53\ndone\n") == []
