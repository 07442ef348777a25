"""ENV010: a write failed because the quota is used up or the file system is full (of bytes or of files)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import FullDisk
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.last_error_block import BlockKind, block_of
from coach.rules.from_logs.outcome import signal_of

_QUOTA = re.compile(r"quota exceeded|QuotaExceeded|\[Errno 122\]")
_SPACE = re.compile(r"o space left|\[Errno 28\]|disk is full|free disk space|Not enough disk space")
_NOTED = 0.85
"""Confidence if only coach's own writes failed: the program's error itself is lost."""
_UNSAID = 0.6
"""Confidence if a write failed without a reason: the file system itself may have failed."""


class DiskFull(EndingRule):
    """A file system accepted no more data from the job.

    What it sees
        "Disk quota exceeded" (errno 122) or "No space left on device" (errno 28) in an error that ended the
        program; or the result of the job's own check at its start: a test file could not be written, too
        little space, too few inodes. torch's "unexpected pos" and "failed writing file" only report a failed
        write, so they have less confidence. A disk that is full cannot take the program's own error either:
        then this rule reads what coach noted on the nodes, in a file that it had made before. It does so too
        if the program ended with 0: what it wrote last may be incomplete.
    Why it matters
        Checkpoints and logs are lost at the moment they are written, often hours into a run. Home has the
        smallest quota, and caches (Hugging Face, torch, pip) fill it unnoticed.
    When it stays silent
        On /dev/shm, shared memory and NCCL's segments (MEM011). On coach's own failed writes if the log names
        another error, or if a later write succeeded. The finding is info if the error was caught
        and the training went on.
    What to do
        Find out which limit is reached: `quota -s`, `lfs quota -h -u $USER DIR`, `df -h DIR`, and `df -i DIR`
        for the number of files. Put runs on scratch (`runs_root`), move caches (HF_HOME, TORCH_HOME,
        PIP_CACHE_DIR) off home, write fewer checkpoints; `coach runs clean` lists the space of old runs. If
        the disk still has room, the inodes are used up, or /tmp or /dev/shm is full.
    Sources
        errno(3) EDQUOT and ENOSPC; Python's OSError; quotas of Lustre and NFS, which report at write or at
        fsync.
    """

    code = "ENV010"
    name = "disk-full"
    cause = "disk_quota"
    general = (
        Fix(
            "See what is full (bytes or number of files) and make room", command="quota -s; df -h .; df -i ."
        ),
        Fix("List the space of old runs, and remove them", command="coach runs clean", needs=("run",)),
        Fix(
            "Put runs and caches on scratch: runs_root in the config, HF_HOME and TORCH_HOME in the "
            "environment"
        ),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        said = list(super().check(snapshot, history))
        yield from said
        noted = snapshot.run.full_disks if snapshot.run is not None else ()
        if noted and not said and (_ended_without_a_word(snapshot) or _could_not_record_success(snapshot)):
            yield self._noted(noted, snapshot)

    def _noted(self, noted: tuple[FullDisk, ...], snapshot: TargetSnapshot) -> Hit:
        first = noted[0]
        full = "the user's quota was used up" if first.is_quota else "the file system was full"
        return Hit(
            summary=f"It could not write to its run directory when it ended: {full}",
            evidence=tuple(Evidence(_words_of(each), each.file) for each in noted),
            severity=Severity.WARNING if snapshot.state == "COMPLETED" else None,
            confidence=_NOTED,
            subject=Subject(node=first.node if len(noted) == 1 else None),
            fixes=self.general,
            since_s=first.first_time_s,
        )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        where = f" at {hit.fields['path']}" if "path" in hit.fields else ""
        if hit.fields["what"].endswith("o space left on device"):
            if any("/synchronize.py" in line for line in hit.traceback):
                return "No space was left in /dev/shm, where Python's semaphores live"
            return f"No space (or no inode) was left{where}"
        if hit.fields["what"].startswith("No usable"):
            return "No directory for temporary files can be written: they are full, or are read-only"
        if _QUOTA.search(hit.text):
            return f"The disk quota was used up{where}"
        if _SPACE.search(hit.text):
            return f"No space was left on the disk{where}"
        why = "most often because the disk is full or a quota is used up"
        return f"A file could not be written completely{where}, {why}"

    def confidence_of(self, hit: LogHit) -> float:
        return self.confidence if _QUOTA.search(hit.text) or _SPACE.search(hit.text) else _UNSAID


def _ended_without_a_word(snapshot: TargetSnapshot) -> bool:
    """True for a failed program whose logs name no error: a full disk may have kept it out."""
    block = block_of(snapshot.log_tails)
    is_silent = block is None or block.kind is BlockKind.TAIL
    return snapshot.state == "FAILED" and is_silent and signal_of(snapshot) is None


def _could_not_record_success(snapshot: TargetSnapshot) -> bool:
    """True for a program that ended well on a disk with no room for the record of its end: what it wrote last
    may be incomplete, though it did not fail."""
    noted = snapshot.run.full_disks if snapshot.run is not None else ()
    return snapshot.state == "COMPLETED" and any(each.exit_code == 0 for each in noted)


def _words_of(noted: FullDisk) -> str:
    error = "Disk quota exceeded" if noted.is_quota else "No space left on device"
    room = f"; {noted.free_bytes / 10**6:.0f} MB were free" if noted.free_bytes is not None else ""
    inodes = f" and {noted.free_inodes} inodes" if noted.free_inodes == 0 and room else ""
    lasted = ""
    if noted.first_time_s is not None and noted.last_time_s is not None:
        lasted = f", for its last {max(0.0, noted.last_time_s - noted.first_time_s):.0f} s"
    return f"coach's own records failed on {noted.node} ({error}){lasted}{room}{inodes}"
