"""Make the logs of `ended/` and `caught/` again: programs that really fail, and the same errors caught by programs that train on.

    python tests/recordings/failing_programs.py

Needs a torch that was built without CUDA (the `train` extra), and a python3.9 or newer without torch, which PYTHON_WITHOUT_TORCH names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TRAINING = "for step in range(1, 301): print(f'step {step} loss: {2.3 / step ** 0.5:.4f}', flush=True)"
FAILING = {
    "file-not-found": "import pathlib\npathlib.Path('/scratch/data/train.bin').read_bytes()",
    "permission-denied": "import os\nos.setuid(65534)\nopen('/etc/shadow', 'rb')",
    "disk-full": "with open('/dev/full', 'wb', buffering=0) as file:\n    file.write(bytes(4096))",
    "module-not-found": "import a_module_of_the_user",
    "torch-without-cuda": "import torch\ntorch.zeros(1).cuda()",
    "version-conflict": "from torch.distributed.fsdp import fully_sharded",
}
SHELL = {
    "conda-not-initialised": "conda activate training\n{python} -c 'import a_module_of_the_user'",
    "torch-missing": "{without_torch} -m torch.distributed.run --standalone train.py",
    "shell-permission": "setpriv --reuid=65534 --clear-groups mkdir /run-root",
}


def run(command: list[str]) -> str:
    """What a command prints, both streams in their order, as in a job's log."""
    env = {**os.environ, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True)
    text = done.stdout.replace(sys.prefix, "/home/user/venv").replace(sys.base_prefix, "/usr")
    return text.replace(str(Path.home()), "/home/user")


def caught(program: str) -> str:
    """The same program, whose error is printed and then lived with."""
    body = "\n    ".join(["import traceback", "try:", *("    " + line for line in program.splitlines())])
    lines = [f"def attempt():\n    {body}", "    except Exception:", "        traceback.print_exc()"]
    return "\n".join([*lines, "attempt()", TRAINING])


def main() -> None:
    without_torch = os.environ.get("PYTHON_WITHOUT_TORCH", "/usr/bin/python3")
    for folder in ("ended", "caught"):
        (HERE / folder).mkdir(exist_ok=True)
    for name, program in FAILING.items():
        (HERE / "ended" / f"{name}.log").write_text(run([sys.executable, "-c", program]))
        (HERE / "caught" / f"{name}.log").write_text(run([sys.executable, "-c", caught(program)]))
    for name, script in SHELL.items():
        script = script.format(python=sys.executable, without_torch=without_torch)
        (HERE / "ended" / f"{name}.log").write_text(run(["bash", "-c", script]))


if __name__ == "__main__":
    main()
