from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.cli.check import _tell_left_out
from tests.forked import typed_coach

Coach = Callable[..., "subprocess.CompletedProcess[str]"]
RECORDINGS = Path(__file__).parents[1] / "recordings"
SQUEUE = """#!{python}
import sys
open({asked!r}, "a").write("asked\\n")
columns = [column.partition(":") for column in sys.argv[-1].split(",")]
for job_id in ("42", "43", "44"):
    job = {{**{job!r}, "jobarrayid": job_id, "jobid": job_id}}
    print("".join(job.get(name, "N/A") + end for name, _, end in columns))
"""


@pytest.fixture
def coach(tmp_path: Path):  # type: ignore[no-untyped-def]
    """`coach ARGUMENT…` as a user types it, on the local backend."""

    def call(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "COACH_HOME": str(tmp_path / "home")}
        return typed_coach(arguments, env, stdin=stdin.decode())

    return call


def test_a_diverged_run_is_one_json_object_of_the_documented_form(coach) -> None:  # type: ignore[no-untyped-def]
    done = coach("check", RECORDINGS / "nan", "--format", "json", "--backend", "local")
    value = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(value) == {"schema", "target", "state", "verdict", "findings", "not_measured"}
    assert (value["schema"], value["state"]) == (1, "COMPLETED")
    finding = value["findings"][0]
    assert set(finding) == {
        "rule",
        "name",
        "cause",
        "severity",
        "confidence",
        "primary",
        "consequence_of",
        "subject",
        "summary",
        "evidence",
        "fixes",
    }
    assert (finding["cause"], finding["severity"], finding["primary"]) == ("nan_loss", "critical", True)
    assert finding["fixes"][0] == {
        "title": finding["fixes"][0]["title"],
        "changes": {"lr": 0.05},
        "command": None,
        "changes_learning": True,
    }
    assert set(finding["evidence"][0]) == {"text", "file", "line", "value", "unit"}
    assert value["not_measured"] == [
        {
            "what": "gpu.utilization",
            "because": "the run requested no GPU",
            "how": "launch with --gpus 1 or more to train on GPUs",
        }
    ]


AT_IMPORT = """\
Traceback (most recent call last):
  File "/home/ada/runs/.code/836c92a85d6d2ae5/trainers/ddp.py", line 20, in <module>
    from common.data import load
  File "/home/ada/runs/.code/836c92a85d6d2ae5/trainers/common/data.py", line 22, in <module>
    from common.vision import datasets, v2
  File "/sw/venv/lib/python3.11/site-packages/torchvision/__init__.py", line 6, in <module>
    from torchvision import _meta_registrations, datasets, io
{error}
"""


@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: No module named 'PIL'",
        "ModuleNotFoundError: No module named 'mpi4py'",
        "AttributeError: partially initialized module 'torchvision' has no attribute 'extension'",
        "ImportError: tokenizers 0.13 is too old",
    ],
)
@pytest.mark.parametrize("is_coachs", [True, False])
def test_a_failed_import_of_coach_s_own_trainer_is_the_environment_s_fault(
    coach,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    error: str,
    is_coachs: bool,
) -> None:
    run_dir = tmp_path / "20261121-142233-ddp-4f2a"
    run_dir.mkdir()
    record = json.loads((RECORDINGS / "nan" / "run.json").read_text())
    own = {"own": {"kind": "script", "words": ["train.py"], "directory": "/home/ada"}}
    launch = {"recipe": "ddp", **({} if is_coachs else own)}
    record |= {"run_id": run_dir.name, "state": "FAILED", "launch": launch}
    (run_dir / "run.json").write_text(json.dumps(record))
    ended = {"schema": 1, "state": "FAILED", "exit_code": 1, "ended_time_s": record["ended_time_s"]}
    (run_dir / "exit.json").write_text(json.dumps(ended))
    (run_dir / "stderr.log").write_text(AT_IMPORT.format(error=error))
    done = coach("check", run_dir, "--format", "json", "--backend", "local")
    finding = json.loads(done.stdout)["findings"][0]
    is_missing = error.startswith("ModuleNotFound")
    assert finding["rule"] == ("ENV007" if is_coachs or is_missing else "COD001"), finding
    if is_coachs:
        assert not any("orrect" in fix["title"] for fix in finding["fixes"])


def test_a_healthy_run_has_no_findings_and_status_0(coach) -> None:  # type: ignore[no-untyped-def]
    done = coach("check", RECORDINGS / "healthy", "--format", "json", "--backend", "local")
    assert json.loads(done.stdout)["findings"] == []
    assert done.returncode == 0


def test_a_log_on_standard_input_is_judged_with_file_and_line(coach) -> None:  # type: ignore[no-untyped-def]
    log = (RECORDINGS / "typed/cuda-oom.log").read_bytes()
    done = coach("check", "-", "--backend", "local", stdin=log)
    assert done.returncode == 1
    assert "critical MEM001 cuda-out-of-memory" in done.stdout
    assert "<stdin>:9: torch.OutOfMemoryError" in done.stdout


def test_a_line_names_the_runs_above_the_judged_one(coach) -> None:  # type: ignore[no-untyped-def]
    raised = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
    log = f"{raised}KeyError: 'lr'\nnohup: ignoring input\n{raised}ZeroDivisionError: division by zero\n"
    done = coach("check", "-", "--backend", "local", stdin=log.encode())
    assert (done.returncode, "KeyError: 'lr'" in done.stdout) == (1, False)
    told = "an earlier run in the same log, not checked: it ended at <stdin>:4: KeyError"
    assert told in done.stdout


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            'Traceback (most recent call last):\n  File "train.py", line 9\n    main()\nEOFError',
            "EOFError",
        ),
        ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr", "--lrr"),
        ("python3: can't open file '/a/trian.py': [Errno 2] No such file or directory", "/a/trian.py"),
    ],
    ids=["a traceback", "refused arguments", "a missing script"],
)
def test_a_line_that_reports_success_hides_no_crash(coach: Coach, error: str, words: str) -> None:
    log = f"{error}\nTraining finished\njob completed successfully\n"
    done = coach("check", "-", "--backend", "local", stdin=log.encode())
    assert (done.returncode, words in done.stdout) == (1, True)


BAR = "\r".join(f" {done}0%|#         | {done}/10 [00:0{done}<00:09,  1.10s/it]" for done in range(6))
WARNING = "/env/torch/functional.py:504: UserWarning: indexing is required\n  return _VF.meshgrid(x)\n"
CONDA = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
SITE = (
    'Traceback (most recent call last):\n  File "/etc/site/news.py", line 4, in <module>\n'
    "    import simplejson\nModuleNotFoundError: No module named 'simplejson'\n"
)
LIMIT = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-10T08:00:00 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("above", "end", "cause"),
    [
        (WARNING, LIMIT, "slurm_timeout"),
        (CONDA, LIMIT, "slurm_timeout"),
        (SITE, LIMIT, "slurm_timeout"),
        (WARNING, " Killed", "host_oom"),
        (CONDA, "Killed", "host_oom"),
    ],
)
def test_an_end_that_is_glued_to_a_progress_bar_is_named(
    coach: Coach, above: str, end: str, cause: str
) -> None:
    log = f"{above}{BAR}{end}\n"
    done = coach("check", "-", "--format", "json", "--backend", "local", stdin=log.encode())
    assert (json.loads(done.stdout)["findings"][0]["cause"], done.returncode) == (cause, 1)


@pytest.mark.parametrize("device", ["device: cpu", "Using cpu device", "INFO Device = 'cpu'", "device: cuda"])
def test_hydra_and_argparse_are_heard_on_every_device(coach: Coach, device: str) -> None:
    hydra = (
        "Error in call to target 'gait.Trainer':\nUsageError('batch is odd')\n\nSet the environment variable \
HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    for error in (hydra, "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr\n"):
        done = coach("check", "-", "--backend", "local", stdin=f"{device}\n{error}".encode())
        assert (done.returncode, "critical COD001" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    "lines",
    [
        (
            "Exception ignored in: <function Session.__del__ at 0x7f10aa00>",
            "Traceback (most recent call last):",
            '  File "/opt/env/client.py", line 357, in __del__',
            "TypeError: 'NoneType' object is not callable",
            "process finished with exit code 0",
        ),
        (
            "[I 10:04:21.330 NotebookApp] Kernel interrupted: 77ab",
            "Traceback (most recent call last):",
            '  File "/opt/env/kernelbase.py", line 461, in dispatch_queue',
            "    await self.process_one()",
            "KeyboardInterrupt",
            "[I 10:06:47.221 NotebookApp] Saving file at /try.ipynb",
        ),
        (
            *SITE.splitlines(),
            *(f"epoch {epoch} loss {1 / (1 + epoch):.3f}" for epoch in range(9)),
        ),
    ],
    ids=["ignored by Python", "an interrupted kernel", "a script of the site"],
)
def test_an_exception_that_ended_no_program_is_no_alarm(coach: Coach, lines: tuple[str, ...]) -> None:
    done = coach("check", "-", "--backend", "local", stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("fail_on", "status"), [("info", 1), ("warning", 0)])
def test_fail_on_sets_the_severity_from_which_the_status_is_1(coach, fail_on: str, status: int) -> None:  # type: ignore[no-untyped-def]
    log = RECORDINGS / "typed/cuda-oom-caught.log"
    assert coach("check", log, "--fail-on", fail_on, "--backend", "local").returncode == status


def test_a_binary_file_is_refused_in_one_line(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "model.pt"
    file.write_bytes(b"PK\x03\x04" + bytes(10000))
    done = coach("check", file, "--backend", "local")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "a binary file, not a log" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_target_that_does_not_exist_is_status_2(coach) -> None:  # type: ignore[no-untyped-def]
    done = coach("check", "nothing-of-that-name", "--backend", "local")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_doubt_is_shown_as_a_word_and_never_as_a_percentage(coach) -> None:  # type: ignore[no-untyped-def]
    killed = coach("check", RECORDINGS / "ended" / "shell-killed.log").stdout
    assert "warning MEM008 killed-silently (possible)" in killed
    clear = coach("check", RECORDINGS / "ended" / "module-not-found.log").stdout
    assert "critical ENV007 module-not-found\n" in clear
    assert "%" not in killed + clear


def test_hostile_text_in_a_log_never_reaches_the_terminal(coach) -> None:  # type: ignore[no-untyped-def]
    done = coach(
        "check", "-", "--backend", "local", stdin=b"CUDA error: out of memory \x1b]0;owned\x07 \xe2\x80\xae\n"
    )
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_hostile_names_in_an_error_never_reach_the_terminal(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "run-1\x1b]0;owned\x07\nCOMPLETED").touch()
    done = coach("check", tmp_path / "run-1\x1b]0;owned\x07", "--backend", "local")
    assert done.returncode == 2
    assert "did you mean run-1␛]0;owned␇␊COMPLETED?" in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_without_a_target_own_jobs_are_judged(coach) -> None:  # type: ignore[no-untyped-def]
    done = coach("check", "--format", "json", "--backend", "local")
    assert (json.loads(done.stdout), done.returncode) == ({"schema": 1, "jobs": []}, 0)


def checked_queue(
    tmp_path: Path, log: str, state: str = "RUNNING"
) -> tuple[subprocess.CompletedProcess[str], str]:
    """`coach check` with three jobs in the queue that write into this log. Returns also the queries to the
    queue."""
    asked = tmp_path / "asked"
    job = {"username": getpass.getuser(), "state": state, "workdir": "/", "stdout": log, "stderr": log}
    job["endtime"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 3600))
    clients = tmp_path / "bin"
    clients.mkdir(exist_ok=True)
    (clients / "squeue").write_text(SQUEUE.format(python=sys.executable, asked=str(asked), job=job))
    (clients / "scontrol").write_text(f"#!/bin/sh\necho one by one >> {asked}\n")
    for client in clients.iterdir():
        client.chmod(0o755)
    site = tmp_path / "site.toml"
    env = {
        **os.environ,
        "COACH_HOME": str(tmp_path / "home"),
        "PATH": f"{clients}:{os.environ['PATH']}",
        **({"COACH_SITE": str(site)} if site.exists() else {}),
    }
    done = typed_coach(("check", "--format", "json", "--backend", "slurm"), env)
    return done, asked.read_text()


def test_one_query_of_the_queue_finds_all_own_jobs_and_their_output_files(tmp_path: Path) -> None:
    done, asked = checked_queue(tmp_path, str(RECORDINGS / "typed/cuda-oom.log"))
    found = json.loads(done.stdout)["jobs"]
    assert [(item["target"], item["state"]) for item in found] == [(str(n), "RUNNING") for n in (42, 43, 44)]
    assert [item["findings"][0]["rule"] for item in found] == ["MEM001"] * 3
    assert (done.returncode, asked) == (1, "asked\n")


SACCT = """#!{python}
import sys
if "AdminComment" not in sys.argv[-1]:
    sys.exit("not asked here")
which, separator = (sys.argv[sys.argv.index(option) + 1] for option in ("-j", "--delimiter"))
open({asked!r}, "a").write(which + "\\n")
for job_id in which.split(","):
    print(separator.join([job_id, {comment!r}, ""]))
"""


def test_jobstats_comments_of_ended_jobs_are_fetched_in_one_query_and_judged(tmp_path: Path) -> None:
    asked = tmp_path / "summaries"
    comments = (RECORDINGS.parent / "fixtures/slurm/public/admin-comments.txt").read_text().splitlines()
    comment = next(line for line in comments if line.startswith("four-idle ")).split()[1]
    clients = tmp_path / "bin"
    clients.mkdir()
    (clients / "sacct").write_text(SACCT.format(python=sys.executable, asked=str(asked), comment=comment))
    done, _ = checked_queue(tmp_path, str(tmp_path / "no.log"), state="COMPLETED")
    found = json.loads(done.stdout)["jobs"]
    assert [item["findings"][0]["rule"] for item in found] == ["GPU003"] * 3
    assert "jobstats, mean over the job" in found[0]["findings"][0]["evidence"][0]["text"]
    assert asked.read_text() == "42,43,44\n"
    (tmp_path / "site.toml").write_text("[switches]\nhistory = false\n")
    done, _ = checked_queue(tmp_path, str(tmp_path / "no.log"), state="COMPLETED")
    assert [item["findings"] for item in json.loads(done.stdout)["jobs"]] == [[]] * 3
    assert asked.read_text() == "42,43,44\n"


def test_a_job_with_the_log_of_an_open_drill_is_left_out_of_the_own_jobs(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "elsewhere" / "20261121-142230-typo-0000"
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_text(json.dumps({"recipe": "typo", "drill": "typo", "backend": "slurm"}))
    log = shutil.copy(RECORDINGS / "typed/cuda-oom.log", run_dir / "stdout.log")
    done, _ = checked_queue(tmp_path, str(log))
    for item in json.loads(done.stdout)["jobs"]:
        assert item["findings"] == []
        assert [each["because"] for each in item["not_measured"]] == ["drill: answer first"]
    assert done.returncode == 0


def test_a_word_of_slurm_or_of_a_screen_is_explained(coach) -> None:  # type: ignore[no-untyped-def]
    for word, said in (
        ("oUt_of_memory", "more --mem"),
        ("QOSMaxGRESPerUser", "another --qos"),
        ("idle+drain", "takes no new jobs"),
        ("queue.left", "squeue, fields TimeLeft"),
        ("Lustre-striping", "lfs setstripe -c"),
    ):
        assert said in coach("explain", word).stdout
    assert coach("explain", "squirrel").returncode == 2
    assert "did you mean lustre_striping?" in coach("explain", "lustre").stderr


def test_a_rule_file_s_threshold_is_explained(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "rules.toml").write_text("[thresholds.COD001]\nmax_lines_after = 22\n")
    (home / "config.toml").write_text(f'[rules]\nfiles = ["{tmp_path}/rules.toml"]\n')
    assert "max_lines_after = 22" in coach("explain", "COD001").stdout


def test_a_rule_is_explained_with_the_threshold_of_the_config(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text("[rules.NUM001]\nconsecutive = 5\n")
    done = coach("explain", "num001")
    assert done.returncode == 0
    assert "When it stays silent" in done.stdout
    assert "consecutive = 5 values (default 2)" in done.stdout


def test_a_misspelt_rule_in_the_config_is_refused_with_file_and_line(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text("[rules.NUM01]\nconsecutive = 5\n")
    done = coach("check", RECORDINGS / "healthy", "--backend", "local")
    assert done.returncode == 2
    assert "config.toml:" in done.stderr
    assert "did you mean NUM001?" in done.stderr


def test_two_runs_are_compared_as_text_and_as_json(coach) -> None:  # type: ignore[no-untyped-def]
    runs = (RECORDINGS / "nan", RECORDINGS / "healthy", "--backend", "local")
    text = coach("compare", *runs)
    assert text.returncode == 0
    assert "lr: 1e+20 → 0.05" in text.stdout
    assert "better: NaN from step 2 → finite" in text.stdout
    value = json.loads(coach("compare", *runs, "--format", "json").stdout)
    assert [row["quantity"] for row in value["rows"]][-1] == "loss"


def test_the_numbers_that_a_log_prints_are_judged(
    coach,  # type: ignore[no-untyped-def]
    tmp_path: Path,
) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(
            f"[rank{rank}] step {step} loss 0.1 data_time {0.5 if rank == 2 else 0.03} step_time 0.51\n"
            for step in range(0, 400, 10)
            for rank in (2, 0, 3, 1)
        )
    )
    for told in (coach("check", log).stdout, coach("check", "-", stdin=log.read_bytes()).stdout):
        assert "All ranks wait for rank 2: 92% of each step, because its data come later" in told
        assert "metrics: " not in told


def test_a_log_without_a_loss_is_not_compared(coach, tmp_path) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path / "hello.log"
    log.write_text("hello\n")
    done = coach("compare", RECORDINGS / "nan", log, "--backend", "local")
    assert done.returncode == 2
    assert f"{log}: no loss and no step was found" in done.stderr


def test_all_rules_are_listed_and_muted_ones_are_marked(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text('[rules]\nmute = ["GPU003"]\n')
    listed = coach("explain", "--list").stdout.splitlines()
    assert listed[0].split() == ["CODE", "NAME", "SEVERITY", "WHAT"]
    assert any(line.startswith("MEM001") and " critical " in line for line in listed)
    assert any(line.startswith("GPU003") and " muted " in line for line in listed)
    assert any(line.startswith("TOPIC ") for line in listed)
    assert coach("explain", "MEM001", "--list").returncode == 2


def test_the_thresholds_used_and_the_muted_rules_are_printed(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text(
        '[rules]\nmute = ["GPU003"]\n[rules.NUM001]\nconsecutive = 3\n'
    )
    said = coach("check", RECORDINGS / "nan", "--backend", "local").stdout
    assert "NUM001.consecutive = 3" in said
    assert "muted by the config: GPU003" in said


def test_a_directory_that_is_no_run_is_judged_by_its_logs_and_their_names_are_listed(
    coach, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "job").mkdir()
    (tmp_path / "job/slurm-17.out").write_bytes((RECORDINGS / "typed/cuda-oom.log").read_bytes())
    done = coach("check", tmp_path / "job", "--backend", "local")
    assert (done.returncode, "MEM001" in done.stdout) == (1, True)
    assert f"  read:\n    {tmp_path}/job/slurm-17.out\n" in done.stdout
    assert "flight-recorder dumps" in done.stdout
    value = json.loads(coach("check", tmp_path / "job", "--backend", "local", "--format", "json").stdout)
    assert value["files"] == [{"path": f"{tmp_path}/job/slurm-17.out", "problem": None}]
    assert value["not_found"]


LOSSES = [*(2.0 / (1 + n) for n in range(30)), *[float("nan")] * 20]
LINES = {
    "training_log.csv": ["epoch,accuracy,loss", *(f"{n},0.5,{loss}" for n, loss in enumerate(LOSSES))],
    "results.csv": ["epoch\ttrain_loss", *(f"{n}\t{loss}" for n, loss in enumerate(LOSSES))],
    "trainer_log.jsonl": [
        json.dumps({"current_steps": n, "loss": loss, "lr": 1e-4}) for n, loss in enumerate(LOSSES)
    ],
    "losses.csv": ["step,loss", *(f"{n},{loss}" for n, loss in enumerate(LOSSES))],
    **{
        name: [f"step {n} loss {loss}" for n, loss in enumerate(LOSSES)]
        for name in ("train.log", "train_output", "nohup.out.1")
    },
}


@pytest.mark.parametrize("name", LINES)
def test_a_folder_with_one_file_is_judged_as_the_file_alone(coach: Coach, tmp_path: Path, name: str) -> None:
    (tmp_path / "job").mkdir()
    file = tmp_path / "job" / name
    file.write_text("\n".join(LINES[name]) + "\n")
    found: list[tuple[int, str]] = []
    for target in (file, file.parent):
        done = coach("check", target, "--backend", "local", "--format", "json")
        finding = json.loads(done.stdout)["findings"][0]
        assert finding["summary"].startswith("The loss is NaN since ")
        found.append((done.returncode, finding["rule"]))
    assert found == [(1, "NUM001")] * 2


def test_a_log_that_is_named_takes_the_place_of_those_of_the_target(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = RECORDINGS / "typed/cuda-oom.log"
    done = coach("check", RECORDINGS / "healthy", "--log", log, "--backend", "local")
    assert f"{log}:9" in done.stdout
    missing = coach("check", RECORDINGS / "healthy", "--log", tmp_path / "none", "--backend", "local")
    assert (missing.returncode, "no such file" in missing.stderr) == (2, True)
    alone = coach("check", "--log", log, "--backend", "local")
    assert (alone.returncode, "one TARGET" in alone.stderr) == (2, True)
    piped = coach("check", "-", "--log", log, "--backend", "local", stdin=b"x\n")
    assert (piped.returncode, "one TARGET" in piped.stderr) == (2, True)


def test_metrics_that_are_named_are_judged(coach, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{step},{0.5 if step < 40 else 'nan'}" for step in range(80)]
    (tmp_path / "metrics.csv").write_text("\n".join(["step,train_loss", *rows]) + "\n")
    for target in (tmp_path / "metrics.csv", tmp_path):
        done = coach("check", target, "--backend", "local")
        assert (done.returncode, "NUM001" in done.stdout) == (1, True), done.stdout


def test_the_list_of_own_jobs_loads_no_screens(tmp_path: Path) -> None:
    program = (
        "import sys; from coach.__main__ import main; sys.argv = ['coach', 'check', '--backend', 'local']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('textual', 'rich.console', 'coach.tui'))])"
    )
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize(("number", "words"), [(1, "1 more job was not"), (2, "2 more jobs were not")])
def test_jobs_beyond_the_limit_are_counted_in_good_english(
    number: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell_left_out(number)
    assert words in capsys.readouterr().err
