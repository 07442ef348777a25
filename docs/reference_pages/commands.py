"""The page of all commands: purpose, arguments and one example of each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from coach import cli
from coach.__main__ import parser_of_screens
from reference_pages.markdown import block, code, page, table, text

EXAMPLES = {
    "check": "coach check 4734 --format json",
    "why": "coach why",
    "explain": "coach explain MEM001",
    "ticket": "coach ticket 4734 --save ticket.md",
    "watch": "coach watch 4734",
    "stacks": "coach stacks 4734",
    "attach": "coach attach 4734",
    "fix": "coach fix 4734 --trial",
    "compare": "coach compare 20261121-142233-ddp-4f2a 20261121-150112-ddp-9c01",
    "recipes": "coach recipes ddp",
    "launch": "coach launch ddp --nodes 2 --set lr=0.1 --wait",
    "ladder": "coach ladder demos --wait --format markdown",
    "init": "coach init --dry-run",
    "data": "coach data fetch --dir /scratch/ada/data",
    "run": "coach run -- python train.py",
    "jobs": "coach jobs state:pending 'gpu:>0' --why",
    "history": "coach history --days 30 --sort -gpu",
    "nodes": "coach nodes state:idle --columns id,gpu,free",
    "partitions": "coach partitions",
    "sample": "coach sample --once",
    "record": "coach record monday.coach --for 600",
    "cancel": "coach cancel 17 18 --yes",
    "hold": "coach hold 17",
    "release": "coach release 17",
    "requeue": "coach requeue 17",
    "timelimit": "coach timelimit 2:00:00 17",
    "resubmit": "coach resubmit '17_[2,5]' --dry-run",
    "resume": "coach resume 20261121-142233-ddp-4f2a --dry-run",
    "shell": "coach shell 17",
    "drill": "coach drill idle_hands --wait",
    "cohort": "coach cohort /course/shared --roster people.txt",
    "workshop": "coach workshop check day.toml",
    "doctor": "coach doctor",
    "config": "coach config --explain launch",
    "runs": "coach runs clean --older-than 30d",
    "trace": "coach trace 20261121-142233-profile-4f2a",
}
"""Command → an example of it. Tests parse each example, and miss no command."""

_INTRODUCTION = """\
`coach` without a command opens the screens. `coach COMMAND --help` prints what stands here. Every
command exits with status 2 and one line on standard error when it is given bad input. Root only looks,
unless `--as-root` or `COACH_AS_ROOT=1` says that root is meant. What `--format json` prints is
described in [json.md](json.md)."""


def commands_page() -> str:
    """docs/reference/commands.md."""
    parts = [_INTRODUCTION, "## coach", _arguments(parser_of_screens())]
    for task, commands in cli.COMMANDS_BY_TASK.items():
        parts.append(f"## {task[0].upper()}{task[1:]}")
        for name in commands:
            parts += _command(name, EXAMPLES[name])
    return page("Commands", *parts)


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The sub-commands of a command, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _command(name: str, example: str) -> Iterator[str]:
    parser = cli.parser_of(name)
    yield f"### coach {name}"
    yield text(parser.description)
    yield block("\n".join([*_usages(parser), f"# for example: {example}"]), "console")
    yield _arguments(parser)
    for word, below in parsers_below(parser):
        yield f"`coach {name} {word}`: {text(_help_of(parser, word))}"
        yield block("\n".join(_usages(below)), "console")
        yield _arguments(below)
    if parser.epilog:
        epilog = "\n".join(line.rstrip() for line in parser.epilog.splitlines())
        yield block(epilog, "text") if "\n" in epilog else text(epilog)


def _usages(parser: argparse.ArgumentParser) -> list[str]:
    """One line each. argparse's own layout differs between versions of Python, and is not used."""
    if parser.usage is not None:
        said = (parser.usage % {"prog": parser.prog}).splitlines()
        return [line.strip() for line in said]
    words = [parser.prog]
    options = [action for action in _shown(parser) if action.option_strings]
    words += ["[options]"] if options else []
    for action in _shown(parser):
        if not action.option_strings:
            name = _value_name(action)
            words.append(
                {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)
            )
    return [" ".join(words)]


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
    ]


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = [
        (_spelling(action), text(_help(parser, action)))
        for action in _shown(parser)
        if action.dest != "as_root" and not isinstance(action, argparse._SubParsersAction)
    ]
    return table(("argument", "what it does"), rows) if rows else ""


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if isinstance(action, argparse._VersionAction):
        return "print the version and exit"
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _spelling(action: argparse.Action) -> str:
    if not action.option_strings:
        return code(_value_name(action))
    value = "" if action.nargs == 0 else f" {_value_name(action)}"
    if action.nargs == "?":
        value = f" [{_value_name(action)}]"
    return ", ".join(code(f"{option}{value}") for option in action.option_strings)


def _value_name(action: argparse.Action) -> str:
    if isinstance(action.metavar, str) and action.metavar:
        return action.metavar
    if isinstance(action, argparse._SubParsersAction):
        return "|".join(action.choices)
    if action.choices is not None:
        return f"{{{','.join(map(str, action.choices))}}}"
    return action.dest.upper()


def _help_of(parser: argparse.ArgumentParser, word: str) -> str:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                if choice.dest == word:
                    return choice.help or ""
    return ""
