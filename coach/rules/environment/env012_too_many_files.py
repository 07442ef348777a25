"""ENV012: a process reached its limit of open files."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field

_SHARING = ("multiprocessing", "torch/utils/data")
_OPENED = re.compile(r"\[Errno 24\] Too many open files: '(?P<path>[^']{1,300})'")


class TooManyFiles(EndingRule):
    """A process reached its limit of open files.

    What it sees
        "Too many open files" (errno 24) in an error that ended the program, also in messages of NCCL, torch's
        shared memory or a shell; "received 0 items of ancdata", the same error between DataLoader workers.
    Why it matters
        DataLoader workers pass each tensor as an open file, and kept samples (in a list or a large prefetch)
        keep these files open. The limit is often 1024 in a batch job, even if it is higher in a terminal.
    When it stays silent
        When a logger reports it only as a warning, and if the program went on.
    What to do
        `torch.multiprocessing.set_sharing_strategy('file_system')`, and `ulimit -n 65536` (up to the hard
        limit, `ulimit -Hn`) in the batch script. Do not keep tensors from workers, keep copies. Close the
        files that the data set opens.
    Sources
        errno(3) EMFILE; torch.multiprocessing, "Sharing strategies"; torch/utils/data/dataloader.py.
    """

    code = "ENV012"
    name = "too-many-open-files"
    cause = "too_many_open_files"
    sentences = by_field(
        passed=(
            "Too many open files: DataLoader workers pass tensors as open files, and the limit was reached"
        ),
        otherwise="Too many open files: the process reached its limit",
    )

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        more = Fix(
            "Raise the limit in the batch script, up to the hard one", command='ulimit -n "$(ulimit -Hn)"'
        )
        if _is_of_open(hit):
            yield Fix("Close files after use (`with open(…)`): the program may keep each one open")
            yield more
            return
        yield Fix("Share tensors by name: torch.multiprocessing.set_sharing_strategy('file_system')")
        yield more


def _is_of_open(hit: LogHit) -> bool:
    """True if a program opened a file by its name, and no tensor passed between processes."""
    is_shared = any(part in frame.text for frame in hit.frames for part in _SHARING)
    named = _OPENED.search(hit.text)
    return not is_shared and named is not None and not named["path"].startswith(("/dev/shm", "/torch_"))
