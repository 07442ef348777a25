"""A real Slurm in a temporary directory: slurmctld, munged and one slurmd per node, with its own ports and
configuration.

Tests against a cluster are only useful with a real Slurm, and a real Slurm boots in about a second. It needs
root (device files, namespaces, jobs of another user). It does not touch the machine's own Slurm, /etc or host
name, and ends only its own processes, by pid.

In a test, take the `slurm` fixture. By hand, with the same cluster:

    python -m tests.cluster.slurm up DIR           # prints `export SLURM_CONF=…`
    python -m tests.cluster.slurm run DIR squeue   # as the ordinary user of the tests
    python -m tests.cluster.slurm down DIR
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.cluster import slurm_conf
from tests.cluster.processes import Daemon, daemon_of, leftovers
from tests.ordinary_user import User, make_open_directory, make_user, shown
from tests.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "srun", "scancel")
ON_CPUS = {"COACH_LAUNCH_PARTITION": "cpu"}
"""For coach on this cluster: its GPUs are stand-ins, so a launch shall not choose the partition with them."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_IN_NODE = """\
mount --bind "$1" /etc/hosts && hostname "$2" || exit
node=$2; shift 2
for hidden; do mount -t tmpfs -o mode=755 hidden "$hidden" || exit; done
exec slurmd -D -N "$node"
"""


def why_not() -> str | None:
    """The reason why no cluster can boot here, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemons have to be started by root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_SYSTEM_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces here: {probe.stderr.strip()}" if probe.returncode else None


AnyCluster = TypeVar("AnyCluster", bound="SlurmCluster")


class SlurmCluster:
    """One cluster under `directory`. `start()` returns when all nodes are idle; `stop()` leaves no process
    behind."""

    def __init__(
        self,
        directory: Path,
        *,
        num_nodes: int = 3,
        num_gpus: int = 2,
        more_conf: str = "",
        more_files: Mapping[str, str] | None = None,
        is_home_hidden: bool = False,
        is_detached: bool = False,
    ) -> None:
        """`more_conf`: lines appended to slurm.conf. `more_files`: files beside it, by name.
        `is_home_hidden`: the nodes do not see the home of the cluster's user, as where home is not shared.
        `is_detached`: the daemons outlive the process that calls `start()`.

        A cluster that is not detached dies with the thread that started it, so that an interrupted test run
        leaves no daemon.
        """
        self.directory = directory.resolve()
        self.num_gpus = num_gpus
        self.node_names = slurm_conf.node_names(num_nodes)
        self._more_conf = more_conf
        self._more_files = dict(more_files or {})
        self._is_home_hidden = is_home_hidden
        self._is_detached = is_detached
        self._ports: list[int] = []
        self._daemons: dict[str, Daemon] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that a process needs to see this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def user(self) -> User:
        """The ordinary user of this cluster: `nobody`, his home closed to others."""
        home = self.directory / "home"
        return User(home.stat().st_uid, home.stat().st_gid, "nobody", home)

    def start(self) -> None:
        """Boot: munged, the controller, the nodes. Returns when every node is idle; on failure it stops the
        started programs."""
        self._ports = slurm_conf.write_files(
            self.directory, num_nodes=len(self.node_names), num_gpus=self.num_gpus, more=self._more_conf
        )
        for name, text in self._more_files.items():
            (self.directory / "etc" / name).write_text(text)
        if not (self.directory / "home").exists():
            make_user(self.directory / "home")
        try:
            self._start_munged()
            self._spawn("slurmctld", ["slurmctld", "-D"])
            for name in self.node_names:
                self.start_node(name)
            self._wait_for_controller()
            self.wait_idle()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every job and daemon of this cluster, in any state."""
        controller = self._daemons.get("slurmctld")
        if controller is not None and controller.is_alive:
            controller.signal(signal.SIGCONT)
            # If the controller no longer answers, the code below finds the rest of its jobs.
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.cancel_all()
        for daemon in reversed(self._daemons.values()):
            daemon.signal(signal.SIGCONT)
            daemon.end()
        for process in leftovers(self.directory, self.conf):
            process.signal(signal.SIGKILL)
        for child in self._children:
            child.wait(timeout=10)
        self._children.clear()
        self._daemons.clear()
        self._remember()

    def restore(self) -> None:
        """Whole and idle again: daemons restarted or continued, jobs ended, nodes resumed. For between two
        tests."""
        dead = [name for name, daemon in self._daemons.items() if not daemon.is_alive]
        for daemon in self._daemons.values():
            daemon.signal(signal.SIGCONT)
        if "munged" in dead:
            self._start_munged()
        if "slurmctld" in dead:
            self.start_controller()
        self.cancel_all()
        for process in leftovers(self.directory, self.conf):
            process.signal(signal.SIGKILL)  # its slurmd was killed above it
        for name in dead:
            if name in self.node_names:
                self.start_node(name)
        for name in self._nodes_in("drain,down,fail"):
            self.run(["scontrol", "update", f"nodename={name}", "state=resume"], as_root=True)
        self.wait_idle()

    def kill_controller(self) -> None:
        """SIGKILL to slurmctld, as when its machine fails.

        Jobs go on. A job that is younger than the controller's last saved state is lost: `wait_saved()`
        first.
        """
        controller = self._daemons["slurmctld"]
        controller.signal(signal.SIGKILL)
        wait_until(lambda: not controller.is_alive, 10, "slurmctld is gone")

    def start_controller(self) -> None:
        """Start slurmctld again on its saved state. Returns when it answers and every living node has come
        back to it."""
        self._spawn("slurmctld", ["slurmctld", "-D"])
        self._wait_for_controller()
        alive = {name for name in self.node_names if self._daemons[name].is_alive}
        wait_until(
            lambda: not alive & self._nodes_in("unk,down,no_respond"),
            30,
            "the nodes come back to the controller",
        )

    def kill_node(self, name: str) -> None:
        """SIGKILL to one slurmd. The controller notices after some seconds; the node's jobs go on,
        unsupervised."""
        daemon = self._daemons[name]
        daemon.signal(signal.SIGKILL)
        wait_until(lambda: not daemon.is_alive, 10, f"slurmd of {name} is gone")

    def start_node(self, name: str) -> None:
        """Start a node: a slurmd that calls itself `name`, in its own UTS and mount namespace."""
        hosts = str(self.directory / "etc" / "hosts")
        hidden = [str(self.directory / "home")] if self._is_home_hidden else []
        self._spawn(name, ["unshare", "--uts", "--mount", "sh", "-c", _IN_NODE, "sh", hosts, name, *hidden])

    def wait_idle(self, timeout_s: float = 40.0) -> None:
        """Wait until no node has a job and every node can take one; a reserved node counts if its own users
        can use it."""
        wanted = set(self.node_names)
        wait_until(
            lambda: self._nodes_in("idle,reserved") == wanted, timeout_s, "all nodes are idle", every_s=0.1
        )

    def cancel_all(self, timeout_s: float = 20.0) -> None:
        """End all jobs of everybody, and wait until they are gone."""
        queue = ["squeue", "--noheader", "--all", "--format=%A"]
        if job_ids := self.run(queue, as_root=True).stdout.split():
            self.run(["scancel", *job_ids], as_root=True)
        wait_until(
            lambda: not self.run(queue, as_root=True).stdout, timeout_s, "the queue is empty", every_s=0.1
        )

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        as_root: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 30.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that sees this cluster, as its ordinary user or as root. The caller looks at the exit
        status."""
        user = None if as_root else self.user
        words = [os.fspath(word) for word in argv]
        return subprocess.run(
            user.argv(words) if user else words,
            env=user.env(self.env, env or {}) if user else self._root_env | dict(env or {}),
            cwd=cwd or (user.home if user else self.directory),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout_s,
        )

    def submit(self, script: str, *options: str, as_root: bool = False) -> str:
        """sbatch a shell script (without its first line); the job id. Output goes to `slurm-%j.out` in the
        user's home."""
        wrapped = ["sbatch", "--parsable", *options, "--wrap", script]
        result = self.run(wrapped, as_root=as_root)
        assert result.returncode == 0, f"{shown(wrapped)}: {result.stderr}"
        return result.stdout.strip()

    def job_state(self, job_id: str) -> str | None:
        """The job's state in Slurm's words; None when the controller does not know it or does not answer."""
        result = self.run(
            ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_id}"], as_root=True
        )
        return result.stdout.split()[0] if result.stdout.split() else None

    def wait_state(self, job_id: str, *states: str, timeout_s: float = 30.0) -> str:
        """Wait until a job is in one of `states`. Returns that state."""

        def reached() -> str | None:
            state = self.job_state(job_id)
            return state if state in states else None

        return (
            wait_until(reached, timeout_s, f"job {job_id} becomes {' or '.join(states)}", every_s=0.1) or ""
        )

    def wait_saved(self, job_id: str) -> None:
        """Wait until the controller, killed now, would come back with this job as it is. It saves within 5 s
        of a change."""
        times = ["squeue", "--noheader", "--states=all", "--format=%V %S", f"--jobs={job_id}"]
        result = self.run(times, as_root=True, env={"SLURM_TIME_FORMAT": "%s"})
        changed_s = max(int(word) for word in result.stdout.split() if word.isdecimal())
        saved = self.directory / "state" / "job_state"

        def is_saved() -> bool:
            is_newer = saved.exists() and saved.stat().st_mtime >= changed_s + 1
            return is_newer or time.time() > changed_s + 8

        wait_until(is_saved, 15, f"job {job_id} is in the controller's saved state", every_s=0.1)

    def processes(self) -> list[Daemon]:
        """Everything that runs for this cluster: daemons, and processes of jobs."""
        return [d for d in self._daemons.values() if d.is_alive] + leftovers(self.directory, self.conf)

    def log(self, name: str = "slurmctld") -> str:
        """The log of a daemon (`slurmctld`, `node1` …), for a failed test's message."""
        path = self.directory / "log" / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    @classmethod
    def at(cls, directory: Path) -> SlurmCluster:
        """The cluster that another process has started under `directory`."""
        known = json.loads((directory / "cluster.json").read_text())
        cluster = cls(directory, num_nodes=known["num_nodes"], num_gpus=known["num_gpus"], is_detached=True)
        cluster._ports = known["ports"]
        cluster._daemons = {entry["name"]: Daemon(**entry) for entry in known["daemons"]}
        return cluster

    @property
    def _root_env(self) -> dict[str, str]:
        scrubbed = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return scrubbed | {"PATH": _SYSTEM_PATH} | self.env

    def _start_munged(self) -> None:
        munge = self.directory / "munge"
        (munge / "sock").unlink(missing_ok=True)
        files = [f"--{name}={munge / file}" for name, file in _MUNGE_FILES.items()]
        self._spawn("munged", ["munged", "--foreground", "--force", "--num-threads=2", *files])
        wait_until((munge / "sock").exists, 10, "munged makes its socket")

    def _spawn(self, name: str, argv: list[str]) -> None:
        prefix = [] if self._is_detached else ["setpriv", "--pdeathsig", "KILL"]
        with (self.directory / "log" / f"{name}.out").open("ab") as output:
            child = subprocess.Popen(
                [*prefix, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._root_env,
                cwd=self.directory,
                start_new_session=True,
            )
        self._children.append(child)
        self._daemons[name] = daemon_of(name, child.pid)
        self._remember()

    def _remember(self) -> None:
        known = {
            "num_nodes": len(self.node_names),
            "num_gpus": self.num_gpus,
            "ports": self._ports,
            "daemons": [dataclasses.asdict(daemon) for daemon in self._daemons.values()],
        }
        (self.directory / "cluster.json").write_text(json.dumps(known, indent=2))

    def _wait_for_controller(self) -> None:
        """Look at the port and the pid first: while nothing listens, Slurm's clients hang for 9 s."""
        controller = self._daemons["slurmctld"]

        def answers() -> bool:
            assert controller.is_alive, f"slurmctld ended: {self.log()[-1000:]}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self._ports[0])) == 0

        wait_until(answers, 30, "slurmctld listens")
        wait_until(
            lambda: self.run(["scontrol", "ping"], as_root=True).returncode == 0, 30, "slurmctld answers"
        )

    def _nodes_in(self, states: str) -> set[str]:
        argv = ["sinfo", "--noheader", "--Node", "--partition=cpu", f"--states={states}", "--format=%N"]
        return set(self.run(argv, as_root=True).stdout.split())


@contextlib.contextmanager
def booted(name: str, make: Callable[[Path], AnyCluster]) -> Iterator[AnyCluster]:
    """A started cluster that `make` makes in a directory open to every user; both are removed afterwards."""
    directory = make_open_directory(name)
    cluster = make(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


_MUNGE_FILES = {
    "key-file": "munge.key",
    "socket": "sock",
    "pid-file": "munged.pid",
    "log-file": "munged.log",
    "seed-file": "munged.seed",
}


def main(arguments: Sequence[str]) -> int:
    """`up DIR`, `down DIR`, `run DIR COMMAND…` by hand."""
    match list(arguments):
        case ["up", directory]:
            if reason := why_not():
                sys.stderr.write(f"no Slurm here: {reason}\n")
                return 1
            cluster = SlurmCluster(Path(directory), is_detached=True)
            cluster.start()
            sys.stdout.write(f"export SLURM_CONF={cluster.conf}\n")
            return 0
        case ["down", directory]:
            SlurmCluster.at(Path(directory)).stop()
            return 0
        case ["run", directory, *command] if command:
            cluster = SlurmCluster.at(Path(directory))
            os.chdir(cluster.user.home)
            os.execvpe("setpriv", cluster.user.argv(command), cluster.user.env(cluster.env))
    sys.stderr.write("usage: python -m tests.cluster.slurm up DIR | down DIR | run DIR COMMAND…\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
