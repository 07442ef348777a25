"""A person's own batch file, script and command on the real Slurm: unchanged, measured and judged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coach.runs import SAID_OF_END
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

SHELL = """#!/bin/bash -l
#SBATCH --time=0:05:00 --mem=200M
#SBATCH -o out-%j.txt  # beside the file

. settings/env.sh
echo "argument $1 in $PWD of $SLURM_SUBMIT_DIR with $FROM_FILE, umask $(umask)"
echo "Traceback (most recent call last):" >&2
echo '  File "train.py", line 3, in <module>' >&2
echo "ValueError: 11 classes, 10 expected" >&2
exit 7
"""
PYTHON = """#!/usr/bin/env python3
#SBATCH --time=0:05:00
import os, sys
print("python", sys.argv[1:], os.environ["COACH_RUN_DIR"])
"""
CSH = """#!/bin/csh -f
#SBATCH --time=0:05:00
#SBATCH -o out-%j.txt
source settings/env.csh
set words = ( $argv:q )
echo "arguments $#words first $words[1]:q in $cwd with $FROM_FILE as $0:t"
if ( "$COACH_RUN_DIR" != "" ) echo "run $COACH_RUN_DIR:t"
exit 7
"""
CONFIGURED = """import sys, pathlib
text = pathlib.Path(sys.argv[2]).read_text()
size = int(text.split("batch_size: ")[1].split()[0])
print(f"loss 1.0 at batch size {size}")
if size > 16:
    sys.exit(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}.00 GiB")
"""
CONFIG = "# ours\ntrain:\n  batch_size: 32   # per GPU\n  gradient_accumulation_steps: 2\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _launched(coach: InstalledCoach, *words: str, status: int) -> dict[str, Any]:
    done = coach("launch", "--wait", "--format", "json", *words, timeout_s=120)
    assert done.returncode == status, done.stderr
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return dict(answer)


def test_a_batch_file_keeps_its_options_its_directory_and_its_output(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    _write(home / "job.sbatch", SHELL)
    _write(home / "settings" / "env.sh", "FROM_FILE=sourced\n")
    answer = _launched(user_coach, "job.sbatch", "--", "a b", status=1)
    job_id, run_dir = answer["job_id"], Path(answer["run_dir"])
    assert answer["state"] == "FAILED"
    log = home / f"out-{job_id}.txt"
    assert f"argument a b in {home} of {home} with sourced" in log.read_text()
    assert (run_dir / "script").read_text() == SHELL
    run = json.loads((run_dir / "run.json").read_text())
    assert run["output"] == {"stdout": str(log), "stderr": str(log)}
    assert json.loads((run_dir / "exit.json").read_text())["exit_code"] == 7
    judged = json.loads(user_coach("check", answer["run_id"], "--format", "json").stdout)
    assert judged["findings"][0]["cause"] == "code_error"


def test_a_batch_file_s_own_folder_is_named_where_its_log_could_not_be_opened(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    _write(home / "lost.sbatch", "#!/bin/bash\n#SBATCH --output=results/%j/out.txt\necho never\n")
    answer = _launched(user_coach, "lost.sbatch", status=1)
    judged = user_coach("check", answer["run_id"]).stdout
    folder = home / "results" / answer["job_id"]
    assert "JOB017" in judged
    assert f"srun -w node1 ls -ld {folder}" in re.sub(r"node\d", "node1", judged)
    assert ".logs" not in judged


def test_a_batch_file_in_python_runs_by_its_own_first_line(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    _write(home / "job.py", PYTHON)
    answer = _launched(user_coach, "job.py", "--", "--lr", "1", status=0)
    told = (home / f"slurm-{answer['job_id']}.out").read_text()
    assert f"python ['--lr', '1'] {answer['run_dir']}" in told


@pytest.mark.parametrize("shell", ["csh -f", "tcsh"])
def test_a_batch_file_in_csh_runs_byte_for_byte(
    slurm: SlurmCluster, user_coach: InstalledCoach, shell: str
) -> None:
    home, text = user_coach.user.home, CSH.replace("csh -f", shell, 1)
    _write(home / "job.csh", text)
    _write(home / "settings" / "env.csh", "setenv FROM_FILE sourced\n")
    answer = _launched(user_coach, "job.csh", "--", "a b", "c", status=1)
    run_dir = Path(answer["run_dir"])
    assert (run_dir / "script").read_text() == text
    told = (home / f"out-{answer['job_id']}.txt").read_text().splitlines()
    assert [line for line in told if not line.startswith(SAID_OF_END)] == [
        f"arguments 2 first a b in {home} with sourced as script",
        f"run {answer['run_id']}",
    ]
    assert json.loads((run_dir / "exit.json").read_text())["exit_code"] == 7


@pytest.mark.parametrize(
    "words",
    [
        ("tuned.py", "--gpus", "0", "--python", "python3", "--", "--config", "conf.yaml"),
        ("tuned.sh",),
    ],
    ids=["script", "batch file"],
)
def test_a_fix_shows_the_lines_of_a_yaml_that_would_have_to_change(
    slurm: SlurmCluster, user_coach: InstalledCoach, words: tuple[str, ...]
) -> None:
    home = user_coach.user.home
    _write(home / "tuned.py", CONFIGURED)
    _write(home / "conf.yaml", CONFIG)
    _write(home / "tuned.sh", "#!/bin/bash\n#SBATCH --time=5\npython3 tuned.py \\\n  --config conf.yaml\n")
    failed = _launched(user_coach, *words, status=1)
    done = user_coach("fix", failed["run_id"], "--yes", "--change-learning")
    assert done.returncode == 2, done.stdout
    lines = done.stderr.splitlines()
    assert f"{home}/conf.yaml:3: train.batch_size: 32 → 16" in lines
    assert f"{home}/conf.yaml:4: train.gradient_accumulation_steps: 2 → 4" in lines
    assert (home / "conf.yaml").read_text() == CONFIG


def test_a_command_runs_on_every_node_as_it_stands(slurm: SlurmCluster, user_coach: InstalledCoach) -> None:
    answer = _launched(
        user_coach,
        *("--nodes", "2", "--gpus", "0", "--time", "5:00", "--"),
        *("bash", "-c", 'echo "$SLURMD_NODENAME $MASTER_PORT $0"', "a b"),
        status=0,
    )
    said = sorted((Path(answer["run_dir"]) / "stdout.log").read_text().splitlines())
    assert [line.split(" ", 1)[0] for line in said] == ["node1", "node2"]
    assert {line.split(" ", 2)[2] for line in said} == {"a b"}


def test_each_task_of_an_array_is_a_run_of_one_job(slurm: SlurmCluster, user_coach: InstalledCoach) -> None:
    home = user_coach.user.home
    lines = ("#!/bin/bash", "#SBATCH --array=1-3%2 --output=out-%a", 'echo "task $0"')
    _write(home / "tasks.sh", "\n".join((*lines, "[ $SLURM_ARRAY_TASK_ID != 2 ]", "")))
    waited = user_coach("launch", "tasks.sh", "--wait", "--format", "json", timeout_s=120)
    runs = json.loads(waited.stdout)["runs"]
    array_id = runs[0]["job_id"].partition("_")[0]
    assert [run["job_id"] for run in runs] == [f"{array_id}_{task}" for task in (1, 2, 3)]
    assert [run["state"] for run in runs] == ["COMPLETED", "FAILED", "COMPLETED"]
    for task, run in enumerate(runs, start=1):
        record = json.loads((Path(run["run_dir"]) / "run.json").read_text())
        assert record["job_id"] == run["job_id"]
        assert record["output"]["stdout"] == str(home / f"out-{task}")
        printed, *told = (home / f"out-{task}").read_text().splitlines()
        assert printed == f"task {run['run_dir']}/script"
        assert all(line.startswith(SAID_OF_END) for line in told)
        assert bool(told) == (task == 2)


def test_a_sweep_of_two_parameters_is_one_array_and_one_table(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    _write(
        home / "tune.py",
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "parser.add_argument('--batch_size', type=int, default=8)\nasked = parser.parse_args()\n"
        "for step in range(5):\n    print(f'step {step} loss {1 / asked.lr + asked.batch_size / 100}')\n",
    )
    words = (
        "--sweep",
        "lr=0.1,0.2",
        "--sweep",
        "batch_size=8..16*2",
        "--at-once",
        "2",
        "--python",
        "python3",
    )
    waited = user_coach("launch", "tune.py", *words, "--wait", "--format", "json", timeout_s=180)
    group = json.loads(waited.stdout)
    array_ids = {run["job_id"].partition("_")[0] for run in group["runs"]}
    assert ([run["state"] for run in group["runs"]], len(array_ids)) == (["COMPLETED"] * 4, 1)
    script = (Path(group["runs"][0]["run_dir"]) / "array.sh").read_text()
    assert "#SBATCH --array=0-3%2" in script.splitlines()
    ranked = user_coach("compare", group["group_id"], "--best", "loss", "--format", "json")
    points = json.loads(ranked.stdout)["points"]
    assert [point["value"] for point in points] == ["0.2, 8", "0.2, 16", "0.1, 8", "0.1, 16"]
    assert points[0]["metrics"]["loss"] == 5.08


def test_an_array_goes_to_sbatch_as_it_is(slurm: SlurmCluster, user_coach: InstalledCoach) -> None:
    home = user_coach.user.home
    lines = ("#!/bin/sh", "#SBATCH --array=1-2", "#SBATCH -o said-%a", 'echo "$LC_ALL $SBATCH_COMMENT"', "")
    _write(home / "many.sh", "\n".join(lines))
    env = {"LC_ALL": "C.UTF-8", "SBATCH_COMMENT": "mine"}
    answer = json.loads(user_coach("launch", "many.sh", "--as-is", "--format", "json", env=env).stdout)
    assert answer["run_id"] is None
    slurm.wait_state(f"{answer['job_id']}_2", "COMPLETED")
    assert (home / "said-2").read_text() == "C.UTF-8 mine\n"


def test_a_sweep_with_a_brake_stops_itself_when_its_first_tasks_fail_alike(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    _write(home / "broken.py", "import sys\nprint('begins', sys.argv)\nraise ValueError('no such column')\n")
    words = ("broken.py", "--sweep", "lr=1,2,3,4", "--brake", "2", "--at-once", "1", "--python", "python3")
    waited = user_coach("launch", *words, "--wait", "--format", "json", "--", "--lr", "1", timeout_s=180)
    assert waited.returncode == 1, waited.stderr
    group = json.loads(waited.stdout)
    dirs = [Path(run["run_dir"]) for run in group["runs"]]
    begun = ["begins" in (run_dir / "stdout.log").read_text() for run_dir in dirs]
    assert begun == [True, True, False, False]
    judged = [json.loads(user_coach("check", run_dir.name, "--format", "json").stdout) for run_dir in dirs]
    firsts = [each["findings"][0] for each in judged]
    assert [first["rule"] for first in firsts] == ["COD001", "COD001", "JOB020", "JOB020"]
    assert "stopped by the sweep's brake: the first 2 runs failed alike (COD001: " in firsts[3]["summary"]
    assert json.loads((dirs[3] / "exit.json").read_text())["exit_code"] == 78
    row = slurm.run(["scontrol", "show", "job", "-o", group["runs"][3]["job_id"]]).stdout
    assert "ExitCode=78:0" in row
