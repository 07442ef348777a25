"""Starts coach, and imports only the front end that is needed.

`coach --help` and `--version` answer before Textual is imported; a command never loads the screens.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from coach import cli
from coach.late import late
from coach.model.errors import UserError

if TYPE_CHECKING:
    from coach import installed
    from coach.tui import app
else:
    app = late("coach.tui", "app")
    installed = late("coach", "installed")

_MEANT = {
    **dict.fromkeys(("list", "ps", "q", "queue", "sq", "squeue", "status"), "jobs"),
    **dict.fromkeys(("log", "logs"), "why"),
    **dict.fromkeys(("diagnose", "diagnosis"), "check"),
    **dict.fromkeys(("sbatch", "start", "submit"), "launch"),
    **dict.fromkeys(("kill", "scancel", "stop"), "cancel"),
    **dict.fromkeys(("gpu", "gpus", "sinfo"), "nodes"),
    **dict.fromkeys(("board", "class", "dashboard", "leaderboard", "ranking"), "cohort"),
    "help": "--help",
    "sacct": "history",
    "version": "--version",
}
"""Words of Slurm and of other programs → the command of coach."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, or open the screens. Returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--as-root"] and arguments[1:2] and arguments[1] in cli.COMMANDS:
        arguments = [arguments[1], "--as-root", *arguments[2:]]
    if arguments and arguments[0] in cli.COMMANDS:
        return cli.guarded(lambda: cli.run_command(arguments[0], arguments[1:]))
    return cli.guarded(lambda: _open_screens(arguments))


def _open_screens(arguments: Sequence[str]) -> int:
    if arguments and not arguments[0].startswith("-"):  # its own arguments are none of the screens'
        raise _unknown_command(arguments[0])
    parser = parser_of_screens()
    args, unknown = parser.parse_known_args(arguments)
    if args.command in cli.COMMANDS:
        raise _option_before(arguments[0], args.command)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.command is not None:
        raise _unknown_command(args.command)
    if args.as_root:
        cli.mean_it_as_root()
    settings = cli.load_settings()
    return app.open_screens(
        settings,
        backend=args.backend or settings.launch.backend,
        is_readonly=args.readonly,
        replay=args.replay,
        is_demo=args.demo,
    )


def _option_before(option: str, command: str) -> UserError:
    """The refusal of `coach --backend local launch`."""
    hint = f"options follow the command: coach {command} …; `coach {command} --help` lists those it has"
    if option == "--readonly":
        hint += "; readonly = true in config.toml, or COACH_READONLY=1, holds for every command"
    return UserError(
        f"{option} stands before the command {command}: options there are those of the screens", hint
    )


def _unknown_command(word: str) -> UserError:
    near = [_MEANT[word]] if word in _MEANT else get_close_matches(word, cli.COMMANDS, 1)
    hint = f"did you mean `coach {near[0]}`?" if near else "`coach --help` lists the commands"
    return UserError(f"unknown command {word!r}", hint)


def parser_of_screens() -> argparse.ArgumentParser:
    """The arguments of `coach` without a command."""
    parser = cli.Parser(
        prog="coach",
        description="See the cluster, launch a training that is known to be good, and learn why\n"
        "a job fails or crawls, with the evidence.",
        epilog="Without a command, coach opens its screens. `coach COMMAND --help` shows more.\n\n"
        + "\n\n".join(_group(task, commands) for task, commands in cli.COMMANDS_BY_TASK.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and the commit, and exit"
    )
    parser.add_argument(
        "--backend", choices=("auto", "slurm", "local"), help="which cluster to show (default: auto)"
    )
    parser.add_argument("--readonly", action="store_true", help="remove every action that changes something")
    cli.add_as_root(parser)
    parser.add_argument("--replay", metavar="FILE", help="play a recording made with `coach record`")
    parser.add_argument("--demo", action="store_true", help="play a recording that comes with coach")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def _group(task: str, commands: Mapping[str, str]) -> str:
    """The commands of one task, in the form of `coach --help`."""
    return "\n".join([f"{task}:", *(f"  {name:<11}{summary}" for name, summary in commands.items())])


class _Version(argparse.Action):
    """Prints the version. The commit is only looked up here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print, and exit."""
        sys.stdout.write(f"coach {installed.version()}\n")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
