"""Every parser as a function of one text, with a real text for `growth.py` to multiply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coach.analysis.jobs.batch_script import change_script, read_script
from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.queueing.arrays import parse_task_ids
from coach.analysis.queueing.pending_reasons import explain_pending, parse_dependency
from coach.analysis.spelling.printable import cut, printable
from coach.analysis.spelling.slurm import parse_time as parse_limit
from coach.config.file import FileKind, read_file
from coach.launch import batch_file
from coach.launch.own_arguments import read_options
from coach.launch.own_config import read_values
from coach.launch.refusal import slurms_words
from coach.launch.resubmission import read_job
from coach.model.slurm.memory import mem_mib
from coach.model.training.log import Signature
from coach.node.activity import parse_cpu, parse_diskstats, parse_pressure
from coach.node.mounts import parse_lustre, parse_mounts, parse_nfs
from coach.node.processes import parse_stat
from coach.node.rank_ends import parse_failures
from coach.node.secret_words import mask_command, mask_text
from coach.node.stacks import parse_faulthandler, parse_py_spy
from coach.node.torch_build import parse_version_file, satisfies
from coach.rules import registry
from coach.rules.wordings.rows import parse_file
from coach.runs import decode_records
from coach.sources.logs.decoding import as_utf8, is_no_text, without_holes
from coach.sources.logs.job_outputs import parse_accounting
from coach.sources.logs.layout import layout_of
from coach.sources.logs.line_text import (
    is_below_error,
    last_state,
    parse_time_s,
    split_prefix,
    start_of_words,
    without_verdict,
)
from coach.sources.logs.output_path import expand
from coach.sources.logs.printed_numbers import record_of_line
from coach.sources.logs.scanner import LogScanner
from coach.sources.logs.script_outputs import named_outputs
from coach.sources.machine.quota import find_mount, parse_lustre_quota, parse_quota
from coach.sources.metrics.flight_recorder import parse_dump
from coach.sources.metrics.foreign_metrics import parse_rows, parse_trainer_state
from coach.sources.metrics.mlflow_folder import scalar_of
from coach.sources.metrics.tensorboard_events import EventsDecoder
from coach.sources.metrics.wandb_file import WandbDecoder
from coach.sources.runs.cohort_directory import parse_summary
from coach.sources.slurm import allowed_choices
from coach.sources.slurm.configuration import parse_config, parse_version
from coach.sources.slurm.ended_jobs import parse_history
from coach.sources.slurm.gres import count_gpus, parse_gres, parse_indices
from coach.sources.slurm.job_allocation import parse_allocation, parse_steps
from coach.sources.slurm.job_summaries import parse_summaries
from coach.sources.slurm.jobstats import parse_jobstats
from coach.sources.slurm.jobstats import parse_summary as parse_comment
from coach.sources.slurm.kept_script import parse_kept
from coach.sources.slurm.limits import parse_limits
from coach.sources.slurm.named_jobs import parse_job_rows
from coach.sources.slurm.node_sets import expand_nodes, fold_nodes
from coach.sources.slurm.nodes import parse_nodes, parse_partitions
from coach.sources.slurm.priority import parse_fair_share, parse_priorities
from coach.sources.slurm.queue import parse_jobs
from coach.sources.slurm.reservations import parse_reservations
from coach.sources.slurm.start_times import parse_allocations
from coach.sources.slurm.text import failure_words, parse_duration, parse_time
from coach.workflows.judging.pasted import MAX_BYTES, recognise
from tests.fuzz import test_batch_scripts as scripts
from tests.fuzz import test_binary_files as binary
from tests.fuzz import test_logs as logs
from tests.fuzz import test_node_files as node
from tests.fuzz import test_records as records
from tests.fuzz import test_settings_files as files
from tests.fuzz import test_slurm_answers as answers
from tests.fuzz.mutation import read
from tests.workflows.judging import test_pasted as pasted

_PIECE_BYTES = 64 << 10


@dataclass(frozen=True)
class Parser:
    name: str
    parse: Callable[[str], object]
    seed: str
    more: tuple[Callable[[int], str], ...] = ()
    """Texts of its own kind, by their size: of a table whose keys differ, for example."""


def _numbered(line: str) -> Callable[[int], str]:
    """Lines that differ by their number."""
    return lambda size: "".join(line % number for number in range(size // len(line)))


def _deep(begin: str, unit: str, end: str) -> Callable[[int], str]:
    return lambda size: begin + unit * (size // len(unit)) + end


NODE_SETS = (
    _numbered("n%d,"),
    lambda size: ",".join(f"n{number}x{number * 7}" for number in range(size // 10)),
    lambda size: ",".join(f"r{number}n[{number % 5}-{number % 9 + 5}]" for number in range(size // 12)),
)
TOML_TEXTS = (
    _numbered("k%d = 1\n"),
    _numbered("[t%d]\na = 'b'\n"),
    _numbered("[environments.e%d]\nkind = 'venv'\n"),
    _deep("a = [", "1, ", "]"),
    _deep("a = [\n", "'b', # c\n", "]"),
    _deep('a = """', "b\n", '"""'),
    _deep("", "a.", "a = 1"),
    _deep("[", "'a'.", "a]"),
)
JSON_TEXTS = (
    lambda size: "{" + ", ".join(f'"k{number}": 1' for number in range(size // 10)) + "}",
    _deep('{"a": [', "1, ", "1]}"),
    _deep('{"a": "', "\\u00e9", '"}'),
)
YAML_TEXTS = (
    _numbered("k%d: 1\n"),
    _deep("a:\n", "- 1\n", ""),
    _deep("a: ", "[", ""),
    _deep("a: [", "1, ", "]"),
    _deep("a: |\n", "  b\n", ""),
)
PROGRAMS = (
    _numbered("p.add_argument('--a%d', type=int, default=1)\n"),
    _deep("a = 1", " + 1", ""),
    _deep("a = '''", "b\n", "'''"),
)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _each(*parsers: Callable[[str], object]) -> Callable[[str], object]:
    """Several parsers of one text; if one refuses it, the others still read it."""

    def parse(text: str) -> None:
        for each in parsers:
            try:
                each(text)
            except Exception as error:
                repr(type(error))

    return parse


@cache
def _signatures() -> tuple[Signature, ...]:
    return registry.signatures(registry.build())


def _scan(text: str) -> None:
    scanner, data = LogScanner(_signatures(), "stdout.log"), _bytes(text)
    for start in range(0, len(data), _PIECE_BYTES):
        scanner.feed(data[start : start + _PIECE_BYTES])
    scanner.flush()
    scanner.tail()


def _limited(parse: Callable[[str], object], size: int) -> Callable[[str], object]:
    """A parser with a limited input: its caller refuses or cuts longer text."""
    return lambda text: parse(text[:size])


_unkept_nodes = expand_nodes.__wrapped__
"""What the cache of expand_nodes has is read in no time, however long it is."""
SEPARATOR, END = answers.SEPARATOR, answers.END
ANSWERS = (
    Parser("squeue", lambda text: parse_jobs(text, SEPARATOR, END), answers.A_JOB),
    Parser("scontrol show node", parse_nodes, _text(answers.NODES[0])),
    Parser(
        "scontrol show partition", lambda text: parse_partitions(text, None), _text(answers.PARTITIONS[0])
    ),
    Parser("sacct, history", lambda text: parse_history(text, SEPARATOR), _text(answers.HISTORY)),
    Parser("sacct, logs", lambda text: parse_accounting(text, SEPARATOR), _text(answers.HISTORY)),
    Parser(
        "scontrol show job", _each(parse_allocations, read_job), _text(read("slurm/allocations-24.11.txt"))
    ),
    Parser("scontrol, one job", parse_allocation, _text(read("slurm/allocation-two-nodes-22.05.txt"))),
    Parser("sstat", parse_steps, _text(read("slurm/steps-22.05.txt"))),
    Parser("reservations", parse_reservations, _text(read("slurm/reservations-24.11.txt"))),
    Parser(
        "sprio",
        lambda text: parse_priorities(text, SEPARATOR, END),
        _text(read("slurm/priorities-24.11.txt")),
    ),
    Parser("sshare", parse_fair_share, _text(read("slurm/fair-share-24.11.txt"))),
    Parser(
        "associations",
        lambda text: parse_limits(text, "association"),
        _text(read("slurm/associations-24.11.txt")),
    ),
    Parser("QOS", lambda text: parse_limits(text, "qos"), _text(read("slurm/qos-24.11.txt"))),
    Parser(
        "allowed reservations",
        lambda text: allowed_choices.admitting(parse_reservations(text)[0], "root"),
        _text(read("slurm/reservations-24.11.txt")),
    ),
    Parser(
        "scontrol show config",
        _each(parse_config, parse_version),
        _text(read("slurm/scontrol-config-22.05.txt")),
    ),
    Parser("rows for an action", lambda text: parse_job_rows(text, "|", "#"), answers.ROW),
    Parser("GRES", _each(parse_gres, count_gpus, parse_indices), answers.GRES[2] + ","),
    Parser(
        "node sets", lambda text: fold_nodes(_unkept_nodes(text)[:64]), "rack[01-20]n[1-4],login,", NODE_SETS
    ),
    Parser("values", _each(parse_duration, parse_time, mem_mib, failure_words), "1-02:03:04"),
    Parser("array tasks", _each(parse_task_ids, explain_pending), "17_[1-8%2],"),
    Parser("dependencies", parse_dependency, "afterok:17(unfulfilled),afterany:18_*(failed),"),
    Parser("refusals", slurms_words, "sbatch: error: Batch job submission failed: Invalid account\n"),
    Parser("kept scripts", parse_kept, "Batch Script for 17\n----------------\n#!/bin/bash\nsleep 1\n"),
    Parser("jobstats", _each(parse_jobstats, parse_comment), answers.JS1),
    Parser(
        "sacct, jobstats",
        lambda text: parse_summaries(text, SEPARATOR),
        f"17{SEPARATOR}{answers.JS1}{SEPARATOR}\n",
    ),
    Parser(
        "filters",
        _limited(lambda text: job_vocabulary("root", 1.8e9, expand_nodes).query(text), 8 << 10),
        answers.FILTERS[0] + " ",
    ),
)
SCRIPTS = (
    Parser("batch scripts, read", lambda text: read_script([text]), scripts.PLAIN),
    Parser(
        "batch scripts, changed",
        lambda text: change_script(read_script([text, scripts.JSON]), scripts.CHANGES),
        scripts.PLAIN,
    ),
    Parser("batch scripts, outputs", lambda text: named_outputs(text, scripts.NAMES), scripts.PLAIN),
    Parser("batch scripts, launched", _each(batch_file.asked, batch_file.array_of), scripts.PLAIN),
    Parser("output patterns", lambda text: expand(text, scripts.NAMES, Path("/w")), "logs/%x-%5j.out"),
    Parser("limits", lambda text: parse_limit(text, "--time"), "1-02:03:04"),
)
LOG = _text(logs.LOGS[0])
LOGS = (
    Parser("log scanner", _scan, LOG),
    Parser(
        "log lines",
        _limited(
            _each(split_prefix, parse_time_s, last_state, is_below_error, start_of_words, record_of_line),
            16 << 10,
        ),
        LOG,
    ),
    Parser("numbers in lines", _limited(record_of_line, 16 << 10), "step 3/10 loss: 1.25 lr=1e-4 2.5it/s | "),
    Parser("log layout", lambda text: layout_of(_bytes(text)[: 64 << 10]), LOG),
    Parser(
        "log encodings",
        _each(
            lambda text: as_utf8(_bytes(text)),
            lambda text: is_no_text(_bytes(text)),
            lambda text: without_holes(_bytes(text)),
            lambda text: without_verdict(_bytes(text)),
        ),
        LOG,
    ),
    Parser("text on screens", lambda text: cut(printable(text), 80), "caf\u00e9 \x1b[31m\u202e"),
)
_paste = _limited(lambda text: recognise(_bytes(text), "-", 0.0), MAX_BYTES // 4)
RECORDS = (
    Parser("metrics, telemetry", lambda text: decode_records(_bytes(text)), _text(records.METRICS[0])),
    Parser(
        "TensorBoard",
        lambda text: EventsDecoder().feed(text.encode("latin-1", "replace")),
        binary.EVENTS[0].decode("latin-1"),
    ),
    Parser(
        "wandb",
        lambda text: WandbDecoder().feed(text.encode("latin-1", "replace")),
        read("foreign_metrics/wandb/run-0a1b2c3d.wandb").decode("latin-1"),
    ),
    Parser(
        "MLflow's files",
        lambda text: [scalar_of("a", each) for each in _bytes(text).splitlines()],
        "1800000000000 0.5 3\n",
    ),
    Parser("metrics.csv", parse_rows, _text(records.FOREIGN["/w/metrics.csv"][0])),
    Parser(
        "trainer_state.json",
        lambda text: parse_trainer_state(_bytes(text)),
        _text(records.FOREIGN["/w/trainer_state.json"][0]),
    ),
    Parser(
        "flight recorder",
        lambda text: parse_dump(text.encode("latin-1", "replace"), Path("trace_rank_0")),
        binary.DUMPS[0].decode("latin-1"),
    ),
    Parser(
        "cohort files",
        lambda text: parse_summary(_bytes(text), "1000-r1.json", 1000),
        json.dumps(records.SUMMARY),
    ),
    Parser("py-spy", lambda text: parse_py_spy(_bytes(text)), _text(read("stacks/py-spy.json"))),
    Parser("pasted nvidia-smi", _paste, pasted.SMI),
    Parser("pasted py-spy", _paste, pasted.PY_SPY),
    Parser("pasted scontrol show job", _paste, _text(read("slurm/allocations-24.11.txt"))),
    Parser("faulthandler", parse_faulthandler, _text(read("stacks/faulthandler.txt"))),
    Parser(
        "error files of torchrun",
        parse_failures,
        "[default]: rank: 3 (local_rank: 1)\n  exitcode : -9 (pid: 12)\n",
    ),
)
SETTINGS = (
    Parser(
        "config",
        lambda text: read_file(Path("config.toml"), text, FileKind.USER, files.ENV),
        files.CONFIG,
        TOML_TEXTS,
    ),
    Parser("wordings", lambda text: parse_file(text, "rules.toml"), _text(files.WORDINGS), TOML_TEXTS),
    *(
        Parser(
            f"values in {suffix}",
            _limited(lambda text, suffix=suffix: read_values(Path(f"a{suffix}"), text), 64 << 10),
            seed,
            more,
        )
        for suffix, seed, more in (
            (".yaml", files.YAML, YAML_TEXTS),
            (".toml", files.TOML, TOML_TEXTS),
            (".json", files.JSON, JSON_TEXTS),
        )
    ),
    Parser(
        "options of programs",
        lambda text: read_options(("python", "train.py"), text),
        _text(files.DECLARED),
        PROGRAMS,
    ),
)
NODES = (
    Parser(
        "/proc",
        _each(parse_cpu, parse_pressure, lambda text: parse_diskstats(text, ["sda"])),
        node.CPU + node.DISKS,
    ),
    Parser("/proc/PID/stat", lambda text: parse_stat(12, _bytes(text)), node.STAT),
    Parser("mounts", _each(parse_mounts, lambda text: find_mount("/home/x", text)), node.MOUNTS),
    Parser(
        "counters of NFS, Lustre",
        _each(parse_nfs, lambda text: parse_lustre(text, [text])),
        node.NFS + node.LUSTRE,
    ),
    Parser("quotas", _each(parse_quota, parse_lustre_quota), node.QUOTA + node.LFS),
    Parser("torch's version", _each(parse_version_file, lambda text: satisfies("2.6.0", text)), node.VERSION),
    Parser("secrets", _each(mask_text, lambda text: mask_command(text.split())), " ".join(node.SAID)),
)
PARSERS = (*ANSWERS, *SCRIPTS, *LOGS, *RECORDS, *SETTINGS, *NODES)
