"""JOB014: the program was ended by a signal from outside: SIGTERM, SIGINT (Ctrl-C) or SIGHUP (a closed
terminal)."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import is_below, is_monitor
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.outcome import is_first_failure
from coach.rules.slurm.ended_by_slurm import REQUEUES

_NAMES = {
    "1": "SIGHUP",
    "2": "SIGINT",
    "15": "SIGTERM",
    "24": "SIGXCPU",
    "143": "SIGTERM",
    "Hangup": "SIGHUP",
    "Interrupt": "SIGINT",
    "Terminated": "SIGTERM",
    "Termination": "SIGTERM",
    "CPU time limit exceeded": "SIGXCPU",
    "interrupt": "SIGINT",
    "lightning": "SIGINT",
    "srun": "SIGINT",
    "sigterm": "SIGTERM",
}
"""Numbers of signals, words of a shell and fields of a line → the name."""
_EXIT_CODES = (-1, -2, -15)
"""The exit codes by which torchrun shows SIGHUP, SIGINT and SIGTERM."""


class EndedBySignal(EndingRule):
    """The program was ended by a signal from outside.

    What it sees
        torchrun's SignalException ("Process 17 got signal: 15"), "Signal 15 (SIGTERM) received by PID", exit
        codes -15, -2, -1 and 143 of ranks, "Received SIGTERM", Lightning's SIGTERMException,
        and the lines of a shell, srun or mpiexec about a task that was Terminated, or that reached a limit of
        CPU time (SIGXCPU). With a cause of its own: KeyboardInterrupt, and what launchers print at Ctrl-C.
    Why it matters
        The program did not fail. The remedy depends on the sender: Slurm at a limit, a launcher after another
        rank failed, a person at the keyboard, or a closed terminal (SIGHUP).
    When it stays silent
        On a monitor that the script ended, and on a program that requeued its job after the signal. If
        another finding explains the end (a time limit, a cancelled or preempted job, another rank's error),
        this one is listed as its consequence. It is only info if the program went on.
    What to do
        SIGHUP: start long runs with sbatch or in tmux, not directly in a terminal. SIGTERM: look at the logs
        of the other nodes, and at `sacct -j JOB -o State,ExitCode` if the site keeps accounting. To save a
        checkpoint before such an end, handle SIGTERM in the program.
    Sources
        torch/distributed/elastic/multiprocessing/api.py; signal(7); srun(1), SIGNALS AND ESCAPE SEQUENCES.
    """

    code = "JOB014"
    name = "ended-by-signal"
    cause = "sigterm_signal"
    severity = Severity.WARNING

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a rank that torchrun ended or that failed by itself, for a monitor that a script ended,
        and for a job that then requeues itself."""
        if is_monitor(hit) or ("name" in hit.fields and is_below(REQUEUES, hit, snapshot)):
            return False
        code = hit.fields.get("exit_code")
        if code is not None and int(code) not in _EXIT_CODES:
            return False
        is_told_by_torchrun = code is not None or "received" in hit.fields
        return not is_told_by_torchrun or is_first_failure(hit, snapshot, *_EXIT_CODES)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        name = self._signal(snapshot)
        if name == "SIGXCPU":
            return "The program used up a limit of CPU time (`ulimit -t`, SIGXCPU)"
        return f"The program was ended by {name or 'a signal'} from outside"

    def _signal(self, snapshot: TargetSnapshot) -> str | None:
        """The name of the signal, from the hits that count."""
        return _name(self.lines_that_count(snapshot))

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        name = self._signal(snapshot)
        if name == "SIGHUP":
            yield Fix("Start long runs by sbatch (or in tmux): the terminal it was started in was closed")
        elif name == "SIGTERM":
            yield Fix("Find who sent it: see the first error of the other ranks and nodes", needs=("ranks",))
            yield Fix(
                "Ask the scheduler how the job ended: a limit of time or memory, or a person, sends it too",
                needs=("not ranks",),
            )
        else:
            yield Fix("If it was not you, find who interrupted it")


def _name(hits: list[LogHit]) -> str | None:
    """The name of the signal, from the first line that has it."""
    for hit in hits:
        for field, value in hit.fields.items():
            if value.startswith("SIG"):
                return value
            name = _NAMES.get(value.lstrip("-")) or _NAMES.get(field)
            if name is not None:
                return name
        if hit.wording is not None and hit.wording.cause is not None:
            return "SIGINT"
    return None
