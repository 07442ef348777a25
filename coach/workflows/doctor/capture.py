"""Capture the answers of this site's Slurm to coach's own questions, without the site's names.

For the authors, who have other versions and other sites: a test loads such a file as it is.
`recorder/struck_answers.py` strikes the names; this module asks, shows and saves.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from coach import installed
from coach.node.secret_words import mask_text
from coach.recorder.struck_answers import Strikes, shape, strike_config, strike_pairs, strike_records
from coach.sources.io import CommandResult, Io, Query
from coach.sources.slurm.configuration import CONFIG_QUERY
from coach.sources.slurm.ended_jobs import history_query
from coach.sources.slurm.nodes import NODES_QUERY, PARTITIONS_QUERY
from coach.sources.slurm.queue import jobs_query
from coach.sources.slurm.reservations import RESERVATIONS_QUERY

SCHEMA = 1
KIND = "coach-capture"
PAST_S = 7 * 86400.0
"""Seconds. Own jobs of a week: usually enough to include every state."""
_SHOWN_LINES = 6
_CLIENTS = frozenset(
    [
        "squeue",
        "scontrol",
        "sacct",
        "sinfo",
        "error",
        "slurm",
        "controller",
        "Unable",
        "to",
        "contact",
        "Access",
        "permission",
        "denied",
        "accounting",
        "storage",
        "is",
        "disabled",
        "command",
        "not",
        "found",
        "no",
        "answer",
        "within",
        "s",
        "the",
        "in",
        "system",
    ]
)
"""Words in errors that name nothing of a site."""


def take(io: Io, user: str) -> dict[str, Any]:
    """Ask once, and strike the names. 11 RPCs."""
    strikes = Strikes(secrets.token_bytes(32))
    own = jobs_query(user)
    asked = {
        "config": CONFIG_QUERY,
        "jobs": jobs_query(None),
        "own-jobs": own,
        "nodes": NODES_QUERY,
        "partitions": PARTITIONS_QUERY,
        "reservations": RESERVATIONS_QUERY,
        "history": history_query(user, PAST_S),
    }
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "coach": installed.version(),
        "answers": {name: _struck(io.run(query), user, strikes) for name, query in asked.items()},
    }


def _struck(result: CommandResult, user: str, strikes: Strikes) -> dict[str, Any]:
    query = result.query
    text = result.stdout.decode("utf-8", "surrogateescape")
    if query.kind == "config":
        text = strike_config(text, strikes)
    elif query.separator:
        text = strike_records(text, _fields(query), query.separator, query.record_end, strikes)
    else:
        text = strike_pairs(text, strikes)
    return {
        "argv": [strikes.names("user", word) if word == user else word for word in query.argv],
        "separator": query.separator,
        "record_end": query.record_end,
        "returncode": result.returncode,
        "stdout": mask_text(text),
        "stderr": _words_of_error(result.stderr),
        "error": None if result.error is None else _words_of_error(result.error),
        "duration_s": round(result.duration_s, 3),
    }


def _fields(query: Query) -> list[str]:
    """The columns that a query asks for, as named in its option."""
    option = "-O" if "-O" in query.argv else "-o"
    asked = query.argv[query.argv.index(option) + 1]
    return [word.partition(":")[0] for word in asked.split(",")]


def _words_of_error(text: str) -> str:
    """An error with Slurm's words kept; every other word is replaced by its shape."""
    return "".join(
        part if part.strip(":;,.()'") in _CLIENTS or part.isspace() else _shaped(part)
        for part in _split(text)
    )


def _shaped(word: str) -> str:
    bare = word.strip(":;,.()'")
    known = all(piece in _CLIENTS for piece in bare.replace("/", " ").replace("_", " ").split())
    return word if known or bare.startswith("slurm_load_") else shape(word)


def _split(text: str) -> Iterator[str]:
    word = ""
    for letter in text:
        if letter.isspace():
            yield word
            yield letter
            word = ""
        else:
            word += letter
    yield word


def shown_lines(capture: Mapping[str, Any]) -> Iterator[str]:
    """A preview of the file, short enough to read: each question, and the start of its answer."""
    for name, answer in capture["answers"].items():
        state = answer["error"] or f"exit status {answer['returncode']}"
        text = answer["stdout"]
        for token, mark in ((answer["separator"], "|"), (answer["record_end"], "")):
            text = text.replace(token, mark) if token else text
        lines = [line for line in text.split("\n") if line.strip()]
        yield f"{name}: {state}, {len(lines)} lines"
        yield from (f"  {line}" for line in lines[:_SHOWN_LINES])
        if len(lines) > _SHOWN_LINES:
            yield f"  … and {len(lines) - _SHOWN_LINES} more of the same kind"
        if answer["stderr"].strip():
            yield f"  stderr: {answer['stderr'].strip()}"


def as_text(capture: Mapping[str, Any]) -> str:
    """The file: JSON in ASCII; bytes that are not UTF-8 are surrogate escapes."""
    return json.dumps(capture, indent=1, ensure_ascii=True) + "\n"
