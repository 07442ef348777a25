"""The booted cluster has the properties that the other cluster tests rely on."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cluster import slurm as slurm_module
from tests.cluster.processes import with_environment
from tests.cluster.slurm import SlurmCluster
from tests.ordinary_user import NOBODY, make_open_directory
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def output_of(cluster: SlurmCluster, job_id: str) -> str:
    return (cluster.user.home / f"slurm-{job_id}.out").read_text()


def test_a_user_sees_three_idle_nodes_in_two_partitions(slurm: SlurmCluster) -> None:
    rows = slurm.run(["sinfo", "--noheader", "--format=%P %D %T %G"]).stdout.split("\n")
    assert rows[:2] == ["cpu* 3 idle gpu:a100:2", "gpu 3 idle gpu:a100:2"]


def test_a_user_is_not_the_cluster_s_administrator(slurm: SlurmCluster) -> None:
    refused = slurm.run(["scontrol", "update", "nodename=node1", "state=drain", "reason=mine"])
    assert refused.returncode == 1
    assert "Invalid user id" in refused.stderr


def test_a_job_runs_on_two_nodes_that_know_their_own_names_as_the_user_who_submitted_it(
    slurm: SlurmCluster,
) -> None:
    script = 'srun --label sh -c "hostname; id -u; getent hosts node1 node2 | wc -l; ls -d $HOME"'
    job_id = slurm.submit(script, "--nodes=2", "--ntasks-per-node=1")
    slurm.wait_state(job_id, "COMPLETED")
    lines = set(output_of(slurm, job_id).splitlines())
    assert {"0: node1", "1: node2", f"0: {NOBODY}", f"1: {NOBODY}", "0: 2", "1: 2"} <= lines
    assert f"0: {slurm.user.home}" in lines


def test_allotted_gpus_reach_the_job(slurm: SlurmCluster) -> None:
    def seen() -> bool:
        job_id = slurm.submit("echo gpus=$CUDA_VISIBLE_DEVICES", "--partition=gpu", "--gpus-per-node=2")
        slurm.wait_state(job_id, "COMPLETED")
        return output_of(slurm, job_id) == "gpus=0,1\n"

    # A controller that has just come back allots GPUs before the nodes have told it which devices they are.
    wait_until(seen, 60, "the job sees both its GPUs", every_s=1.0)


def test_a_job_that_asks_for_more_gpus_than_a_node_has_is_refused(slurm: SlurmCluster) -> None:
    result = slurm.run(["sbatch", "--gpus-per-node=3", "--wrap", "true"])
    assert result.returncode == 1
    assert "Requested node configuration is not available" in result.stderr


def test_the_controller_can_be_killed_and_comes_back_with_its_jobs(slurm: SlurmCluster) -> None:
    waiting = slurm.submit("sleep 300", "--hold")
    running = slurm.submit("sleep 300")
    slurm.wait_state(running, "RUNNING")
    slurm.wait_saved(running)
    slurm.kill_controller()
    assert slurm.run(["scontrol", "ping"]).returncode == 1
    slurm.start_controller()
    assert (slurm.job_state(waiting), slurm.job_state(running)) == ("PENDING", "RUNNING")


def test_the_cluster_is_restored_after_a_test_for_the_next(slurm: SlurmCluster) -> None:
    slurm.submit("sleep 300", "--nodes=3")
    slurm.run(["scontrol", "update", "nodename=node2", "state=drain", "reason=tested"], as_root=True)
    slurm.kill_node("node3")
    slurm.kill_controller()
    slurm.restore()
    assert slurm.run(["sinfo", "--noheader", "--format=%D %T", "--partition=cpu"]).stdout == "3 idle\n"
    assert slurm.run(["squeue", "--noheader"]).stdout == ""


def test_stopping_a_cluster_leaves_no_process_of_it_and_spares_the_other_one(slurm: SlurmCluster) -> None:
    directory = make_open_directory("coach-slurm-second")
    second = SlurmCluster(directory, num_nodes=2, num_gpus=1)
    try:
        second.start()
        job_id = second.submit("sleep 300 & srun sleep 300", "--nodes=2")
        second.wait_state(job_id, "RUNNING")
        wait_until(lambda: len(second.processes()) >= 4 + 2 + 2, 20, "the job's processes are there")
        second.kill_node("node1")
        second.kill_controller()
        second.stop()
        assert processes_that_name(directory) == []
        assert with_environment(f"SLURM_CONF={second.conf}") == []
        assert slurm.run(["sinfo", "--noheader"]).returncode == 0
    finally:
        second.stop()
        shutil.rmtree(directory)


def processes_that_name(directory: Path) -> list[str]:
    """The processes with an open file of the cluster or with its folder as their working directory."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            places = [folder / "cwd", *(folder / "fd").iterdir()]
            if any(place.readlink().is_relative_to(directory) for place in places):
                found.append(f"{folder.name} {(folder / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


def test_a_cluster_booted_by_hand_is_taken_down_by_hand(
    slurm: SlurmCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = make_open_directory("coach-slurm-by-hand")
    try:
        assert slurm_module.main(["up", str(directory)]) == 0
        assert capfd.readouterr().out == f"export SLURM_CONF={directory}/etc/slurm.conf\n"
        cluster = SlurmCluster.at(directory)
        assert cluster.run(["sinfo", "--noheader", "--format=%D %T"]).stdout == "3 idle\n"
        assert slurm_module.main(["down", str(directory)]) == 0
        assert processes_that_name(directory) == []
    finally:
        SlurmCluster.at(directory).stop()
        shutil.rmtree(directory)


def test_a_failed_boot_prints_the_controller_s_log_and_stops_the_rest(slurm: SlurmCluster) -> None:
    directory = make_open_directory("coach-slurm-broken")
    broken = SlurmCluster(directory, more_conf="NoSuchOption=1")
    try:
        with pytest.raises(AssertionError, match="NoSuchOption"):
            broken.start()
        assert processes_that_name(directory) == []
    finally:
        broken.stop()
        shutil.rmtree(directory)


def test_a_frozen_controller_is_continued_for_the_next_test(slurm: SlurmCluster) -> None:
    (controller,) = [process for process in slurm.processes() if process.name == "slurmctld"]
    controller.signal(signal.SIGSTOP)
    slurm.restore()
    assert slurm.run(["scontrol", "ping"]).returncode == 0
