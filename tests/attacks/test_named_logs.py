"""A job or a run names files. Those of another user are opened for that user, whoever looks, also root."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.sources.io import SystemIo, for_user
from coach.workflows.judging.job_files import Kind, find_files, kind_of
from tests.attacks.mallory import UID, Mallory
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.terminal.tmux import Terminal

pytestmark = pytest.mark.root

RUN = "20261121-142233-ddp-4f2a"
SECRET = "opensesame"
KEY = f"""machine hub login ada password {SECRET}
Traceback (most recent call last):
  File "/home/ada/train.py", line 3, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB {SECRET}
"""
CAUSE = "MEM001"
"""What coach says of a program that ended with this text."""
REFUSED = "belongs to nobody, not to uid 64999"


@pytest.fixture
def key(user: User) -> Path:
    """A private file of the victim."""
    path = user.home / ".netrc"
    path.write_text(KEY)
    path.chmod(0o600)
    os.chown(path, user.uid, user.gid)
    return path


@pytest.fixture(params=["user", "root"])
def local_viewer(
    request: pytest.FixtureRequest, local_coach: InstalledCoach, tmp_path: Path
) -> InstalledCoach:
    return local_coach if request.param == "user" else as_root(local_coach, tmp_path)


@pytest.fixture(params=["user", "root"])
def viewer(request: pytest.FixtureRequest, user_coach: InstalledCoach, tmp_path: Path) -> InstalledCoach:
    return user_coach if request.param == "user" else as_root(user_coach, tmp_path)


def as_root(coach: InstalledCoach, home: Path) -> InstalledCoach:
    """The same coach, started by root."""
    return InstalledCoach(
        coach.python, User(0, 0, "root", home), {**coach.surroundings, "COACH_AS_ROOT": "1"}
    )


def make_run(mallory: Mallory, **more: object) -> Path:
    """A failed run of hers that everybody can read, without logs."""
    run_dir = mallory.make_folder(RUN)
    times = {"created_time_s": time.time() - 60, "ended_time_s": time.time() - 9}
    value = {"run_id": RUN, "recipe": "ddp", "backend": "local", "job_id": RUN, "state": "FAILED"}
    mallory.write(run_dir / "run.json", json.dumps({**value, **times, **more}))
    ended = {"state": "FAILED", "exit_code": 1, "ended_time_s": times["ended_time_s"]}
    mallory.write(run_dir / "exit.json", json.dumps(ended))
    return run_dir


def printed_about(coach: InstalledCoach, target: Path | str) -> str:
    """All that these commands print and write about a target."""
    texts = []
    for args in (
        ("why", target),
        ("check", target),
        ("check", target, "--format", "json"),
        ("ticket", target),
    ):
        done = coach(*args)
        texts += [done.stdout, done.stderr]
    return "\n".join(texts)


@pytest.mark.parametrize("name", ["stderr.log", "job.sh", "output"])
def test_another_users_run_leads_to_no_private_file(
    local_viewer: InstalledCoach, mallory: Mallory, key: Path, name: str
) -> None:
    output = {"stdout": str(key), "stderr": str(key)}
    run_dir = make_run(mallory, **({"output": output, "command": ["train"]} if name == "output" else {}))
    if name != "output":
        mallory.link(run_dir / name, key)
    text = printed_about(local_viewer, run_dir)
    assert SECRET not in text
    assert CAUSE not in text
    assert REFUSED in text


def test_a_recording_holds_no_private_file_that_another_users_run_links(
    local_viewer: InstalledCoach, mallory: Mallory, key: Path
) -> None:
    run_dir = make_run(mallory)
    for name in ("stdout.log", "stderr.log", "job.sh"):
        mallory.link(run_dir / name, key)
    mallory.make_folder(f"{RUN}/metrics")
    mallory.link(run_dir / "metrics" / "rank-0.jsonl", key)
    file = local_viewer.user.home / "recording.gz"
    done = local_viewer("record", file, "--run", run_dir, "--for", "3", "--backend", "local")
    assert done.returncode == 0, done.stderr
    recorded = gzip.decompress(file.read_bytes()).decode()
    assert str(run_dir / "stderr.log") in recorded
    assert SECRET not in recorded


def test_own_private_logs_and_public_logs_of_others_are_read(
    local_coach: InstalledCoach, mallory: Mallory, key: Path, tmp_path: Path
) -> None:
    run_dir = make_run(mallory)
    log = mallory.write(run_dir / "stderr.log", KEY)
    assert CAUSE in local_coach("why", run_dir).stdout
    log.chmod(0o600)
    assert CAUSE in as_root(local_coach, tmp_path)("why", run_dir).stdout
    assert "Permission denied" in local_coach("why", run_dir).stdout
    log.unlink()
    public = key.parent.parent / f"public-{key.parent.name}.log"
    public.write_text(KEY)
    mallory.link(log, public)
    assert CAUSE in local_coach("why", run_dir).stdout
    log.unlink()
    mallory.link(log, key)
    for path in (run_dir, *run_dir.iterdir()):
        os.chown(path, local_coach.user.uid, local_coach.user.gid, follow_symlinks=False)
    assert CAUSE in local_coach("why", run_dir).stdout


def test_a_search_in_the_directory_of_a_job_leaves_private_files_of_others_out(mallory: Mallory) -> None:
    public, private = mallory.folder / "trainer_state.json", mallory.folder / "metrics.csv"
    for path, mode in ((public, 0o644), (private, 0o600)):
        path.write_text(SECRET)
        path.chmod(mode)
    hers = mallory.write(Path("metrics.jsonl"), "{}", 0o600)
    io = for_user(SystemIo({}), lambda: str(UID))
    assert find_files(io, mallory.folder, kind_of).of(Kind.METRICS) == (hers, public)
    with pytest.raises(PermissionError, match="belongs to root, not to uid 64999"):
        io.read(private, 0, 99)
    with pytest.raises(PermissionError, match="belongs to root, not to an unknown user"):
        for_user(SystemIo({}), lambda: "").size(private)


@pytest.mark.cluster
def test_another_users_job_names_no_private_file_as_its_output(
    viewer: InstalledCoach, slurm: SlurmCluster, mallory: Mallory, key: Path
) -> None:
    done = mallory.run(["sbatch", "--parsable", "-o", str(key), "--wrap", "true"], slurm.env)
    assert done.returncode == 0, done.stderr
    text = printed_about(viewer, done.stdout.strip())
    assert SECRET not in text
    assert CAUSE not in text
    assert REFUSED in text


@pytest.mark.cluster
@pytest.mark.terminal
def test_the_screens_show_no_private_file_that_another_users_job_names(
    user_coach: InstalledCoach,
    slurm: SlurmCluster,
    mallory: Mallory,
    key: Path,
    open_terminal: Callable[..., Terminal],
) -> None:
    done = mallory.run(["sbatch", "--parsable", "-o", str(key), "--wrap", "true"], slurm.env)
    job_id = done.stdout.strip()
    terminal = open_terminal(user_coach.argv(), env=user_coach.env(), as_user=user_coach.user)
    terminal.wait_for("everybody's")
    terminal.send("a")
    terminal.wait_for(job_id)
    terminal.send(":")
    terminal.send_text(job_id)
    terminal.send("Enter")
    assert SECRET not in terminal.wait_for("work dir")
    terminal.send("l")
    assert SECRET not in terminal.wait_for(REFUSED.partition(",")[0])
