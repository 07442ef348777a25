"""Make the logs of `ended/`, `caught/`, `plain/`, `curves/`, `silent/` and `unknown/` again, by programs that
really do what they are named after.

    python tests/recordings/failing_programs.py [NAME…]

Needs a torch that was built without CUDA (the `train` extra), and a python3.9 or newer without torch, which
PYTHON_WITHOUT_TORCH names. The modules need Lmod and a tclsh; MODULECMD names the modulecmd.tcl of Debian's
environment-modules, which cannot be installed beside Lmod.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TRAINING = "for step in range(1, 301): print(f'step {step} loss: {2.3 / step ** 0.5:.4f}', flush=True)"
ONE_RANK = (
    "import torch\nimport torch.distributed\n"
    "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, "
    "world_size=1)\n"
)
TWO_RANKS = """import datetime, os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank = dist.get_rank()
"""
FAILING = {
    "file-not-found": "import pathlib\npathlib.Path('/scratch/data/train.bin').read_bytes()",
    "permission-denied": "import os\nos.setuid(65534)\nopen('/etc/shadow', 'rb')",
    "disk-full": "with open('/dev/full', 'wb', buffering=0) as file:\n    file.write(bytes(4096))",
    "module-not-found": "import a_module_of_the_user",
    "torch-without-cuda": "import torch\ntorch.zeros(1).cuda()",
    "version-conflict": "from torch.distributed.fsdp import fully_sharded",
    "shape-mismatch": "import torch\ntorch.nn.Linear(512, 10)(torch.zeros(8, 256))",
    "data-parallel": "import torch\ntorch.nn.DataParallel(torch.nn.Linear(512, 10))(torch.zeros(8, 256))",
    "stacked-samples": (
        "import torch\ntorch.utils.data.default_collate([torch.zeros(3, 32, 32), torch.zeros(3, 30, 32)])"
    ),
    "state-dict-mismatch": (
        "import torch\ntorch.nn.Linear(4, 10).load_state_dict(torch.nn.Linear(4, 100).state_dict())"
    ),
    "device-mismatch": "import torch\ntorch.nn.Linear(4, 2)(torch.zeros(1, 4, device='meta'))",
    "dtype-mismatch": (
        "import torch\nmodel = torch.nn.Conv2d(3, 8, 3).double()\nmodel(torch.zeros(1, 3, 8, 8))"
    ),
    "compile-failed": "import torch\ndef backend(graph, inputs):\n    raise AssertionError('no kernel for "
    "this graph')\n"
    "torch.compile(torch.nn.Linear(4, 2), backend=backend)(torch.zeros(1, 4))",
    "inplace": "import torch\nx = torch.ones(3, requires_grad=True)\ny = x.exp()\ny += 1\ny.sum().backward()",
    "no-process-group": "import torch.distributed as dist\ndist.get_rank()",
    "rank-variables-missing": "import torch.distributed as dist\ndist.init_process_group('gloo')",
    "local-rank-missing": "import os\nint(os.environ['LOCAL_RANK'])",
    "port-in-use": "import socket\nimport torch.distributed as dist\ntaken = "
    "socket.socket()\ntaken.bind(('127.0.0.1', 0))\ntaken.listen()\n"
    "port = taken.getsockname()[1]\ndist.init_process_group('gloo', f'tcp://127.0.0.1:{port}', rank=0, "
    "world_size=2)",
    "rendezvous-nobody": "import datetime\nimport torch.distributed as dist\n"
    "dist.TCPStore('127.0.0.1', 29517, 2, True, datetime.timedelta(seconds=2))",
    "rendezvous-unreachable": "import datetime\nimport torch.distributed as dist\n"
    "dist.TCPStore('127.0.0.1', 9, 2, False, datetime.timedelta(seconds=2))",
    "hostname-resolution": "import datetime\nimport torch.distributed as dist\n"
    "dist.TCPStore('node[1-2].invalid', 29517, 2, False, datetime.timedelta(seconds=2))",
    "hostname-of-a-download": (
        "import urllib.request\nurllib.request.urlopen('https://models.invalid/weights.pt')"
    ),
    "unused-parameters": ONE_RANK
    + "model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])\n"
    "class First(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.parts "
    "= model\n"
    "    def forward(self, x):\n        return self.parts[0](x)\n"
    "ddp = torch.nn.parallel.DistributedDataParallel(First())\n"
    "for _ in range(2):\n    ddp(torch.ones(1, 2)).sum().backward()",
    "ready-twice": ONE_RANK + "from torch.utils.checkpoint import checkpoint\n"
    "class Twice(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = "
    "torch.nn.Linear(2, 2)\n"
    "    def forward(self, x):\n        x = checkpoint(self.part, x, use_reentrant=True)\n"
    "        return checkpoint(self.part, x, use_reentrant=True)\n"
    "ddp = torch.nn.parallel.DistributedDataParallel(Twice(), "
    "find_unused_parameters=True)\nddp(torch.ones(1, 2, requires_grad=True)).sum().backward()",
    "fsdp": ONE_RANK
    + (
        "from torch.distributed.fsdp import FullyShardedDataParallel\nFullyShardedDataParallel(torch.nn.Linea"
        "r(2, 2))"
    ),
    "fsdp-mixed": ONE_RANK + "from torch.distributed.fsdp import fully_shard\nmodel = torch.nn.Linear(2, 2)\n"
    "mesh = torch.distributed.init_device_mesh('cpu', (1,))\nfully_shard(model, mesh=mesh)\nmodel.weight + "
    "torch.ones(2, 2)",
    "extension-build": (
        "import torch.utils.cpp_extension as extension\nextension.load_inline('user_kernel', 'int broken( "
        "{', functions=['broken'])"
    ),
    "deepspeed-config": "import deepspeed\nfrom deepspeed.runtime.config import DeepSpeedConfig\n"
    "DeepSpeedConfig({'train_batch_size': 10, 'train_micro_batch_size_per_gpu': 4, "
    "'gradient_accumulation_steps': 2})",
    "too-many-open-files": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))\n"
    "samples = [open('/dev/zero', 'rb') for _ in range(100)]",
    "stale-handle": "import ctypes, os, tempfile\nlibc = ctypes.CDLL(None, use_errno=True)\nfolder = "
    "tempfile.mkdtemp(dir='/tmp')\n"
    "path, handle, mount = os.path.join(folder, 'train.bin'), (ctypes.c_uint * 34)(128), "
    "ctypes.c_int()\nopen(path, 'w').close()\n"
    "libc.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(mount), 0)\nos.unlink(path)\n"
    "if libc.open_by_handle_at(os.open(folder, os.O_RDONLY), handle, 0) < 0:\n"
    "    error = ctypes.get_errno()\n    raise OSError(error, os.strerror(error), '/scratch/data/train.bin')",
    "library-missing": "import ctypes\nctypes.CDLL('libcudart.so.99')",
    "checkpoint-cut-short": "import os, tempfile, torch\npath = os.path.join(tempfile.mkdtemp(), "
    "'step-100.pt')\n"
    "torch.save(torch.nn.Linear(64, 64).state_dict(), path)\nos.truncate(path, 4096)\ntorch.load(path)",
    "checkpoint-is-empty": (
        "import os, tempfile, torch\npath = os.path.join(tempfile.mkdtemp(), 'last.pt')\nopen(path, "
        "'w').close()\ntorch.load(path)"
    ),
    "checkpoint-of-objects": (
        "import argparse, os, tempfile, torch\npath = os.path.join(tempfile.mkdtemp(), 'last.pt')\n"
        "torch.save({'args': argparse.Namespace(lr=0.1)}, path)\ntorch.load(path)"
    ),
    "checkpoint-is-a-pointer": "import os, tempfile, torch\npath = os.path.join(tempfile.mkdtemp(), "
    "'model.bin')\n"
    "open(path, 'w').write('version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a\\nsize "
    "1340\\n')\ntorch.load(path, weights_only=False)",
}
IN_WORKERS = {
    "worker-pickle": (
        "collate_fn=lambda rows: rows, multiprocessing_context='spawn', ",
        "return torch.zeros(1)",
    ),
    "worker-killed": ("", "os.kill(os.getpid(), 9)"),
    "worker-died": ("", "os._exit(1)"),
    "worker-crashed": ("", "os.kill(os.getpid(), 11)"),
    "worker-without-shared-memory": (
        "",
        "file = tempfile.TemporaryFile()\n        file.truncate(4096)\n        page = "
        "mmap.mmap(file.fileno(), 4096)\n"
        "        file.truncate(0)\n        return torch.tensor(page[0])",
    ),
}
"""What stands in the call of the DataLoader, and what its workers do for a sample."""
SAMPLES = """import mmap, os, tempfile, torch
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        {sample}
if __name__ == "__main__":
    list(torch.utils.data.DataLoader(Samples(), {options}num_workers=1, batch_size=2))"""
CRASHING = {
    "segmentation-fault": (
        "import ctypes, faulthandler\nfaulthandler.enable()\ndef forward():\n    "
        "ctypes.string_at(0)\nforward()"
    ),
    "interrupted": (
        "import os, signal, time\ndef train():\n    os.kill(os.getpid(), signal.SIGINT)\n    "
        "time.sleep(9)\ntrain()"
    ),
    "folder-asserted": (
        "from pathlib import Path\nroot = Path('/scratch/data/imagenet')\nassert root.exists()"
    ),
}
"""Nothing can catch these, or nobody does."""
PLAIN = {
    "plain-exception": "def train(batch_size, learning_rate):\n    pass\ntrain(batch_size=8, learn_rate=0.1)",
    "in-a-loader": "import torch\nclass Samples(torch.utils.data.Dataset):\n    def __len__(self):\n        "
    "return 8\n"
    "    def __getitem__(self, index):\n        return [0.0][index]\n"
    "list(torch.utils.data.DataLoader(Samples(), num_workers=1, batch_size=2))",
    "usage": "import argparse\nimport sys\nsys.argv = ['train.py', '--local-rank=0']\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()",
}
DISTRIBUTED = {
    "rank-terminated": "if rank == 1:\n    os.kill(os.getpid(), 15)\ntime.sleep(9)",
    "rank-killed": "if rank == 1:\n    os.kill(os.getpid(), 9)\ntime.sleep(9)",
    "rank-crashed": "if rank == 1:\n    os.kill(os.getpid(), 11)\ntime.sleep(9)",
    "gloo-peer-died": (
        "if rank == 1:\n    os._exit(1)\ndist.all_reduce(torch.ones(1))\ndist.all_reduce(torch.ones(1))"
    ),
    "gloo-peer-raised": "if rank == 1:\n    raise TypeError('expected a list of samples')\n"
    "dist.all_reduce(torch.ones(1))\ndist.all_reduce(torch.ones(1))",
    "gloo-timeout": "if rank == 1:\n    time.sleep(12)\ndist.all_reduce(torch.ones(1))",
    "waited-apart": (
        "def step():\n    dist.all_reduce(torch.ones(1000))\ndef end():\n    dist.barrier()\n(end if rank "
        "else step)()"
    ),
    "collective-mismatch": "os.environ['TORCH_DISTRIBUTED_DEBUG'] = "
    "'DETAIL'\ndist.set_debug_level_from_env()\n"
    "group = dist.new_group(backend='gloo')\n"
    "if rank == 0:\n    dist.barrier(group)\nelse:\n    dist.all_reduce(torch.ones(1), group=group)",
    "collective-sizes": "dist.all_reduce(torch.ones(1024 + 4096 * rank))",
}
CURVES = {
    "loss-divergence": "import torch\ntorch.manual_seed(0)\nx = torch.randn(512, 8)\ny = x @ torch.randn(8, "
    "1)\nmodel = torch.nn.Linear(8, 1)\n"
    "for step in range(1, 121):\n    lr = 0.05 if step <= 100 else 1.6\n    loss = ((model(x) - y) ** "
    "2).mean() + 1\n    model.zero_grad()\n"
    "    loss.backward()\n    print(f'step {step} loss: {loss.item():.4f} lr: {lr}')\n"
    "    with torch.no_grad():\n        for p in model.parameters():\n            p -= lr * p.grad",
    "loss-scale-collapse": "import torch\nmodel = torch.nn.Linear(8, 1)\noptimizer = "
    "torch.optim.SGD(model.parameters(), 0.01)\n"
    "scaler = torch.amp.GradScaler('cpu', init_scale=65536.0)\n"
    "for step in range(1, 21):\n    loss = (model(torch.ones(4, 8)) * 1e38 * 1e5).sum()\n    "
    "optimizer.zero_grad()\n    scaler.scale(loss).backward()\n"
    "    scaler.step(optimizer)\n    scaler.update()\n    print(f'iteration {step} | loss scale: "
    "{scaler.get_scale():.4g} | skipped')",
}
HEALTHY = {
    "noisy": "import random\nrandom.seed(1)\nfor step in range(1, 401):\n"
    "    print(f'step {step} loss: {(2.3 / step ** 0.3) * random.lognormvariate(0, 0.5):.4f}')",
    "many-workers": "import torch\nloader = torch.utils.data.DataLoader(torch.arange(64), num_workers=24, "
    "batch_size=2)\n"
    "for step, batch in enumerate(loader):\n    print(f'step {step} loss: {2.3 / (step + 1):.4f}')",
    "restarts": (
        "import math\nfor step in range(1, 401):\n    print(f'step {step} loss: {2.3 / step ** 0.7 + 0.2 * "
        "((step % 100) < 10) * (step > 50):.4f}')"
    ),
    "growing-like-a-benchmark": (
        "for step in range(1, 101):\n    print(f'iteration {step} | lm loss: {18.3 + step / 40:.4f} | loss "
        "scale: 12.0')"
    ),
    "destructor": "class Loader:\n    def __del__(self):\n        assert False, 'can only test a child "
    "process'\n"
    "def epoch():\n    Loader()\nepoch()\nfor number in range(5):\n    print(f'epoch {number} accuracy "
    "0.{number}')",
    "tried-again": "import socket, time, traceback\nfor attempt in range(3):\n    try:\n        "
    "socket.create_connection(('models.invalid', 443))\n"
    "    except OSError as error:\n        traceback.print_exc()\n        print(f'retrying in {attempt} s')\n"
    "for number in range(5):\n    print(f'epoch {number} accuracy 0.{number}')",
    "folds": "for fold, steps in ((0, 100), (1, 5)):\n    for step in range(steps):\n"
    "        print(f'fold {fold} step {step} loss: {2.3 * 0.97**step:.4f}')",
    "folds-without-steps": "for steps in (100, 5):\n    for step in range(steps):\n"
    "        print(f'[===========] - 2s - loss: {2.3 * 0.97**step:.4f}')",
    "adversarial": (
        "for step in range(1, 101):\n    print(f'step {step} loss_D: {2 / step:.4f} loss_G: {step / 9:.4f} "
        "loss: {step / 5 + 0.1:.4f}')"
    ),
    "recompile-limit": "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(4, 1)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n\n\n"
    "def loss_of(samples, epoch):\n"
    "    return ((model(samples) - samples.sum(1, keepdim=True)) ** 2).mean() * (1 + 0 * epoch)\n\n\n"
    "compiled = torch.compile(loss_of, backend='eager', dynamic=False)\nsamples = torch.randn(64, 4)\n"
    "for epoch in range(1, 13):\n    optimizer.zero_grad()\n    loss = compiled(samples, epoch)\n"
    "    loss.backward()\n    optimizer.step()\n"
    "    print(f'epoch {epoch} loss: {loss.item():.4f}', flush=True)",
    "scaler-settles": "import torch\nmodel = torch.nn.Linear(8, 1)\noptimizer = "
    "torch.optim.SGD(model.parameters(), 1e-9)\n"
    "scaler = torch.amp.GradScaler('cpu', init_scale=2.0**120, growth_interval=50)\n"
    "for step in range(1, 201):\n    loss = (model(torch.ones(4, 8)) ** 2).sum() * 1e4\n    "
    "optimizer.zero_grad()\n    scaler.scale(loss).backward()\n"
    "    scaler.step(optimizer)\n    scaler.update()\n    print(f'iteration {step} | loss: "
    "{abs(loss.item()):.3f} | loss scale: {scaler.get_scale():.6g}')",
}
_MODULE = "export MODULEPATH=/usr/share\nmodule load python/3.99\npython3.99 train.py"
_TCL_MODULES = (
    'module() {{ eval "$(tclsh ${{MODULECMD:-/usr/lib/x86_64-linux-gnu/modulecmd.tcl}} bash "$@")"; }}\n'
)
SHELL = {
    "conda-not-initialised": "conda activate training\n{python} -c 'import a_module_of_the_user'",
    "module-unknown": ". /usr/share/lmod/lmod/init/bash\n" + _MODULE,
    "module-unknown-tcl": _TCL_MODULES + _MODULE,
    "module-conflict-tcl": _TCL_MODULES + "export MODULEPATH=$(mktemp -d)\n"
    "printf '#%%Module1.0\\n' > $MODULEPATH/mpi\n"
    "printf '#%%Module1.0\\nconflict mpi\\n' > $MODULEPATH/python\n"
    "module load mpi\nmodule load python\npython3.99 train.py",
    "module-command-missing": _MODULE,
    "torch-missing": "{without_torch} -m torch.distributed.run --standalone train.py",
    "shell-terminated": "sh -c 'kill -15 $$'\n:",
    "shell-killed": "sh -c 'kill -9 $$'\n:",
    "shell-crashed": "sh -c 'kill -11 $$'\n:",
    "script-line-ends": "cd $(mktemp -d)\n"
    r"printf '\r\nexport X=1\r\ncd /scratch\r\nfor i in 1 2; do\r\n  python train.py\r\ndone\r\n' > train.sh"
    "\nbash train.sh",
    "script-env-line-ends": "cd $(mktemp -d)\n"
    r"printf '#!/usr/bin/env bash\r\n' > train.sh; chmod +x train.sh; ./train.sh",
    "script-names-line-ends": "cd $(mktemp -d)\n"
    r"printf 'set -\r\npython3 /scratch/train.py\r\n' > train.sh; bash train.sh 2>&1 | grep -v usage",
    "script-interpreter": "cd $(mktemp -d)\n"
    r"printf '#!/bin/bash\r\n' > train.sh; chmod +x train.sh; ./train.sh",
    "script-without-shebang": "cd $(mktemp -d)\necho echo > train.sh; chmod +x train.sh\n"
    "/usr/bin/python3 -c 'import subprocess; subprocess.run(\"./train.sh\")'",
    "script-unfinished": "cd $(mktemp -d)\nprintf 'if true; then\\n  echo reading\\n' > train.sh"
    "; bash train.sh",
    "copy-of-nothing": "cp /data/train.tar /dev/null",
    "cpu-limit": "(ulimit -c 0; ulimit -S -t 1; sh -c 'while :; do :; done'; :)",
    "thread-limit": "setpriv --reuid=65534 --clear-groups bash -c 'ulimit -u 20; exec /usr/bin/python3 -c \""
    "import threading, time\n"
    "for _ in range(30):\n    threading.Thread(target=time.sleep, args=(1,), daemon=True).start()\"'",
    "fork-limit": "setpriv --reuid=65534 --clear-groups bash -c 'ulimit -u 3\n"
    "for _ in 1 2 3 4 5 6; do sleep 1 & done; wait'",
    "fork-limit-python": "setpriv --reuid=65534 --clear-groups bash -c 'ulimit -u 3; "
    'exec /usr/bin/python3 -c "'
    'import subprocess\nfor _ in range(9):\n    subprocess.Popen([\\"sleep\\", \\"1\\"])"\'',
    "shell-permission": "setpriv --reuid=65534 --clear-groups mkdir /run-root",
}

UNKNOWN = {
    "command-missing": "{python} -c 'print(\"reading\", flush=True)'\ntrain_on_node --lr 0.1",
    "makefile-missing": "echo building; make -C /usr/share train",
    "program-refuses": (
        "echo starting; {python} -c 'raise SystemExit(\"error: the flux capacitor is empty\")'"
    ),
}
"""Shell scripts that end with an error whose cause no rule knows."""
LIVED_ON = {
    "command-missing": 'train_on_node --lr 0.1\n{python} -c "' + "{training}" + '"',
    "program-refuses": (
        '{python} -c \'raise SystemExit("error: no cache")\' || echo going on\n{python} -c "{training}"'
    ),
}
"""The same errors in scripts that went on."""


def run(command: list[str]) -> str:
    """What a command prints, both streams in their order, as in a job's log."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TORCH_EXTENSIONS_DIR": folder}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True)
    text = done.stdout.replace(sys.prefix, "/home/user/venv").replace(sys.base_prefix, "/usr")
    text = re.sub(
        rf"\b{re.escape(socket.gethostname())}\b",
        "node1",
        text.replace(folder, "/home/user/.cache/torch_extensions"),
    )
    return text.replace(str(Path.home()), "/home/user")


def run_file(program: str, *launcher: str) -> str:
    """The same of a program in a file, so that its tracebacks have frames of its own."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(program + "\n")
        return run([sys.executable, *launcher, str(script)]).replace(folder, "/home/user")


def caught(program: str) -> str:
    """The same program, which prints its error and survives it."""
    body = "\n    ".join(["import traceback", "try:", *("    " + line for line in program.splitlines())])
    lines = [f"def attempt():\n    {body}", "    except Exception:", "        traceback.print_exc()"]
    return "\n".join([*lines, "attempt()", TRAINING])


def main() -> None:
    without_torch = os.environ.get("PYTHON_WITHOUT_TORCH", "/usr/bin/python3")
    wanted = set(sys.argv[1:])
    for folder in ("ended", "caught", "plain", "curves", "silent", "unknown"):
        (HERE / folder).mkdir(exist_ok=True)
    for folder, programs in (("plain", PLAIN), ("curves", CURVES), ("silent", HEALTHY)):
        for name, program in programs.items():
            if not wanted or name in wanted:
                (HERE / folder / f"{name}.log").write_text(run_file(program))
    crashing = CRASHING | {name: SAMPLES.format(options=a, sample=b) for name, (a, b) in IN_WORKERS.items()}
    for name, program in crashing.items():
        if not wanted or name in wanted:
            (HERE / "ended" / f"{name}.log").write_text(run_file(program))
    for name, program in DISTRIBUTED.items():
        if not wanted or name in wanted:
            two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
            (HERE / "ended" / f"{name}.log").write_text(run_file(TWO_RANKS + program, *two))
    for name, program in FAILING.items():
        if wanted and name not in wanted:
            continue
        (HERE / "ended" / f"{name}.log").write_text(run_file(program))
        (HERE / "caught" / f"{name}.log").write_text(run([sys.executable, "-c", caught(program)]))
    for name, script in SHELL.items():
        if wanted and name not in wanted:
            continue
        script = script.format(python=sys.executable, without_torch=without_torch)
        (HERE / "ended" / f"{name}.log").write_text(run(["bash", "-c", script]))
    for prefix, scripts in (("", UNKNOWN), ("lived-on-", LIVED_ON)):
        for name, script in scripts.items():
            if not wanted or name in wanted:
                script = script.format(python=sys.executable, training=TRAINING)
                (HERE / "unknown" / f"{prefix}{name}.log").write_text(run(["bash", "-c", script]))


if __name__ == "__main__":
    main()
