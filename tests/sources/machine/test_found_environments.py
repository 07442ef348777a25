"""Environments are found by their files: nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.sources.machine.found_environments import (
    MAX_PREFIXES,
    ModuleSystem,
    find_conda_prefixes,
    find_images,
    find_module_system,
)


def test_conda_s_own_list_is_read_and_deleted_environments_are_left_out(tmp_path: Path) -> None:
    for name in ("base", "torch"):
        (tmp_path / name / "conda-meta").mkdir(parents=True)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{tmp_path}/base\n{tmp_path}/gone\n\nrubbish\n")
    prefixes, num_more = find_conda_prefixes(tmp_path, {"CONDA_PREFIX": f"{tmp_path}/torch"})
    assert prefixes == [tmp_path / "torch", tmp_path / "base"]
    assert num_more == 0


def test_a_very_long_list_of_environments_is_cut(tmp_path: Path) -> None:
    names = [tmp_path / f"e{number}" for number in range(MAX_PREFIXES + 5)]
    for name in names:
        (name / "conda-meta").mkdir(parents=True)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text("".join(f"{name}\n" for name in names))
    prefixes, num_more = find_conda_prefixes(tmp_path, {})
    assert (len(prefixes), num_more) == (MAX_PREFIXES, 5)


def test_images_are_found_where_they_lie_and_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    for name in ("torch.sif", "nemo.sqsh", "notes.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_images([tmp_path, tmp_path, tmp_path / "none"])] == [
        "nemo.sqsh",
        "torch.sif",
    ]


@pytest.mark.parametrize(
    ("env", "system"),
    [
        ({"LMOD_CMD": "/l/lmod", "LMOD_VERSION": "8.7"}, ModuleSystem("Lmod", "8.7", None)),
        ({"LMOD_CMD": "/l/lmod"}, ModuleSystem("Lmod", None, None)),
        ({"MODULESHOME": "/apps/Lmod/8.7"}, ModuleSystem("Lmod", None, None)),
        ({"MODULESHOME": "/usr/share/modules"}, ModuleSystem("Environment Modules", None, None)),
        ({}, None),
    ],
)
def test_a_login_shell_names_its_module_system(env: dict[str, str], system: ModuleSystem | None) -> None:
    assert find_module_system(env, init_files=()) == system


def test_without_a_login_shell_the_file_that_a_script_would_source_is_named(tmp_path: Path) -> None:
    init = tmp_path / "lmod.sh"
    init.touch()
    assert find_module_system({}, [str(tmp_path / "no.sh"), str(init)]) == ModuleSystem(
        "Lmod", None, str(init)
    )
