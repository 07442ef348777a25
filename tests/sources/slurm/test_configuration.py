"""The controller's answer about its configuration, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.model.reading import JobList, NodeList, PartitionList, Reading
from coach.monitor.monitor import Monitor
from coach.sources.slurm.client import JobsSource, NodesSource, read_partitions_and_nodes
from coach.sources.slurm.configuration import (
    RateLimit,
    is_denied,
    parse_config,
    parse_rate_limit,
    parse_version,
    private_kinds,
)
from tests.sources.scripted_io import PING_UP, ScriptedIo, captured

REAL = Path(__file__).parents[2] / "fixtures" / "slurm" / "scontrol-config-22.05.txt"
DENIED_NODES = (1, "slurm_load_node error: Access/permission denied\n")
DENIED_PARTITIONS = (1, "slurm_load_partitions error: Access/permission denied\n")
QUEUE = captured("squeue-22.05.txt")
OWN = b"|RECORDEND".join([*(row for row in QUEUE.split(b"|RECORDEND") if b"nobody" in row), b""])
CONFIG = captured("scontrol-config-22.05.txt")
PRIVATE = CONFIG.replace(b"PrivateData             = none", b"PrivateData             = jobs,usage")


def test_the_answer_of_a_real_controller_is_read() -> None:
    config = parse_config(REAL.read_text())
    assert config["SLURM_VERSION"] == "22.05.8"
    assert config["ClusterName"] == "lab"
    assert config["AccountingStorageType"] == "accounting_storage/none"
    assert "SlurmctldParameters" not in config  # (null)
    assert parse_rate_limit(config) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("22.05.8", (22, 5)), ("23.11.4-1.2ubuntu5", (23, 11)), ("slurm 19.05.5", (19, 5)), ("unknown", None)],
)
def test_a_version_is_its_release(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("rl_enable", RateLimit(30, 2, 1)),
        (
            "idle_on_node_suspend,rl_enable,rl_bucket_size=40,rl_refill_rate=4,rl_refill_period=60",
            RateLimit(40, 4, 60),
        ),
        ("rl_enable,rl_bucket_size=many,rl_refill_period=0", RateLimit(30, 2, 1)),
        ("rl_bucket_size=40", None),
    ],
)
def test_a_rate_limit_counts_only_when_it_is_enabled(words: str, limit: RateLimit | None) -> None:
    assert parse_rate_limit({"SlurmctldParameters": words}) == limit


def asking(config: bytes, queue: bytes) -> ScriptedIo:
    return ScriptedIo({"jobs": queue, "config": config, "ping": PING_UP})


def told(source: JobsSource) -> JobList:
    (reading,) = source.poll()
    assert isinstance(reading.payload, JobList)
    return reading.payload


def test_privacy_is_queried_once_if_the_queue_has_only_own_jobs() -> None:
    io = asking(PRIVATE, OWN)
    source = JobsSource(io, "nobody", 10)
    assert [told(source).are_others_hidden for _ in range(3)] == [True, True, True]
    assert io.asked == ["jobs", "config", "jobs", "jobs"]
    assert not told(JobsSource(asking(CONFIG, OWN), "nobody", 10)).are_others_hidden
    root = asking(PRIVATE, b"")
    assert not told(JobsSource(root, "root", 10)).are_others_hidden
    assert root.asked == ["jobs"]


def test_privacy_is_not_queried_if_others_jobs_are_visible() -> None:
    io = asking(PRIVATE, QUEUE)
    assert not told(JobsSource(io, "nobody", 10)).are_others_hidden
    own = JobsSource(asking(PRIVATE, OWN), "nobody", 10, is_all=False)
    assert not told(own).are_others_hidden
    assert io.asked == ["jobs"]


def test_denied_nodes_count_as_hidden_and_not_as_a_failure() -> None:
    io = ScriptedIo({"nodes": DENIED_NODES, "partitions": captured("scontrol-partitions-22.05.txt")})
    source = NodesSource(io, 30)
    nodes, partitions = source.poll()
    assert nodes.payload == NodeList((), is_hidden=True)
    assert nodes.error is None
    assert isinstance(partitions.payload, PartitionList)
    assert not partitions.payload.is_hidden
    assert {each.num_nodes_idle for each in partitions.payload.partitions} == {None}
    assert {each.num_gpus_per_node for each in partitions.payload.partitions} == {None}
    assert {each.num_cpus for each in partitions.payload.partitions} != {None}
    list(source.poll())
    assert io.asked == ["nodes", "partitions", "nodes"]  # no probe: a controller that refuses has answered
    assert source.interval_s > 30


def test_denied_partitions_do_not_hide_the_nodes() -> None:
    io = ScriptedIo({"nodes": captured("scontrol-nodes-22.05.txt"), "partitions": DENIED_PARTITIONS})
    partitions, nodes, hidden = read_partitions_and_nodes(io)
    assert (partitions, len(nodes), hidden) == ((), 3, {"partitions"})


def test_a_snapshot_lists_a_hidden_part_until_slurm_shows_it_again() -> None:
    monitor = Monitor("me", None)
    for payload in (NodeList((), is_hidden=True), JobList((), is_all=True, are_others_hidden=True)):
        source = "nodes" if isinstance(payload, NodeList) else "jobs"
        assert monitor.apply(Reading(source, 1.0, 0.1, payload))
    assert monitor.snapshot(1.0).hidden == {"nodes", "jobs"}
    assert monitor.apply(Reading("nodes", 2.0, 0.1, NodeList(())))
    assert monitor.snapshot(2.0).hidden == {"jobs"}


def test_a_denial_differs_from_a_failure_and_private_data_is_parsed() -> None:
    assert is_denied("slurm_load_node error: Access/permission denied")
    assert not is_denied("Unable to contact slurm controller (connect failure)")
    assert not is_denied(None)
    assert private_kinds({"PrivateData": "accounts, jobs"}) == {"accounts", "jobs"}
    assert private_kinds({}) == frozenset()
