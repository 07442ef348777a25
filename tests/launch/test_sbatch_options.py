"""Demands of a site's sbatch: the forms of a request for GPUs and CPUs, and the config values that give way
to options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from tests.launch.examples import CLUSTER, MACHINE, plan
from tests.launch.relaunches import asked_again

GPU = {"partition": "gpu", "gpu_type": "a100"}


def asked(made: Plan) -> dict[str, str]:
    """The options of the script's #SBATCH lines."""
    lines = [line.split(" #")[0] for line in made.script.splitlines() if line.startswith("#SBATCH --")]
    pairs = [line.removeprefix("#SBATCH --").strip().partition("=") for line in lines]
    return {key: value for key, _, value in pairs}


def test_gpus_are_asked_for_in_the_spelling_that_the_site_knows(tmp_path: Path) -> None:
    usual = asked(plan(tmp_path, **GPU))
    assert (usual["gpus-per-node"], "gres" in usual) == ("a100:2", False)
    spelt = asked(plan(tmp_path, **GPU, gpu_request="gres"))
    assert (spelt["gres"], "gpus-per-node" in spelt) == ("gpu:a100:2", False)
    untyped = asked(plan(tmp_path, partition="gpu", gpu_request="gres", gpus_per_node=4))
    assert untyped["gres"] == "gpu:4"


def test_other_generic_resources_stand_in_one_option_with_the_gpus(tmp_path: Path) -> None:
    both = plan(tmp_path, **GPU, gpu_request="gres", sbatch={"gres": "lustre:1", "comment": "x"})
    assert asked(both)["gres"] == "gpu:a100:2,lustre:1"
    assert both.script.count("--gres=") == 1
    assert asked(plan(tmp_path, sbatch={"gres": "lustre:1"}))["gres"] == "lustre:1"


def test_a_launch_without_gpus_has_no_gpu_option_in_either_spelling(tmp_path: Path) -> None:
    options = asked(plan(tmp_path, partition="gpu", gpus_per_node=0, gpu_request="gres"))
    assert not {"gres", "gpus-per-node"} & set(options)


def test_cpus_per_gpu_are_asked_for_instead_of_cpus_per_task(tmp_path: Path) -> None:
    made = plan(tmp_path, **GPU, cpus_per_gpu=4)
    options = asked(made)
    assert (options["cpus-per-gpu"], "cpus-per-task" in options) == ("4", False)
    assert made.resources.cpus_per_task == 8
    assert "export OMP_NUM_THREADS=2\n" in made.script  # 8 CPUs, 2 ranks with 2 workers each
    assert "SRUN_CPUS_PER_TASK" not in made.script


def test_gpm_is_measured_when_it_is_asked_for_and_there_are_gpus_and_said_in_the_plan(tmp_path: Path) -> None:
    made = plan(tmp_path, **GPU, has_gpm=True)
    assert 'node" run --run-dir "$RUN_DIR" --gpm -- ' in made.script
    assert any("DRAM activity are measured" in note for note in made.notes)
    assert made.run_json["launch"]["has_gpm"] is True
    assert asked_again(made.run_json["launch"], "ddp").has_gpm is True, "a relaunch asks for the same"
    on_cpus = plan(tmp_path, gpus_per_node=0, has_gpm=True)
    assert "--gpm" not in on_cpus.script
    assert "no GPU: GPM has nothing to measure" in on_cpus.notes
    usual = plan(tmp_path, **GPU)
    assert "--gpm" not in usual.script
    assert "has_gpm" not in usual.run_json["launch"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({**GPU, "cpus_per_gpu": 4, "cpus_per_task": 8}, "either this or --cpus-per-task 8"),
        ({**GPU, "cpus_per_gpu": 9}, "18 for 2 GPUs; partition gpu has 16 CPUs per node"),
        ({**GPU, "cpus_per_gpu": 0}, "--cpus-per-gpu 0: must be at least 1"),
        ({**GPU, "gpu_request": "gpus"}, "--gpu-request gpus: not a way to request GPUs"),
        ({**GPU, "sbatch": {"gres": "gpu:a100:2"}}, "--gpus and --gpu-type request GPUs"),
        ({"sbatch": {"exclude": "node1"}}, "coach has an option of its own"),
        ({"sbatch": {"cpus-per-gpu": "1"}}, "coach has an option of its own"),
    ],
)
def test_contradictory_sbatch_options_are_refused(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan(tmp_path, **said)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({"cpus_per_gpu": 4, "cpus_per_task": 8, "defaulted": {"cpus_per_task"}}, {"cpus-per-gpu": "4"}),
        ({"cpus_per_gpu": 4, "cpus_per_task": 8, "defaulted": {"cpus_per_gpu"}}, {"cpus-per-task": "8"}),
        ({"cpus_per_gpu": 4, "gpus_per_node": 0, "num_nodes": 2}, {"cpus-per-task": "3"}),
    ],
)
def test_cpus_of_the_config_yield_to_those_that_were_said(
    tmp_path: Path, said: dict[str, Any], options: dict[str, str]
) -> None:
    made = asked(plan(tmp_path, partition="gpu", **said))
    assert {key: value for key, value in made.items() if key.startswith("cpus-")} == options


@pytest.mark.parametrize("site", [CLUSTER, MACHINE])
def test_a_type_of_gpu_in_the_config_is_no_reason_to_refuse_a_launch_on_cpus(
    tmp_path: Path, site: Site
) -> None:
    made = plan(tmp_path, site=site, gpu_type="a100", defaulted={"gpu_type"})
    assert made.resources.gpu_type is None
    with pytest.raises(UserError, match="has none of that type"):
        plan(tmp_path, site=site, gpu_type="a100")


def test_a_gpu_type_of_another_partition_is_left_out_with_a_note(tmp_path: Path) -> None:
    made = plan(tmp_path, partition="gpu", gpu_type="h100", defaulted={"gpu_type"})
    assert asked(made)["gpus-per-node"] == "2"
    assert "partition gpu has no h100: the config's GPU type is not requested" in made.notes


def test_an_emptied_option_asks_for_nothing_although_the_config_has_one(tmp_path: Path) -> None:
    assert "reservation" not in asked(plan(tmp_path, reservation=""))


def test_a_plan_knows_the_partitions_and_the_types_of_gpu_to_choose_from(tmp_path: Path) -> None:
    assert plan(tmp_path).choices == {"partition": ("cpu", "gpu"), "gpu_type": ()}
    assert plan(tmp_path, partition="gpu").choices["gpu_type"] == ("a100",)
