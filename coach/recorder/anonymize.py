"""Replaces names in a recording. The same name always becomes the same word.

People share recordings to report a problem. Their own name, their colleagues' and their projects' must stay
private. The words are derived with a key that is thrown away, so they reveal nothing and differ between
recordings.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from coach.model.reading import JobList, JobRow, NodeList, PartitionList, Reading, RunFacts, RunList
from coach.model.slurm import cluster
from coach.model.training import metrics, run, telemetry
from coach.node.secret_words import mask_text
from coach.recorder.recording import Entry, Header, Recording, decode_bytes, write_header, write_line
from coach.sources.logs.job_outputs import QUESTION, jobs_told
from coach.sources.machine.new_file import new_file
from coach.sources.slurm.jobstats import NO_SUMMARY, SUMMARY, packed, unpacked
from coach.sources.slurm.node_sets import expand_nodes

_WORDS = frozenset(
    [
        "root",
        "nobody",
        "slurm",
        "coach",
        "local",
        "localhost",
        "job",
        "jobs",
        "user",
        "users",
        "node",
        "nodes",
        "host",
        "hosts",
        "name",
        "names",
        "run",
        "runs",
        "home",
        "scratch",
        "work",
        "data",
        "cpu",
        "gpu",
        "gpus",
        "debug",
        "batch",
        "bash",
        "sh",
        "zsh",
        "python",
        "python3",
        "srun",
        "sbatch",
        "salloc",
        "torchrun",
        "interactive",
        "wrap",
        "sleep",
        "test",
        "tests",
        "train",
        "trainer",
        "trainers",
        "training",
        "main",
        "recipe",
        "recipes",
        "telemetry",
        "checkpoint",
        "checkpoints",
        "metrics",
        "logs",
        "stdout",
        "stderr",
        "json",
        "jsonl",
        "start",
        "end",
        "eval",
        "resume",
        "compile",
        "event",
        "epoch",
        "kind",
        "schema",
        "normal",
        "short",
        "long",
        "high",
        "low",
        "all",
        "default",
        "none",
        "null",
        "true",
        "false",
        "rank",
        "ranks",
        "process",
        "port",
        "mount",
        "gap",
        "pending",
        "running",
        "completed",
    ]
)
"""Names that identify nobody, and that occur with another meaning all over a recording."""

_FIELDS = frozenset(
    item.name
    for kind in (
        cluster.Job,
        cluster.Node,
        metrics.Step,
        metrics.MetricEvent,
        run.Run,
        run.RunExit,
        run.RankExit,
        *get_args(telemetry.TelemetrySample),
    )
    for item in fields(kind)
)
_HOME = re.compile(r"/(?:home|users|Users|u|scratch|work)/([^/\s\"'\\:,]+)")
_HOST_STEM = re.compile(r"^((?:.*[^\d\n])?)\d+$")
_NOT_INSIDE_A_WORD = ("(?<![A-Za-z0-9])", "(?![A-Za-z0-9])")
_JSON_KEY = r'"(?P<key>[\w.-]{1,80}+)"\s{0,4}+:'
"""A name may be part of a record's key, as `s` is of `time_s`. Replacing it there would make the record
unreadable."""
_MARKS = ("\ue001", "\ue002")


class Names:
    """The names found: users, jobs, hosts, and accounts, to which groups and QOS are counted."""

    def __init__(self) -> None:
        self.users: set[str] = set()
        self.jobs: set[str] = set()
        self.accounts: set[str] = set()
        self.hosts: set[str] = set()
        self.recipes: set[str] = set()
        """Names of coach's own recipes, which stay."""

    def add_reading(self, reading: Reading) -> None:
        """Collect the names in a parsed reading."""
        match reading.payload:
            case JobList(jobs=jobs):
                self.add_jobs(jobs)
            case JobRow(job=row) if row is not None:
                self.add_jobs([row])
            case NodeList(nodes=nodes):
                for node in nodes:
                    self._add_node(node)
            case PartitionList(partitions=partitions):
                for partition in partitions:
                    self._add_partition(partition)
            case RunList(runs=listed):
                for item in listed:
                    self._add_run(item)
            case RunFacts(run=watched):
                self._add_run(watched)

    def add_jobs(self, jobs: Iterable[cluster.Job]) -> None:
        """Collect the names in jobs."""
        for job in jobs:
            self.users.add(job.user)
            self.jobs.add(job.name)
            self.hosts |= {job.host} if job.host else set()
            self.accounts |= {name for name in (job.account, job.qos) if name}
            self.add_path(job.work_dir or "")

    def _add_node(self, node: cluster.Node) -> None:
        self.hosts.add(node.name)
        # Slurm prints an owner as `alice(1000)`.
        owner = (node.owner or "").partition("(")[0]
        self.users |= {name for name in (node.reason_user, owner) if name}

    def _add_partition(self, partition: cluster.Partition) -> None:
        allowed = (partition.allow_accounts, partition.allow_groups, partition.allow_qos)
        self.accounts.update(partition.deny_accounts, *(names or () for names in allowed))
        self.hosts.update(expand_nodes(",".join(partition.allow_submit_nodes or ())))

    def add_path(self, path: str) -> None:
        """Collect the user's name from a path below home, scratch and the like."""
        self.users |= set(_HOME.findall(path))

    def _add_run(self, item: run.Run) -> None:
        self.recipes.add(item.recipe)
        self.hosts |= {item.host} if item.host else set()
        self.add_path(item.run_dir)


def anonymize(recording: Recording, names: Names, file: Path) -> None:
    """Write the recording again with each name replaced. Raises UserError, also if the file exists."""
    for text in _texts(recording):
        names.add_path(text)
    for entry in recording.entries:
        if entry["k"] == "run" and entry["kind"].startswith(QUESTION):
            names.add_jobs(jobs_told(entry["argv"], decode_bytes(entry["out"]), entry["sep"], entry["end"]))
    strike_names = striker(names, secrets.token_bytes(32))

    def strike(text: str) -> str:
        return strike_names(mask_text(text))

    header = recording.header
    clean = replace(
        header,
        user=strike(header.user),
        runs_root=strike(header.runs_root),
        machine=_deep(header.machine, strike),
        targets=tuple(strike(name) for name in header.targets),
        chapters=(),
        is_anonymized=True,
    )
    _write(file, clean, _strike_entries(recording.entries, strike))


def striker(names: Names, key: bytes) -> Callable[[str], str]:
    """A function that replaces these names in a text."""
    kept = _WORDS | _FIELDS | cluster.ACTIVE_STATES | names.recipes
    patterns: dict[str, str] = {}
    words: dict[str, str] = {}
    for kind, group in (
        ("account", names.accounts),
        ("job", names.jobs),
        ("user", names.users),
        ("host", names.hosts),
    ):
        for name in group:
            stem = name if kind != "host" else _stem(name)
            if (stem.casefold() in kept and stem == name) or _says_nothing(kind, stem):
                continue
            words[stem] = _word(kind, stem, key)
            patterns[stem] = _pattern(kind, stem, has_number=stem != name)
    if not patterns:
        return lambda text: text
    # Longest first, so that `alice-exp1` is replaced as one name.
    one = "|".join(patterns[stem] for stem in sorted(patterns, key=len, reverse=True))
    expression, a_name = re.compile(f"{_JSON_KEY}|{one}"), re.compile(one)

    def struck(found: re.Match[str]) -> str:
        key = found["key"]
        if key is None:
            return words[found[0]]
        # The whole key may be a name: that of a node, or of a user, in a mapping.
        is_name = len(key) >= 4 and (key in words or _stem(key) in words)
        return a_name.sub(lambda inner: words[inner[0]], found[0]) if is_name else found[0]

    return lambda text: expression.sub(struck, text)


def _says_nothing(kind: str, stem: str) -> bool:
    """True for a stem that identifies nobody: an empty one, a number, or a job's name of fewer than three
    letters."""
    return not stem or stem.isdigit() or (kind == "job" and len(stem) < 3)


def _pattern(kind: str, stem: str, *, has_number: bool) -> str:
    escaped = re.escape(stem)
    before, after = _NOT_INSIDE_A_WORD
    if has_number:
        return f"{before}{escaped}(?=[\\d\\[])"
    if len(stem) >= 6 or (len(stem) >= 4 and kind != "job"):
        return escaped  # too long to match by accident, so it is replaced inside other words too
    return f"{before}{escaped}{after}"


def _stem(host: str) -> str:
    """`gpu` of `gpu017`. Numbers stay, so `gpu[016-017]` keeps its form."""
    found = _HOST_STEM.match(host)
    return found[1] if found else host


def _word(kind: str, name: str, key: bytes) -> str:
    digest = hmac.digest(key, f"{kind}\0{name}".encode("utf-8", "surrogateescape"), hashlib.sha256)
    letters = "".join("abcdefghijklmnop"[byte & 15] for byte in digest[:6])
    return f"{kind}{letters}" if kind == "host" else f"{kind}-{letters}"


def _strike_entries(entries: Iterable[Entry], strike: Callable[[str], str]) -> Iterator[Entry]:
    torn: dict[str, str] = {}
    last_s = 0.0
    for entry in entries:
        last_s = entry["t"]
        path: str = entry.get("path", "")
        if entry["k"] == "bytes":
            # An appended piece may end in the middle of a name, so its last line waits for the rest.
            whole, newline, rest = (torn.pop(path, "") + entry["data"]).rpartition("\n")
            torn[path] = rest
            if newline:
                yield {**entry, "path": strike(path), "data": strike(whole + newline)}
            continue
        if path in torn and entry["k"] in ("new", "miss"):
            yield _torn_end(entry["t"], path, torn.pop(path), strike)
        if entry["k"] == "run":
            yield _strike_answer(entry, strike)
        else:
            yield _deep(entry, strike, skipped=("k", "op"))
    for path, rest in torn.items():
        yield _torn_end(last_s, path, rest, strike)


def _torn_end(time_s: float, path: str, rest: str, strike: Callable[[str], str]) -> Entry:
    return {"t": time_s, "k": "bytes", "path": strike(path), "data": strike(rest)}


def _strike_answer(entry: Entry, strike: Callable[[str], str]) -> Entry:
    """Separators consist of letters and digits. They are cut out first, so that names stand alone between
    them."""
    tokens = [(entry["sep"], _MARKS[0]), (entry["end"], _MARKS[1])]

    def apart(text: str) -> str:
        for token, mark in tokens:
            text = text.replace(token, mark) if token else text
        text = _strike_summaries(text, strike)
        for token, mark in tokens:
            text = text.replace(mark, token) if token else text
        return text

    clean: Entry = _deep(entry, apart, skipped=("k", "sep", "end"))
    return clean


def _strike_summaries(text: str, strike: Callable[[str], str]) -> str:
    """The text with names replaced, including names of nodes in the summaries that jobstats packs into it."""
    parts, start = [], 0
    for found in SUMMARY.finditer(text):
        plain = unpacked(found[0])
        parts += [strike(text[start : found.start()]), NO_SUMMARY if plain is None else packed(strike(plain))]
        start = found.end()
    return "".join([*parts, strike(text[start:])])


def _deep(value: Any, strike: Callable[[str], str], skipped: tuple[str, ...] = ()) -> Any:
    if isinstance(value, str):
        return strike(value)
    if isinstance(value, dict):
        return {key: item if key in skipped else _deep(item, strike) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_deep(item, strike) for item in value]
    return value


def _texts(recording: Recording) -> Iterator[str]:
    yield recording.header.runs_root
    for entry in recording.entries:
        for key in ("path", "out", "err", "data"):
            if isinstance(entry.get(key), str):
                yield entry[key]


def _write(file: Path, header: Header, entries: Iterable[Entry]) -> None:
    with new_file(file) as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb") as out:
        write_header(out, header)
        for entry in entries:
            write_line(out, entry)
