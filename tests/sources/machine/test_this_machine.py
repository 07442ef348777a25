"""This machine as the one node of the local backend."""

from __future__ import annotations

import os

import psutil

from coach.sources.machine.this_machine import read_machine


def test_this_machine_is_one_idle_node_with_the_memory_and_the_cpus_that_it_has() -> None:
    node = read_machine()
    assert node.memory_mib is not None
    assert abs(node.memory_mib * 2**20 - psutil.virtual_memory().total) < 2**20
    assert (node.num_cpus, node.num_cpus_allocated) == (len(os.sched_getaffinity(0)), 0)
    assert (node.state, "." in node.name, len(node.partitions)) == ("idle", False, 1)
