"""Several nodes on one machine: an agent for each, with a torchrun and a sampler of its own. Pure.

Apart from script.py, because a scheduler starts one task on each node by itself; here the batch script does it.
"""

from __future__ import annotations

_PORT = "$((20000 + RANDOM % 10000))"


def meeting_lines() -> list[str]:
    """Where the agents meet."""
    return [
        "# The nodes of this run are agents on this machine. They meet at a port on which nobody listens.",
        f"export MASTER_ADDR=localhost MASTER_PORT={_PORT}",
        'while (exec 3<> "/dev/tcp/localhost/$MASTER_PORT") 2> /dev/null; do',
        f"  MASTER_PORT={_PORT}",
        "done",
        "",
    ]


def agent_lines(command: str, num_nodes: int) -> list[str]:
    """Start the command as every node's agent; the first one is `TRAINING`, to which signals go."""
    return [
        "agent() {",
        f"  export SLURM_NNODES={num_nodes} SLURM_NODEID=$1 SLURMD_NODENAME=${{HOSTNAME%%.*}}-$1",
        f"  exec {command}",
        "}",
        "OTHERS=()",
        f"for NODE in {{1..{num_nodes - 1}}}; do",
        '  agent "$NODE" &',
        "  OTHERS+=($!)",
        "done",
        "agent 0 &",
    ]


def waiting_lines() -> list[str]:
    """Wait for the others when the first one has ended."""
    return ['for OTHER in "${OTHERS[@]}"; do wait "$OTHER" || STATUS=$?; done', ""]
