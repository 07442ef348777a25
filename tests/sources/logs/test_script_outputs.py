"""The logs that a script names: they are found although Slurm does not know them."""

from __future__ import annotations

import re

import pytest

from coach.sources.logs.output_path import NO_TASK
from coach.sources.logs.script_outputs import named_outputs

JOB = {"j": "17", "A": "17", "a": NO_TASK, "x": "train", "u": "ada", "N": "node1", "%": "%"}


@pytest.mark.parametrize(
    ("script", "file"),
    [
        ("srun -n2 -o steps/%j-%t.out python train.py", "steps/17-1.out"),
        ("srun --label -o%x.%J.log python train.py", "train.17.0.log"),
        ('srun -e "errors of %t.err" python train.py', "errors of 0.err"),
        (
            "time srun --output=/scratch/$USER/run-${SLURM_JOB_ID}.log \\\n  python train.py",
            "/scratch/ada/run-17.log",
        ),
        ("srun -N1 --gres gpu:1 -o step.txt \\\n -l python train.py", "step.txt"),
        ("LOG=logs/train.log\npython train.py > $LOG 2>&1", "logs/train.log"),
        ("LOG=train\nOUT=${LOG}.out\npython train.py &>> ./$OUT", "train.out"),
        ("python train.py 2>&1 | tee -a 'the log.txt'", "the log.txt"),
        ("python train.py > run-$(date +%F).log", "run-2026-11-21.log"),
        ("srun -o %t.out python train.py", "3.out"),
    ],
)
def test_a_log_named_in_a_script_matches_its_pattern(script: str, file: str) -> None:
    (pattern,) = named_outputs(f"#!/bin/bash\n#SBATCH -o slurm-%j.out\n{script}\n", JOB)
    assert re.fullmatch(pattern, file)


@pytest.mark.parametrize(
    "script",
    [
        "srun python train.py -o program.out --output weights.log",
        "srun -o checkpoint.pt python train.py",
        "python train.py > data.csv",
        "python train.py > /dev/null 2>&1",
        "echo trouble >&2",
        "python train.py > $(mktemp).log",
        "# srun -o old.log python train.py",
        "cat < input.txt",
    ],
)
def test_program_files_binary_files_and_unclear_paths_are_no_logs_of_the_script(script: str) -> None:
    assert named_outputs(f"{script}\n", JOB) == ()


def test_a_task_of_an_array_has_the_log_with_its_own_numbers() -> None:
    task = JOB | {"j": "19", "a": "2"}
    (pattern,) = named_outputs("srun -o %A/%a.log python train.py", task)
    assert re.fullmatch(pattern, "17/2.log")
    assert not re.fullmatch(pattern, "17/3.log")


@pytest.mark.parametrize("words", ["srun -x ", "$(", "${a", "srun -o $("])
def test_a_line_that_repeats_itself_costs_no_time(words: str) -> None:
    script = words * (8000 // len(words)) + "\nsrun -o steps.log python train.py\n"
    assert r"steps\.log" in named_outputs(script, JOB)


def test_a_name_with_too_many_unknown_parts_is_shortened_or_dropped() -> None:
    assert named_outputs("srun -o a$A$B$C$D-$E$F$G$H.log x\n", JOB) == (r"a.*\-.*\.log",)
    assert named_outputs(f"srun -o a{'-'.join(f'${name}' for name in 'ABCDEF')}.log x\n", JOB) != ()
    assert named_outputs(f"srun -o a{'-'.join(f'${name}' for name in 'ABCDEFG')}.log x\n", JOB) == ()


def test_a_long_value_before_another_command_costs_no_time() -> None:
    long_value = "a" * 5000
    assert named_outputs(f"OUT={long_value}; srun -o steps.log python train.py\n", JOB) == (r"steps\.log",)
