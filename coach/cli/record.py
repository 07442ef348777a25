"""`coach record`: records coach's input in a file, for a later replay."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import select
import signal
from collections.abc import Callable, Iterator

from coach.cli.cluster import backend_of
from coach.cli.text import say
from coach.config import BACKENDS, Settings
from coach.model.errors import UserError
from coach.runs import expand_home
from coach.workflows.watching.recording import record

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a recording after writing all kept input; under `nohup` SIGHUP stays ignored."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="where the recording goes")
    parser.add_argument("--backend", choices=BACKENDS, help="which cluster to record (default: auto)")
    parser.add_argument(
        "--for", dest="seconds", type=_seconds, help="stop after this time (default: at Ctrl-C)"
    )
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace users, jobs, accounts and hosts, each by the same word everywhere",
    )
    parser.add_argument(
        "--run",
        dest="runs",
        nargs="+",
        action="extend",
        default=[],
        metavar="RUN",
        help="record this run (default: all active runs)",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    file = expand_home(args.file).absolute()
    if not file.parent.is_dir():
        raise UserError(f"{args.file}: there is no directory {file.parent}")
    backend = backend_of(args.backend, settings)
    with _until_signalled() as wait:
        until = "until Ctrl-C" if args.seconds is None else f"for {args.seconds:g} s"
        say(f"recording {until}")
        kept = record(
            file,
            settings,
            backend,
            os.environ,
            run_ids=args.runs,
            is_anonymized=args.anonymize,
            duration_s=args.seconds,
            wait=wait,
        )
    what = f"{len(kept.followed)} run" + ("" if len(kept.followed) == 1 else "s")
    print(
        f"kept {kept.num_entries} readings, {kept.num_bytes / 1e6:.1f} MB, of {what}: {args.file} "
        f"({kept.size_bytes / 1e3:.0f} kB)"
    )
    return 0


@contextlib.contextmanager
def _until_signalled() -> Iterator[Callable[[float | None], object]]:
    """A function that waits for one of the signals that end a recording, or for a time.

    It uses a file descriptor: a signal just before a thread waits for a lock would not wake the thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda number, frame: None)
        for number in _ENDS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield lambda timeout_s: select.select([reader], [], [], timeout_s)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return value
