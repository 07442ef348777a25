"""The booted cluster's configuration: its texts, and the files that a boot needs.

Apart from the class that boots it, because these lines are the cluster that coach's tests see: three nodes of
16 CPUs and 64 GB with two GPUs each, a default partition `cpu` for launches over gloo, and a partition `gpu`
with the GPUs to be seen and allotted.
"""

from __future__ import annotations

import os
import random
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

PORTS = range(11000, 19000)
"""Below the ports that the kernel hands out by itself, and below those that training jobs meet at (20000 and
up)."""


def node_names(num_nodes: int) -> list[str]:
    """`node1`, `node2` …, as the nodes call themselves too."""
    return [f"node{number}" for number in range(1, num_nodes + 1)]


def slurm_conf(
    directory: Path,
    *,
    controller_port: int,
    node_ports: Sequence[int],
    num_gpus: int,
    first_job_id: int,
    more: str = "",
) -> str:
    """slurm.conf. Each node is a slurmd of its own on this machine (`config_overrides` lets two cores pass
    for sixteen).

    `cred_expire` is also how long Slurm holds a requeued job back: two minutes by default, shorter here so
    that tests need not wait.
    """
    gres = f"Gres=gpu:a100:{num_gpus} " if num_gpus else ""
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=16 Sockets=2 "
        "CoresPerSocket=8 "
        f"ThreadsPerCore=1 RealMemory=64000 {gres}State=UNKNOWN"
        for name, port in zip(node_names(len(node_ports)), node_ports, strict=True)
    )
    return f"""\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/sock,cred_expire=15
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/run/slurmctld.pid
SlurmdPidFile={directory}/run/slurmd-%n.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=1000
PriorityType=priority/multifactor
FirstJobId={first_job_id}
KillWait=2
InactiveLimit=0
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout=20
MessageTimeout=10
TCPTimeout=2
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
{nodes}
PartitionName=cpu Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=10 State=UP OverSubscribe=NO
PartitionName=gpu Nodes=ALL MaxTime=1-00:00:00 DefaultTime=10 State=UP OverSubscribe=NO
{more}
"""


def gres_conf(directory: Path, num_nodes: int, num_gpus: int) -> str:
    """gres.conf. The files must be character devices: with anything else a job gets no
    CUDA_VISIBLE_DEVICES."""
    return "".join(
        f"NodeName={name} Name=gpu Type=a100 File={directory}/dev/nvidia{gpu}\n"
        for name in node_names(num_nodes)
        for gpu in range(num_gpus)
    )


def hosts(num_nodes: int, own_name: str) -> str:
    """The nodes' /etc/hosts, so that every node's name resolves inside jobs, without touching the machine's
    own file."""
    lines = [f"127.0.0.1 localhost {own_name}"]
    lines += [f"127.0.1.{number} {name}" for number, name in enumerate(node_names(num_nodes), 1)]
    return "\n".join(lines) + "\n"


def write_files(directory: Path, *, num_nodes: int, num_gpus: int, more: str = "") -> list[int]:
    """Folders, munge's key, the GPUs' device files and the configuration; the ports: the controller's first,
    then each node's."""
    for name in ("etc", "log", "run", "state", "spool", "munge", "dev"):
        (directory / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.chmod(0o755)
    key = directory / "munge" / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    for gpu in range(num_gpus):
        device = directory / "dev" / f"nvidia{gpu}"
        if not device.exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    ports = _free_ports(1 + num_nodes)
    etc = directory / "etc"
    (etc / "slurm.conf").write_text(
        slurm_conf(
            directory,
            controller_port=ports[0],
            node_ports=ports[1:],
            num_gpus=num_gpus,
            # Jobs of two clusters on one machine must not meet at one port, which trainings derive from the
            # job id.
            first_job_id=random.SystemRandom().randrange(100, 9000),
            more=more,
        )
    )
    (etc / "gres.conf").write_text(gres_conf(directory, num_nodes, num_gpus))
    (etc / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
    (etc / "hosts").write_text(hosts(num_nodes, socket.gethostname()))
    return ports


def _free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now, in random order, so that two clusters booted at once hardly ever
    meet."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"fewer than {count} free ports in {PORTS}")
