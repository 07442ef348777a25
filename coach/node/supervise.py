"""`coach run`: starts a command with the sampler beside it, passes signals on to it, and ends as it ends.

The training comes first. It starts before the sampler, nothing here waits for a file system while it runs,
and a failure of the sampler or the run directory affects neither the command nor its exit status. The command
keeps its standard input; `output.py` handles its output.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set

from coach import runs
from coach.node import (
    ended,
    first_look,
    judge,
    limits,
    own_run,
    peers,
    rank_ends,
    share,
    time_limit,
    trainer_facts,
)
from coach.node.full_disk import FullDisk, reserve
from coach.node.gpm import GPM_HELP
from coach.node.node_name import is_first_node, is_first_task, node_name
from coach.node.output import Output
from coach.node.relay import FORWARDED, Witness

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_WAITED_FOR = FORWARDED | {signal.SIGCHLD, signal.SIGWINCH}
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `coach run`."""
    parser.add_argument("--run-dir", metavar="DIR", help="the run directory (default: a new one)")
    parser.add_argument("--recipe", metavar="NAME", default="run", help="name of a new run (default: run)")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between samples (default: 1)"
    )
    parser.add_argument("--gpm", action="store_true", help=GPM_HELP)
    parser.add_argument("--share", metavar="DIR", help=share.HELP)
    parser.add_argument("--judge", metavar="PYTHON", help=argparse.SUPPRESS)  # the interpreter that has coach
    parser.add_argument("--judge-file", metavar="FILE", help=argparse.SUPPRESS)  # coach as one file
    parser.add_argument("--runs-root", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--no-end", action="store_true", help=argparse.SUPPRESS)  # a script records the end
    parser.add_argument("--comment", action="store_true", help=argparse.SUPPRESS)  # in the job's own comment
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the command and its arguments"
    )


def run(args: argparse.Namespace, runs_root: Optional[Path] = None) -> int:
    """Run the command. Returns its exit status, or dies by the signal that ended it. A new run is made below
    `runs_root`."""
    command: List[str] = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        print("coach run: expected a command, for example `coach run -- python train.py`", file=sys.stderr)
        return 2
    # From here on signals stay blocked until the training can receive them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    started_time_s = time.time()
    node = node_name(os.environ)
    # The first look also checks that the run directory can be written, so it comes before any write.
    if args.run_dir and _is_refused(
        runs.RunPaths(Path(args.run_dir).absolute()), node, command, started_time_s
    ):
        return first_look.EXIT_STATUS
    paths = _prepare(args, runs_root or args.runs_root, command, started_time_s)
    attempt = _Attempt(paths, node, started_time_s, notes_end=not args.no_end) if paths else None
    if attempt:
        attempt.note_exit_status(None)
    noted = own_run.output_of(paths, os.environ) if paths else None
    output = noted or Output()
    environment = {**os.environ, **(attempt.environment() if attempt else {})}
    try:
        training = subprocess.Popen(
            command,
            env=environment,
            stdout=output.of_command.get(1),
            stderr=output.of_command.get(2),
            close_fds=False,  # descriptors that this process inherited are meant for the command
            preexec_fn=lambda: _become_the_command(paths, noted, mask),  # noqa: PLW1509 (no threads here)
        )
    except OSError as error:
        return _report_not_started(command, error, attempt, output)
    output.started(training.pid)
    _accompany(training, args, command, attempt, output)
    if attempt and args.judge:
        attempt.say_why(args.judge, args.judge_file)
    output.tell_loss()
    if training.returncode < 0:
        _die_of(-training.returncode, mask)
    return training.returncode


def _prepare(
    args: argparse.Namespace, runs_root: Optional[Path], command: List[str], started_time_s: float
) -> Optional[runs.RunPaths]:
    root = runs_root or runs.default_runs_root(os.environ)
    shared = os.path.realpath(args.share) if args.share else None
    asked = {
        "launch": {"share": shared} if shared else {},
        **({"squeue_comment": True} if args.comment else {}),
    }
    return own_run.prepare(args.run_dir, root, args.recipe, command, started_time_s, os.environ, asked)


def _report_not_started(
    command: List[str], error: OSError, attempt: Optional["_Attempt"], output: Output
) -> int:
    """Print and record why the command did not start. Returns the exit status that a shell would give."""
    status = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    output.say(f"coach run: {command[0]}: {error.strerror or error}")
    output.say_end()
    if attempt:
        attempt.record_end(status, {})
    output.await_reader(_heeded())
    return status


def _accompany(
    training: "subprocess.Popen[bytes]",
    args: argparse.Namespace,
    command: List[str],
    attempt: Optional["_Attempt"],
    output: Output,
) -> None:
    """Run the sampler beside the training until the training has ended, and record the end."""
    witness = Witness()
    helpers = [pid for pid in (witness.pid, output.copier_pid) if pid is not None]
    sampler = _start_sampler(attempt, args, command, helpers) if attempt else None
    if attempt and os.environ.get("SLURM_NNODES", "1") != "1":
        peers.end_with_a_refused_peer(attempt.paths, attempt.node, training)
    forwarded = _wait(training, witness, sampler, attempt, output)
    if attempt:
        attempt.note_exit_status(training.returncode)
    witness.end()
    output.say_end()
    if sampler is not None:
        _end_sampler(sampler)
    if attempt:
        attempt.is_full_disk_told = output.has_told_of_full_disk
        attempt.record_end(training.returncode, forwarded)
    output.await_reader(_heeded())


def _become_the_command(paths: Optional[runs.RunPaths], noted: Optional[Output], mask: Set[Any]) -> None:
    """The last steps before the command starts, in the process that becomes it."""
    if paths and noted:
        own_run.note_command(paths, noted.places)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _is_refused(paths: runs.RunPaths, node: str, command: List[str], started_time_s: float) -> bool:
    """Check if the training can run here. If not, write the reason to the log and the run directory."""
    refusal = first_look.look(paths, node, command, os.environ)
    if refusal is None:
        return False
    print(refusal.line, file=sys.stderr, flush=True)
    _Attempt(paths, node, started_time_s).record_refusal(refusal)
    return True


def _start_sampler(
    attempt: "_Attempt", args: argparse.Namespace, command: List[str], helpers: List[int]
) -> Optional["subprocess.Popen[bytes]"]:
    argv = [
        sys.executable,
        "-E",
        str(Path(__file__).parent),
        "sample",
        "--run-dir",
        str(attempt.paths.run_dir),
    ]
    argv += ["--node", attempt.node, "--interval", str(args.interval), "--pid", str(os.getpid())]
    argv += [word for pid in helpers for word in ("--ignore-pid", str(pid))]
    argv += ["--gpm"] if args.gpm else []
    if is_first_node(os.environ):
        # Which torch it has is read there: nothing here waits for a file system.
        argv += ["--started-time", repr(attempt.started_time_s), f"--program={command[0]}"]
    null = subprocess.DEVNULL
    try:
        # Signals stay blocked in it: scancel signals each process of the step, but samples are wanted until
        # the training has ended.
        return subprocess.Popen(argv, stdin=null, stdout=null, stderr=null, start_new_session=True)
    except OSError as error:
        attempt.add_gap(f"the sampler did not start ({error.strerror or error})")
        return None


def _end_sampler(sampler: "subprocess.Popen[bytes]") -> None:
    """Kill it if it still runs. No data is lost: each record is a single write."""
    if sampler.returncode is None:
        sampler.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            sampler.wait(timeout=2.0)


def _wait(
    training: "subprocess.Popen[bytes]",
    witness: Witness,
    sampler: Optional["subprocess.Popen[bytes]"],
    attempt: Optional["_Attempt"],
    output: Output,
) -> Dict[int, float]:
    """Wait for the training's end and pass signals on to it meanwhile. Returns the signals that came, each
    with the time of its first arrival in epoch seconds."""
    came: Dict[int, float] = {}
    while training.poll() is None:
        if sampler is not None and attempt is not None and sampler.returncode is None:
            status = sampler.poll()
            if status is not None:
                how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
                attempt.add_gap(f"the sampler {how}")
        signum = signal.sigwait(_WAITED_FOR)
        if signum == signal.SIGCHLD:
            output.look_after_copier()
            continue
        if signum == signal.SIGWINCH:
            if output.fit_window():
                training.send_signal(signum)
            continue
        came.setdefault(signum, time.time())
        if not witness.has_got(signum):
            training.send_signal(signum)
    return came


def _heeded() -> Set[signal.Signals]:
    """The signals that tell the command to end, without those that it was started to ignore, as by nohup.

    A signal that is ignored still arrives here, because all of them are blocked.
    """
    return {signum for signum in _ENDING if signal.getsignal(signum) is not signal.SIG_IGN}


def _die_of(signum: int, mask: Set[Any]) -> None:
    """End by the signal that ended the training, so that this process's parent sees the same."""
    with contextlib.suppress(Exception):
        import resource

        # The training may have left a core file, which the supervisor's own would overwrite.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    sys.stderr.flush()
    if signum not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - {signum})
    os._exit(128 + signum)


class _Attempt:
    """One run of the command in a run directory, and the records of it. No method raises."""

    def __init__(
        self, paths: runs.RunPaths, node: str, started_time_s: float, *, notes_end: bool = True
    ) -> None:
        self.paths = paths
        self.notes_end = notes_end
        self.node = node
        self.started_time_s = started_time_s
        self.error_dir = paths.run_dir / "ranks" / node
        self._old_error_dirs = _names(self.error_dir)
        self._stderr_offset = _size(paths.stderr_log)
        self.is_full_disk_told = False
        with contextlib.suppress(OSError):
            reserve(paths, node)
        self._full_disk = FullDisk(paths, node)
        self._is_alone = "SLURM_JOB_ID" not in os.environ and own_run.is_without_script(paths)
        self._earlier_oom_kills = limits.num_oom_kills(os.getpid()) or 0

    @property
    def _part(self) -> str:
        """The name of this supervisor's part of exit.json."""
        return self.node if is_first_task(os.environ) else f"{self.node}.{os.environ['SLURM_LOCALID']}"

    def environment(self) -> Mapping[str, str]:
        """torchrun reads each option's default from PET_<OPTION>: its workers' error files go to the run
        directory.

        Python finds `startup/sitecustomize.py`, which lets coach ask its processes for their stacks, and
        `reporting/coach_report.py`. The run's name marks each process that the command starts as the run's.
        """
        here = Path(__file__).resolve().parent
        places = [str(here / "startup"), str(here / "reporting"), os.environ.get("PYTHONPATH", "")]
        added = {"PYTHONPATH": os.pathsep.join(place for place in places if place)}
        added[runs.RUN_VARIABLE] = self.paths.run_dir.name
        added["COACH_RUN_DIR"] = str(self.paths.run_dir)
        return added if "PET_LOG_DIR" in os.environ else {**added, "PET_LOG_DIR": str(self.error_dir)}

    def add_gap(self, because: str) -> None:
        """Note in the telemetry that it ends here, and why."""
        record: Dict[str, Any] = {
            "kind": "gap",
            "time_s": time.time(),
            "node": self.node,
            "what": "telemetry",
        }
        record.update(because=because, how="the training continues without samples; restart it to get them")
        with contextlib.suppress(OSError), open(self.paths.telemetry_of(self.node), "ab") as file:
            file.write(runs.encode_record(record))

    def record_refusal(self, refusal: first_look.Refusal) -> None:
        """Record that the training was not started, and why."""
        with contextlib.suppress(Exception):
            if is_first_node(os.environ):
                trainer_facts.fold_start(self.paths, self.started_time_s)
        with contextlib.suppress(Exception):
            first_look.record(self.paths, refusal, self.node)
        with contextlib.suppress(Exception):
            ended.record_node(self.paths, self._part, first_look.EXIT_STATUS, [])

    def note_exit_status(self, returncode: Optional[int]) -> None:
        """Record it before anything else, in one write. None: the command has not ended yet.

        Only for a run on this machine without another supervisor. Otherwise the end would be unknown if this
        process were killed before it has recorded more.
        """
        with contextlib.suppress(OSError, runs.RunFileError):
            if not self._is_alone:
                return
            if returncode is None:
                self.paths.exit_status.unlink()
                return
            status = returncode if returncode >= 0 else 128 - returncode
            self.paths.exit_status.write_text(f"{status}\n", encoding="ascii")

    def record_end(self, returncode: int, signals: Mapping[int, float]) -> None:
        """Write this node's part of exit.json; for a run without a batch script also the state."""
        with contextlib.suppress(Exception):
            if is_first_node(os.environ):
                trainer_facts.fold(self.paths, self.started_time_s)
        with self._told_if_full(), self._full_disk.watch(returncode if returncode >= 0 else 128 - returncode):
            new_dirs = [
                self.error_dir / name for name in sorted(_names(self.error_dir) - self._old_error_dirs)
            ]
            found = rank_ends.collect(
                self.paths, self.node, self.started_time_s, new_dirs, self._stderr_offset, returncode
            )
            # Recorded before the node's part: a reader of that part expects all facts of the node.
            refusal = first_look.said_by_a_trainer(entry["message"] for entry in found)
            if refusal:
                first_look.record(self.paths, refusal, self.node)
            oom_kills = (limits.num_oom_kills(os.getpid()) or 0) - self._earlier_oom_kills
            ended.record_node(self.paths, self._part, returncode, found, max(0, oom_kills))
        with contextlib.suppress(Exception):
            has_no_script = self.notes_end and own_run.has_no_script(self.paths)
            if has_no_script and self._knows_state(returncode):
                told_to_end = [signals[signum] for signum in _heeded() if signum in signals]
                state = None
                if returncode != 0 and told_to_end:
                    log = own_run.stderr_log(self.paths)
                    state = time_limit.state_by_signal(min(told_to_end), log, os.environ)
                ended.record_state(self.paths, returncode if returncode >= 0 else 128 - returncode, state)
                self._correct_state()

    @contextlib.contextmanager
    def _told_if_full(self) -> Iterator[None]:
        """Report a failed write once: here at the end, if the copier has not reported a full disk."""
        try:
            yield
        except (OSError, runs.RunFileError) as error:
            if self.is_full_disk_told:
                return
            why = (error.strerror if isinstance(error, OSError) else None) or error
            words = f"how the command ended is not recorded: {self.paths.run_dir}: {why}"
            with contextlib.suppress(OSError, ValueError):
                print(f"coach run: {words}", file=sys.stderr, flush=True)
        except Exception:
            return

    def say_why(self, python: str, file: Optional[str]) -> None:
        """Judge a run that has no batch script to do it, and print after all its output why it ended."""
        with contextlib.suppress(Exception):
            if own_run.has_no_script(self.paths) and is_first_node(os.environ):
                judge.say(self.paths, python, os.environ, sys.stderr.fileno(), file)

    def _correct_state(self) -> None:
        # Another node may fail between the look at exit.json and the verdict: each writes its own part first.
        value = runs.read_json(self.paths.exit_json)
        failed = [part.get("exit_code") for part in value["nodes"].values() if part.get("exit_code") != 0]
        if value.get("state") == "COMPLETED" and failed:
            ended.record_state(self.paths, failed[0] or 1)

    def _knows_state(self, returncode: int) -> bool:
        # If several tasks end well, the first reports it, unless another has reported a failure.
        if returncode != 0 or not self.paths.exit_json.exists():
            return returncode != 0 or is_first_node(os.environ)
        earlier = runs.read_json(self.paths.exit_json)
        is_of_this_attempt = (earlier.get("ended_time_s") or 0) >= self.started_time_s
        return is_first_node(os.environ) and not (earlier.get("state") and is_of_this_attempt)


def _names(directory: Path) -> Set[str]:
    try:
        return {entry.name for entry in directory.iterdir()}
    except OSError:
        return set()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
