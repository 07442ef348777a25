"""Environments as people write them: which forms are read, and the message for each mistake."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from coach.analysis.spelling.environment import (
    read_environment,
    spelt_environment,
    with_absolute_paths,
)
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.toml_schema import TableReader


class Places(TableReader):
    """Tells the place of a key by a function."""

    def __init__(self, place_of: Callable[[str], str]) -> None:
        super().__init__(Path("f"))
        self._place_of = place_of

    def at(self, dotted: str) -> str:
        return self._place_of(dotted)


def table(text: str) -> dict[str, object]:
    return tomllib.loads(text)


def environment_from_table(name: str | None, said: Mapping[str, object], place: str) -> Environment:
    """The environment of a table. Raises UserError for the first mistake."""
    environment, problems = read_environment(Places(lambda _key: place), name, said)
    if problems:
        raise problems[0]
    return environment


def test_a_site_describes_its_modules_with_their_exact_versions() -> None:
    text = """
kind = "modules"
modules = ["cuda/12.4", "pytorch/2.6"]
torch = "2.6.0"
setup = ["ulimit -c 0"]
variables = { NCCL_DEBUG = "WARN" }
"""
    environment = environment_from_table("pytorch", table(text), "site.toml:3")
    assert environment == Environment(
        kind=EnvironmentKind.MODULES,
        name="pytorch",
        modules=("cuda/12.4", "pytorch/2.6"),
        setup=("ulimit -c 0",),
        variables={"NCCL_DEBUG": "WARN"},
        torch="2.6.0",
        origin="site.toml:3",
    )


@pytest.mark.parametrize(
    ("text", "kind", "field", "value"),
    [
        ("venv=/sw/torch", EnvironmentKind.VENV, "path", "/sw/torch"),
        ("venv=~/torch", EnvironmentKind.VENV, "path", "~/torch"),
        ("conda=pytorch", EnvironmentKind.CONDA, "path", "pytorch"),
        ("conda=/sw/conda/envs/pt", EnvironmentKind.CONDA, "path", "/sw/conda/envs/pt"),
        ("modules=cuda/12.4, pytorch/2.6", EnvironmentKind.MODULES, "modules", ("cuda/12.4", "pytorch/2.6")),
        ("apptainer=/sw/pt.sif", EnvironmentKind.APPTAINER, "image", "/sw/pt.sif"),
        ("pyxis=/sw/pt.sqsh", EnvironmentKind.PYXIS, "image", "/sw/pt.sqsh"),
        ("pyxis=nvcr.io#nvidia/pytorch:24.11-py3", EnvironmentKind.PYXIS, "image", None),
        ("none", EnvironmentKind.NONE, "path", None),
    ],
)
def test_an_environment_is_spelt_out_on_the_command_line(
    text: str, kind: EnvironmentKind, field: str, value: object
) -> None:
    environment = spelt_environment(text)
    assert environment is not None
    assert environment.kind is kind
    assert environment.name is None
    assert getattr(environment, field) == (value or (text.partition("=")[2] or None))


def test_a_word_without_an_equals_sign_is_a_name() -> None:
    assert spelt_environment("pytorch") is None


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("vnev=/sw/torch", "unknown kind of environment 'vnev'", "did you mean venv=…?"),
        ("docker=torch", "unknown kind of environment 'docker'", "apptainer=/sw/images/pytorch.sif"),
        ("venv=", "expected venv=/sw/venvs/torch", None),
        ("modules=cuda,,torch", "expected modules=", None),
        ("modules=cuda;reboot", "expected a module, for example pytorch/2.6", None),
        ("apptainer=docker://pytorch", "apptainer pull", None),
    ],
)
def test_a_misspelt_environment_is_refused_with_the_correct_form(
    text: str, words: str, hint: str | None
) -> None:
    with pytest.raises(UserError) as error:
        spelt_environment(text)
    assert error.value.message.startswith(f"--env '{text}': ")
    assert words in error.value.message
    if hint is not None:
        assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('path = "/sw/torch"', "the key environments.pt.kind is missing: expected one of none, venv, conda"),
        ('kind = "vnev"', "environments.pt.kind = 'vnev': expected one of none, venv"),
        ('kind = "venv"', "environments.pt: kind venv needs path, for example path = '/sw/venvs/torch'"),
        ('kind = "venv"\npath = "torch"', "environments.pt.path = 'torch': expected a path from the root"),
        (
            'kind = "venv"\npath = "/p"\nimage = "/i"',
            "environments.pt.image = '/i': only apptainer and pyxis have",
        ),
        ('kind = "none"\nmodule = ["a"]', "unknown key environments.pt.module"),
        ('kind = "modules"\nmodules = "cuda"', "environments.pt.modules = 'cuda': expected a list"),
        ('kind = "none"\ntorch = 2.6', "environments.pt.torch = 2.6: expected a version"),
        ('kind = "none"\ntorch = "new"', "expected a version"),
        ('kind = "none"\nsetup = ["a\\nb"]', "expected a string on one line"),
        ('kind = "none"\nvariables = { "A-B" = "1" }', "'A-B' is no name of a variable"),
        ('kind = "pyxis"\nimage = "/i"\nbinds = ["data:/data"]', "expected SRC[:DST[:OPTIONS]]"),
    ],
)
def test_each_mistake_in_a_table_names_its_place_and_key(text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        environment_from_table("pt", table(text), "site.toml:7")
    assert error.value.message.startswith("site.toml:7: ")
    assert words in error.value.message


def test_a_recipes_own_table_has_no_name() -> None:
    with pytest.raises(UserError, match=r"r\.toml: environment\.torch = 'x': expected a version"):
        environment_from_table(None, table('kind = "none"\ntorch = "x"'), "r.toml")


def test_all_mistakes_are_found_at_once() -> None:
    text = 'kind = "venv"\ntorch = 2\nbind = []\nbinds = ["/data"]'
    reader = Places(lambda dotted: f"f:{dotted.rpartition('.')[2]}")
    _environment, problems = read_environment(reader, "pt", table(text))
    assert [problem.message.split(": ")[0] for problem in problems] == [
        "f:bind",
        "f:torch",
        "f:kind",
        "f:binds",
    ]


@pytest.mark.parametrize("name", ["none", "a b", "a=b", "-x"])
def test_a_name_that_could_not_be_chosen_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="environments"):
        environment_from_table(name, {"kind": "none"}, "site.toml:1")


def test_paths_are_made_absolute_where_they_are_used() -> None:
    env = {"HOME": "/home/ada", "SCRATCH": "/scratch/ada"}
    spelt = spelt_environment("venv=envs/torch")
    assert spelt is not None
    assert with_absolute_paths(spelt, "/home/ada", env).path == "/home/ada/envs/torch"
    conda = spelt_environment("conda=pytorch")
    assert conda is not None
    assert with_absolute_paths(conda, "/work", env).path == "pytorch"
    image = environment_from_table(
        "pt",
        {
            "kind": "apptainer",
            "image": "$SCRATCH/pt.sif",
            "binds": ["~/data:/data:ro"],
            "python": "python3.11",
        },
        "f:1",
    )
    placed = with_absolute_paths(image, "/work", env)
    assert (placed.image, placed.binds) == ("/scratch/ada/pt.sif", ("/home/ada/data:/data:ro",))
    assert placed.python == "python3.11"


def test_a_conda_environment_may_be_a_variable_alone() -> None:
    conda = environment_from_table("torch", {"kind": "conda", "path": "$TORCH_ENV"}, "config.toml:1")
    assert with_absolute_paths(conda, "/work", {"TORCH_ENV": "/sw/envs/torch/"}).path == "/sw/envs/torch"
    assert with_absolute_paths(conda, "/work", {"TORCH_ENV": "pytorch"}).path == "pytorch"
    with pytest.raises(UserError, match=r"config.toml:1: environments.torch.path = '\$TORCH_ENV'.*not set"):
        with_absolute_paths(conda, "/work", {})


def test_an_unset_variable_in_a_path_is_named() -> None:
    image = environment_from_table("pt", {"kind": "apptainer", "image": "${SCRATCH}/pt.sif"}, "f:1")
    with pytest.raises(UserError, match=r"f:1: environments\.pt\.image = .* the variable SCRATCH is not set"):
        with_absolute_paths(image, "/work", {})
