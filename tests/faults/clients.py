"""Slurm's clients as small programs on the PATH: their journal counts the submissions.

They answer at once and never start a job, so a test can interrupt hundreds of submissions.
`tests/cluster/test_lost_answers.py` tests the same with the real Slurm.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sources.scripted_io import captured

_CLIENT = """#!{python} -SE
import fcntl, json, os, re, sys, time
folder = {folder!r}
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]

def jobs():
    found = []
    for entry in sorted(os.listdir(folder + "/jobs"), key=int):
        with open(folder + "/jobs/" + entry) as file:
            found.append(json.load(file))
    return found

if os.path.exists(folder + "/down"):
    with open(folder + "/asked", "a") as file:
        file.write(" ".join([str(time.time()), name, *words[:3]]) + chr(10))
    sys.exit(name + ": error: Unable to contact slurm controller (connect failure)")
if name == "sbatch":
    with open(words[-1]) as file:
        script = file.read()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\\S+)", script, re.M))
    if "--test-only" in words:
        sys.exit(0)
    with open(folder + "/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = str(len(os.listdir(folder + "/jobs")) + 101)
        tasks = options.get("array", "").partition("%")[0]
        job = dict(id=number, script=words[-1], array=tasks, options=options, state="PENDING")
        job["time_s"] = time.time()
        with open(folder + "/" + number, "w") as file:
            json.dump(job, file)
        os.rename(folder + "/" + number, folder + "/jobs/" + number)
    print(number)
elif name == "squeue":
    columns = words[words.index("-O") + 1] if "-O" in words else ""
    fields = re.findall(r"([a-z_-]+):(=|\\|[A-Za-z0-9_-]+)", columns)
    for job in jobs():
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(job["time_s"]))
        options = job["options"]
        tasks = "_[" + job["array"] + "]" if job["array"] else ""
        output = options.get("output", "")
        row = dict(jobarrayid=job["id"] + tasks, jobid=job["id"], username={user!r}, state=job["state"],
            reason="Priority", partition="gpu", numnodes="1", numcpus="2", numtasks="1", timelimit="10:00",
            submittime=stamp, starttime="N/A", endtime="N/A", qos="normal", exit_code="0", workdir="/tmp",
            command=job["script"], stdout=output, stderr=output, name=options.get("job-name", "job"),
            prioritylong="1", restartcnt="0", timeused="0:00")
        print("".join(row.get(field, "N/A") + end for field, end in fields))
elif name == "scancel":
    for job in jobs():
        if job["id"] in [word.partition("_")[0] for word in words]:
            job["state"] = "CANCELLED"
            with open(folder + "/jobs/" + job["id"], "w") as file:
                json.dump(job, file)
elif name == "scontrol":
    for what in ("nodes", "partitions", "config"):
        if what in words:
            with open(folder + "/" + what) as file:
                sys.stdout.write(file.read())
else:
    sys.exit(name + ": not at this site")
"""
CLIENTS = (
    "sbatch",
    "squeue",
    "scancel",
    "scontrol",
    "sinfo",
    "sacct",
    "sacctmgr",
    "sprio",
    "sshare",
    "sdiag",
)


@dataclass(frozen=True, slots=True)
class Clients:
    """A folder for the PATH, with the jobs that were submitted by it."""

    folder: Path

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """Each order that arrived, in the order of arrival."""
        found = sorted((self.folder / "jobs").iterdir(), key=lambda path: int(path.name))
        return [json.loads(path.read_text()) for path in found]

    def stop(self) -> None:
        """From now on the controller is not reached."""
        (self.folder / "down").touch()

    def start(self) -> None:
        (self.folder / "down").unlink()

    @property
    def num_refused(self) -> int:
        """Questions that were asked while the controller was not reached."""
        asked = self.folder / "asked"
        return len(asked.read_text().splitlines()) if asked.exists() else 0


def make_clients(folder: Path, user: str) -> Clients:
    """Write them into a new folder."""
    (folder / "jobs").mkdir(parents=True)
    for name in ("nodes", "partitions", "config"):
        (folder / name).write_bytes(captured(f"scontrol-{name}-22.05.txt"))
    text = _CLIENT.format(python=sys.executable, folder=str(folder), user=user)
    for name in CLIENTS:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return Clients(folder)
