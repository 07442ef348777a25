"""How a training process starts, notices that it should stop, and ends: on one device or on many.

The same few mistakes break most distributed jobs: a rank on the wrong device, a silent fall back to the CPU, ranks that disagree on
when to stop, an interpreter that aborts while gloo's threads are still at work. They are met here, once, for every trainer.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import platform
import re
import signal
import socket
import sys
import traceback
from types import FrameType
from typing import Any, Callable, Mapping, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record


class TrainerError(Exception):
    """Training cannot start as asked. The message is one line: what is wrong, and what would be right."""


class Refused(TrainerError):
    """This node or environment lacks what the training needs. coach reads the cause from torchrun's error file, or from the log."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(f"{cause}: {text}")


def run(main: Callable[[], None]) -> NoReturn:
    """Call main. An error becomes torchrun's error file, the traceback (or one clear line), and a non-zero exit status."""
    try:
        record(
            main
        )()  # writes $TORCHELASTIC_ERROR_FILE, from which torchrun and coach learn who failed first, and why
    except Refused as error:
        print(f"coach: {error}", file=sys.stderr)
        _leave(78)  # EX_CONFIG
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        _leave(2)
    except Exception:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def finish(metrics: Any, step: int, reason: str) -> NoReturn:
    """The one way out of a training that ended as it should: nobody leaves before all have arrived."""
    metrics.flush()
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
    print_rank0(f"finished at step {step} ({reason})")
    metrics.event("end", step, exit_code=0, reason=reason, logging_time_s=round(metrics.logging_time_s, 6))
    metrics.close()
    _leave(0)


def _leave(exit_code: int) -> NoReturn:
    # Not sys.exit: gloo's threads may touch Python objects while the interpreter is torn down, and abort the process after its success.
    if multiprocessing.active_children():
        signal.signal(
            signal.SIGCHLD, signal.SIG_DFL
        )  # DataLoader's handler would raise for the workers that end here
        for worker in multiprocessing.active_children():
            worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


class StopSignal:
    """Remembers that SIGUSR1 (the time limit is near) or SIGTERM (cancelled, preempted) came. Ask at the end of a step."""

    def __init__(self) -> None:
        self.name: str | None = None
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name

    @property
    def is_requested(self) -> bool:
        return self.name is not None


def boolean(text: str) -> bool:
    """The value of a flag that is true or false."""
    if text.lower() in ("true", "1", "yes", "on"):
        return True
    if text.lower() in ("false", "0", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"true or false was expected, not {text!r}")


def print_rank0(*texts: object) -> None:
    """Print on the first rank only, at once."""
    if rank_from_env() == 0:
        print(*texts, flush=True)


def rank_from_env() -> int:
    return int(os.environ.get("RANK", "0"))


def local_rank_from_env() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def node_name() -> str:
    """Slurm's name of this node, which is not always the host's, else the short host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def require_single_process() -> None:
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        raise TrainerError(
            f"this trainer uses one process, but {world_size} were started: start one, or use ddp.py"
        )


def require_torchrun() -> None:
    missing = [
        name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
    ]
    if missing:
        raise TrainerError(
            f"{', '.join(missing)} not set: start with `torchrun --standalone --nproc-per-node=2 {sys.argv[0]} …`"
        )


def gpus_were_allotted(env: Mapping[str, str]) -> bool:
    """Whether the environment says that this process was given GPUs."""
    if env.get("CUDA_VISIBLE_DEVICES", "") not in ("", "-1", "NoDevFiles"):
        return True
    if env.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0"):
        return True
    return bool(env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS"))


def pick_device(gpus_per_node: int | None) -> torch.device:
    """This process's GPU where GPUs were allotted, otherwise the CPU; None: the environment says which.

    Allotted GPUs that cannot be used stop the training: on the CPU it would hold them for hours and finish nothing.
    """
    is_allotted = gpus_were_allotted(os.environ) if gpus_per_node is None else gpus_per_node > 0
    if not is_allotted:
        return torch.device("cpu")
    refused = why_cuda_is_unusable(local_rank_from_env())
    if refused:
        raise refused
    device = torch.device("cuda", local_device(local_rank_from_env()))
    torch.cuda.set_device(device)
    return device


def local_device(local_rank: int) -> int:
    # Where Slurm binds one GPU to each task, every process sees its own as number 0.
    return 0 if torch.cuda.device_count() == 1 else local_rank


def why_cuda_is_unusable(local_rank: int) -> Refused | None:
    """What is wrong with this rank's GPU, naming the versions of torch and driver; None when it works."""
    allotted = f"GPUs were allotted on {node_name()}"
    driver = driver_version()
    has_driver = f"the NVIDIA driver there is {driver}" if driver else "no NVIDIA driver there"
    if torch.version.cuda is None and torch.version.hip is None:
        built = f"torch {torch.__version__} in {sys.executable} was built without CUDA"
        return Refused("cuda_unavailable", f"{allotted}, but {built}; {has_driver}")
    built = f"torch {torch.__version__} was built for {'CUDA' if torch.version.cuda else 'ROCm'}"
    built += f" {torch.version.cuda or torch.version.hip}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        torch.cuda.init()
        num_visible = torch.cuda.device_count()
        if local_device(local_rank) >= num_visible:
            text = (
                f"local rank {local_rank} has no GPU: {num_visible} visible (CUDA_VISIBLE_DEVICES={visible})"
            )
            return Refused("cuda_unavailable", f"{allotted}, but {text}; {has_driver}; {built}")
        torch.zeros(1, device=torch.device("cuda", local_device(local_rank))).add_(1).item()
    except (RuntimeError, AssertionError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        found = re.search(r"driver on your system is too old \(found version (\d+)\)", said)
        if found:
            supported = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
            text = f"the NVIDIA driver{f' {driver}' if driver else ''} on {node_name()} supports CUDA up to {supported}"
            return Refused("driver_too_old", f"{text}, too old for this torch: {built}")
        text = f"{allotted}, but CUDA is not usable: {said} (CUDA_VISIBLE_DEVICES={visible}); {has_driver}; {built}"
        return Refused("cuda_unavailable", text)
    return None


def driver_version() -> str | None:
    """The kernel module's version; None where there is no NVIDIA driver, or it does not say."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", file.read())
    except OSError:
        return None
    return found[1] if found else None


def describe_process(device: torch.device) -> dict[str, Any]:
    """Where this rank runs, for the `start` event."""
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "node": node_name(),
        "pid": os.getpid(),
        "local_rank": local_rank_from_env(),
    }


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def any_rank(is_true: bool) -> bool:
    """Whether it is true on at least one rank: all get the same answer, so that all act in the same step."""
    flag = torch.tensor([int(is_true)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def gather(value: Any) -> list[Any]:
    """The value of every rank, by rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def self_check(model: nn.Module, device: torch.device) -> None:
    """Prove in a second what would otherwise be found after hours: every rank has its own place, and all have the same model."""
    mine = {
        "place": (node_name(), local_rank_from_env()),
        "device": (node_name(), device_identity(device)),
        "torch": torch.__version__,
        "parameters": hash_of_parameters(model),
    }
    ranks = gather(mine)
    expected = int(os.environ.get("WORLD_SIZE", "1"))
    if len(ranks) != expected:
        raise TrainerError(f"self-check: {len(ranks)} ranks joined, but WORLD_SIZE is {expected}")
    for key, what in (("place", "local rank"), ("device", "device")):
        for rank, theirs in enumerate(ranks):
            first = next(other for other in range(len(ranks)) if ranks[other][key] == theirs[key])
            if first != rank:
                raise TrainerError(f"self-check: ranks {first} and {rank} share one {what}: {theirs[key]}")
    for key, what in (("torch", "torch version"), ("parameters", "parameters after start")):
        for rank, theirs in enumerate(ranks):
            if theirs[key] != ranks[0][key]:
                raise TrainerError(
                    f"self-check: rank {rank} on {theirs['place'][0]} has another {what} than rank 0:"
                    f" {theirs[key]} instead of {ranks[0][key]}"
                )
    num_nodes = len({theirs["place"][0] for theirs in ranks})
    print_rank0(
        f"self-check: {len(ranks)} ranks on {num_nodes} node(s), each with its own place and device,"
        f" same parameters ({ranks[0]['parameters']}), torch {torch.__version__} on all"
    )


def device_identity(device: torch.device) -> str:
    """What tells two devices of one node apart; CPU ranks share the CPU, so there it is the rank's own number."""
    if device.type != "cuda":
        return f"cpu rank {local_rank_from_env()}"
    properties = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", device))


def hash_of_parameters(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]
