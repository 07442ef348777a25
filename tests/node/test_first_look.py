"""The node's first look: a job that cannot train ends in its first second with the reason; an unknown fact
ends no job."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.node import first_look
from coach.node.torch_build import parse_version_file, satisfies
from coach.sources.runs.run_files import parse_exit
from tests.node.conftest import NODE, Start
from tests.nvml.stand_in import NvmlStandIn

CPU_WHEEL = "__version__ = '2.6.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
CUDA_WHEEL = "__version__ = '2.9.1+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
ROCM_WHEEL = "__version__ = '2.6.0+rocm6.2'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.2.41133'\n"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "trainer.py")

Look = Callable[..., "first_look.Refusal | None"]


def launched(run_dir: Path, gpus: int = 0, torch: str | None = None) -> Path:
    """A run directory as a launch leaves it."""
    (run_dir / "metrics").mkdir(parents=True)
    value = {"schema": 1, "run_id": run_dir.name, "launch": {"recipe": "ddp"}}
    value |= {
        "resources": {"num_nodes": 1, "gpus_per_node": gpus},
        "requires": {"torch": torch} if torch else {},
    }
    (run_dir / "run.json").write_text(json.dumps(value))
    return run_dir


def install_torch(folder: Path, version_file: str) -> Path:
    """A torch package with only its name and its version file. Returns the entry for PYTHONPATH."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "torch" / "version.py").write_text(version_file)
    return folder


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> NvmlStandIn:
    """Compiled once: every test describes its own driver."""
    return NvmlStandIn(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvml: NvmlStandIn) -> Look:
    """Look from a node that the arguments describe: the wheel, the driver's CUDA, the GPUs that NVML sees."""

    def look_from(
        wheel: str = CPU_WHEEL,
        *more: str,
        cuda: int | None = None,
        num_gpus: int = 0,
        env: Mapping[str, str] | None = None,
        **run: Any,
    ) -> first_look.Refusal | None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)  # an imported one would be found instead
        monkeypatch.syspath_prepend(str(install_torch(tmp_path / "site", wheel)))
        for name, value in nvml.env.items():
            monkeypatch.setenv(name, value)
        if cuda is None:
            nvml.unload_driver()
        else:
            nvml.set_gpus([{}] * num_gpus)
            monkeypatch.setenv("NVML_STAND_IN_CUDA", str(cuda))
        (tmp_path / "dev").mkdir()
        paths = runs.RunPaths(launched(tmp_path / "run", **run))
        return first_look.look(paths, "node1", [*TORCHRUN, *more], env or {}, tmp_path / "dev")

    return look_from


def test_a_cpu_wheel_on_a_gpu_node_is_refused_and_both_versions_are_named(look: Look) -> None:
    refusal = look(CPU_WHEEL, gpus=1, cuda=12080, num_gpus=1)
    assert refusal is not None
    assert refusal.cause == "cuda_unavailable"
    assert "torch 2.6.0+cpu" in refusal.text
    assert "the NVIDIA driver there is 999.99 (CUDA 12.8)" in refusal.text


def test_a_driver_older_than_the_wheel_is_refused_and_both_versions_are_named(look: Look) -> None:
    refusal = look(CUDA_WHEEL, gpus=1, cuda=12080, num_gpus=1)
    assert refusal is not None
    assert refusal.cause == "driver_too_old"
    assert all(
        version in refusal.text for version in ("999.99", "CUDA up to 12.8", "2.9.1+cu130", "CUDA 13.0")
    )


@pytest.mark.parametrize("cuda", [13000, 13010, 14000])
def test_a_driver_of_the_wheels_major_version_or_newer_is_fine(look: Look, cuda: int) -> None:
    assert look(CUDA_WHEEL, gpus=1, cuda=cuda, num_gpus=1) is None


def test_allotted_gpus_that_are_not_there_are_refused(look: Look) -> None:
    refusal = look(CUDA_WHEEL, gpus=2)
    assert refusal is not None
    assert refusal.cause == "cuda_unavailable"
    assert "no NVIDIA driver there" in refusal.text
    assert "built for CUDA 13.0" in refusal.text


def test_a_job_whose_gpus_are_hidden_from_it_is_refused(look: Look) -> None:
    refusal = look(CUDA_WHEEL, gpus=1, cuda=13000, num_gpus=1, env={"CUDA_VISIBLE_DEVICES": "NoDevFiles"})
    assert refusal is not None
    assert "CUDA_VISIBLE_DEVICES=NoDevFiles" in refusal.text


def test_a_job_without_gpus_is_never_refused_for_them(look: Look) -> None:
    assert look(CPU_WHEEL, gpus=0) is None


def test_other_vendors_gpus_are_left_to_the_trainer(look: Look) -> None:
    assert look(ROCM_WHEEL, gpus=1) is None


def test_a_torch_that_is_too_old_is_refused_and_both_versions_are_named(look: Look) -> None:
    refusal = look(CPU_WHEEL, torch=">=2.8")
    assert refusal is not None
    assert refusal.cause == "version_conflict"
    assert "2.6.0+cpu" in refusal.text
    assert ">=2.8" in refusal.text


def test_a_torch_that_fits_and_one_that_cannot_be_read_are_not_refused(look: Look) -> None:
    assert look(CPU_WHEEL, torch=">=2.6") is None
    assert satisfies("unknown", ">=2.6") is None


def test_a_data_directory_that_the_node_does_not_see_is_refused(look: Look) -> None:
    refusal = look(CPU_WHEEL, "--data_dir=/no/such/data")
    assert refusal is not None
    assert refusal.cause == "file_not_found"
    assert "/no/such/data does not exist on node1" in refusal.text


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (errno.EDQUOT, "disk_quota", "the disk quota is used up"),
        (errno.ENOSPC, "disk_quota", "no space is left"),
        (errno.EROFS, "permission_denied", "read-only"),
        (errno.EACCES, "permission_denied", "Permission denied"),
        (errno.ENOENT, "permission_denied", "does not exist"),
    ],
)
def test_a_run_directory_that_cannot_take_a_file_is_refused_with_the_reason(
    look: Look, monkeypatch: pytest.MonkeyPatch, error: int, cause: str, words: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fail)
    refusal = look()
    assert refusal is not None
    assert refusal.cause == cause
    assert words in refusal.text


def test_an_unknown_error_of_the_file_system_refuses_nothing_and_the_probe_is_gone(
    look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EINVAL, "not for this kind of file")

    monkeypatch.setattr(os, "fsync", fail)
    assert look() is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["metrics", "run.json"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"f_bavail": 100}, "only 0 MiB are free"), ({"f_favail": 3}, "only 3 more files fit")],
)
def test_too_little_space_is_refused_before_the_first_checkpoint_fails(
    look: Look, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], words: str
) -> None:
    order = (
        "f_bsize",
        "f_frsize",
        "f_blocks",
        "f_bfree",
        "f_bavail",
        "f_files",
        "f_ffree",
        "f_favail",
        "f_flag",
    )
    values = dict.fromkeys(order, 1 << 20) | {"f_frsize": 4096} | fields
    found = os.statvfs_result([*(values[name] for name in order), 255])
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    refusal = look()
    assert refusal is not None
    assert (refusal.cause, words in refusal.text) == ("disk_quota", True)


def test_a_users_own_command_is_never_judged(start: Start, tmp_path: Path) -> None:
    done = start("run", "--run-dir", str(tmp_path / "run"), "--", "sh", "-c", "exit 3", "--data_dir=/none")
    done.communicate(timeout=30)
    assert done.returncode == 3


def test_a_refused_job_ends_at_once_and_its_run_says_why(start: Start, tmp_path: Path) -> None:
    run_dir = launched(tmp_path / "run")
    command = ["sh", "-c", f"touch {tmp_path}/trained", "--data_dir=/no/such/data"]
    began = time.monotonic()
    job = start("run", "--run-dir", str(run_dir), "--", *command, env={"SLURM_JOB_ID": "17"})
    stdout, stderr = job.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (job.returncode, stdout) == (78, "")
    assert stderr.startswith(
        "coach: file_not_found: the data directory /no/such/data does not exist on node1"
    )
    assert not (tmp_path / "trained").exists()
    assert json.loads((run_dir / "run.json").read_text())["job_id"] == "17"
    ended = json.loads((run_dir / "exit.json").read_text())
    assert ended["nodes"]["node1"]["exit_code"] == 78
    refused = parse_exit(ended).refused
    assert refused is not None
    assert (refused.cause, refused.node) == ("file_not_found", "node1")


def test_a_run_directory_that_takes_no_folders_is_still_looked_at(start: Start, tmp_path: Path) -> None:
    run_dir = launched(tmp_path / "run")
    (run_dir / "metrics").rmdir()
    (run_dir / "metrics").write_text("in the way")  # as root, nothing is forbidden
    job = start("run", "--run-dir", str(run_dir), "--", "true", "--data_dir=/no/such/data")
    _, stderr = job.communicate(timeout=30)
    assert (job.returncode, stderr.count("\n")) == (78, 1)


def test_a_trainers_own_refusal_is_found_in_torchruns_error_file(tmp_path: Path, start: Start) -> None:
    run_dir = launched(tmp_path / "run")
    # As torchrun does: the message goes to a file below the folder that $PET_LOG_DIR names.
    said = json.dumps({"message": {"message": "Refused: cuda_unavailable: GPUs were allotted, but …"}})
    error_dir = '"$PET_LOG_DIR/x_y/attempt_0/0"'
    script = f"mkdir -p {error_dir}; printf '%s' '{said}' > {error_dir}/error.json; exit 1"
    job = start("run", "--run-dir", str(run_dir), "--", "sh", "-c", script)
    job.communicate(timeout=30)
    refused = parse_exit(json.loads((run_dir / "exit.json").read_text())).refused
    assert refused is not None
    assert (refused.cause, refused.text) == ("cuda_unavailable", "GPUs were allotted, but …")


def test_the_other_node_of_a_refused_job_does_not_wait_for_its_peer(start: Start, tmp_path: Path) -> None:
    run_dir = launched(tmp_path / "run")
    run = ("run", "--run-dir", str(run_dir), "--")
    two = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "2"}
    first = start(*run, "sleep", "60", env={**two, "SLURM_NODEID": "0"})
    second = start(
        *run, "true", "--data_dir=/none", env={**two, "SLURM_NODEID": "1", "SLURMD_NODENAME": "node2"}
    )
    _, stderr = first.communicate(timeout=20)
    second.communicate(timeout=20)
    assert second.returncode == 78
    assert first.returncode == -15
    assert "ended, because node2 cannot train" in stderr


def test_versions_are_compared_as_numbers() -> None:
    assert satisfies("2.10.0+cu128", ">=2.6")
    assert satisfies("2.6.0a0+ecf3bae40a.nv25.01", ">=2.6,<3")
    assert satisfies("2.5.1", ">=2.6") is False
    assert satisfies("2.6.1", "==2.6.*")
    assert satisfies("3.0", "~=2.6") is False
    assert satisfies("2.6.0", "about 2.6") is None


def test_a_version_file_names_the_cuda_that_torch_was_built_for() -> None:
    assert parse_version_file(CUDA_WHEEL) == ("2.9.1+cu130", "13.0", True)
    assert parse_version_file(CPU_WHEEL) == ("2.6.0+cpu", None, False)
    assert parse_version_file(ROCM_WHEEL) == ("2.6.0+rocm6.2", None, True)
    assert parse_version_file("__version__ = '2.6.0'\n") == ("2.6.0", None, None)


@pytest.mark.train
@pytest.mark.long  # torchrun's file is read above, and the refusal is tested with the trainers
def test_a_trainer_s_refusal_under_torchrun_is_written_to_exit_json(start: Start, tmp_path: Path) -> None:
    run_dir = launched(tmp_path / "run")
    trainer = NODE.parents[1] / "trainers" / "baseline.py"
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=1",
        str(trainer),
    ]
    # The launch asked for no GPU, so only the trainer looks for one.
    flags = [f"--run_dir={run_dir}", "--gpus_per_node=1"]
    job = start("run", "--run-dir", str(run_dir), "--", *torchrun, *flags, env={"CUDA_VISIBLE_DEVICES": "31"})
    _, stderr = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "coach: cuda_unavailable: GPUs were allotted on node1" in stderr
    refused = parse_exit(json.loads((run_dir / "exit.json").read_text())).refused
    assert refused is not None
    assert refused.cause == "cuda_unavailable"
    assert refused.text.startswith("GPUs were allotted on node1, but ")
