"""A user's own script, command or batch file: distinguished from a recipe, planned, and started unchanged."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch import array_script
from coach.launch.batch_file import faulty_line, resources_of
from coach.launch.own_program import is_own, own_recipe, own_request, read_own_program, text_of
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import recipe_of
from coach.launch.record import said
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan
from tests.launch.examples import CLUSTER, MACHINE, PATHS, RUN_ID
from tests.launch.relaunches import asked_again

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


def test_the_kind_of_a_program_is_read_from_its_file(home: Path) -> None:
    (home / "start").write_text("#!/bin/sh\n")
    (home / "slurm.py").write_text("#!/usr/bin/python3\n#SBATCH --time=1\n")
    kinds = [own(home, what).kind for what in ("train.py", "job.sbatch", "start", "slurm.py")]
    assert kinds == [OwnKind.SCRIPT, OwnKind.BATCH, OwnKind.COMMAND, OwnKind.BATCH]
    assert own(home, None, "torchrun", "train.py").kind is OwnKind.COMMAND


def test_cpus_per_gpu_are_requested_for_an_own_script(home: Path) -> None:
    said = planned(own(home, "train.py"), partition="gpu", gpus_per_node=2, cpus_per_gpu=3)
    config = planned(
        own(home, "train.py"), partition="gpu", cpus_per_gpu=3, defaulted=frozenset({"cpus_per_gpu"})
    )
    assert (said.resources.cpus_per_gpu, said.resources.cpus_per_task) == (3, 6)
    assert (config.resources.cpus_per_gpu, config.resources.cpus_per_task) == (3, 3)
    assert "#SBATCH --cpus-per-gpu=3" in said.script
    assert "#SBATCH --cpus-per-task" not in said.script


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
        (None, (), "expected a recipe"),
        ("train.py", ("magic",), "no such offer"),
        ("job.sbatch", ("torchrun",), "cannot put torchrun into a batch file"),
    ],
)
def test_a_program_that_cannot_be_launched_is_refused_with_the_reason(
    home: Path, what: str | None, offers: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        read_own_program(what if what in (None, "-") else str(home / what), (), home, offers)


def test_a_byte_order_mark_hides_no_parameter(home: Path) -> None:
    text = 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--lr", type=float, default=0.1)\n'
    (home / "marked.py").write_text(text, encoding="utf-8-sig")
    recipe = own_recipe(own(home, "marked.py"))
    assert list(recipe.parameters) == ["lr"]
    assert text_of(recipe) == text


def test_a_script_runs_as_its_author_would_start_it(home: Path) -> None:
    plan = planned(own(home, "train.py", "--lr", "1e-4", "--note", "it's"), MACHINE)
    command = f"{home}/train.py --lr 1e-4 --note 'it'\"'\"'s'"
    assert training(plan) == f'${{MEASURED[@]+"${{MEASURED[@]}}"}} "$PYTHON" {command}'
    assert f"cd -- {home} ||" in plan.script
    assert plan.script.index('umask "$MASK"') < plan.script.index(command)
    assert plan.parameters == {"lr": 1e-4}
    for forced in ("OMP_NUM_THREADS", "TORCH_FR_BUFFER_SIZE", "PET_SIGNALS", "--signal", "USR1@"):
        assert forced not in plan.script


def test_torchrun_is_offered_to_a_script_and_refused_to_a_command(home: Path) -> None:
    one = planned(own(home, "train.py"), gpus_per_node=4, partition="gpu")
    assert "torch.distributed.run" not in one.script
    assert one.resources.nproc_per_node == 1
    offered = planned(own(home, "train.py", offers=("torchrun",)), gpus_per_node=4, partition="gpu")
    assert "--nproc-per-node=4" in training(offered)
    assert offered.notes[0] == "your script, started by torchrun: 4 ranks on 1 node, 4 GPUs per node"
    asked = planned(own(home, "train.py"), nproc_per_node=2, num_nodes=2, partition="gpu")
    assert '--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"' in training(asked)
    with pytest.raises(UserError, match="coach starts a command unchanged"):
        planned(own(home, None, "python", "train.py"), nproc_per_node=2, partition="gpu")


def test_a_command_is_passed_to_srun_word_for_word(home: Path) -> None:
    plan = planned(own(home, None, "accelerate", "launch", "train.py", "--lr", "$HOME"), num_nodes=2)
    assert training(plan).endswith("accelerate launch train.py --lr '$HOME'")
    assert training(plan).startswith("srun ")
    assert "export MASTER_ADDR=" in plan.script
    assert plan.recipe == "train"


def test_a_deletion_in_hydra_s_form_is_no_home_directory(home: Path) -> None:
    words = ("~model.dropout", "~db.yaml", "lr=0.1")
    assert training(planned(own(home, "train.py", *words))).endswith("'~model.dropout' '~db.yaml' lr=0.1")
    command = own(home, None, "python", "-m", "train", *words)
    assert planned(command).parameters == {"lr": 0.1}


@pytest.mark.parametrize("what", ["train.py", "job.sbatch"])
def test_gpm_is_measured_beside_an_own_program_where_the_plan_says_so(home: Path, what: str) -> None:
    plan = planned(own(home, what), partition="gpu", gpus_per_node=1, has_gpm=True)
    assert any("GPM" in note for note in plan.notes)
    assert " --gpm --)" in plan.script
    assert "--gpm" not in planned(own(home, what), partition="gpu", gpus_per_node=0, has_gpm=True).script


def test_restarts_without_torchrun_are_told_to_have_no_effect(home: Path) -> None:
    plan = planned(own(home, "train.py"), max_restarts=2)
    assert plan.warnings == ("--max-restarts 2 has no effect: torchrun does not start this program",)
    assert "torchrun restarts" not in plan.script
    restarted = planned(own(home, "train.py", offers=("torchrun",)), max_restarts=2)
    assert (restarted.warnings, "--max-restarts=2" in restarted.script) == ((), True)


def test_a_gpu_brings_its_share_of_the_node_s_cpus(home: Path) -> None:
    asked = {gpus: planned(own(home, "train.py"), gpus_per_node=gpus, partition="gpu") for gpus in (1, 4)}
    assert {gpus: plan.resources.cpus_per_task for gpus, plan in asked.items()} == {1: 4, 4: 16}


def test_each_offer_adds_its_lines_to_the_script(home: Path) -> None:
    offers = ("signal", "flight-recorder", "faulthandler")
    plan = planned(own(home, "train.py", offers=offers), time_limit_s=600)
    assert "#SBATCH --signal=B:USR1@120" in plan.script
    assert "export TORCH_FR_BUFFER_SIZE=2000" in plan.script
    assert "export PYTHONFAULTHANDLER=1" in plan.script
    with pytest.raises(UserError, match="there is no time limit"):
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


@pytest.mark.parametrize(
    ("line", "said", "header"),
    [
        (
            "--gres=lustre:1,gpu:a100:4 -N 2  # big",
            {"gpus_per_node": 1},
            ["--gres=lustre:1 -N 2", "--gpus-per-node=1"],
        ),
        ("--gres=gpu:4", {"gpus_per_node": 2, "gpu_type": "a100"}, ["--gpus-per-node=a100:2"]),
        ("-G 8 --nodes 2", {"gpus_per_node": 2}, ["--nodes 2", "--gpus-per-node=2"]),
        ("--mem-per-cpu=4G", {"mem": "64G"}, ["--mem=64G"]),
        ("--mem 8G --time 1:00", {"sbatch": {"mem-per-cpu": "4G"}}, ["--time 1:00", "--mem-per-cpu=4G"]),
        ("-c 8", {"cpus_per_gpu": 4}, ["--cpus-per-gpu=4"]),
        ("-q long -p gpu", {"qos": ""}, ["-p gpu"]),
        ("--gres=gpu:4 --mem-per-cpu=4G -c 8", {}, ["--gres=gpu:4 --mem-per-cpu=4G -c 8"]),
    ],
)
def test_a_launch_s_option_replaces_the_file_s_option_for_the_same_resource(
    home: Path, line: str, said: dict[str, object], header: list[str]
) -> None:
    (home / "one.sbatch").write_text(f"#!/bin/bash\n#SBATCH {line}\nsrun python train.py\n")
    plan = planned(own(home, "one.sbatch"), **said)
    lines = plan.script.partition("# one.sbatch")[0].splitlines()[1:]
    assert lines == [*(f"#SBATCH {each}" for each in header), "#SBATCH --job-name=one.sbatch"]


def test_options_that_cannot_reach_a_batch_file_are_refused(home: Path) -> None:
    assert planned(own(home, "job.sbatch"), nproc_per_node=4).resources.nproc_per_node == 4
    for asked in ({"nproc_per_node": 2}, {"gpu_type": "a100"}):
        with pytest.raises(UserError, match="batch file"):
            planned(own(home, "job.sbatch"), **asked)


def test_a_fix_reaches_into_a_batch_file(home: Path) -> None:
    plan = planned(own(home, "job.sbatch"), set={"batch_size": 16})
    assert plan.parameters["batch_size"] == 16
    assert 'srun python train.py --batch_size 16 "$@"' in plan.script


def test_a_batch_file_with_an_infinite_learning_rate_is_launched(home: Path) -> None:
    (home / "inf.sbatch").write_text(BATCH.replace("--batch_size 32", "--batch_size 32 --lr inf"))
    assert planned(own(home, "inf.sbatch")).parameters == {"batch_size": 32, "lr": "inf"}


def test_a_batch_file_needs_slurm(home: Path) -> None:
    with pytest.raises(UserError, match="needs Slurm"):
        planned(own(home, "job.sbatch"), MACHINE)


def test_a_relaunch_asks_for_the_same_program_again(home: Path) -> None:
    asked = own_request(
        own(home, "train.py", "--lr", "1", offers=("faulthandler",)), LaunchRequest("", num_nodes=2)
    )
    assert asked_again(said(asked), "train") == asked
    broken = {**said(asked), "own": {"kind": "poem", "words": ["x"], "directory": "/"}}
    assert asked_again(broken, "train").own is None


def test_coach_checks_and_records_the_request_of_a_batch_file() -> None:
    text = "#!/bin/bash\n#SBATCH -C hbm -x bad[1-2] -q=long -p gpu -A lab --reservation day -c 6 -N 2-4\n"
    wanted = resources_of(text + "#SBATCH --signal=B:USR1@90 --gpus 8 --time=UNLIMITED\n", LaunchRequest(""))
    assert (wanted.constraint, wanted.exclude, wanted.qos) == ("hbm", "bad[1-2]", "long")
    assert (wanted.partition, wanted.account, wanted.reservation) == ("gpu", "lab", "day")
    assert (wanted.num_nodes, wanted.gpus_per_node, wanted.cpus_per_task) == (2, 4, 6)
    assert (wanted.signal, wanted.time_limit_s) == ("B:USR1@90", None)
    bare = resources_of("#!/bin/bash\n", LaunchRequest("", time_limit_s=90, constraint="x", exclude="y"))
    assert (bare.num_nodes, bare.nproc_per_node, bare.cpus_per_task, bare.gpus_per_node) == (1, 1, 1, 0)
    assert (bare.time_limit_s, bare.constraint, bare.exclude) == (90, "x", "y")


@pytest.mark.parametrize(
    ("options", "num_gpus"),
    [
        ("--gres=gpu", 1),
        ("--gres=lustre:1,gpu:a100:3", 3),
        ("--gres=tmp:200", 0),
        ("--gres=gpu:3090:8", 8),
        ("--gres=gpu:1g.10gb:7", 7),
        ("--gres=gpu:a100", 1),
        ("--gpus-per-node=3090:8", 8),
        ("--gpus=a100 --nodes=1", 1),
        ("--gpus-per-node=a100:2,v100:1", 3),
        ("--gpus=0", 0),
        ("--gpus=1 --nodes=2", 1),
        ("--gpus-per-task=2 --ntasks-per-node=3", 6),
        ("--gpus-per-task=a100:2", 2),
        ("--gpus-per-task=1 --ntasks=16 --nodes=2", 8),
        ("--gpus-per-node=h100:4 --gres=gpu:1", 4),
    ],
)
def test_gpus_per_node_are_read_in_each_spelling_of_sbatch(options: str, num_gpus: int) -> None:
    assert resources_of(f"#!/bin/bash\n#SBATCH {options}\n", LaunchRequest("")).gpus_per_node == num_gpus


@pytest.mark.parametrize(
    ("line", "said", "told"),
    [
        (
            "--job-name=my own job",
            "Invalid directive found in batch script: own",
            'write #SBATCH --job-name="my own job"',
        ),
        (
            "-t 5 -J my own --mem=1G",
            "Invalid directive found in batch script: own",
            'write #SBATCH --job-name="my own"',
        ),
        ("--nods=2", "unrecognized option '--nods=2'", "correct #SBATCH --nods=2"),
        ("-gres:gpu:1", "invalid option -- 'g'", "correct #SBATCH -gres:gpu:1"),
    ],
)
def test_a_line_that_sbatch_refuses_is_named_with_what_would_be_right(
    home: Path, line: str, said: str, told: str
) -> None:
    (home / "job.sbatch").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2 --gpus=1\n#SBATCH {line}\npython train.py\n"
    )
    own = read_own_program("job.sbatch", (), home)
    assert faulty_line(own, said) == f"{home}/job.sbatch:3: {told}"
    assert faulty_line(own, "Invalid partition") is None
    assert faulty_line(None, said) is None


def test_a_batch_file_goes_on_in_segments_until_its_training_is_done(home: Path) -> None:
    program = own(home, "job.sbatch", "--lr", "0.1")
    plan = planned(program, until_done=3, signal="USR1@60", resume_with="--resume {path}")
    options = [line for line in plan.script.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --requeue", "#SBATCH --open-mode=append", "#SBATCH --signal=B:USR1@60"} <= {*options}
    assert "--no-end --)" in plan.script
    start = next(line for line in plan.script.splitlines() if line.startswith('"${MEASURED[@]}"'))
    assert start.startswith('"${MEASURED[@]}" /bin/bash -l "$RUN_DIR/script" --lr 0.1 ')
    assert start.endswith(" &")
    assert '  exec /bin/bash -l "$RUN_DIR/script" --lr 0.1' in plan.script.splitlines()
    checked = subprocess.run(["bash", "-n"], input=plan.script, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    (home / "own.sbatch").write_text("#!/bin/bash\n#SBATCH --signal=USR1@9\n./train $COACH_RESUME_FROM\n")
    with pytest.raises(UserError, match="a signal of its own"):
        planned(own(home, "own.sbatch"), until_done=3, time_limit_s=600)


def test_a_task_of_an_array_is_launched_alone_and_again_as_the_same_task(home: Path) -> None:
    (home / "array.sbatch").write_text("#!/bin/bash\n#SBATCH --array=0-7%2\necho $SLURM_ARRAY_TASK_ID\n")
    program = replace(own(home, "array.sbatch"), array_task=5)
    script = planned(program).script
    assert "#SBATCH --array=5" in script.splitlines()
    assert script.endswith('exec "${MEASURED[@]}" /bin/bash "$RUN_DIR/script"\n')
    asked = own_request(program, LaunchRequest(""))
    assert asked_again(json.loads(json.dumps(said(asked))), "array") == asked


def test_an_array_keeps_the_options_that_share_a_line_with_its_tasks(home: Path) -> None:
    (home / "array.sbatch").write_text("#!/bin/bash\n#SBATCH -a 0-1 --time=2:00:00 -p gpu\ntrue\n")
    program = own(home, "array.sbatch")
    tasks = [planned(replace(program, array_task=task)) for task in (0, 1)]
    options = [each for each in array_script.render(tasks, None, "1").splitlines() if "#SBATCH" in each]
    assert "#SBATCH -a 0-1 --time=2:00:00 -p gpu" in options
    # Of a repeated option sbatch takes the last.
    assert [each for each in options if "--array" in each][-1] == options[-1] == "#SBATCH --array=0-1"


def test_a_shell_script_without_options_that_can_be_read_is_still_launched(home: Path) -> None:
    (home / "start").write_text("#!/bin/sh\n")
    assert planned(own(home, "start", "--lr", "0.1"), gpus_per_node=0).parameters == {"lr": 0.1}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python -m lab.train --lr 1", "lab.train"),
        ("python -m torch.distributed.run -m lab.train", "lab.train"),
        ("python -m accelerate.commands.launch x", "python"),
        ("srun hostname", "srun"),
    ],
)
def test_runs_of_a_command_are_called_like_the_module_that_trains(home: Path, words: str, name: str) -> None:
    assert own_request(own(home, None, *words.split()), LaunchRequest("")).recipe == name


def test_a_batch_file_that_cannot_be_read_is_refused_with_the_reason(home: Path) -> None:
    (home / "latin.sbatch").write_bytes(b"#!/bin/bash\n#SBATCH -t 1\n# caf\xe9\n")
    with pytest.raises(UserError, match="not UTF-8 text"):
        planned(own(home, "latin.sbatch"))
    program = own(home, "job.sbatch")
    (home / "job.sbatch").unlink()
    with pytest.raises(UserError, match=r"job\.sbatch: no such file"):
        planned(program)
