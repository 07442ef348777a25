"""The headless front end: one file per command; course commands are in `teaching/`.

`coach --help` needs only the table below, so only the requested command's module is imported. Each module has
`configure(parser)` and `run(args, settings) -> exit status`. If a module has `unmistakable(arguments)`, that
rewrites the arguments so that argparse understands them. If it has `HAS_WORDS_BEHIND`, it gets the words
after `--` as `args.behind`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from coach import harmless
from coach.harmless import printable
from coach.late import late
from coach.model.errors import UserError

if TYPE_CHECKING:
    from coach.cli import file_words, own_settings, terminal_signs
    from coach.config import Settings
    from coach.workflows import patience
else:
    file_words, own_settings, terminal_signs = late(
        "coach.cli", "file_words", "own_settings", "terminal_signs"
    )
    patience = late("coach.workflows", "patience")

COMMANDS_BY_TASK = {
    "find the cause of a problem": {
        "check": "diagnose a run, a job or a log; without a target, all your jobs",
        "why": "say why a job ended, in six lines at most",
        "ticket": "write a ticket for the help desk about a job, without its secrets",
        "fix": "apply a finding's fix and launch the run again, short or in full",
        "compare": "compare two runs: the effect of a change",
        "watch": "follow runs and jobs to their end, and say why they failed",
        "stacks": "show the stack of every rank of a running training",
        "trace": "read a torch.profiler trace: idle time, kernels, copies",
        "attach": "measure inside a running job of yours that coach did not launch",
        "explain": "explain a rule, a Slurm state or reason, or a topic",
    },
    "see the cluster": {
        "jobs": "list your jobs, or everybody's with --all",
        "history": "list your ended jobs, and how much of their resources they used",
        "nodes": "list the nodes, or the reservations with --reserved",
        "partitions": "list the partitions",
    },
    "launch a training": {
        "recipes": "list the recipes, show one, copy one to change it",
        "launch": "launch a recipe, or your own script, batch file or command",
        "ladder": "launch a ladder of recipes, and compare its rungs",
        "init": "propose a coach.toml for the trainings of this directory",
        "data": "list the data sets, fetch CIFAR-10",
        "run": "run a command beside the sampler, in a run directory",
        "runs": "list the runs that coach knows",
    },
    "change your jobs": {
        "cancel": "cancel jobs or runs",
        "hold": "keep waiting jobs from starting",
        "release": "let held jobs start",
        "requeue": "put running jobs back into the queue",
        "timelimit": "lower the time limit of jobs",
        "resubmit": "submit a job again, or launch a run again",
        "resume": "let an ended run go on from its newest checkpoint",
        "shell": "open a shell in the allocation of a running job",
    },
    "learn and teach": {
        "drill": "find a planted fault: list the drills, launch one, name the cause",
        "workshop": "rehearse a workshop: do its recipes run, do all learners fit?",
        "cohort": "show the progress of everybody in a course: state, finding, drills",
    },
    "set up": {
        "doctor": "check if launches work here; each failed check names its remedy",
        "config": "show each setting and its origin, check a file",
        "record": "record everything that coach reads in a file, to replay it",
        "sample": "sample GPUs and processes of this node",
    },
}
"""Task → its commands, in the order of `coach --help`."""

COMMANDS = {name: summary for commands in COMMANDS_BY_TASK.values() for name, summary in commands.items()}

_MAX_NEAR = 3
"""Options that a refusal names at most."""
_WITHOUT_THREADS = frozenset({"run", "sample"})
"""Commands that fork, which is unsafe beside a second thread."""

_TEACHING = frozenset({"drill", "cohort", "workshop"})
"""Commands with their modules in `cli/teaching/`."""
_CHANGE_JOBS = frozenset({"cancel", "hold", "release", "requeue", "timelimit"})
"""Commands that differ in their verb alone, all in `cli/change_jobs.py`."""


def guarded(command: Callable[[], int]) -> int:
    """Run a front end. A user error prints one line, a second line with the hint, and gives exit status 2. A
    file that cannot be used is one as well: a full disk, or a run that another coach removed meanwhile."""
    _replace_closed_streams()
    sys.stdout, sys.stderr = harmless.guarded(sys.stdout), harmless.guarded(sys.stderr)
    try:
        return _flushed(command)
    except UserError as error:
        report(error)
        return error.exit_status
    except BrokenPipeError:
        _discard_output()  # the reader (head, less) has closed the pipe
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        words = file_words.words_of(error)
        if words is None:
            raise
        print(f"coach: {printable(words)}", file=sys.stderr)
        if isinstance(error, OSError) and error.filename is None:
            _discard_output()
        return 2


def report(error: UserError) -> None:
    """Print an error on standard error: what is wrong, what would be right, and its further lines."""
    hint = (f"  {error.hint}",) if error.hint else ()
    for line in (f"coach: {error.message}", *hint, *error.diff):
        print(printable(line.expandtabs(4)), file=sys.stderr)


def _flushed(command: Callable[[], int]) -> int:
    try:
        status = command()
    except SystemExit:  # argparse has printed its help
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def _discard_output() -> None:
    """Send what is left of standard output nowhere. Python would complain again when it flushes at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams() -> None:
    """Put the null device in place of a standard stream that the caller closed (`>&-`)."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
        sys.stdin = sys.stdin or open(0)  # noqa: SIM115 (these stay open to the end)
        sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
        sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Parse and run one command of COMMANDS."""
    terminal_signs.follow_terminal(os.environ)
    module = command_module(name)
    args = arguments_of(name, arguments)
    if args.as_root:
        mean_it_as_root()
    given = [load_settings()] if getattr(module, "LOADS_SETTINGS", True) else []
    if name in _WITHOUT_THREADS:
        return int(module.run(args, *given))
    with patience.patience():
        return int(module.run(args, *given))


def arguments_of(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command of COMMANDS. argparse ends the process if they are invalid."""
    module, parser = command_module(name), parser_of(name)
    add_as_root(parser)
    if hasattr(module, "unmistakable"):  # words of a filter may stand before and after the options
        return parser.parse_intermixed_args(module.unmistakable(arguments))
    if getattr(module, "HAS_WORDS_BEHIND", False):  # argparse would remove `--`
        before, behind = words_behind(arguments)
        args, unknown = parser.parse_known_args(before)
        if unknown:
            is_option = unknown[0].startswith("-")
            what = f"has no option {unknown[0]}" if is_option else f"does not expect {unknown[0]!r}"
            near = _near_option(parser, unknown[0]) if is_option else None
            raise UserError(f"coach {name} {what}", near or _hint_for_unknown(module, args, unknown))
        args.behind = behind
        return args
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        near = _near_option(parser, unknown[0])
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{f': {near}' if near else ''}")
    return args


def _near_option(parser: argparse.ArgumentParser, word: str) -> str | None:
    """The options of the command that begin with the word, as a question; None if there is none."""
    begun = word.partition("=")[0]
    known = [option for option in parser._option_string_actions if option.startswith("--")]
    near = [option for option in known if len(begun) > len("--") and option.startswith(begun)]
    return f"did you mean {' or '.join(near[:_MAX_NEAR])}?" if near else None


def _hint_for_unknown(module: Any, args: argparse.Namespace, unknown: Sequence[str]) -> str:
    """The module's own hint, if it knows what was meant."""
    own: str | None = module.meant(args, unknown) if hasattr(module, "meant") else None
    return own or f"your program's own options follow --: `-- {shlex.join(unknown)}`"


class Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, in subcommands either: `--tim` would be taken for --time, though another
    program's option was meant. An error is one line, whatever the arguments hold."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command of COMMANDS, without the option that only root sees."""
    parser = Parser(prog=f"coach {name}", description=sentence(COMMANDS[name]))
    command_module(name).configure(parser)
    return parser


def command_module(name: str) -> Any:
    """The module of one command of COMMANDS, imported now, or its entry in the table of a module."""
    if name in _CHANGE_JOBS:
        return import_module("coach.cli.change_jobs").COMMANDS[name]
    folder = "coach.cli.teaching" if name in _TEACHING else "coach.cli"
    return import_module(f"{folder}.{name}")


def words_behind(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The arguments before and after the first `--`; the second list is None without one."""
    words = list(arguments)
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def sentence(summary: str) -> str:
    """The summary as a sentence for a list, with a capital letter; `GPU` stays as it is."""
    return f"{summary[:1].upper()}{summary[1:]}."


def add_as_root(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets root change something. Only root sees it in the help."""
    help_ = (
        "allow root to launch and change jobs (also COACH_AS_ROOT=1)"
        if os.geteuid() == 0
        else argparse.SUPPRESS
    )
    parser.add_argument("--as-root", action="store_true", help=help_)


def mean_it_as_root() -> None:
    """Allow root's changes for this process, for later reloads of the settings too: the option sets the
    environment variable."""
    os.environ["COACH_AS_ROOT"] = "1"


def load_settings() -> Settings:
    """The settings of the user who runs this process."""
    with patience.patience():
        return own_settings.load()
