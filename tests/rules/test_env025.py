"""A script with Windows line ends or without a `#!` line is named as the cause, with the command that mends
it."""

from __future__ import annotations

import pytest

from tests.rules.examples import diagnose_whole, of_a_whole_log

CRLF = (
    "run_crlf.sh: line 2: set: -: invalid option\n"
    "set: usage: set [-abefhkmnptuvxBCEHPT] [-o option-name] [--] [-] [arg ...]\n"
    "run_crlf.sh: line 3: cd: $'/home/ada/p\\r': No such file or directory\n"
    "python3: can't open file '/home/ada/p/leak.py\\r': [Errno 2] No such file or directory\n"
)


def test_a_script_with_windows_line_ends_explains_the_names_that_are_not_found() -> None:
    first, *others = diagnose_whole(CRLF).findings
    assert first.rule == "ENV025"
    assert first.fixes[0].command == r"sed -i 's/\r$//' run_crlf.sh"
    assert all(finding.consequence_of == "ENV025" for finding in others)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "/spool/job7/slurm_script: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory",
            r"sed -i 's/\r$//' ./run.sh",
        ),
        (
            "/spool/job02190/slurm_script: line 3: ./run.sh: cannot execute: required file not found",
            "head -n 1 ./run.sh | cat -A",
        ),
        (
            "/spool/job7/slurm_script: line 4: $'\\r': command not found",
            r"sed -i 's/\r$//' FILE",
        ),
        ("slurmstepd-node2: error: execve(): /home/ada/run.sh: Exec format error", None),
        ("bash: ./train: cannot execute binary file: Exec format error", "file ./train"),
        (
            "slurmstepd-node1: error: execve(): bad interpreter(/usr/bin/pythn3): No such file or directory",
            None,
        ),
        ("/usr/bin/env: ‘pythn’: No such file or directory", None),
        ("/usr/bin/env: 'pythn': No such file or directory", None),
        ("bash: /opt/tool: /usr/bin/perl: bad interpreter: No such file or directory", None),
    ],
)
def test_a_script_that_cannot_start_leads_to_its_first_line(line: str, command: str | None) -> None:
    (finding,) = diagnose_whole(line + "\n").findings
    assert (finding.rule, finding.fixes[0].command) == ("ENV025", command)


def test_a_first_line_that_names_a_missing_program_is_the_cause_also_below_sruns_summary() -> None:
    wrong = "slurmstepd-node1: error: execve(): bad interpreter(/usr/bin/pythn3): No such file or directory"
    (finding,) = diagnose_whole(f"{wrong}\nsrun: error: node1: task 0: Exited with exit code 2\n").findings
    assert (
        finding.summary == "The first line of a script names a program that the node lacks: /usr/bin/pythn3"
    )
    assert finding.fixes[0].title.startswith(
        "If it is misspelt or elsewhere, correct the script's first line"
    )
    assert finding.fixes[1].command == "srun ls -l /usr/bin/pythn3"


@pytest.mark.parametrize("name", ["python", "python3", "torchrun"])
def test_a_first_line_whose_program_an_environment_brings_is_told_as_that_environment(name: str) -> None:
    assert of_a_whole_log(f"/usr/bin/env: ‘{name}’: No such file or directory") == ["conda_not_initialised"]


@pytest.mark.parametrize(
    "lines",
    [
        (*CRLF.splitlines(), *(f"step {step} loss {2 / step:.3f}" for step in range(1, 300))),
        ("see the FAQ: './run.sh: /bin/bash^M: bad interpreter' means Windows line ends", "step 1 loss 2.0"),
        ("warning: label '3\\r' was stripped", "step 1 loss 2.0"),
    ],
)
def test_line_ends_that_stopped_nothing_are_no_alarm(lines: tuple[str, ...]) -> None:
    assert "script_format" not in of_a_whole_log(*lines)


def test_a_carriage_return_in_data_is_the_programs_own_error() -> None:
    frames = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in main\n    step()\n'
    text = frames + "ValueError: could not convert string to float: '1.5\\r'\n"
    assert [finding.rule for finding in diagnose_whole(text).findings] == ["COD001"]


def test_a_file_whose_name_ends_in_a_carriage_return_leads_to_the_list_that_names_it() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in main\n    open(name)\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.jpg\\r'\n"
    )
    (finding,) = diagnose_whole(text).findings
    assert (finding.rule, finding.fixes[0].command) == ("DAT011", r"sed -i 's/\r$//' FILE")


def test_a_full_path_that_is_missing_is_looked_for_from_a_node() -> None:
    (finding,) = diagnose_whole(
        "slurm_script: line 4: /envs/old/bin/python: No such file or directory\n"
    ).findings
    assert finding.fixes[0].command == "srun ls -ld /envs/old/bin/python"
