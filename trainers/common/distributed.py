"""How a training process starts, notices that it should stop, and ends: on one device or on many.

The same few mistakes break most distributed jobs: a rank on the wrong device, a silent fall back to the CPU,
ranks that disagree on when to stop, an interpreter that aborts while gloo's threads are still at work. This
module prevents them, once, for every trainer.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import re
import signal
import socket
import sys
import time
import traceback
from types import FrameType
from typing import Any, Callable, Mapping, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader

from common import flight
from common.checks import cores_of_process, cores_per_rank, order_of_epoch, what_is_wrong
from common.timing import as_text, process_age_s


class TrainerError(Exception):
    """Training cannot start as asked. The message is one line: the fault, and a right value."""


class Refused(TrainerError):
    """This node or environment lacks something that the training needs. coach reads the cause from torchrun's
    error file, or from the log."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(f"{cause}: {text}")


def run(main: Callable[[], None]) -> NoReturn:
    """Call main. An error becomes torchrun's error file, the traceback (or one clear line), and a non-zero
    exit status."""
    if world_size_from_env() > 1:
        flight.offer()
    try:
        # It writes $TORCHELASTIC_ERROR_FILE, from which torchrun and coach learn the first rank that failed.
        record(main)()
    except Refused as error:
        print(f"coach: {error}", file=sys.stderr)
        _leave(78)  # EX_CONFIG
    except TrainerError as error:
        said = str(error)
        if "\n" in said:  # of a DataLoader worker: torch puts its traceback there, which ends with the error
            said = said.strip().splitlines()[-1].partition(": ")[2]
        print(f"{os.path.basename(sys.argv[0])}: error: {said}", file=sys.stderr)  # as argparse says it
        _leave(2)
    except Exception:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def finish(metrics: Any, step: int, reason: str) -> NoReturn:
    """The one way out of a training that ended as it should: no rank leaves before all have arrived."""
    metrics.flush()
    if dist.is_available() and dist.is_initialized():
        _answer()
        dist.barrier()
    summary = metrics.timing.summary()
    metrics.event("summary", step, **summary)
    print_rank0(as_text(summary))
    print_rank0(f"finished at step {step} ({reason})")
    metrics.event("end", step, exit_code=0, reason=reason, logging_time_s=round(metrics.logging_time_s, 6))
    metrics.close()
    _leave(0)


def _leave(exit_code: int) -> NoReturn:
    # Not sys.exit: gloo's threads may touch Python objects while the interpreter is torn down, and abort the
    # process after its success.
    if multiprocessing.active_children():
        # DataLoader's handler would raise for the workers that end here.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in multiprocessing.active_children():
            worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


STOPPED_EARLY = ("signal", "max_seconds")
"""Why a training ends before its epochs or steps are done."""


class StopSignal:
    """Remembers that SIGUSR1 (the time limit is near) or SIGTERM (cancelled, preempted) came, or that
    `max_seconds` since the start of this process are over.

    Ask at the end of a step. `max_seconds` of 0 are never over.
    """

    def __init__(self, max_seconds: float = 0) -> None:
        self.name: str | None = None
        self._ends = time.monotonic() + max_seconds - process_age_s() if max_seconds else float("inf")
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name

    @property
    def is_requested(self) -> bool:
        return self.name is not None or time.monotonic() >= self._ends


def print_rank0(*texts: object) -> None:
    """Print on the first rank only, at once."""
    if rank_from_env() == 0:
        print(*texts, flush=True)


def counted(num: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{num:,} {noun}" if num == 1 else f"{num:,} {noun}s"


def rank_from_env() -> int:
    return int(os.environ.get("RANK", "0"))


def world_size_from_env() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank_from_env() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def node_name() -> str:
    """Slurm's name of this node, which is not always the host's, else the short host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def require_single_process() -> None:
    world_size = world_size_from_env()
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
            f"{', '.join(missing)} not set: start with `torchrun --standalone --nproc-per-node=2 "
            f"{sys.argv[0]} …`"
        )


def gpus_were_allotted(env: Mapping[str, str]) -> bool:
    """True if the environment says that this process was given GPUs."""
    if env.get("CUDA_VISIBLE_DEVICES", "") not in ("", "-1", "NoDevFiles"):
        return True
    if env.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0"):
        return True
    return bool(env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS"))


def pick_device(gpus_per_node: int | None) -> torch.device:
    """This process's GPU where GPUs were allotted, otherwise the CPU; None: the environment says which.

    Allotted GPUs that cannot be used stop the training: on the CPU it would hold them for hours and finish
    nothing.
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
    """The fault of this rank's GPU, with the versions of torch and driver; None when it works."""
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
            text = (
                f"the NVIDIA driver{f' {driver}' if driver else ''} on {node_name()} supports CUDA up to "
                f"{supported}"
            )
            return Refused("driver_too_old", f"{text}, too old for this torch: {built}")
        text = (
            f"{allotted}, but CUDA is not usable: {said} (CUDA_VISIBLE_DEVICES={visible}); {has_driver}; "
            f"{built}"
        )
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
        "compute_capability": compute_capability(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "node": node_name(),
        "pid": os.getpid(),
        "local_rank": local_rank_from_env(),
        "num_threads": torch.get_num_threads(),
        "loss_of": "rank",  # of this rank's own samples, not averaged over all
    }


def compute_capability(device: torch.device) -> float | None:
    """The GPU's compute capability, as NVIDIA numbers it: from 8.0 on it computes in bf16. None on a CPU."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return major + minor / 10


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
    """True if it is true on at least one rank: all get the same answer, so all act in the same step."""
    flag = torch.tensor([int(is_true)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


_question: list[tuple[dist.Work, np.ndarray[Any, Any]]] = []
"""The newest question of any_rank_by_now, until its answer is read."""


def any_rank_by_now(is_true: bool) -> bool:
    """True if it was true on at least one rank at the call before this one. All ranks call it in every step.

    All get the same answer, so that all act in the same step. No step waits for it: it travels while the next
    step is computed.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return is_true
    was_true = _answer()
    if not was_true:
        flag = np.array([is_true], dtype=np.int32)  # on the host: reading it waits for no device
        _question.append((dist.all_reduce(torch.from_numpy(flag), op=dist.ReduceOp.MAX, async_op=True), flag))
    return was_true


def _answer() -> bool:
    """The answer to the question that is on its way; False where there is none."""
    if not _question:
        return False
    work, flag = _question.pop()
    work.wait()
    return bool(flag[0])


def gather(value: Any) -> list[Any]:
    """The value of every rank, by rank; of this process alone where there are no others."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def why_stopped(stop: StopSignal, gather: Callable[[Any], list[Any]] = gather) -> tuple[str, str]:
    """Why a training ends early: `signal` if one came on any rank, else `max_seconds`; and the same in words.
    All ranks call it, and get the same answer."""
    names = [name for name in gather(stop.name) if name]
    return ("signal", f"{names[0]} received") if names else ("max_seconds", "max_seconds are over")


def same_buffers(model: nn.Module) -> None:
    """Let all ranks have the buffers of rank 0, such as the statistics of batch norm."""
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def self_check(
    model: nn.Module,
    device: torch.device,
    train_loader: DataLoader[Any] | None = None,
    shard: int | None = None,
    gather: Callable[[Any], list[Any]] = gather,
    parameters: str | None = None,
) -> None:
    """Prove in a second, not after hours: every rank has its own place and its own part of the data, and all
    have the same model and software. A fault stops all ranks, because each sees the values of every rank.

    Without `train_loader`, data are not looked at. `shard` is the part of the data that this rank reads;
    None: one of its own. Ranks that hold parts of one model read the same. `gather` is another way to ask all
    ranks, where torch.distributed is not used. Call it before the model is cut into parts, or say the hash of
    the `parameters` from which this rank has cut its own.
    """
    mine = {
        "place": (node_name(), local_rank_from_env()),
        "device": (node_name(), device_identity(device)),
        "cores": cores_of_process(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "parameters": parameters or hash_of_parameters(model),
        "shard": rank_from_env() if shard is None else shard,
    }
    if train_loader is not None:
        mine["order"], mine["is_repeated"] = order_of_epoch(train_loader)
    ranks = gather(mine)
    expected = world_size_from_env()
    if len(ranks) != expected:
        raise TrainerError(f"self-check: {len(ranks)} ranks joined, but WORLD_SIZE is {expected}")
    trouble = what_is_wrong(ranks, None if train_loader is None else len(train_loader.dataset))  # type: ignore[arg-type] # it has a length
    if trouble:
        raise TrainerError(f"self-check: {trouble}")

    num_nodes = len({theirs["place"][0] for theirs in ranks})
    cores = cores_per_rank([(theirs["place"][0], theirs["cores"]) for theirs in ranks])
    proved = [f"{len(ranks)} ranks on {num_nodes} node(s), each with its own place and device"]
    proved += [f"{min(cores):.3g} core(s) per rank"]
    if train_loader is not None:
        together = len(ranks) // len({theirs["shard"] for theirs in ranks})
        where = "one rank" if together == 1 else f"{together} ranks that compute it together"
        proved += [f"every sample on {where} and in another order every epoch"]
    proved += [f"same parameters ({ranks[0]['parameters']})", f"torch {torch.__version__}"]
    print_rank0(f"self-check: {', '.join(proved)} and Python {platform.python_version()} on all")
    num_workers = 0 if train_loader is None else train_loader.num_workers
    if min(cores) < 1 + num_workers:
        print_rank0(
            f"warning: self-check: rank {cores.index(min(cores))} has {min(cores):.3g} core(s) for itself "
            f"and its {num_workers}"
            " loading processes, which will wait for each other: ask for more cores (--cpus-per-task), or "
            "lower num_workers"
        )


def device_identity(device: torch.device) -> str:
    """The identity of a device within its node; CPU ranks share the CPU, so there it is the rank's own
    number."""
    if device.type != "cuda":
        return f"cpu rank {local_rank_from_env()}"
    properties = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", device))


def hash_of_parameters(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        add_to_hash(digest, tensor)
    return short(digest)


def add_to_hash(digest: Any, tensor: torch.Tensor) -> None:
    digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def short(digest: Any) -> str:
    """A hash as it is shown and compared."""
    text: str = digest.hexdigest()[:12]
    return text
