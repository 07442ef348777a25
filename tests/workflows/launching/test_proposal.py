"""`coach init`: a first coach.toml from the files of a directory, with notes on lines that were not
understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.project_file import read_project
from coach.model.errors import UserError
from coach.workflows.launching.proposal import propose, write

SCRIPT = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1, help="Step size.")
if __name__ == "__main__":
    parser.parse_args()
"""


def test_batch_files_and_scripts_become_trainings_that_can_be_launched(tmp_path: Path) -> None:
    (tmp_path / "pretrain.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:4 --time=4:00:00\nsrun python big.py --batch_size 32\n"
    )
    (tmp_path / "big.py").write_text(SCRIPT)
    (tmp_path / "small.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("import torch\n\ndef f():\n    pass\n")
    (tmp_path / "plot.py").write_text("import csv\nprint(1)\n")
    (tmp_path / "many.sh").write_text("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n")
    (tmp_path / "setup.sh").write_text("echo no job\n")
    (tmp_path / "config.yaml").write_text("lr: 1\n")
    proposal = propose(tmp_path)
    assert proposal.understood == (
        "pretrain.sbatch: [training.pretrain], parameters that coach can set: batch_size",
        "small.py: [training.small], parameters that coach can set: lr",
    )
    assert [line.partition(": ")[0].rpartition("/")[2] for line in proposal.left_out] == [
        "many.sh",
        "big.py",
        "config.yaml",
    ]
    assert "# It asks for 2 nodes, 4 GPUs each, 04:00:00." in proposal.text
    assert "# coach can set lr (now 0.1): Step size." in proposal.text
    path = write(proposal, tmp_path)
    assert [(each.name, each.key) for each in read_project(path)] == [("pretrain", "1"), ("small", "2")]


@pytest.mark.parametrize(
    ("word", "is_started"),
    [
        ("train.py", True),
        ("./train.py", True),
        ("sub/../train.py", True),
        ('"$SLURM_SUBMIT_DIR"/train.py', True),
        ('$(dirname "$0")/train.py', True),
        ("$HOME/code/mine/train.py", True),
        ("/elsewhere/mounted/mine/train.py", True),
        ("sub/train.py", False),
        ("../train.py", False),
        ("$SLURM_SUBMIT_DIR/sub/train.py", False),
        ("~/other/train.py", False),
        ("/opt/other/train.py", False),
    ],
)
def test_a_batch_file_that_starts_a_script_of_another_folder_hides_none(
    tmp_path: Path, word: str, is_started: bool
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "job.sbatch").write_text(f"#!/bin/bash\n#SBATCH -N1\nsrun python {word}\n")
    (mine / "train.py").write_text(SCRIPT)
    proposal = propose(mine)
    assert ("train.py: a batch file starts it" in proposal.left_out) is is_started
    assert len(proposal.understood) == (1 if is_started else 2)


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "coach.toml").write_text("# mine\n")
    with pytest.raises(UserError, match="is there already"):
        write(propose(tmp_path), tmp_path)
    assert (tmp_path / "coach.toml").read_text() == "# mine\n"


def test_names_that_are_strange_or_taken_stay_valid(tmp_path: Path) -> None:
    (tmp_path / 'my "own" träining.py').write_text(SCRIPT)
    (tmp_path / "v1.2.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#SBATCH -n1\n")
    (tmp_path / "run.py").write_text(SCRIPT)
    path = write(propose(tmp_path), tmp_path)
    assert [each.name for each in read_project(path)] == ["run", "my_own_tr_ining", "run_py", "v1.2"]


def test_files_that_begin_alike_get_a_training_each(tmp_path: Path) -> None:
    stem = "train_the_big_language_model_with_learning_rate_0.00"
    batch = "#!/bin/sh\n#SBATCH -n1\n"
    names = [f"{stem}{number}{suffix}" for number in (1, 2, 3) for suffix in (".sbatch", ".sh")]
    for name in (*names, "обучение.sh", "проверка.sh", "пример.sh"):
        (tmp_path / name).write_text(batch)
    trainings = read_project(write(propose(tmp_path), tmp_path))
    assert len({each.name for each in trainings}) == 9
    assert {each.own.words[0] for each in trainings} == {path.name for path in tmp_path.glob("*.s*")}
    assert [each.key for each in trainings] == list("123456789")


def test_a_default_or_help_of_several_lines_stays_in_its_comment(tmp_path: Path) -> None:
    said = 'parser.add_argument("--note", default="a\\nenv = 3", help="one\\ntwo\\x1b[2J")\nif __name__'
    (tmp_path / "train.py").write_text(SCRIPT.replace("if __name__", said))
    proposal = propose(tmp_path)
    assert "# coach can set note (now a\u240aenv = 3)" in proposal.text
    assert "\x1b" not in proposal.text
    (training,) = read_project(write(proposal, tmp_path))
    assert training.asked.get("env") is None


def test_a_script_in_an_encoding_that_python_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_text(SCRIPT, encoding="utf-8-sig")
    (tmp_path / "named.py").write_text(f"# coding: latin-1\n# caf\xe9{SCRIPT}", encoding="latin-1")
    trainings = read_project(write(propose(tmp_path), tmp_path))
    assert [each.name for each in trainings] == ["marked", "named"]


def test_a_long_default_or_help_is_cut_in_its_comment(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("Step size.", "Step size. " * 50_000))
    proposal = propose(tmp_path)
    assert max(map(len, proposal.text.splitlines())) < 210
    assert len(read_project(write(proposal, tmp_path))) == 1


def test_a_directory_with_nothing_to_launch_proposes_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ndef (:\n")
    assert propose(tmp_path).text == ""


def test_a_hostile_file_name_gets_into_no_file(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J.py").write_text(SCRIPT)
    (tmp_path / "b.py").write_text(SCRIPT)
    proposal = propose(tmp_path)
    assert "\x1b" not in proposal.text
    assert [line.partition(":")[0] for line in proposal.understood] == ["b.py"]
    assert len(proposal.left_out) == 1
