"""Plans: every default filled in as documented, everything that cannot be refused before it is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.launch.recipe import get_recipe
from coach.launch.resources import Site, resolve_resources
from coach.launch.script import Paths
from coach.model.errors import UserError
from coach.model.launching.launch import AppliedFix, LaunchRequest, Resources
from coach.model.slurm.cluster import GpuCount
from tests.launch.examples import CLUSTER, MACHINE, PATHS, node, partition, plan

SMALL_JOBS = replace(CLUSTER, partitions=tuple(replace(each, max_nodes=1) for each in CLUSTER.partitions))
ONE_EACH = Site("slurm", (partition("gpu", 1, 1),), (node("node1", ("gpu",), 1, 1),))


@pytest.mark.parametrize(
    ("name", "site", "said", "expected"),
    [
        ("baseline", CLUSTER, {}, (1, 0, 1)),
        ("ddp", CLUSTER, {}, (1, 0, 2)),
        ("ddp", CLUSTER, {"num_nodes": 2}, (2, 0, 1)),
        ("baseline", CLUSTER, {"partition": "gpu"}, (1, 1, 1)),
        ("ddp", CLUSTER, {"partition": "gpu"}, (1, 2, 2)),
        ("ddp", CLUSTER, {"partition": "gpu", "num_nodes": 2, "gpus_per_node": 4}, (2, 4, 4)),
        ("ddp", CLUSTER, {"partition": "gpu", "gpus_per_node": 0}, (1, 0, 2)),
        ("ddp", CLUSTER, {"partition": "gpu", "nproc_per_node": 3}, (1, 3, 3)),
        ("ddp", MACHINE, {}, (1, 0, 2)),
        ("ddp", MACHINE, {"nproc_per_node": 1}, (1, 0, 1)),
    ],
)
def test_default_nodes_gpus_and_ranks_are_as_documented(
    tmp_path: Path, name: str, site: Site, said: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    resources = plan(tmp_path, name, site, **said).resources
    assert (resources.num_nodes, resources.gpus_per_node, resources.nproc_per_node) == expected


def test_one_gpu_per_node_is_used_where_the_partition_has_no_more(tmp_path: Path) -> None:
    site = Site("slurm", (partition("cpu", 1, gpus=1),), (node("n1", ("cpu",), gpus=1),))
    assert plan(tmp_path, site=site).resources.gpus_per_node == 1


def test_a_cpu_partition_whose_nodes_have_gpus_launches_on_cpus_and_says_so(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert made.notes == ("partition cpu has no GPUs: 2 CPU ranks over gloo",)
    assert made.warnings == ()


def test_cpus_are_one_per_rank_and_worker_capped_by_the_node(tmp_path: Path) -> None:
    assert plan(tmp_path).resources.cpus_per_task == 6
    assert plan(tmp_path, set={"num_workers": 0}).resources.cpus_per_task == 2
    capped = plan(tmp_path, site=MACHINE)
    assert capped.resources.cpus_per_task == 2
    assert "6 processes per node (2 × (1 + 2 workers)) share 2 CPUs" in capped.notes
    assert plan(tmp_path, cpus_per_task=9).resources.cpus_per_task == 9


@pytest.mark.parametrize(
    ("time_limit_s", "signal"), [(1800, "USR1@120"), (240, "USR1@60"), (120, "USR1@30"), (119, None)]
)
def test_the_checkpoint_signal_comes_in_good_time_or_not_at_all(
    tmp_path: Path, time_limit_s: int, signal: str | None
) -> None:
    assert plan(tmp_path, time_limit_s=time_limit_s).resources.signal == signal


def test_a_recipe_s_own_time_limit_yields_to_the_partition_s(tmp_path: Path) -> None:
    site = Site("slurm", (partition("cpu", limit_s=600),), CLUSTER.nodes)
    made = plan(tmp_path, site=site)
    assert made.resources.time_limit_s == 600
    assert "time limit 00:10:00: the most that partition cpu allows" in made.notes


def test_options_of_a_scheduler_are_left_out_on_this_machine(tmp_path: Path) -> None:
    made = plan(tmp_path, site=MACHINE, partition="gpu", account="lab", sbatch={"comment": "x"})
    assert made.resources.partition is None
    assert made.resources.account is None
    assert "this machine has no scheduler: partition, account, sbatch comment not used" in made.notes


def test_idle_gpus_are_a_warning(tmp_path: Path) -> None:
    made = plan(tmp_path, partition="gpu", gpus_per_node=4, nproc_per_node=3)
    assert made.warnings == ("3 ranks on 4 GPUs per node: 1 of them will be idle",)


@pytest.mark.parametrize(
    ("name", "site", "said", "words"),
    [
        ("ddp", CLUSTER, {"num_nodes": 4}, "--nodes 4: partition cpu has 3"),
        ("ddp", CLUSTER, {"num_nodes": 0}, "--nodes 0: must be at least 1"),
        ("ddp", CLUSTER, {"partition": "gpus"}, "--partition gpus: there is no such partition"),
        (
            "ddp",
            CLUSTER,
            {"partition": "gpu", "gpus_per_node": 5},
            "--gpus 5: partition gpu has 4 GPUs per node",
        ),
        ("ddp", MACHINE, {"gpus_per_node": 1}, "--gpus 1: this machine has no GPUs"),
        ("ddp", MACHINE, {"num_nodes": 2}, "--nodes 2: the local backend is one machine"),
        ("ddp", MACHINE, {"nproc_per_node": 3}, "--nproc-per-node 3: this machine has 2 CPUs per node"),
        ("ddp", CLUSTER, {"cpus_per_task": 17}, "--cpus-per-task 17: partition cpu has 16 CPUs per node"),
        ("ddp", CLUSTER, {"time_limit_s": 3601}, "--time 01:00:01: partition cpu allows at most 01:00:00"),
        ("ddp", CLUSTER, {"mem": "63G"}, "--mem 63G: partition cpu has 64000 MiB per node"),
        ("ddp", CLUSTER, {"mem": "lots"}, "--mem 'lots': not a memory size"),
        (
            "ddp",
            SMALL_JOBS,
            {"partition": "cpu", "num_nodes": 2},
            "--nodes 2: partition cpu allows at most 1 per job",
        ),
        ("ddp", SMALL_JOBS, {"partition": "cpu", "num_nodes": 4}, "--nodes 4: partition cpu has 3"),
        ("ddp", CLUSTER, {"partition": "gpu", "gpu_type": "h100"}, "--gpu-type h100: partition gpu has none"),
        (
            "ddp",
            CLUSTER,
            {"partition": "gpu", "nproc_per_node": 5},
            "--nproc-per-node 5: partition gpu has 4 GPUs",
        ),
        (
            "ddp",
            CLUSTER,
            {"partition": "gpu", "gpus_per_node": 2, "nproc_per_node": 4},
            "two ranks cannot share one",
        ),
        ("ddp", ONE_EACH, {"partition": "gpu", "gpus_per_node": 2}, "partition gpu has 1 GPU per node"),
        ("ddp", ONE_EACH, {"partition": "gpu", "cpus_per_task": 2}, "partition gpu has 1 CPU per node"),
        ("ddp", CLUSTER, {"signal": "USR1@1800"}, "the time limit is 1800 s"),
        ("ddp", CLUSTER, {"signal": "KILL@5"}, "not a signal that the trainers know"),
        ("baseline", CLUSTER, {"num_nodes": 2}, "recipe baseline uses a single device"),
        ("baseline", CLUSTER, {"nproc_per_node": 2}, "recipe baseline uses a single device"),
        (
            "baseline",
            CLUSTER,
            {"partition": "gpu", "gpus_per_node": 2},
            "recipe baseline uses a single device",
        ),
    ],
)
def test_resources_that_the_target_lacks_are_refused_before_the_submission(
    tmp_path: Path, name: str, site: Site, said: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan(tmp_path, name, site, **said)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("changes", "said", "got", "words"),
    [
        ({"time": "05:00:00"}, {"time_limit_s": 18_000}, (3600, None), "the most that partition cpu allows"),
        ({"mem": "99G"}, {"mem": "99G"}, (1800, "64000M"), "64000 MiB per node, all that partition cpu has"),
        ({"mem": "9G"}, {"mem": "9G"}, (1800, "9G"), None),
    ],
)
def test_a_fix_beyond_the_partition_s_size_gets_all_of_it_and_a_note(
    tmp_path: Path,
    changes: dict[str, str],
    said: dict[str, Any],
    got: tuple[int, str | None],
    words: str | None,
) -> None:
    made = plan(tmp_path, fix=AppliedFix("JOB002", "more", changes), **said)
    assert (made.resources.time_limit_s, made.resources.mem) == got
    assert [words in line for line in made.warnings if words] == ([True] if words else [])


def test_a_fix_that_needs_more_cpus_than_a_node_has_gets_all_of_them(tmp_path: Path) -> None:
    fix = AppliedFix("GPU005", "more", {"cpus_per_task": 999})
    made = plan(tmp_path, fix=fix, cpus_per_task=999)
    most = made.resources.cpus_per_task
    assert most == CLUSTER.nodes[0].num_cpus
    assert f"{most} CPUs per node, all that partition cpu has: the fix asks for 999" in made.warnings
    with pytest.raises(UserError, match=f"--cpus-per-task 999: partition cpu has {most} CPUs per node"):
        plan(tmp_path, cpus_per_task=999)


def test_two_nodes_with_four_gpus_are_refused_where_only_one_has_them(tmp_path: Path) -> None:
    nodes = (node("n1", ("gpu",), gpus=4), node("n2", ("gpu",), gpus=2))
    site = Site("slurm", (partition("gpu", 2, gpus=4),), nodes)
    with pytest.raises(UserError, match="1 of 2 nodes in partition gpu have that many GPUs"):
        plan(tmp_path, site=site, partition="gpu", num_nodes=2, gpus_per_node=4)
    assert plan(tmp_path, site=site, partition="gpu", num_nodes=2).resources.gpus_per_node == 2


def test_a_misspelt_type_of_gpu_is_named_also_beside_a_number_of_gpus(tmp_path: Path) -> None:
    counts = (GpuCount("a100", 4, 0), GpuCount("v100", 2, 0))
    site = replace(CLUSTER, nodes=tuple(replace(each, gpus=counts) for each in CLUSTER.nodes))
    with pytest.raises(UserError, match="--gpu-type A100: partition gpu has none of that type") as refused:
        plan(tmp_path, site=site, partition="gpu", gpus_per_node=2, gpu_type="A100")
    assert refused.value.hint == "did you mean a100?"
    with pytest.raises(UserError, match="--gpus 4: partition gpu has 2 GPUs of type v100 per node"):
        plan(tmp_path, site=site, partition="gpu", gpus_per_node=4, gpu_type="v100")


def resources_of(recipe: str, parameters: dict[str, int], **said: int | str) -> Resources:
    """The request of a shipped recipe in the example cluster."""
    return resolve_resources(LaunchRequest(recipe, **said), get_recipe(recipe), parameters, CLUSTER).resources  # type: ignore[arg-type]


def test_one_process_may_have_all_gpus_of_a_node() -> None:
    asked = resources_of("data_parallel", {}, partition="gpu", gpus_per_node=4)
    assert (asked.num_nodes, asked.gpus_per_node, asked.nproc_per_node) == (1, 4, 1)
    assert resources_of("data_parallel", {}, partition="gpu").gpus_per_node == 2
    with pytest.raises(UserError, match="recipe data_parallel uses one process"):
        resources_of("data_parallel", {}, nproc_per_node=2)


def test_a_recipe_that_needs_eight_ranks_gets_them_on_as_many_nodes_as_are_asked_for() -> None:
    assert resources_of("parallel_3d", {}).nproc_per_node == 8
    assert resources_of("parallel_3d", {}, num_nodes=2).nproc_per_node == 4
    assert resources_of("parallel_3d", {}, nproc_per_node=2).nproc_per_node == 2


def test_asking_for_the_ranks_that_would_start_anyway_is_taken() -> None:
    """On CPUs the recipe's own number of ranks starts though the nodes have fewer CPUs; more than either is
    refused."""
    few_cpus = replace(CLUSTER, nodes=tuple(replace(node, num_cpus=2) for node in CLUSTER.nodes))
    unasked, asked = (
        resolve_resources(request, get_recipe("parallel_3d"), {}, few_cpus).resources
        for request in (LaunchRequest("parallel_3d"), LaunchRequest("parallel_3d", nproc_per_node=8))
    )
    assert asked == unasked
    assert (asked.nproc_per_node, asked.cpus_per_task) == (8, 2)
    with pytest.raises(UserError, match=r"--nproc-per-node 9: .* has 2 CPUs per node"):
        resolve_resources(
            LaunchRequest("parallel_3d", nproc_per_node=9), get_recipe("parallel_3d"), {}, few_cpus
        )


def test_ranks_that_a_trainer_starts_itself_have_their_cpus() -> None:
    resources = resources_of("mpi_allreduce", {"ranks": 3, "num_workers": 1})
    assert (resources.nproc_per_node, resources.cpus_per_task) == (1, 6)


@pytest.mark.parametrize("recipe", ["mpi_allreduce", "horovod_cnn"])
def test_a_trainer_that_starts_its_ranks_itself_has_one_for_each_gpu(recipe: str) -> None:
    given = {"ranks": 0, "num_workers": 1}
    on_cpus = resources_of(recipe, given, partition="cpu")
    assert (on_cpus.gpus_per_node, on_cpus.cpus_per_task) == (0, 4)
    on_gpus = resources_of(recipe, given, partition="gpu")
    assert (on_gpus.gpus_per_node, on_gpus.nproc_per_node, on_gpus.cpus_per_task) == (2, 1, 4)
    assert resources_of(recipe, given, partition="gpu", gpus_per_node=4).cpus_per_task == 8
    assert resources_of(recipe, {"ranks": 3}, partition="gpu").gpus_per_node == 3
    with pytest.raises(UserError, match="ranks = 3: 2 GPUs per node; two ranks cannot share one"):
        resources_of(recipe, {"ranks": 3}, partition="gpu", gpus_per_node=2)


HOSTILE = [
    "x\n#SBATCH --uid=0",
    "x\rtouch /tmp/x",
    "\x1b[31m",
    "a\u2028b",
    "a\u202eb",
    "a'b",
    'a"b',
    "a\\b",
    " ",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "option", ["account", "qos", "reservation", "constraint", "exclude", "mem", "partition"]
)
def test_no_option_can_leave_its_sbatch_line(tmp_path: Path, option: str, text: str) -> None:
    with pytest.raises(UserError):
        plan(tmp_path, **{option: text})


@pytest.mark.parametrize("text", ["x\ny", "\x1b]0;x\x07", "a\u2028b"])
@pytest.mark.parametrize("field", ["setup", "env", "python", "resume_from", "sbatch"])
def test_no_control_character_gets_into_the_script(tmp_path: Path, field: str, text: str) -> None:
    values = {"setup": (text,), "env": {"A": text}, "sbatch": {"comment": text}}
    with pytest.raises(UserError, match="control character"):
        plan(tmp_path, **{field: values.get(field, text)})


@pytest.mark.parametrize("key", ["a b", "x\n#SBATCH --y", "", "-x", "Comment", "comment=1"])
def test_an_sbatch_key_is_a_long_option_s_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError, match="not an option of sbatch"):
        plan(tmp_path, sbatch={key: "1"})


@pytest.mark.parametrize("key", ["time", "output", "wrap", "array", "ntasks"])
def test_an_sbatch_key_that_the_script_relies_on_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"--sbatch {key}"):
        plan(tmp_path, sbatch={key: "1"})


def test_a_runs_root_that_cannot_be_quoted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quotes and backslashes"):
        plan(tmp_path, paths=Paths("/o'hara/run", PATHS.code_dir, PATHS.python, PATHS.cache_dir))


def test_gpus_of_a_named_partition_for_cpus_are_taken_where_its_nodes_have_them(tmp_path: Path) -> None:
    made = plan(tmp_path, "baseline", CLUSTER, partition="cpu", gpus_per_node=1)
    assert made.resources.gpus_per_node == 1
