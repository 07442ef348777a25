"""Environments in a batch script: golden texts per kind, and their behaviour in bash if something is
missing."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
from pathlib import Path
from types import MappingProxyType

import pytest

from coach.launch.activation import activation_lines, exported_names, outermost
from coach.launch.resources import Site
from coach.launch.script import Paths
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from tests.launch.examples import CLUSTER, MACHINE, PATHS, RUN_ID, plan

GOLDEN = Path(__file__).parent / "golden"

NCCL = MappingProxyType({"NCCL_DEBUG": "WARN", "GREETING": "it's $HOME"})

ENVIRONMENTS: dict[str, tuple[Site, str, Environment]] = {
    "venv": (CLUSTER, "/sw/a venv/bin/python", Environment(EnvironmentKind.VENV, path="/sw/a venv")),
    "conda-name": (
        CLUSTER,
        "python",
        Environment(EnvironmentKind.CONDA, path="torch-2.6", modules=("miniforge/24.9",)),
    ),
    "conda-prefix": (
        CLUSTER,
        "/sw/conda/torch/bin/python",
        Environment(EnvironmentKind.CONDA, path="/sw/conda/torch"),
    ),
    "modules": (
        CLUSTER,
        "python3",
        Environment(
            EnvironmentKind.MODULES,
            name="pytorch",
            modules=("cuda/12.4", "pytorch/2.6"),
            setup=("ulimit -l unlimited",),
            variables=NCCL,
            torch="2.6.0",
        ),
    ),
    "apptainer": (
        CLUSTER,
        "python3",
        Environment(
            EnvironmentKind.APPTAINER,
            image="/sw/images/py torch.sif",
            binds=("/scratch", "/sw/data:/data:ro"),
            variables=NCCL,
        ),
    ),
    "apptainer-local": (
        MACHINE,
        "/opt/conda/bin/python",
        Environment(EnvironmentKind.APPTAINER, image="/images/torch.sif"),
    ),
    "pyxis": (
        CLUSTER,
        "python3",
        Environment(
            EnvironmentKind.PYXIS,
            image="/sw/images/torch.sqsh",
            binds=("/scratch", "/sw/data:/data:ro"),
            variables=NCCL,
        ),
    ),
}


def script_of(data: Path, case: str, **request: object) -> str:
    site, python, environment = ENVIRONMENTS[case]
    paths = Paths(PATHS.run_dir, PATHS.code_dir, python, PATHS.cache_dir, data_dir="/sw/data sets")
    if site is CLUSTER:
        request = {"partition": "gpu", "num_nodes": 2, **request}
    return plan(data, site=site, paths=paths, trained_in=environment, **request).script


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_each_kind_of_environment_has_its_golden_script(tmp_path: Path, case: str) -> None:
    """COACH_UPDATE_GOLDEN=1 writes the golden files anew."""
    script = script_of(tmp_path, case)
    file = GOLDEN / f"env-{case}.sh"
    if os.environ.get("COACH_UPDATE_GOLDEN"):
        file.write_text(script)
    assert script == file.read_text()
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "eval" not in script


def test_run_json_names_the_environment_and_the_torch_that_it_needs(tmp_path: Path) -> None:
    _, python, environment = ENVIRONMENTS["modules"]
    paths = Paths(PATHS.run_dir, PATHS.code_dir, python, PATHS.cache_dir)
    record = plan(tmp_path, paths=paths, trained_in=environment, setup=("module list",)).run_json
    assert record["environment"] == {
        "kind": "modules",
        "name": "pytorch",
        "path": None,
        "modules": ["cuda/12.4", "pytorch/2.6"],
        "image": None,
        "binds": [],
        "python": "python3",
        "setup": ["ulimit -l unlimited", "module list"],
        "torch": "2.6.0",
    }
    assert record["requires"] == {}


# The lines of a launch in a real shell, with stand-ins for the site's commands.


def run_bash(
    lines: list[str], folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Lines of a script after the common first lines of every script, with `stop` as defined there."""
    script = plan(folder / "recipes").script
    stop = script[script.index("stop() {") : script.index("\n}\n", script.index("stop() {")) + 3]
    head = f"set -euo pipefail\nRUN_DIR={shlex.quote(str(folder))}\n{stop}"
    return subprocess.run(
        ["bash", "--norc", "-c", head + "\n".join(lines)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "SLURMD_NODENAME": "node7", **(env or {})},
        capture_output=True,
        text=True,
        cwd=folder,
    )


MODULES = """\
module() {
  echo "module $*"
  case "$1 ${2:-}" in
    purge*) LOADEDMODULES='' ;;
    "load broken"*) return 1 ;;
    "load old-and-silent"*) ;;
    load*) export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}$2" ;;
  esac
}
"""


@pytest.fixture
def modules_home(tmp_path: Path) -> dict[str, str]:
    """MODULESHOME of a site whose `module` is defined by an init file, as Lmod's and Environment Modules'
    are."""
    (tmp_path / "home" / "init").mkdir(parents=True)
    (tmp_path / "home" / "init" / "bash").write_text(MODULES)
    return {"MODULESHOME": str(tmp_path / "home")}


def loading(*modules: str) -> list[str]:
    environment = Environment(EnvironmentKind.MODULES, modules=modules)
    return [*activation_lines(environment, (), "true"), 'echo "went on with $LOADEDMODULES"']


def test_modules_are_loaded_one_by_one_after_a_purge(tmp_path: Path, modules_home: dict[str, str]) -> None:
    done = run_bash(loading("cuda/12.4", "pytorch/2.6"), tmp_path, modules_home)
    assert done.stdout.splitlines() == [
        "module purge",
        "module load cuda/12.4",
        "module load pytorch/2.6",
        "went on with cuda/12.4:pytorch/2.6",
    ]


@pytest.mark.parametrize("module", ["broken/1.0", "old-and-silent/3.2"])
def test_a_module_that_cannot_be_loaded_ends_the_job_and_says_which(
    tmp_path: Path, modules_home: dict[str, str], module: str
) -> None:
    done = run_bash(loading("cuda/12.4", module), tmp_path, modules_home)
    assert done.returncode == 78
    assert done.stderr == f"coach: module_not_found: module {module} cannot be loaded on node7\n"
    assert "went on" not in done.stdout
    said = json.loads((tmp_path / "exit.json").read_text())
    assert (said["state"], said["exit_code"]) == ("FAILED", 78)
    assert said["refused"] == {
        "cause": "module_not_found",
        "text": f"module {module} cannot be loaded",
        "node": "node7",
    }


def test_a_module_that_another_one_has_loaded_already_is_no_failure(
    tmp_path: Path, modules_home: dict[str, str]
) -> None:
    home = Path(modules_home["MODULESHOME"], "init", "bash")
    home.write_text(MODULES.replace('"load old-and-silent"*) ;;', '"load pytorch"*) ;;'))
    both = run_bash(loading("pytorch/2.6"), tmp_path, modules_home)
    assert both.returncode == 78
    already = MODULES.replace("LOADEDMODULES=''", "LOADEDMODULES=gcc/12:pytorch/2.6")
    home.write_text(already.replace('"load old-and-silent"*) ;;', '"load pytorch"*) ;;'))
    assert run_bash(loading("pytorch/2.6"), tmp_path, modules_home).returncode == 0


def test_slurm_s_commands_stay_in_reach_when_they_came_from_a_module(
    tmp_path: Path, modules_home: dict[str, str]
) -> None:
    """`module purge` takes them off the PATH, and unsets SLURM_CONF, at sites where Slurm is a module."""
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "srun").write_text("#!/bin/sh\necho srun\n")
    (tmp_path / "slurm" / "srun").chmod(0o755)
    home = Path(modules_home["MODULESHOME"], "init", "bash")
    home.write_text(MODULES.replace("LOADEDMODULES=''", "LOADEDMODULES=''; PATH=/nowhere; unset SLURM_CONF"))
    env = {**modules_home, "PATH": f"{tmp_path}/slurm:/bin", "SLURM_CONF": "/site/slurm.conf"}
    done = run_bash([*loading("cuda/12.4"), "type -P srun; declare -p SLURM_CONF"], tmp_path, env)
    declared = 'declare -x SLURM_CONF="/site/slurm.conf"'
    assert done.stdout.splitlines()[-2:] == [f"{tmp_path}/slurm/srun", declared]


def test_a_venv_is_active_as_its_own_script_would_make_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/true")
    environment = Environment(EnvironmentKind.VENV, path=str(tmp_path))
    lines = activation_lines(environment, (), f"{tmp_path}/bin/python")
    done = run_bash([*lines, 'type -P python; echo "$VIRTUAL_ENV"'], tmp_path)
    assert done.stdout.split() == [f"{tmp_path}/bin/python", str(tmp_path)]


CONDA = """#!/bin/sh
test "$*" = "info --base" && dirname "$(dirname "$0")"
"""


@pytest.mark.parametrize(("name", "status"), [("torch-2.6", 0), ("gone", 78)])
def test_a_conda_environment_is_activated_by_conda_s_own_function(
    tmp_path: Path, name: str, status: int
) -> None:
    (tmp_path / "base" / "bin").mkdir(parents=True)
    (tmp_path / "base" / "etc" / "profile.d").mkdir(parents=True)
    (tmp_path / "base" / "bin" / "conda").write_text(CONDA)
    (tmp_path / "base" / "bin" / "conda").chmod(0o755)
    function = 'conda() { [ "$2" != gone ] && export CONDA_PREFIX="$UNSET/envs/$2"; }\n'
    (tmp_path / "base" / "etc" / "profile.d" / "conda.sh").write_text(function)
    lines = activation_lines(Environment(EnvironmentKind.CONDA, path=name), (), "true")
    env = {"CONDA_EXE": str(tmp_path / "base" / "bin" / "conda")}
    done = run_bash([*lines, 'echo "$CONDA_PREFIX"'], tmp_path, env)
    assert done.returncode == status
    if status:
        assert "coach: conda_not_initialised: the conda environment gone cannot be activated" in done.stderr
    else:
        assert done.stdout == "/envs/torch-2.6\n"


def test_a_node_without_conda_says_so_and_stops(tmp_path: Path) -> None:
    lines = activation_lines(Environment(EnvironmentKind.CONDA, path="torch"), (), "python")
    done = run_bash(lines, tmp_path)
    assert (done.returncode, done.stderr) == (
        78,
        "coach: conda_not_initialised: no conda on the PATH on node7\n",
    )


def test_a_node_that_does_not_see_the_image_says_so_and_stops(tmp_path: Path) -> None:
    (tmp_path / "apptainer").write_text("#!/bin/sh\n")
    (tmp_path / "apptainer").chmod(0o755)
    environment = Environment(EnvironmentKind.APPTAINER, image="/no/such.sif")
    lines = activation_lines(environment, (), "python3")
    done = run_bash(lines, tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 78
    assert done.stderr == "coach: file_not_found: /no/such.sif: no such image on node7\n"
    assert "no apptainer on the PATH" in run_bash(lines, tmp_path).stderr


@pytest.mark.parametrize("text", ["$(touch pwned)", "`touch pwned`", "; touch pwned", "' ; touch pwned; '"])
def test_no_path_or_module_name_runs_as_a_command(
    tmp_path: Path, modules_home: dict[str, str], text: str
) -> None:
    (tmp_path / "apptainer").write_text("#!/bin/sh\n")
    (tmp_path / "apptainer").chmod(0o755)
    env = {**modules_home, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for environment in (
        Environment(EnvironmentKind.VENV, path=f"/x{text}"),
        Environment(EnvironmentKind.CONDA, path=f"/x{text}"),
        Environment(EnvironmentKind.MODULES, modules=(f"broken{text}",)),
        Environment(EnvironmentKind.APPTAINER, image=f"/x{text}"),
    ):
        done = run_bash(activation_lines(environment, (), f"/x{text}"), tmp_path, env)
        assert done.returncode == 78, done.stderr
        assert text.strip("'") in done.stderr
        json.loads((tmp_path / "exit.json").read_text())
    assert not (tmp_path / "pwned").exists()


# Containers: the bound paths, and the step as Pyxis' own parser reads it.


def inside(script: str) -> list[str]:
    """The words of the array INSIDE, as bash makes them."""
    array = script[script.index("INSIDE=(") : script.index(")\n", script.index("INSIDE=(")) + 2]
    head = "CONTAINER=apptainer\n" + next(line for line in script.splitlines() if line.startswith("IMAGE="))
    done = subprocess.run(
        ["bash", "-euc", f'{head}\n{array}printf "%s\\n" "${{INSIDE[@]}}"'], capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_apptainer_binds_runs_code_data_and_cache_and_gpus_only_where_there_are_some(tmp_path: Path) -> None:
    words = inside(script_of(tmp_path, "apptainer"))
    assert words[:3] == ["apptainer", "exec", "--nv"]
    assert words[-1] == "/sw/images/py torch.sif"
    assert words[3:-1] == [
        *("--bind", "/runs"),
        *("--bind", "/home/a user/.cache/coach"),
        *("--bind", "/sw/data sets"),
        *("--bind", "/scratch"),
        *("--bind", "/sw/data:/data:ro"),
    ]
    assert "--nv" not in inside(script_of(tmp_path, "apptainer-local"))


def test_a_checkpoint_to_resume_from_is_bound_as_well(tmp_path: Path) -> None:
    script = script_of(tmp_path, "apptainer", resume_from="/elsewhere/run/checkpoints/step-00000040.pt")
    assert "/elsewhere/run/checkpoints" in inside(script)
    own = script_of(tmp_path, "apptainer", resume_from=f"{PATHS.run_dir}/checkpoints/step-00000040.pt")
    assert f"{PATHS.run_dir}/checkpoints" not in inside(own)


def test_a_path_that_a_container_cannot_be_given_is_refused(tmp_path: Path) -> None:
    odd = Paths("/runs,more/" + RUN_ID, PATHS.code_dir, "python3", PATHS.cache_dir)
    with pytest.raises(UserError, match="comma or a colon"):
        plan(tmp_path, paths=odd, trained_in=ENVIRONMENTS["pyxis"][2])


def test_the_script_s_variables_win_over_the_image_s_own(tmp_path: Path) -> None:
    """Apptainer takes APPTAINERENV_NAME over the image's NAME; with Pyxis the image wins unless a name is
    listed."""
    script = script_of(tmp_path, "apptainer")
    (loop,) = [line for line in script.splitlines() if line.startswith("for NAME in ")]
    names = loop.removeprefix("for NAME in ").removesuffix("; do").split()
    wanted = {"OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT", "NCCL_DEBUG", "GREETING", "PYTHONNOUSERSITE"}
    assert wanted <= set(names)
    assert not {"PATH", "HOME", "VIRTUAL_ENV"} & set(names)
    (option,) = [word for word in inside(script_of(tmp_path, "pyxis")) if "--container-env=" in word]
    assert set(option.removeprefix("--container-env=").split(",")) == set(names)


def test_exported_names_are_those_of_the_shell_and_not_those_inside_a_value() -> None:
    lines = [
        "# export COMMENT=1",
        "export A=1 B='x; export EVIL=2'",
        "export PORT=$((20000 + JOB % 10000))",
        "export HOSTS=${LIST%%$'\\n'*}",
    ]
    assert exported_names(lines) == ["A", "B", "PORT", "HOSTS"]


def test_a_folder_below_another_is_bound_once() -> None:
    assert outermost(["/runs", "/runs/.code/0", "/runs2", "/runs"]) == ["/runs", "/runs2"]


def pyxis_options() -> argparse.ArgumentParser:
    """The options of Pyxis 0.20's `srun --help`, read as its SPANK plugin reads them, beside those of srun
    that a step uses."""
    parser = argparse.ArgumentParser(prog="srun", allow_abbrev=False)
    for name in ("image", "mounts", "workdir", "name", "save", "env"):
        parser.add_argument(f"--container-{name}")
    for name in ("mount-home", "remap-root", "entrypoint"):
        parser.add_argument(f"--container-{name}", action="store_true")
        parser.add_argument(f"--no-container-{name}", action="store_true")
    for name in ("entrypoint-log", "writable", "readonly"):
        parser.add_argument(f"--container-{name}", action="store_true")
    for name in ("kill-on-bad-exit", "wait"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def test_pyxis_understands_the_step_as_it_is_meant(tmp_path: Path) -> None:
    script = script_of(tmp_path, "pyxis")
    step = script[script.index("\nsrun ") : script.index(" &\nTRAINING")].replace("\\\n", "")
    words = shlex.split(step.replace('"${INSIDE[@]}"', shlex.join(inside(script))))
    step_options = pyxis_options().parse_args(words[1:])
    assert step_options.container_image == "/sw/images/torch.sqsh"
    mounts = [mount.split(":") for mount in step_options.container_mounts.split(",")]
    assert mounts == [
        ["/runs", "/runs"],
        ["/home/a user/.cache/coach", "/home/a user/.cache/coach"],
        ["/sw/data sets", "/sw/data sets"],
        ["/scratch", "/scratch"],
        ["/sw/data", "/data", "ro"],
    ]
    assert step_options.command[:4] == ["$PYTHON", "-E", "$CODE/coach/node", "run"]


def test_the_batch_script_itself_stays_outside_of_a_pyxis_image(tmp_path: Path) -> None:
    """An #SBATCH line with the image would put it inside, where scontrol and scancel are missing."""
    script = script_of(tmp_path, "pyxis")
    assert not [line for line in script.splitlines() if line.startswith("#SBATCH") and "container" in line]
    (last,) = [line for line in script.splitlines() if '"$CODE/coach/node" ended' in line]
    assert last.startswith('"${RECORD[@]}" ')
