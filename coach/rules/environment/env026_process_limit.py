"""ENV026: the user's limit of processes and threads was reached."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class ProcessLimit(EndingRule):
    """A process could start no further thread or process.

    What it sees
        Python's "can't start new thread"; "Resource temporarily unavailable" (errno 11) of a fork, of
        OpenBLAS, of OpenMP and of C++ threads.
    Why it matters
        The limit (`ulimit -u`, or the pids limit of the job's cgroup) counts all threads of the user on the
        node. OpenBLAS, MKL and OpenMP start one thread per CPU of the node in each process, even if the job
        has few of these CPUs: ranks times workers times CPUs is a large number.
    When it stays silent
        On errno 11 of a socket, a pipe or a lock, which means something else. The finding is info if the
        program went on, as OpenBLAS does with fewer threads.
    What to do
        `export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK` in the batch script: OpenBLAS and MKL read it too. Start
        fewer workers. `ulimit -u` shows the limit, `ps -Lu $USER` the threads.
    Sources
        fork(2) and pthread_create(3), EAGAIN; getrlimit(2), RLIMIT_NPROC; OpenBLAS's
        driver/others/blas_server.c.
    """

    code = "ENV026"
    name = "process-limit"
    cause = "process_limit"
    general = (
        Fix(
            "Start as many threads as the task has CPUs",
            command='export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"',
        ),
        Fix("Start fewer DataLoader workers", needs=("dataloader",)),
        Fix("Start fewer processes on the node", needs=("not dataloader",)),
        Fix(
            "See the limit, and the number of your threads on the node",
            command='ulimit -u; ps -Lu "$USER" --no-headers | wc -l',
        ),
    )
    sentences = by_field(
        again="No further process could be started; the limit of processes and threads was reached",
        fork="No further process could be started; the limit of processes and threads was reached",
        asked=(
            "No further thread could be started: {asked} were to start; the limit of processes and threads "
            "was reached"
        ),
        otherwise="No further thread could be started; the limit of processes and threads was reached",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for Python's errno 11 if no process was forked: a socket or a pipe reports it too."""
        if hit.signature != "again":
            return True
        names = [frame.text for frame in hit.frames]
        return any(name in text for text in names for name in ("_execute_child", "_launch", "fork"))
