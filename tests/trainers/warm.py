"""Start trainings from a process that has imported torch already: `warm.py SOCKET` serves, `WarmPython` asks
it.

torch and the imports of its first optimizer take four seconds of CPU, a training in a test only a fraction of
a second. So one process imports them and forks each requested program, with its own arguments, environment,
folder, output and session. A torchrun started in this way starts its ranks in the same way. Environment
variables that act during the import of torch have no effect here: `is_as_warm` tells when a program needs a
cold start.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_READ_AT_IMPORT = ("TORCH", "OMP_", "MKL_", "CUDA", "PYTHON", "LD_")
_READ_LATER = {"PYTHONPATH", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}
_START_TIMEOUT_S = 300.0
_IMPORTS = (
    *("torch", "torch._dynamo", "torch.distributed.launcher.api", "torch.distributed.elastic.metrics"),
    *("torch._inductor.compile_fx", "torch._dynamo.repro.after_dynamo"),  # DeepSpeed's optimizers import them
)


class WarmPython:
    """Runs Python programs in forks of one process. The first program starts this process; it ends with the
    `with` block."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._folder = Path(tempfile.mkdtemp(prefix="warm-"))  # a socket's path must be short
        self._socket = self._folder / "socket"
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.close()
            self._server.stdout.close()
            self._server.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(self._socket)],
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        assert select.select([self._server.stdout], [], [], _START_TIMEOUT_S)[0], "torch is not imported"
        assert self._server.stdout.readline() == "ready\n"

    def is_as_warm(self, env: Mapping[str, str]) -> bool:
        """True if torch, imported with this environment, would be as it is here."""

        def read_at_import(variables: Mapping[str, str]) -> dict[str, str]:
            names = (name for name in variables if name.startswith(_READ_AT_IMPORT))
            return {name: variables[name] for name in names if name not in _READ_LATER}

        return read_at_import(env) == read_at_import(self._env)

    def run(
        self, command: Sequence[str], env: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `python …` to its end; raise TimeoutExpired as `subprocess.run` does."""
        program = self.start(command, env)
        try:
            stdout, stderr = program.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
        assert program.returncode is not None
        return subprocess.CompletedProcess(list(command), program.returncode, stdout, stderr)

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> WarmProcess:
        """Start `python …` and do not wait for it."""
        if self._server is None:
            self._start()
        return WarmProcess(self._socket, command, env)


class WarmProgram:
    """A warm-started program, with the part of `subprocess.Popen` that torchrun uses."""

    def __init__(
        self,
        server: Path | str,
        command: Sequence[str],
        env: Mapping[str, str],
        files: Sequence[IO[Any] | int],
    ) -> None:
        self.args = list(command)
        self.returncode: int | None = None
        request = {"command": self.args, "env": dict(env), "cwd": str(Path.cwd())}
        data = json.dumps(request).encode()
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(str(server))
        descriptors = [file if isinstance(file, int) else file.fileno() for file in files]
        socket.send_fds(self._answers, [len(data).to_bytes(4, "big")], descriptors)
        self._answers.sendall(data)
        self.pid = self._read_number()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._read_number()
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_number(self) -> int:
        return int.from_bytes(_read(self._answers, 4), "big", signed=True)


class WarmProcess(WarmProgram):
    """A warm-started program, with the part of `subprocess.Popen` that a test uses."""

    def __init__(self, server: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read by `communicate`
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the same
        with open(os.devnull) as nothing:
            super().__init__(server, command, env, (nothing, self._out, self._err))

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end and return the output and the errors."""
        self.wait(timeout)
        said = []
        for file in (self._out, self._err):
            file.seek(0)
            said.append(file.read())
        return said[0], said[1]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the process that has imported torch is gone")
        data += more
    return data


def _serve(path: str) -> dict[str, Any]:
    """Fork a process for each request. Returns in that process, with the request."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd: the pid and the client to notify
    while True:
        readable = select.select([sys.stdin, listener, *running], [], [])[0]
        if sys.stdin in readable:
            os._exit(0)
        for descriptor in running.keys() & set(readable):
            pid, connection = running.pop(descriptor)
            exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(descriptor)
            with contextlib.suppress(OSError), connection:
                connection.sendall(exit_code.to_bytes(4, "big", signed=True))
        if listener not in readable:
            continue
        connection, _ = listener.accept()
        header, files, _, _ = socket.recv_fds(connection, 4, 3)
        request: dict[str, Any] = json.loads(_read(connection, int.from_bytes(header, "big")))
        pid = os.fork()
        if not pid:
            for each in (listener, connection, *(known for _, known in running.values())):
                each.close()
            for descriptor in running:
                os.close(descriptor)
            os.setsid()
            for number, descriptor in enumerate(files):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return request
        for descriptor in files:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(4, "big", signed=True))
        running[os.pidfd_open(pid)] = pid, connection


def _start_ranks_warm(server: str) -> None:
    """Let a torchrun that is forked from here start its ranks from here."""
    handler = importlib.import_module("torch.distributed.elastic.multiprocessing.subprocess_handler")

    def popen(self: Any, args: Sequence[str], env: Mapping[str, str]) -> WarmProgram:
        return WarmProgram(server, args, env, (0, self._stdout or 1, self._stderr or 2))

    handler.SubprocessHandler._popen = popen


def _run(request: Mapping[str, Any]) -> None:
    """Be the program that was asked for."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    _, *words = request["command"]
    if words[0] == "-u":
        words.pop(0)
    first = "" if words[0] in ("-m", "-c") else str(Path(words[0]).parent)
    sys.path[0:1] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    importlib.invalidate_caches()
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), vars(main))
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


if __name__ == "__main__":
    for name in _IMPORTS:
        importlib.import_module(name)
    _start_ranks_warm(sys.argv[1])
    _run(_serve(sys.argv[1]))
