"""Make the completions and the man page from coach's command line.

coach itself builds only the parser of the requested command. Here one parser holds all commands, as shtab and
argparse-manpage need it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from coach import __main__, __version__, cli

COMPLETIONS = {
    "bash": "bash-completion/completions/coach",
    "zsh": "zsh/site-functions/_coach",
    "fish": "fish/vendor_completions.d/coach.fish",
}
"""Shell → where its completions lie below `share/`."""
MAN_PAGE = "man/man1/coach.1"

_FILES = frozenset({"FILE", "JOB", "PATH", "PYTHON", "TARGET", "WHAT"})
"""What is, or may be, a file."""
_FOLDERS = frozenset({"DIR"})

_MORE = r"""
.SH EXIT STATUS
.B coach check
and
.B coach why
exit with 0 where nothing is wrong, 1 where something is, 2 where the target cannot be read.
.B coach launch \-\-wait
exits with 0 where the run completed, 1 where it ended otherwise. Bad input is 2, in every command.
.SH ENVIRONMENT
.TP
.B COACH_HOME
One folder for runs, cache and config.
.TP
.B COACH_SITE
The site's file; without it the one of the installation, then /etc/coach/site.toml.
.TP
.B COACH_\fIKEY\fR
Most keys of the config: COACH_LAUNCH_PARTITION sets launch.partition.
.B coach config \-\-explain
shows them all, and who set them.
.SH FILES
.TP
.I ~/.config/coach/config.toml
The user's own settings.
.TP
.I $SCRATCH/coach/runs
The runs; below the home where there is no scratch.
"""


def whole_parser() -> argparse.ArgumentParser:
    """All commands below the parser of the screens."""
    parser = __main__.parser_of_screens()
    # coach's parser takes any word as a command, to name the nearest one; here it lists the commands.
    taken = next(action for action in parser._actions if action.dest == "command")
    parser._actions.remove(taken)
    parser._positionals._group_actions.remove(taken)
    parser.epilog = None
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in cli.COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=cli.sentence(summary))
        cli.command_module(name).configure(command)
        _name_files(command)
    return parser


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completions for a shell of COMPLETIONS."""
    text: str = shtab.complete(parser, shell)
    return text


def man_page(parser: argparse.ArgumentParser) -> str:
    """The page in roff, with a section for each command."""
    page = Manpage(parser, format="single-commands-section")
    page.source, page.manual = f"coach {__version__}", "coach"
    page.description = "see a Slurm cluster, launch trainings, and learn why a job fails or crawls"
    return str(page).rstrip() + "\n" + _MORE.lstrip()


def write_reference(share: Path) -> None:
    """Write all of it below a folder `share/`."""
    parser = whole_parser()
    texts = {path: completion(parser, shell) for shell, path in COMPLETIONS.items()}
    for path, text in {**texts, MAN_PAGE: man_page(parser)}.items():
        file = share / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _name_files(parser: argparse.ArgumentParser) -> None:
    """Say of each argument whether a file or a folder completes it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _name_files(each)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
