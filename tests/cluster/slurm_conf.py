"""The text of the booted cluster's configuration.

Apart from the class that boots it, because these lines are the cluster that coach's tests see: three nodes of 16 CPUs and 64 GB with two
GPUs each, a default partition `cpu` for launches over gloo, and a partition `gpu` with the GPUs to be seen and allotted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


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
    """slurm.conf. Each node is a slurmd of its own on this machine (`config_overrides` lets two cores pass for sixteen)."""
    gres = f"Gres=gpu:a100:{num_gpus} " if num_gpus else ""
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=16 Sockets=2 CoresPerSocket=8 "
        f"ThreadsPerCore=1 RealMemory=64000 {gres}State=UNKNOWN"
        for name, port in zip(node_names(len(node_ports)), node_ports, strict=True)
    )
    return f"""\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/sock
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
    """gres.conf. The files must be character devices: with anything else a job gets no CUDA_VISIBLE_DEVICES."""
    return "".join(
        f"NodeName={name} Name=gpu Type=a100 File={directory}/dev/nvidia{gpu}\n"
        for name in node_names(num_nodes)
        for gpu in range(num_gpus)
    )


def hosts(num_nodes: int, own_name: str) -> str:
    """The nodes' /etc/hosts, so that every node's name resolves inside jobs, without touching the machine's own file."""
    lines = [f"127.0.0.1 localhost {own_name}"]
    lines += [f"127.0.1.{number} {name}" for number, name in enumerate(node_names(num_nodes), 1)]
    return "\n".join(lines) + "\n"
