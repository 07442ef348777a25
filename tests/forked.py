"""Start coach in a fork of the test's own process, which has imported it already: half a second less each."""

from __future__ import annotations

import io
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from coach import cli
from coach.__main__ import main
from coach.rules.registry import rule_classes
from tests.json_documents import check_printed
from tests.waiting import PATIENCE

for _found in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
    import_module(_found.name)  # else each fork imports its command's module again
rule_classes()  # else each fork imports all rules again


def typed_coach(
    words: Sequence[object],
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    stdin: str = "",
    timeout_s: int = 60,
) -> subprocess.CompletedProcess[str]:
    """`coach WORDS` with its output as text, the same as from a new interpreter's `-m coach`."""
    done = forked_coach([*map(str, words)], env, stdin.encode(), cwd=cwd, timeout_s=timeout_s)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def forked_coach(
    words: Sequence[str],
    env: Mapping[str, str],
    stdin: bytes = b"",
    *,
    cwd: Path | None = None,
    timeout_s: int = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run `coach WORDS` as `python -m coach` does, with its own environment, folder and standard streams.

    SIGALRM ends one that takes longer than `timeout_s` of an idle machine.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        pid = os.fork()
        if not pid:
            signal.alarm(int(timeout_s * PATIENCE))
            _be_coach(words, env, cwd, (given.fileno(), out.fileno(), err.fileno()))
        exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        printed = out.read()
        check_printed(words, printed.decode())
        return subprocess.CompletedProcess(list(words), exit_code, printed, err.read())


def _be_coach(
    words: Sequence[str], env: Mapping[str, str], cwd: Path | None, files: tuple[int, int, int]
) -> NoReturn:
    """Be the command: never return to the test."""
    exit_code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
        if cwd is not None:
            os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["coach", *words]
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, mode, closefd=False), encoding="utf-8", line_buffering=True)
            for number, mode in enumerate("rww")
        )
        exit_code = main(words)
    except SystemExit as ended:
        exit_code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
