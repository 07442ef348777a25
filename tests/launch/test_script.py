"""Scripts: golden texts, read by learners; any text of a user stays inside its quotes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.launch.ending import judge_lines
from coach.launch.resources import Site
from coach.launch.script import measuring_lines
from tests.launch.examples import CLUSTER, MACHINE, PATHS, RUN_ID, plan

GOLDEN = Path(__file__).parent / "golden"

CASES: dict[str, tuple[str, Site, dict[str, Any]]] = {
    "baseline-1-cpu": ("baseline", CLUSTER, {"set": {"num_workers": 0}}),
    "ddp-2-nodes-cpu": ("ddp", CLUSTER, {"num_nodes": 2, "set": {"lr": "0.1"}}),
    "ddp-2-typed-gpus": (
        "ddp",
        CLUSTER,
        {
            "partition": "gpu",
            "gpu_type": "a100",
            "mem": "16G",
            "account": "lab",
            "constraint": "[ib|eth]&ssd",
            "setup": ("module load cuda/12.4",),
            "env": {"NCCL_DEBUG": "INFO"},
            "sbatch": {"comment": "a first # try", "exclusive": ""},
        },
    ),
    "ddp-gres-cpus-per-gpu": (
        "ddp",
        CLUSTER,
        {
            "partition": "gpu",
            "gpu_type": "a100",
            "gpu_request": "gres",
            "cpus_per_gpu": 4,
            "account": "lab",
            "qos": "long",
            "reservation": "workshop",
            "exclude": "node[3,7-9]",
            "sbatch": {"gres": "lustre:1", "mail-type": "END"},
        },
    ),
    "ddp-gpm": ("ddp", CLUSTER, {"partition": "gpu", "has_gpm": True}),
    "ddp-short-no-signal": ("ddp", CLUSTER, {"time_limit_s": 60}),
    "ddp-2-nodes-local": ("ddp", MACHINE, {"num_nodes": 2, "has_local_nodes": True}),
    "ddp-local": ("ddp", MACHINE, {"resume_from": "/runs/other/checkpoints/step-00000040.pt"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_script_is_the_golden_one(tmp_path: Path, case: str) -> None:
    """COACH_UPDATE_GOLDEN=1 writes the golden files again."""
    name, site, said = CASES[case]
    script = plan(tmp_path, name, site, **said).script
    file = GOLDEN / f"{case}.sh"
    if os.environ.get("COACH_UPDATE_GOLDEN"):
        file.write_text(script)
    assert script == file.read_text()


@pytest.mark.parametrize("case", CASES)
def test_bash_can_read_the_script(tmp_path: Path, case: str) -> None:
    name, site, said = CASES[case]
    script = plan(tmp_path, name, site, **said).script
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_script_carries_the_record_of_the_run(tmp_path: Path) -> None:
    made = plan(tmp_path, env={"A": "COACH_RUN_JSON"}, account="émile")
    text = made.script.split("<<'COACH_RUN_JSON'\n")[1].split("\nCOACH_RUN_JSON\n")[0]
    record = json.loads(text)
    assert record == made.run_json
    assert record["resources"]["account"] == "émile"
    assert record["launch"] == {
        "recipe": "ddp",
        "backend": "auto",
        "partition": "cpu",
        "account": "émile",
        "env": {"A": "COACH_RUN_JSON"},
    }
    assert record["parameter_info"]["lr"] == {"default": 0.05, "usual": [1e-4, 1.0]}


@pytest.mark.parametrize(
    "value", ["$(touch pwned)", "`touch pwned`", "; touch pwned", "' ; touch pwned; '", '"']
)
def test_the_shell_takes_a_hostile_environment_value_as_it_is(tmp_path: Path, value: str) -> None:
    script = plan(tmp_path, env={"HOSTILE": value}).script
    (line,) = [line for line in script.splitlines() if line.startswith("export HOSTILE=")]
    shown = subprocess.run(
        ["bash", "-c", f'{line}\nprintf %s "$HOSTILE"'], capture_output=True, text=True, cwd=tmp_path
    )
    assert shown.stdout == value
    assert not (tmp_path / "pwned").exists()


def test_gpus_are_asked_of_the_job_and_never_of_the_step(tmp_path: Path) -> None:
    """A typed GPU request is not found by a step that asks for an untyped one."""
    script = plan(tmp_path, partition="gpu", gpu_type="a100").script
    assert "#SBATCH --gpus-per-node=a100:2" in script
    assert not re.search(r"^srun.*gpu", script, re.MULTILINE)


def test_a_percent_sign_in_the_runs_root_is_not_a_pattern_of_slurm(tmp_path: Path) -> None:
    odd = replace(PATHS, run_dir="/runs 100%j/x")
    script = plan(tmp_path, paths=odd).script
    assert "#SBATCH --output='/runs 100%%j/.logs/x.out'" in script
    assert "RUN_DIR='/runs 100%j/x'" in script


def beginning(script: str) -> str:
    """The script's effect on the run directory; it counts its waits and does not wait."""
    begin, end = script.index("\nRUN_DIR="), script.index("\n# The record of this run")
    return "set -euo pipefail\nsleep() { echo waited; }\n" + script[begin:end]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_that_sees_no_run_directory_waits_and_makes_one_with_links_to_the_logs(
    tmp_path: Path, is_there: bool
) -> None:
    run_dir = tmp_path / "runs" / RUN_ID
    script = plan(tmp_path, paths=replace(PATHS, run_dir=str(run_dir))).script
    (tmp_path / "runs" / ".logs").mkdir(parents=True)
    (tmp_path / "runs" / ".logs" / f"{RUN_ID}.err").write_text("Killed\n")
    if is_there:
        runs.link_scheduler_logs(runs.create_run_dir(run_dir.parent, RUN_ID))
    done = subprocess.run(["bash", "-c", beginning(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("waited") == (0 if is_there else 20)
    assert (run_dir / "stderr.log").read_text() == "Killed\n"
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700


def test_every_sbatch_line_is_above_the_first_command(tmp_path: Path) -> None:
    """Slurm reads no #SBATCH line below a command."""
    lines = plan(tmp_path).script.splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(i for i, line in enumerate(lines) if line.startswith("#SBATCH")) < first_command


def test_threads_are_the_rank_s_share_of_the_cpus(tmp_path: Path) -> None:
    assert "export OMP_NUM_THREADS=3\n" in plan(tmp_path).script
    assert "export OMP_NUM_THREADS=1\n" in plan(tmp_path, site=MACHINE).script
    with_gpus = plan(tmp_path, partition="gpu", cpus_per_task=16)
    assert "export OMP_NUM_THREADS=6\n" in with_gpus.script


def test_parameters_reach_the_trainer_as_flags_of_their_name(tmp_path: Path) -> None:
    script = plan(tmp_path, set={"lr": "1e20", "log_metrics": "false"}).script
    words = shlex.split(script[script.index("\nsrun ") : script.index(" &\nTRAINING")].replace("\\\n", ""))
    assert {"--lr=1e+20", "--batch_size=64", "--log_metrics=false", "--gpus_per_node=0"} <= set(words)
    assert words[:4] == ["srun", "--kill-on-bad-exit=0", "--wait=60", "$PYTHON"]


def _meeting_port(script: str, job_id: int, folder: Path) -> int:
    """The port at which the nodes of this job meet, by the script's own lines run on this machine."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "scontrol").write_text("#!/bin/sh\necho node1\necho node2\n")
    (folder / "bin" / "scontrol").chmod(0o755)
    lines = script[script.index("HOSTS=$(scontrol") :].partition("\n\n")[0]
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": str(job_id)}
    said = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", f'{lines}\necho "$MASTER_ADDR $MASTER_PORT"'],
        env={**env, "SLURM_JOB_NODELIST": "node[1-2]"},
        capture_output=True,
        text=True,
        check=True,
    )
    address, port = said.stdout.split()
    assert address == "node1"
    return int(port)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_two_jobs_ten_thousand_apart_do_not_meet_at_one_port_of_a_node(
    tmp_path: Path, family: socket.AddressFamily
) -> None:
    script = plan(tmp_path, "ddp", CLUSTER, num_nodes=2).script
    first = _meeting_port(script, 79_997, tmp_path)
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(socket.socket(family))
            listening.bind(("127.0.0.1" if family is socket.AF_INET else "::1", first))
        except OSError:
            pytest.skip("this machine has no such address")
        listening.listen()
        second = _meeting_port(script, 89_997, tmp_path)
    assert 20_000 <= second < 30_000
    assert second != first


def test_after_the_last_port_of_the_range_the_first_is_tried(tmp_path: Path) -> None:
    script = plan(tmp_path, "ddp", CLUSTER, num_nodes=2).script
    with socket.socket() as listening:
        try:
            listening.bind(("127.0.0.1", 29_999))
        except OSError:
            pytest.skip("another program has port 29999 here")
        listening.listen()
        assert 20_000 <= _meeting_port(script, 9_999, tmp_path) < 29_999


def test_coach_as_one_file_is_named_wherever_the_job_is_judged() -> None:
    lines = "\n".join(judge_lines("/usr/bin/python3.11", "/home/ann b/coach.pyz"))
    assert "OWN_FILE='/home/ann b/coach.pyz'" in lines
    assert '"$OWN_PYTHON" -E -P "$OWN_FILE" --version' in lines
    measured = "\n".join(
        measuring_lines(("python3",), judge="/p/python3", judge_file="/home/ann b/coach.pyz")
    )
    assert "--judge /p/python3 --judge-file '/home/ann b/coach.pyz' --" in measured
    assert "--judge-file" not in "\n".join(measuring_lines(("python3",), judge_file="/home/coach.pyz"))
