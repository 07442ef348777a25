"""Checks the node before the training starts. If the node lacks something that the training needs, the job
ends at once.

Otherwise a missing driver, a full disk or an old torch shows after minutes, as a traceback of some other
error. Only measured facts refuse a job. The trainer checks the rest with torch itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from coach import runs
from coach.node import torch_build
from coach.node.driver import Driver, ask_driver

EXIT_STATUS = 78
"""EX_CONFIG of sysexits.h: an error in the configuration."""

_OF_TRAINER = re.compile(r"Refused: ([a-z_]+): (.+)")
"""The trainers' exception Refused (trainers/common/), as torchrun's error file spells it."""

_PROBE_BYTES = 1 << 20
_LEAST_FREE_BYTES = 50 << 20
_LEAST_FREE_FILES = 100
_GPU_DEVICES = ("nvidia[0-9]*", "nvhost-gpu", "nvgpu", "nvmap", "dxg")
"""Names of device files: of discrete GPUs, of a Jetson board's GPU, and of WSL."""
_PROBE = ".first-look"


class Refusal(NamedTuple):
    """The reason why this job cannot train here: a finding's cause, and one line for people."""

    cause: str
    text: str

    @property
    def line(self) -> str:
        """The line for the log, which trainers print in the same form."""
        return f"coach: {self.cause}: {self.text}"


def look(
    paths: runs.RunPaths, node: str, command: List[str], env: Mapping[str, str], dev: Path = Path("/dev")
) -> Optional[Refusal]:
    """The first missing thing; None if none is known.

    A run without a launch, and an own program, are not checked: their needs are unknown.
    """
    try:
        run = runs.read_json(paths.run_json)
    except runs.RunFileError:
        return None
    resources, requires = _table(run, "resources"), _table(run, "requires")
    if (not resources and not requires) or "own" in _table(run, "launch"):
        return None
    looks: Tuple[Callable[[], Optional[Refusal]], ...] = (
        lambda: _look_at_run_dir(paths.run_dir, node),
        lambda: _look_at_environment(requires, resources, node, command, env, dev),
        lambda: _look_at_data(node, command),
    )
    for look_at in looks:
        with contextlib.suppress(Exception):  # a failed measurement refuses nothing
            refusal = look_at()
            if refusal is not None:
                return refusal
    return None


def record(paths: runs.RunPaths, refusal: Refusal, node: str) -> None:
    """Write the refusal into exit.json, which keeps the first one. Raises OSError or RunFileError if it
    cannot be written."""
    if "refused" not in (runs.read_json(paths.exit_json) if paths.exit_json.exists() else {}):
        said = {"cause": refusal.cause, "text": refusal.text, "node": node}
        runs.update_json(paths.exit_json, {"schema": runs.SCHEMA, "refused": said})


def said_by_a_trainer(messages: Iterable[Optional[str]]) -> Optional[Refusal]:
    """The first message by which one of coach's trainers refused to start."""
    found = (_OF_TRAINER.match(message) for message in messages if message)
    return next((Refusal(match[1], match[2]) for match in found if match), None)


def _look_at_run_dir(run_dir: Path, node: str) -> Optional[Refusal]:
    """Write a real file: the error tells permissions, quotas and read-only mounts apart."""
    probe = run_dir / f"{_PROBE}-{node}-{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(bytes(_PROBE_BYTES))
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)  # a network file system reports a full quota only here
        finally:
            os.close(descriptor)
    except OSError as error:
        return _not_writable(run_dir, node, error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return _short_of_space(run_dir, node)


def _not_writable(run_dir: Path, node: str, error: OSError) -> Optional[Refusal]:
    where = f"the run directory {run_dir}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return Refusal(
            "permission_denied", f"{where} cannot be written from {node}: {os.strerror(error.errno)}"
        )
    if error.errno == errno.EROFS:
        return Refusal("permission_denied", f"{where} lies on a read-only file system on {node}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Refusal(
            "permission_denied",
            f"{where} cannot be written from {node}: it does not exist there; the root of the runs has to be"
            " on a file system that every node sees",
        )
    if error.errno == errno.EDQUOT:
        return Refusal(
            "disk_quota", f"{where} cannot take another {_PROBE_BYTES >> 20} MiB: the disk quota is used up"
        )
    if error.errno == errno.ENOSPC:
        return Refusal(
            "disk_quota", f"{where} cannot take another {_PROBE_BYTES >> 20} MiB: no space is left there"
        )
    return None


def _short_of_space(run_dir: Path, node: str) -> Optional[Refusal]:
    system = os.statvfs(run_dir)
    free_bytes = system.f_bavail * system.f_frsize
    # Some file systems report 0 blocks or 0 files in all because they do not count them. Their free space is
    # unknown, not 0.
    if system.f_blocks > 0 and free_bytes < _LEAST_FREE_BYTES:
        free_mib = free_bytes >> 20
        return Refusal("disk_quota", f"only {free_mib} MiB are free for {run_dir} (seen from {node})")
    if system.f_files > 0 and system.f_favail < _LEAST_FREE_FILES:
        return Refusal(
            "disk_quota", f"only {system.f_favail} more files fit beside {run_dir} (inodes, seen from {node})"
        )
    return None


def _look_at_environment(
    requires: Mapping[str, Any],
    resources: Mapping[str, Any],
    node: str,
    command: List[str],
    env: Mapping[str, str],
    dev: Path,
) -> Optional[Refusal]:
    torch = None
    wanted = requires.get("torch")
    if torch_build.is_own_interpreter(command):
        torch = torch_build.find_torch()
        if torch is None and ("torch.distributed.run" in command or wanted):
            return Refusal(
                "module_not_found",
                f"torch is not installed in {sys.executable} on {node}; choose an environment that has it",
            )
    version = torch.version if torch else None
    if version and isinstance(wanted, str) and torch_build.satisfies(version, wanted) is False:
        text = f"torch {version} in {sys.executable} on {node} is not what this recipe needs: torch {wanted}"
        return Refusal("version_conflict", text)
    gpus = resources.get("gpus_per_node")
    if isinstance(gpus, int) and gpus > 0:
        return _look_at_gpus(torch, node, env, dev)
    return None


def _look_at_gpus(torch: Any, node: str, env: Mapping[str, str], dev: Path) -> Optional[Refusal]:
    """`torch` is a TorchBuild, or None if unknown."""
    allotted = f"GPUs were allotted on {node}"
    if torch is not None and torch.has_gpu_support and torch.cuda is None:
        return None  # ROCm or XPU: their drivers are not checked here
    driver = ask_driver()
    has_driver = _driver_words(driver)
    if torch is not None and torch.has_gpu_support is False:
        built = f"torch {torch.version} in {sys.executable} was built without CUDA"
        return Refusal("cuda_unavailable", f"{allotted}, but {built}; {has_driver}")
    built = f"; torch {torch.version} was built for CUDA {torch.cuda}" if torch and torch.cuda else ""
    if env.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        visible = env["CUDA_VISIBLE_DEVICES"]
        text = f"{allotted}, but none may be used: CUDA_VISIBLE_DEVICES={visible}; {has_driver}{built}"
        return Refusal("cuda_unavailable", text)
    if not driver.num_gpus and not _has_device(dev):
        text = f"{allotted}, but none is there (no {dev}/nvidia0); {has_driver}{built}"
        return Refusal("cuda_unavailable", text)
    if torch and _is_too_old(driver, torch):
        return Refusal(
            "driver_too_old",
            f"the NVIDIA driver{' ' + driver.version if driver.version else ''} on {node} supports CUDA up "
            f"to {driver.cuda}, too old for"
            f" torch {torch.version}, which was built for CUDA {torch.cuda}",
        )
    return None


def _driver_words(driver: "Driver") -> str:
    if not driver.version:
        return "no NVIDIA driver there"
    cuda = f" (CUDA {driver.cuda})" if driver.cuda else ""
    return f"the NVIDIA driver there is {driver.version}{cuda}"


def _has_device(dev: Path) -> bool:
    return any(found for glob in _GPU_DEVICES for found in dev.glob(glob))


def _is_too_old(driver: "Driver", torch: Any) -> bool:
    return bool(torch.cuda and driver.cuda and _major(driver.cuda) < _major(torch.cuda))


def _look_at_data(node: str, command: List[str]) -> Optional[Refusal]:
    """Refuse if requested real data are missing: generated data would silently make it another task."""
    path = _flag(command, "data_dir")
    if not path:
        return None
    try:
        with os.scandir(os.path.expanduser(path)):  # noqa: PTH111 (Path raises for an unknown ~user)
            pass
    except (FileNotFoundError, NotADirectoryError):
        text = (
            f"the data directory {path} does not exist on {node}; it has to be on a file system that every "
            "node sees"
        )
        return Refusal("file_not_found", text)
    except PermissionError:
        return Refusal("permission_denied", f"the data directory {path} cannot be read from {node}")
    return None


def _flag(command: List[str], name: str) -> Optional[str]:
    for place, argument in enumerate(command):
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
        if argument == f"--{name}":
            return command[place + 1] if place + 1 < len(command) else None
    return None


def _major(version: str) -> int:
    # A toolkit runs on each driver of its own major version (CUDA's minor version compatibility).
    return int(version.partition(".")[0])


def _table(value: Mapping[str, Any], key: str) -> Dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
