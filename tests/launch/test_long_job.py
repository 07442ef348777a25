"""Checkpoints of a program of each framework: the option that names one, the directory that it writes to, and
the refusals."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coach.launch.long_job import BY_ITSELF, check_long, places_of
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram
from tests.launch.examples import plan

ASKED = LaunchRequest("train", until_done=3)


def own(*words: str, kind: OwnKind = OwnKind.SCRIPT) -> OwnProgram:
    return OwnProgram(kind, words, "/home/ada/gpt")


def told(source: str, *words: str, said: str | None = None) -> str | None:
    request = LaunchRequest("train", until_done=3, resume_with=said)
    return check_long(request, own("train.py", *words), "slurm", source)


@pytest.mark.parametrize(
    ("source", "words", "expected"),
    [
        ('p.add_argument("--resume_from_checkpoint")', (), "--resume_from_checkpoint {path}"),
        ('p.add_argument("--resume", type=str)', (), "--resume {path}"),
        ('p.add_argument("--resume", action="store_true")', (), "--resume"),
        ("", ("--ckpt_path=last.ckpt",), "--ckpt_path {path}"),
        ("", ("--resume-from", "x"), "--resume-from {path}"),
        ("HfArgumentParser(TrainingArguments)", (), "--resume_from_checkpoint {path}"),
        ("TrlParser((ScriptArguments, SFTConfig))", (), "--resume_from_checkpoint {path}"),
        ("cli = LightningCLI(Model)", (), "--ckpt_path {path}"),
        ('start = os.environ.get("COACH_RESUME_FROM")', (), BY_ITSELF),
    ],
)
def test_a_program_gets_its_checkpoint_by_its_own_option(
    source: str, words: tuple[str, ...], expected: str
) -> None:
    assert told(source, *words) == expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('p.add_argument("--resume", help="resume (from the last one)", action="store_true")', ()),
        ('p.add_argument("-r", "--resume", action=argparse.BooleanOptionalAction)', ()),
        ('p.add_argument("--resume", action="store_true")', ("--resume",)),
        ("", ("--lr", "1", "--resume")),
        ("", ("--resume", "--lr", "1")),
    ],
    ids=["bracket", "short", "said", "last", "followed"],
)
def test_a_flag_gets_no_path_that_argparse_would_refuse_in_the_second_segment(
    source: str, words: tuple[str, ...]
) -> None:
    assert told(source, *words) == "--resume"


@pytest.mark.parametrize(
    "source",
    [
        '# p.add_argument("--resume")',
        'p.add_argument("--resume", type=int, help="the epoch")',
        'Trainer(args=TrainingArguments("out")).train()',
    ],
    ids=["comment", "number", "no command line"],
)
def test_a_program_that_would_not_take_the_option_is_asked_about(source: str) -> None:
    with pytest.raises(UserError, match=r"how does train\.py get"):
        told(source)


def test_a_person_s_option_wins_over_the_program_s() -> None:
    assert told('p.add_argument("--resume")', said="--load {path}") == "--load {path}"
    assert told("", said="none") == BY_ITSELF


@pytest.mark.parametrize(
    ("program", "backend", "words"),
    [
        (own("train.py"), "slurm", "how does train.py get"),
        (own("job.sbatch", kind=OwnKind.BATCH), "slurm", "how does the training in job.sbatch get"),
        (own("train.py"), "local", "ends at no limit"),
    ],
)
def test_a_program_that_cannot_resume_is_refused(program: OwnProgram, backend: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_long(ASKED, program, backend, "")


@pytest.mark.parametrize(
    ("text", "words", "said", "expected"),
    [
        ('srun python t.py ${COACH_RESUME_FROM:+--resume "$COACH_RESUME_FROM"}', (), None, BY_ITSELF),
        ("srun python t.py", (), "none", BY_ITSELF),
        ('srun python t.py "$@"', (), "--load {path}", "--load {path}"),
        ('srun python t.py "$@"', ("--resume", "x"), None, "--resume {path}"),
    ],
)
def test_a_batch_file_reads_the_checkpoint_or_hands_its_arguments_on(
    text: str, words: tuple[str, ...], said: str | None, expected: str
) -> None:
    request = LaunchRequest("job", until_done=3, resume_with=said)
    assert check_long(request, own("job.sbatch", *words, kind=OwnKind.BATCH), "slurm", text) == expected


def test_a_batch_file_that_does_not_pass_on_its_arguments_is_refused_with_the_line_to_write() -> None:
    request = LaunchRequest("job", until_done=3, resume_with="--load {path}")
    with pytest.raises(UserError, match="does not hand its arguments on") as refused:
        check_long(request, own("job.sbatch", kind=OwnKind.BATCH), "slurm", "srun python t.py")
    assert '"$@"' in (refused.value.hint or "")


def test_a_broken_option_or_number_is_refused() -> None:
    with pytest.raises(UserError, match="No closing quotation"):
        told("", said='--resume "{path}')
    with pytest.raises(UserError, match="expected 1 to 100"):
        check_long(LaunchRequest("train", until_done=0), own("train.py"), "slurm", "")


def test_an_option_that_a_recipe_would_not_get_is_refused() -> None:
    asked = LaunchRequest("ddp", until_done=3, resume_with="--load {path}")
    with pytest.raises(UserError, match="a recipe finds its checkpoint by itself"):
        check_long(asked, None, "slurm", None)


def test_places_are_those_that_the_command_line_names_else_the_start() -> None:
    words = ("train.py", "--output_dir", "out", "--trainer.default_root_dir=/scratch/l", "--lr", "1")
    assert list(places_of(own(*words))) == ["/home/ada/gpt/out", "/scratch/l"]
    assert list(places_of(own("train.py", "--lr", "1"))) == ["/home/ada/gpt"]


def test_a_recipe_goes_on_by_itself_and_is_signalled_by_usr1(tmp_path: Path) -> None:
    script = plan(tmp_path, "ddp", until_done=4, time_limit_s=3600).script
    assert 'segment --run-dir "$RUN_DIR" --max 4 --end --exit-code "$STATUS"); then' in script
    assert "if ((SIGNALLED && STATUS)); then" in script  # exit status 0 of a recipe's trainer: it is complete
    assert "scancel --signal=USR1" in script
    assert "newest_checkpoint" not in script
    assert "RESUME=()" in script
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
