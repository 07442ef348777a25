"""A person's own script, command or batch file: told from a recipe, planned, and started as it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.own_program import is_own, own_request, read_own_program
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import recipe_of
from coach.launch.record import request_from, said
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan
from tests.launch.examples import CLUSTER, MACHINE, PATHS, RUN_ID

BATCH = """#!/bin/bash -l
#SBATCH --time=0:30:00 -N 2   # half an hour
#SBATCH --gres=gpu:a100:4 --mem 64G

#SBATCH --ntasks-per-node 4
srun python train.py --batch_size 32 "$@"
#SBATCH --time=9:00:00
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "job.sbatch").write_text(BATCH)
    return tmp_path


def own(home: Path, what: str | None, *behind: str, offers: tuple[str, ...] = ()) -> OwnProgram:
    return read_own_program(str(home / what) if what else None, behind, home, offers)


def planned(program: OwnProgram, site: Site = CLUSTER, **request: object) -> Plan:
    asked = own_request(program, LaunchRequest("", **request))  # type: ignore[arg-type]
    facts = Facts(replace(PATHS, own_python="/coach/bin/python"), "anna", 1795271000.0, "0.1.0", None)
    return make_plan(asked, recipe_of(asked), site, facts, RUN_ID)


def training(plan: Plan) -> str:
    """The command of the script, its words in one line."""
    lines = plan.script.replace(" \\\n  ", " ").splitlines()
    return next(line for line in lines if line.endswith(" &")).removesuffix(" &")


def test_a_recipe_s_name_and_a_toml_are_no_own_programs(home: Path) -> None:
    assert [is_own(what) for what in ("ddp", "x.toml", str(home))] == [False] * 3
    assert [is_own(what) for what in (None, str(home / "train.py"), "gone.py", "-")] == [True] * 4


def test_each_kind_is_told_by_its_file(home: Path) -> None:
    (home / "start").write_text("#!/bin/sh\n")
    (home / "slurm.py").write_text("#!/usr/bin/python3\n#SBATCH --time=1\n")
    kinds = [own(home, what).kind for what in ("train.py", "job.sbatch", "start", "slurm.py")]
    assert kinds == [OwnKind.SCRIPT, OwnKind.BATCH, OwnKind.COMMAND, OwnKind.BATCH]
    assert own(home, None, "torchrun", "train.py").kind is OwnKind.COMMAND


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo no first line\n", "does not name an interpreter"),
        ("#!/bin/sh\r\n#SBATCH --time=1\r\n", "lines end as on DOS"),
        ("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n", "heterogeneous"),
        ("#!/bin/sh\n#SBATCH -a 1-x\n", "--array=1-x: not a list of tasks"),
        ("#!/bin/sh\n#SBATCH --time=1\nCOACH_BATCH_FILE\n", "COACH_BATCH_FILE"),
    ],
)
def test_a_batch_file_that_coach_cannot_keep_as_a_run_is_refused_in_words(
    home: Path, text: str, words: str
) -> None:
    (home / "job.sh").write_bytes(text.encode())
    with pytest.raises(UserError, match=words):
        own(home, "job.sh")


@pytest.mark.parametrize(
    ("what", "offers", "words"),
    [
        ("-", (), "standard input"),
        ("gone.py", (), "no such file"),
        (None, (), "was expected"),
        ("train.py", ("magic",), "no such offer"),
        ("job.sbatch", ("torchrun",), "cannot put torchrun into a batch file"),
    ],
)
def test_what_cannot_be_launched_is_said(
    home: Path, what: str | None, offers: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        read_own_program(what if what in (None, "-") else str(home / what), (), home, offers)


def test_a_script_runs_as_its_author_would_start_it(home: Path) -> None:
    plan = planned(own(home, "train.py", "--lr", "1e-4", "--note", "it's"), MACHINE)
    command = f"{home}/train.py --lr 1e-4 --note 'it'\"'\"'s'"
    assert training(plan) == f'${{MEASURED[@]+"${{MEASURED[@]}}"}} "$PYTHON" {command}'
    assert f"cd -- {home} ||" in plan.script
    assert plan.script.index('umask "$MASK"') < plan.script.index(command)
    assert plan.parameters == {"lr": 1e-4}
    for forced in ("OMP_NUM_THREADS", "TORCH_FR_BUFFER_SIZE", "PET_SIGNALS", "--signal", "USR1@"):
        assert forced not in plan.script


def test_ranks_are_an_offer_to_a_script_and_none_to_a_command(home: Path) -> None:
    one = planned(own(home, "train.py"), gpus_per_node=4, partition="gpu")
    assert "torch.distributed.run" not in one.script
    assert one.resources.nproc_per_node == 1
    offered = planned(own(home, "train.py", offers=("torchrun",)), gpus_per_node=4, partition="gpu")
    assert "--nproc-per-node=4" in training(offered)
    assert offered.notes[0] == "your script, started by torchrun: 4 ranks on 1 node, 4 GPUs per node"
    asked = planned(own(home, "train.py"), nproc_per_node=2, num_nodes=2, partition="gpu")
    assert '--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"' in training(asked)
    with pytest.raises(UserError, match="coach starts a command as it stands"):
        planned(own(home, None, "python", "train.py"), nproc_per_node=2, partition="gpu")


def test_a_command_stands_there_word_for_word_behind_srun(home: Path) -> None:
    plan = planned(own(home, None, "accelerate", "launch", "train.py", "--lr", "$HOME"), num_nodes=2)
    assert training(plan).endswith("accelerate launch train.py --lr '$HOME'")
    assert training(plan).startswith("srun ")
    assert "export MASTER_ADDR=" in plan.script
    assert plan.recipe == "train"


def test_a_gpu_brings_its_share_of_the_node_s_cpus(home: Path) -> None:
    asked = {gpus: planned(own(home, "train.py"), gpus_per_node=gpus, partition="gpu") for gpus in (1, 4)}
    assert {gpus: plan.resources.cpus_per_task for gpus, plan in asked.items()} == {1: 4, 4: 16}


def test_each_offer_adds_what_it_says(home: Path) -> None:
    offers = ("signal", "flight-recorder", "faulthandler")
    plan = planned(own(home, "train.py", offers=offers), time_limit_s=600)
    assert "#SBATCH --signal=B:USR1@120" in plan.script
    assert "export TORCH_FR_BUFFER_SIZE=2000" in plan.script
    assert "export PYTHONFAULTHANDLER=1" in plan.script
    with pytest.raises(UserError, match="without a time limit"):
        planned(own(home, "train.py", offers=("signal",)))


def test_a_batch_file_keeps_its_own_options_and_runs_unchanged(home: Path) -> None:
    plan = planned(own(home, "job.sbatch", "--lr", "0.1"), time_limit_s=60, account="hpc")
    header = [line for line in plan.script.splitlines() if line.startswith("#SBATCH")]
    assert header[:6] == [
        "#SBATCH --time=0:30:00 -N 2   # half an hour",
        "#SBATCH --gres=gpu:a100:4 --mem 64G",
        "#SBATCH --ntasks-per-node 4",
        "#SBATCH --time=00:01:00",
        "#SBATCH --account=hpc",
        "#SBATCH --job-name=job.sbatch",
    ]
    assert BATCH.removesuffix("\n") in plan.script
    assert plan.script.endswith('exec "${MEASURED[@]}" /bin/bash -l "$RUN_DIR/script" --lr 0.1\n')
    wanted = plan.resources
    asked = (wanted.num_nodes, wanted.gpus_per_node, wanted.nproc_per_node, wanted.time_limit_s, wanted.mem)
    assert asked == (2, 4, 4, 60, "64G")
    assert "--output" not in plan.script


def test_a_fix_reaches_into_a_batch_file(home: Path) -> None:
    plan = planned(own(home, "job.sbatch"), set={"batch_size": 16})
    assert plan.parameters["batch_size"] == 16
    assert 'srun python train.py --batch_size 16 "$@"' in plan.script


def test_a_batch_file_needs_slurm(home: Path) -> None:
    with pytest.raises(UserError, match="needs Slurm"):
        planned(own(home, "job.sbatch"), MACHINE)


def test_a_relaunch_asks_for_the_same_program_again(home: Path) -> None:
    asked = own_request(
        own(home, "train.py", "--lr", "1", offers=("faulthandler",)), LaunchRequest("", num_nodes=2)
    )
    assert request_from(said(asked), "train") == asked
    broken = {**said(asked), "own": {"kind": "poem", "words": ["x"], "directory": "/"}}
    assert request_from(broken, "train").own is None
