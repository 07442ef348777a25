"""Data sets of another user: they are numbers, or they are refused. Nothing in them runs."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import pytest

from tests.attacks.mallory import Mallory
from tests.installed import InstalledCoach
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.root, pytest.mark.train]

FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")

UNPICKLE = """
import hashlib, sys
from pathlib import Path
from common import data
folder = Path(sys.argv[1])
for files in (data.TRAIN_FILES, data.TEST_FILES):  # as if these were the published files
    files.update((name, hashlib.md5((folder / name).read_bytes()).hexdigest()) for name in files)
data.read_cifar10(folder)
"""


class _Program:
    """Pickled, it runs a shell command where it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


def plant(mallory: Mallory, folder: Path, mark: Path) -> Path:
    """A set of hers in the form of CIFAR-10, with the marker that once switched the checksums off."""
    folder.mkdir(parents=True)
    for each in (folder, *folder.parents):
        if mallory.folder in each.parents:
            mallory.own(each)
    content = pickle.dumps(_Program(f"id -u >> '{mark}'"), protocol=2)
    for name in FILES:
        mallory.write(folder / name, content)
    mallory.write(folder / "SYNTHETIC", "")
    return folder


def python(coach: InstalledCoach, cwd: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The victim's Python, in that directory."""
    return subprocess.run(
        coach.user.argv([coach.python, *args]),
        env=coach.env(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200 * PATIENCE,
    )


def trainers(coach: InstalledCoach) -> Path:
    found = python(coach, Path("/"), "-c", "from coach.launch.recipe import data_dir; print(data_dir())")
    return Path(found.stdout.strip()) / "trainers"


def train(
    coach: InstalledCoach, cwd: Path, env: dict[str, str] | None = None, **flags: object
) -> subprocess.CompletedProcess[str]:
    """baseline, on few images, as one starts it by hand."""
    given = {"max_steps": 1, "width": 8, "num_train_samples": 64, "batch_size": 16, "num_workers": 0}
    given |= {"eval_every_epoch": "false", "gpus_per_node": 0, "run_dir": coach.user.home / "run", **flags}
    words = (f"--{key}={value}" for key, value in given.items())
    return python(coach, cwd, str(trainers(coach) / "baseline.py"), *words, **(env or {}))


def test_a_set_in_the_working_directory_or_on_scratch_is_never_looked_for(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    plant(mallory, mallory.folder / "data" / "cifar-10-batches-py", marks / "ran")
    env = {"SCRATCH": str(mallory.folder), "SLURM_TMPDIR": str(mallory.folder)}
    done = train(local_coach, mallory.folder, env, cache_dir=local_coach.user.home / "cache")
    assert not (marks / "ran").exists()
    assert done.returncode == 0, done.stderr
    assert "generated stand-in for CIFAR-10 in " in done.stdout
    assert f"{mallory.folder}/data" not in local_coach("data", env=env).stdout


def test_a_set_that_the_user_names_is_read_only_if_it_is_the_published_one(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    folder = plant(mallory, mallory.folder / "cifar-10-batches-py", marks / "ran")
    for data_dir in (mallory.folder, folder):
        done = train(local_coach, local_coach.user.home, data_dir=data_dir)
        assert not (marks / "ran").exists()
        assert done.returncode != 0
        assert f"{folder}/data_batch_1: not the published CIFAR-10 file, or a damaged one" in done.stderr


def test_of_a_pickle_with_the_right_checksum_nothing_runs_either(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    folder = plant(mallory, mallory.folder / "cifar-10-batches-py", marks / "ran")
    code = trainers(local_coach)
    done = python(local_coach, Path("/"), "-c", UNPICKLE, str(folder), PYTHONPATH=str(code))
    assert "UnpicklingError: it names posix.system, which is no array" in done.stderr
    assert not (marks / "ran").exists()


def test_generated_data_that_another_user_has_put_there_are_not_trained_on(
    local_coach: InstalledCoach, mallory: Mallory
) -> None:
    cache = mallory.make_folder("cache", 0o777)
    made = cache / "cifar-10-generated-10000-2000-v3"
    made.mkdir()
    mallory.own(made)
    mallory.write(made / "cifar-10-generated.npz", b"PK")
    done = train(local_coach, local_coach.user.home, cache_dir=cache)
    assert done.returncode != 0
    assert "another user may have written it" in done.stderr
    assert "--cache_dir names another folder" in done.stderr
