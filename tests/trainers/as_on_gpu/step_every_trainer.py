"""Run steps of trainers on the CPU by the optimizer path of a GPU, and print the results as JSON.

    python step_every_trainer.py FOLDER NUM_STEPS TRAINER.py ...

On a GPU torch updates all parameters of a group in one call (`foreach`, `fused`). torch's tables of devices
for this path do not hold the CPU, so this program adds it. It imports torch once and forks each rank of each
trainer, because the import takes longer than the steps.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

TRAINERS = Path(__file__).resolve().parents[3] / "trainers"
sys.path[:0] = [str(TRAINERS), str(Path(__file__).resolve().parents[1])]

from flags_in_source import flags_in  # noqa: E402 - found only now

NUM_AT_ONCE = 2
DEADLINE_S = 90
FLAGS = {
    "width": 8,
    "num_train_samples": 64,
    "batch_size": 8,
    "num_workers": 0,
    "eval_every_epoch": "false",
    "gpus_per_node": 0,
}
GPT = {"layers": 1, "heads": 2, "embedding": 16, "sequence_length": 32, "vocabulary": 300, "sample_tokens": 2}
GPT["text"] = str(TRAINERS / "common")
FLAGS_OF = {
    "parallel_3d.py": {"tp": 2, "pp": 1, "batch_size": 1},
    "pipeline_parallel.py": {"batch_size": 4},
    "tensor_parallel.py": {"batch_size": 2},
    "fast.py": {"compile": "false"},
    "attention.py": {"layers": 1, "heads": 2, "embedding": 16, "sequence_length": 32},
    "drill_slow_walker.py": {"model": "gpt"},
    **dict.fromkeys(("gpt.py", "gpt_ddp.py", "gpt_fsdp.py", "gpt_tp.py", "lora.py"), GPT),
}
ENV_OF = {
    "compile.py": {"TORCHDYNAMO_DISABLE": "1"},
    "horovod_cnn.py": {"HOROVOD_RANK": "0"},
    "mpi_allreduce.py": {"MPI_LOCALRANKID": "0"},
}


def main() -> None:
    folder, num_steps = Path(sys.argv[1]), int(sys.argv[2])
    for shared in (TRAINERS / "common").glob("*.py"):
        import_module(f"common.{shared.stem}")
    import_module("torch._dynamo")  # the first optimizer would import it in each rank
    add_cpu_to_the_devices_of_grouped_updates()
    waiting, running, found = sys.argv[3:], [], {}
    while waiting or running:
        while waiting and len(running) < NUM_AT_ONCE:
            running.append(Training(waiting.pop(0), folder, num_steps))
        select.select([descriptor for training in running for descriptor in training.ranks], [], [], 0.2)
        for training in [training for training in running if training.is_over()]:
            running.remove(training)
            found[training.name] = training.outcome()
    sys.stdout.write(json.dumps(found))


def add_cpu_to_the_devices_of_grouped_updates() -> None:
    for module in map(import_module, ("torch.optim.optimizer", "torch.utils._foreach_utils")):
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
            devices = [*dict.fromkeys([*getattr(module, name)(), "cpu"])]
            setattr(module, name, lambda devices=devices: list(devices))


class Training:
    """One trainer with running ranks."""

    def __init__(self, name: str, folder: Path, num_steps: int) -> None:
        self.name = name
        self.num_steps = num_steps
        self.folder = folder / name.removesuffix(".py")
        self.folder.mkdir()
        self.exit_codes: list[int] = []
        self.ranks: dict[int, int] = {}  # a descriptor that can be read once the process has ended: its pid
        self.ends_at = time.monotonic() + DEADLINE_S
        source = source_of(name)
        taken = flags_in(source)
        flags = {**FLAGS, **FLAGS_OF.get(name, {}), "max_steps": num_steps}
        flags |= {"run_dir": self.folder, "cache_dir": folder / "cache"}
        argv = [str(TRAINERS / name), *(f"--{key}={flags[key]}" for key in flags if key in taken)]
        self.num_ranks = 2 if "torchrun --standalone" in source else 1
        port = free_port()
        for rank in range(self.num_ranks):
            env = dict(ENV_OF.get(name, {}))
            if self.num_ranks > 1:
                env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.num_ranks)}
                env |= {"LOCAL_WORLD_SIZE": env["WORLD_SIZE"], "MASTER_ADDR": "127.0.0.1"}
                env |= {"MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": "0"}
            pid = os.fork()
            if not pid:
                train(argv, env, self.folder / f"rank-{rank}")
            self.ranks[os.pidfd_open(pid)] = pid

    def is_over(self) -> bool:
        """True once all ranks have ended.

        A drill may wait for ever: its ranks end after their steps, at the latest after the deadline.
        """
        is_late = time.monotonic() > self.ends_at
        is_enough = self.name.startswith("drill_") and min(self.made()) >= self.num_steps
        for descriptor, pid in list(self.ranks.items()):
            if is_late or is_enough:
                os.kill(pid, signal.SIGKILL)
            if select.select([descriptor], [], [], 0)[0]:
                self.exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(descriptor)
                del self.ranks[descriptor]
        return not self.ranks

    def made(self) -> list[int]:
        """Steps of each rank's optimizer: a byte for each."""
        files = [self.folder / f"rank-{rank}.steps" for rank in range(self.num_ranks)]
        return [path.stat().st_size if path.exists() else 0 for path in files]

    def outcome(self) -> dict[str, object]:
        said = "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("rank-*.said")))
        return {"exit_codes": self.exit_codes, "num_steps": self.made(), "said": said[-4000:]}


def train(argv: list[str], env: dict[str, str], own: Path) -> None:
    """Be one rank: never returns."""
    with open(own.with_suffix(".said"), "wb") as said, open(own.with_suffix(".steps"), "ab", 0) as steps:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.environ.update(env)
        register_optimizer_step_post_hook(lambda *_: steps.write(b"."))
        sys.argv = argv
        try:
            runpy.run_path(argv[0], run_name="__main__")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def source_of(name: str) -> str:
    """The trainer's source, and those of the trainers that it takes its flags or its steps from."""
    text = (TRAINERS / name).read_text(encoding="utf-8")
    taken_from = [f"{module}.py" for module in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)]
    return text + "".join(source_of(other) for other in taken_from if (TRAINERS / other).exists())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
