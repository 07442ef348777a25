"""coach.toml: a person's named trainings, found from below, and every mistake in it told with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.launch.project_file import find_project, get_training, read_project, with_training
from coach.launch.recipe import get_recipe, recipe_of
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind

PROJECT = """
[training.pretrain]
title = "The big one"
script = "train.py"
arguments = "--rate 1e-4 --note 'two words'"
key = "1"
nodes = 2
gpus = 4
time = "4:00:00"
account = "hpc"
environment = "pytorch"
with = ["torchrun"]
env = { OMP_PROC_BIND = "true" }
watch = ["GPU005"]
parameters = { lr = "--rate" }

[training.sweep]
command = ["accelerate", "launch", "train.py"]

[training.nightly]
batch = "job.sbatch"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "job.sbatch").write_text("#!/bin/sh\n#SBATCH --time=1\n")
    (tmp_path / "coach.toml").write_text(PROJECT)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    return tmp_path


def _found(directory: Path) -> Path | None:
    found = find_project(directory)
    return found.path if found is not None else None


def test_a_file_is_found_from_below_and_a_pyproject_counts_if_it_speaks_to_coach(project: Path) -> None:
    assert _found(project / "deep" / "er") == project / "coach.toml"
    (project / "deep" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert _found(project / "deep" / "er") == project / "coach.toml"
    nearer = project / "deep" / "pyproject.toml"
    nearer.write_text("[tool.coach.training.here]\ncommand = 'true'\n")
    assert _found(project / "deep" / "er") == nearer
    assert [each.name for each in read_project(nearer)] == ["here"]


def test_a_file_of_another_user_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(project / "coach.toml", 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(UserError, match="belongs to"):
        find_project(project)
    with pytest.raises(UserError, match="belongs to"):
        get_training(f"{project / 'coach.toml'}:pretrain")


def test_a_training_of_the_project_file_is_an_own_program_with_the_file_s_settings(project: Path) -> None:
    pretrain, sweep, nightly = read_project(project / "coach.toml")
    assert [each.own.kind for each in (pretrain, sweep, nightly)] == list(OwnKind)
    request = with_training(LaunchRequest(pretrain.reference, num_nodes=1, env={"A": "b"}))
    assert request.own is not None
    assert request.own.words == ("train.py", "--rate", "1e-4", "--note", "two words")
    assert request.own.offers == ("torchrun",)
    assert (request.num_nodes, request.gpus_per_node, request.time_limit_s) == (1, 4, 14400)
    assert (request.account, request.environment, request.recipe) == ("hpc", "pytorch", "pretrain")
    assert request.env == {"OMP_PROC_BIND": "true", "A": "b"}
    assert request.own.directory == str(project)


def test_its_recipe_carries_its_name_its_key_and_the_rules_names_of_its_parameters(project: Path) -> None:
    recipe = get_recipe(f"{project}/coach.toml:pretrain")
    assert (recipe.name, recipe.title, recipe.key, recipe.watch) == (
        "pretrain",
        "The big one",
        "1",
        ("GPU005",),
    )
    assert recipe.parameters["lr"].default == 1e-4
    request = with_training(LaunchRequest(f"{project}/coach.toml:pretrain"))
    assert recipe_of(request).name == "pretrain"


def test_an_environment_that_a_person_names_does_not_get_the_interpreter_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "coach.toml").write_text(
        "[training.a]\ncommand = 'true'\nenvironment = 'pytorch'\npython = '/opt/torch/bin/python'\n"
    )
    name = f"{tmp_path / 'coach.toml'}:a"
    assert with_training(LaunchRequest(name)).python == "/opt/torch/bin/python"
    other = with_training(LaunchRequest(name, environment="conda=old"))
    assert (other.environment, other.python) == ("conda=old", None)


def test_a_name_missing_from_the_project_file_is_answered_with_its_names(project: Path) -> None:
    with pytest.raises(UserError, match="no training 'pretrian'") as caught:
        get_training(f"{project}/coach.toml:pretrian")
    assert caught.value.hint == "its trainings: pretrain, sweep, nightly"
    (project / "coach.toml").write_text("")
    with pytest.raises(UserError, match="no training 'pretrain'") as refused:
        get_training(f"{project}/coach.toml:pretrain")
    assert refused.value.hint == "it has no training"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[training.a]\nscript = 'gone.py'\n", 2, "gone.py: no such file"),
        ("[training.a]\nscript = 'job.sbatch'\n", 2, "this is a batch: write batch ="),
        ("[training.a]\nkey = '1'\n", 1, "expected one of script, command, batch"),
        ("[training.a]\ncommand = 'x'\nscript = 'train.py'\n", 1, "expected one of"),
        ("[training.a]\ncommand = 'x'\nkey = '0'\n", 3, "expected a digit from 1 to 9"),
        ("[training.a]\ncommand = 'x'\nkey = 1\n", 3, "key = 1: expected a digit from 1 to 9 in quotes"),
        ("[training.a]\ncommand = 'x'\ngpus = true\n", 3, "gpus = true: expected a whole number"),
        ("[training.a]\ncommand = 'x'\ngpu = 1\n", 3, "unknown key training.a.gpu"),
        ("[training.a]\ncommand = 'x'\ntime = 'soon'\n", 3, "time ="),
        ("[training.a]\ncommand = [1]\n", 2, "expected words"),
        ("[training.a]\ncommand = 'x'\nwith = ['magic']\n", 2, "no such offer"),
        ("[training.a]\ncommand = 'x'\nwatch = ['gpu']\n", 3, "expected codes of rules"),
        ("[training.'a b']\ncommand = 'x'\n", 1, "expected a name"),
        ("[trainings.a]\ncommand = 'x'\n", 1, "unknown key trainings"),
        (
            "[training.a]\ncommand = 'x'\nkey = '1'\n[training.b]\ncommand = 'y'\nkey = '1'\n",
            3,
            "two trainings have this key",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_line_and_key(
    project: Path, text: str, line: int, words: str
) -> None:
    path = project / "coach.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_project(path)
    assert words in caught.value.message
    assert caught.value.message.startswith(f"{path}"), caught.value.message
    if "a b" not in text and "trainings.a" not in text:
        assert caught.value.message.startswith(f"{path}:{line}: "), caught.value.message


def test_unreadable_toml_is_reported_only_for_coach_s_own_file(project: Path) -> None:
    (project / "coach.toml").write_text("[training\n")
    with pytest.raises(UserError, match="not valid TOML"):
        find_project(project)
    (project / "coach.toml").unlink()
    (project / "pyproject.toml").write_text("[tool.coach\n")
    assert _found(project / "deep") is None


def test_a_long_training_says_its_segments_and_its_option_for_resuming(project: Path) -> None:
    path = project / "coach.toml"
    path.write_text(
        "[training.long]\nscript = 'train.py'\nuntil_done = 5\nresume = '--load {path}'\ntime = '1:00:00'\n"
    )
    (training,) = read_project(path)
    assert (training.asked["until_done"], training.asked["resume_with"]) == (5, "--load {path}")


def test_all_that_a_training_asks_for_reaches_its_launch(project: Path) -> None:
    counts = {"nodes": 2, "gpus": 4, "nproc_per_node": 3, "cpus_per_task": 5, "cpus_per_gpu": 6}
    texts = ("mem", "partition", "account", "qos", "reservation", "constraint", "exclude", "gpu_type")
    more = ("environment", "python", "signal")
    lines = [f"{name} = {value}" for name, value in counts.items()]
    lines += [f'{name} = "{name}-x"' for name in (*texts, *more)]
    (project / "coach.toml").write_text(
        "\n".join(["[training.all]", 'script = "train.py"', *lines, 'sbatch = { nice = "5" }'])
    )
    request = with_training(LaunchRequest(f"{project}/coach.toml:all", mem="1G", sbatch={"nice": "9"}))
    asked = (request.num_nodes, request.gpus_per_node, request.nproc_per_node)
    assert (*asked, request.cpus_per_task, request.cpus_per_gpu) == (2, 4, 3, 5, 6)
    told = {name: getattr(request, name) for name in (*texts, *more)}
    assert told == {**{name: f"{name}-x" for name in (*texts, *more)}, "mem": "1G"}
    assert request.sbatch == {"nice": "9"}
