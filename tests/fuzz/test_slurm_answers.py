"""Damaged output of Slurm's clients: every record is read and can be shown, or is counted as bad."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from dataclasses import asdict
from typing import Any

from hypothesis import strategies as st

from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.query.language import in_order
from coach.analysis.query.node_fields import node_vocabulary
from coach.analysis.queueing.arrays import fold, fold_rows, parse_task_ids, unfold
from coach.analysis.queueing.free_gpus import allocation_map, free_by_partition, free_gpus
from coach.analysis.queueing.node_state import explain_state
from coach.analysis.queueing.pending_reasons import explain_job, explain_pending, parse_dependency
from coach.launch.resubmission import read_job
from coach.model.errors import UserError
from coach.model.slurm.memory import mem_mib
from coach.sources.logs.job_outputs import parse_accounting
from coach.sources.logs.output_path import output_paths
from coach.sources.runs.seen_jobs import _as_record, _parse
from coach.sources.slurm import allowed_choices
from coach.sources.slurm.configuration import parse_config, parse_rate_limit, parse_version
from coach.sources.slurm.ended_jobs import parse_cpu_time, parse_history, parse_size_mib
from coach.sources.slurm.gres import count_gpus, parse_gpus, parse_gres, parse_indices
from coach.sources.slurm.job_allocation import memory_peak_mib, parse_allocation, parse_steps
from coach.sources.slurm.jobstats import parse_jobstats
from coach.sources.slurm.kept_script import parse_kept
from coach.sources.slurm.limits import parse_limits
from coach.sources.slurm.named_jobs import parse_job_rows
from coach.sources.slurm.node_sets import expand_nodes, fold_nodes
from coach.sources.slurm.nodes import parse_nodes, parse_partitions
from coach.sources.slurm.priority import parse_fair_share, parse_priorities
from coach.sources.slurm.queue import parse_jobs
from coach.sources.slurm.reservations import parse_reservations
from coach.sources.slurm.start_times import parse_allocations
from coach.sources.slurm.text import (
    BadRow,
    failure_words,
    is_torn,
    parse_count,
    parse_duration,
    parse_exit_code,
    parse_time,
)
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import all_of, damaged_text, read, words

SEPARATOR, END = "|SEPARATOR", "|RECORDEND"
NODES = (*all_of("slurm/*nodes-*.txt"), *all_of("slurm/public/scontrol-nodes-*"))
PARTITIONS = (*all_of("slurm/*partitions-*.txt"), *all_of("slurm/public/scontrol-partitions-*"))
HISTORY = read("slurm/history-24.11.txt")
MANY_DIGITS = "9" * 5000
A_JOB = read("slurm/cluster-own-jobs-24.11.txt").decode("utf-8", "surrogateescape").split(END)[0] + END


def shown(value: Any) -> None:
    """A number of more than 4,300 digits can be kept, and neither printed nor sent as JSON."""
    json.dumps(asdict(value))


@fuzzed(
    damaged_text(*all_of("slurm/cluster-*jobs-*.txt"), *all_of("slurm/squeue-*.txt")),
    cases=(
        A_JOB.replace("5:00", MANY_DIGITS),
        A_JOB.replace("SEPARATOR1|", f"SEPARATOR{MANY_DIGITS}|"),
        A_JOB.replace("SEPARATOR1|", f"SEPARATOR{'9' * 400}|"),
    ),
)
def test_a_damaged_queue_is_read_and_its_rows_can_be_sorted_folded_and_shown(text: str) -> None:
    is_torn(text, END)
    jobs, num_bad = parse_jobs(text, SEPARATOR, END)
    assert num_bad >= 0
    for job in jobs:
        shown(job)
        explain_job(job)
        output_paths(job)
        _parse(json.loads(json.dumps(_as_record(job))))
    fold_rows(jobs)
    for folded in fold(jobs):
        unfold(folded)
    vocabulary = job_vocabulary("root", 1.8e9, expand_nodes)
    for field in vocabulary.fields:
        for job in jobs:
            field.value(job)
    in_order(jobs, vocabulary.orders("-submit,id"))


@fuzzed(damaged_text(*NODES), damaged_text(*PARTITIONS))
def test_damaged_nodes_and_partitions_are_read_and_added_up(nodes_text: str, partitions_text: str) -> None:
    nodes, _ = parse_nodes(nodes_text)
    partitions, _ = parse_partitions(partitions_text, nodes)
    parse_partitions(partitions_text, None)
    for each in (*nodes, *partitions):
        shown(each)
    free_gpus(nodes, partitions)
    free_by_partition(nodes, partitions)
    for node in nodes:
        explain_state(node.state)
    vocabulary = node_vocabulary(lambda node: 1, expand_nodes)
    for field in vocabulary.fields:
        for node in nodes:
            field.value(node)


@fuzzed(damaged_text(HISTORY))
def test_a_damaged_history_is_read(text: str) -> None:
    for past in parse_history(text, SEPARATOR)[0]:
        shown(past)
    parse_accounting(text, SEPARATOR)


@fuzzed(damaged_text(*all_of("slurm/allocations-*.txt"), *all_of("slurm/public/scontrol-job-*")))
def test_damaged_records_of_jobs_are_read(text: str) -> None:
    allocations, _ = parse_allocations(text)
    nodes, _ = parse_nodes(NODES[0].decode())
    allocation_map(nodes, allocations)
    for each in allocations:
        shown(each)
    json.dumps(dict(read_job(text)))


@fuzzed(damaged_text(*all_of("slurm/allocation-*.txt")), damaged_text(read("slurm/steps-22.05.txt")))
def test_any_allocation_and_step_use_of_a_job_is_read(text: str, steps_text: str) -> None:
    allocation, steps = parse_allocation(text), parse_steps(steps_text)
    if allocation is not None:
        shown(allocation)
        if allocation.num_nodes:
            memory_peak_mib(steps, allocation.num_nodes)
    for step in steps:
        shown(step)


@fuzzed(
    damaged_text(*all_of("slurm/reservations-*.txt")),
    damaged_text(*all_of("slurm/priorities-*.txt")),
    damaged_text(*all_of("slurm/fair-share-*.txt")),
    damaged_text(*all_of("slurm/associations-*.txt"), *all_of("slurm/qos-*.txt")),
)
def test_other_damaged_tables_are_read(reservations: str, priorities: str, share: str, limits: str) -> None:
    for rows in (
        parse_reservations(reservations)[0],
        parse_priorities(priorities, SEPARATOR, END)[0],
        parse_fair_share(share)[0],
        parse_limits(limits, "association")[0],
        parse_limits(limits, "qos")[0],
    ):
        for row in rows:
            shown(row)
    allowed_choices.admitting(parse_reservations(reservations)[0], "root")


@fuzzed(
    damaged_text(*all_of("slurm/scontrol-config-*.txt"), *all_of("slurm/public/scontrol-config-*")),
    cases=(f"SLURM_VERSION = {MANY_DIGITS}.05", f"10.{MANY_DIGITS}"),
)
def test_a_damaged_configuration_is_read(text: str) -> None:
    config = parse_config(text)
    parse_rate_limit(config)
    parse_rate_limit({"SlurmctldParameters": f"rl_enable,rl_bucket_size={text}"})
    parse_version(text)


FILTERS = (
    'state:pending part:gpu gpu:>0 -user:me "a b" time:1h..4h',
    "id:17_[1-4] node:n[1-3] mem:>=64G submit:<2d",
    "gpu:2..4 !name:x* limit:1-00:00:00",
)
A_QUEUE = parse_jobs(A_JOB, SEPARATOR, END)[0]


@fuzzed(words(*FILTERS), cases=(f"gpu:{MANY_DIGITS}", f"id:17_[1-{MANY_DIGITS}]", "node:n[0-n[0-9n[²--1]"))
def test_any_filter_is_one_or_is_refused_in_words(text: str) -> None:
    for vocabulary in (
        job_vocabulary("root", 1.8e9, expand_nodes),
        node_vocabulary(lambda node: 1, expand_nodes),
    ):
        with contextlib.suppress(UserError):
            vocabulary.query(text)
        with contextlib.suppress(UserError):
            vocabulary.orders(text)
        with contextlib.suppress(UserError):
            vocabulary.columns(text)
    with contextlib.suppress(UserError):
        wanted = job_vocabulary("root", 1.8e9, expand_nodes).query(text)
        wanted.matching(A_QUEUE)


ROW = "17_3|17|root|RUNNING|2026-11-21T08:20:50|5:00|0:00|1|2|None|train#\n"


@fuzzed(damaged_text(ROW, ROW * 3), cases=(ROW.replace("|2|", f"|{MANY_DIGITS}|"),))
def test_rows_for_an_action_are_read(text: str) -> None:
    for job in parse_job_rows(text, "|", "#"):
        shown(job)


GRES = (
    "gpu:a100:2(IDX:0-1)",
    "gpu:(null):4",
    "gpu:a100:8(S:0-1),shard:a100:4(0/8,4/8)",
    "cpu=2,mem=8G,gres/gpu=4,gres/gpu:a100=4",
    "gres:gpu:2",
    "gpu:1g.5gb:7",
)


@fuzzed(words(*GRES), cases=(f"gpu:{MANY_DIGITS}", "gpu:" + "9" * 4299 + "P", f"gpu:1(IDX:{MANY_DIGITS})"))
def test_any_gres_is_a_count_or_nothing(text: str) -> None:
    for item in parse_gres(text):
        shown(item)
    repr((parse_gpus(text), count_gpus(text), parse_indices(text)))


@fuzzed(
    words("node[1-3,7]", "rack[01-20]n[1-4],login", "a[1-2]b[003-010]", "n[0-9999999999]", "[1-3]"),
    cases=("n[0-999999998]", "n[0-9999][0-9999]", f"n[0-{MANY_DIGITS}]", "?", "n*"),
)
def test_any_node_set_expands_to_a_bounded_list(text: str) -> None:
    names = expand_nodes(text)
    assert len(names) <= 200_000
    fold_nodes(names)


SMALL = (
    "4",
    "2K",
    "2-4",
    "1-02:03:04",
    "UNLIMITED",
    "2026-11-21T03:49:46",
    "42:0",
    "0:15",
    "10752",
    "8G",
    "3120K",
    "4Gn",
    "02:03.456",
    "(null)",
)


@fuzzed(
    words(*SMALL),
    cases=(
        "9" * 400,
        MANY_DIGITS,
        f"{MANY_DIGITS}:{MANY_DIGITS}",
        f"0:{MANY_DIGITS}",
        "9" * 400 + "G",
        "²",
        "1\n",
    ),
)
def test_any_word_is_a_value_or_none(text: str) -> None:
    found: list[object] = []
    with contextlib.suppress(BadRow):
        found.append(parse_count(text))
    for parse in (
        parse_duration,
        parse_time,
        parse_exit_code,
        mem_mib,
        parse_size_mib,
        parse_cpu_time,
    ):
        found.append(parse(text))
    json.dumps(found)
    for value in found:
        if isinstance(value, int):
            float(value)
    failure_words(text)


@fuzzed(
    words("17_[1-8%2]", "17_3", "20+1", "0_[0-99999:7]", "afterok:17(unfulfilled),afterany:18_*(failed)"),
    cases=(
        f"17_[{MANY_DIGITS}]",
        f"17_[0-{MANY_DIGITS}:1]",
        f"17_[0-10:{MANY_DIGITS}]",
        f"{MANY_DIGITS}_1",
        "1_[0-9:0]",
    ),
)
def test_any_array_and_dependency_is_read(text: str) -> None:
    tasks = parse_task_ids(text)
    if tasks is not None:
        assert len(tasks.tasks) <= 100_000
        repr(tasks)
    repr(parse_dependency(text))
    explain_pending(text)


@fuzzed(
    words(
        "Batch Script for 17\n--------------------------------\n#!/bin/bash\nsleep 1\n",
    ),
)
def test_any_record_of_accounting_is_read_without_an_error(text: str) -> None:
    parse_kept(text)


JS1 = "JS1:H4sIAAAAAAAC/6tWSspPyk1VsqpWyslMzy8qyczPU7IyNKgFAJ7dGCIXAAAA"


@fuzzed(words(JS1, "JS1:Short", "JS1:None"), st.binary(max_size=80))
def test_any_comment_of_jobstats_is_a_summary_or_none(text: str, packed: bytes) -> None:
    repr(parse_jobstats(text))
    repr(parse_jobstats("JS1:" + base64.b64encode(gzip.compress(packed)).decode()))
