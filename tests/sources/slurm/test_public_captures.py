"""Output of Slurm at other sites, as people have published or sent it."""

from __future__ import annotations

import json
import re
from typing import Any

from coach.launch.resubmission import read_job
from coach.model.slurm.cluster import GpuCount
from coach.sources.slurm.configuration import parse_config, parse_rate_limit, parse_version, private_kinds
from coach.sources.slurm.job_allocation import parse_allocation
from coach.sources.slurm.nodes import parse_nodes, parse_partitions
from coach.sources.slurm.queue import parse_jobs
from coach.sources.slurm.reservations import parse_reservations
from tests.sources.scripted_io import captured


def text(name: str) -> str:
    return captured(f"public/{name}.txt").decode()


def one_line_each(blocks: str) -> str:
    """Blocks of lines as `scontrol -o` prints them."""
    return "\n".join(re.sub(r"\n +", " ", block.rstrip()) for block in blocks.strip().split("\n\n")) + "\n"


def test_the_configuration_of_23_02() -> None:
    config = parse_config(text("scontrol-config-23.02.7"))
    assert parse_version(config["SLURM_VERSION"]) == (23, 2)
    assert config["MessageTimeout"] == "10 sec"
    assert config["InteractiveStepOptions"] == "--interactive --preserve-env --pty $SHELL"
    assert (parse_rate_limit(config), private_kinds(config)) == (None, frozenset())
    assert "PowerPlugin" not in config


def test_partitions_and_a_node_of_23_02() -> None:
    nodes, num_bad = parse_nodes(one_line_each(text("scontrol-nodes-23.02.4")))
    (node,) = nodes
    assert (node.name, node.state, node.partitions) == ("mn1", "allocated", ("normal_master",))
    assert node.gpus == (GpuCount("GTX1660Super", 1, None),)
    partitions, more_bad = parse_partitions(one_line_each(text("scontrol-partitions-23.02.4")), nodes)
    assert (num_bad, more_bad) == (0, 0)
    assert [(each.name, each.is_default, each.num_nodes) for each in partitions] == [
        ("normal", False, 2),
        ("normal_master", True, 1),
    ]
    assert {each.time_limit_s for each in partitions} == {5 * 86400}


def test_a_job_of_23_02() -> None:
    job = read_job(text("scontrol-job-23.02.4"))
    assert (job["Partition"], job["TimeLimit"], job["WorkDir"]) == (
        "normal",
        "4-04:00:00",
        "/var/hpc-root/fzk1",
    )
    assert "Command" not in job
    assert parse_allocation(text("scontrol-job-23.02.4")) is None  # it was shown without -d


def test_nodes_of_23_11_with_a_socket_behind_their_gpus() -> None:
    nodes, num_bad = parse_nodes(one_line_each(text("scontrol-nodes-23.11.3")))
    assert num_bad == 0
    assert [(each.name, each.partitions, each.gpus) for each in nodes] == [
        ("master", ("debug",), (GpuCount("quadro_p1000", 1, 0),)),
        ("worker1", ("debug", "gpu"), (GpuCount("quadro_p1000", 1, 0),)),
    ]
    ((line,), num_bad) = parse_nodes(text("scontrol-nodes-oneline-23.11.3"))
    assert num_bad == 0
    assert (line.name, line.partitions, line.memory_mib) == ("worker2", ("debug", "gpu"), 62715)
    assert line.gpus == (GpuCount("quadro_p1000", 1, None),)


def test_a_node_of_25_05() -> None:
    ((node,), num_bad) = parse_nodes(one_line_each(text("scontrol-nodes-25.05.5")))
    assert num_bad == 0
    assert (node.name, node.state) == ("rocky-linux810-slurm-compute-node", "idle")
    assert (node.num_cpus, node.memory_mib, node.gpus, node.reason) == (1, 1, (), None)


def test_partitions_of_the_newer_versions() -> None:
    (dev,) = parse_partitions(text("scontrol-partitions-newer"), ())[0]
    assert (dev.name, dev.is_default, dev.num_nodes, dev.time_limit_s) == ("dev", True, 6, None)
    (bio,) = parse_partitions(one_line_each(text("scontrol-partitions-groups-newer")), None)[0]
    assert (bio.allow_accounts, bio.allow_groups, bio.time_limit_s) == (("ksibio",), None, 7 * 86400)
    assert (bio.num_cpus, bio.num_nodes, bio.num_nodes_idle, bio.num_gpus_per_node) == (576, 4, None, None)


def test_a_partitions_name_with_blanks_is_whole() -> None:
    """slurm.conf accepts a name like this in quotes."""
    told = text("scontrol-partitions-newer").replace("PartitionName=dev", "PartitionName=CPU nodes (amd)")
    (partition,) = parse_partitions(told, ())[0]
    assert partition.name == "CPU nodes (amd)"
    told = text("scontrol-nodes-oneline-23.11.3").replace(
        "Partitions=debug,gpu ", "Partitions=CPU nodes (amd),gpu "
    )
    ((node,), _) = parse_nodes(told)
    assert node.partitions == ("CPU nodes (amd)", "gpu")


def sent(kind: str) -> dict[str, Any]:
    """One of the answers that a site has sent, with its names replaced."""
    found: dict[str, Any] = json.loads(captured("capture-22.05.8.json"))["answers"][kind]
    return found


def test_a_site_s_answers_to_all_questions_at_once_belong_together() -> None:
    nodes, bad_nodes = parse_nodes(sent("nodes")["stdout"])
    assert [(node.state, node.num_cpus, node.gpus[0].total) for node in nodes] == [
        ("mixed", 16, 2),
        ("idle+drain", 16, 2),
    ]
    assert nodes[1].reason is not None
    assert nodes[1].reason.startswith("xxxxx'x xxx xxxxx, xxxxxx 9999")
    assert nodes[1].reason_user == "root"
    partitions, bad_partitions = parse_partitions(sent("partitions")["stdout"], nodes)
    assert [(each.num_nodes, each.is_hidden, each.num_gpus_per_node) for each in partitions] == [
        (2, False, 0),
        (2, False, 2),
        (2, True, 2),
        (2, False, 2),
    ]
    assert {name for node in nodes for name in node.partitions} == {each.name for each in partitions}
    queue, own = sent("jobs"), sent("own-jobs")
    jobs, bad_jobs = parse_jobs(queue["stdout"], queue["separator"], queue["record_end"])
    own_jobs, bad_own = parse_jobs(own["stdout"], own["separator"], own["record_end"])
    assert (len(jobs), len(own_jobs)) == (6, 5)
    assert {job.nodes for job in jobs if job.nodes} == {nodes[0].name}
    array = [job.name for job in own_jobs if job.job_id.startswith("2913_")]
    assert len(array) == 2
    assert len(set(array)) == 1
    (reservation,) = parse_reservations(sent("reservations")["stdout"])[0]
    assert (reservation.nodes, reservation.is_maintenance) == (nodes[1].name, True)
    config = parse_config(sent("config")["stdout"])
    assert parse_version(config["SLURM_VERSION"]) == (22, 5)
    assert config["JobRequeue"] == "0"
    assert (bad_nodes, bad_partitions, bad_jobs, bad_own) == (0, 0, 0, 0)
