"""DAT012: an object could not be sent to a worker process, because it cannot be pickled."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule

_SENDING = re.compile(
    r"multiprocessing|ForkingPickler|dataloader\.py|popen_(?:spawn|forkserver)|spawn\.py|joblib|loky"
)


class WorkerPickle(EndingRule):
    """An object could not be sent to a worker process.

    What it sees
        "Can't pickle local object 'main.<locals>.<lambda>'", "Can't pickle <function …>: attribute lookup …
        failed", "cannot pickle 'module' object", "h5py objects cannot be pickled", in a traceback that starts
        a process or fills its queue; in the worker, "Can't get attribute … on <module '__main__'"; more than
        4 GiB with an old pickle protocol; Ray's "Could not serialize the function".
    Why it matters
        For spawned worker processes (Windows, macOS, `multiprocessing_context="spawn"`, CUDA in the parent),
        the data set, transform and collate function are pickled. Lambdas, local functions and open files
        cannot be pickled.
    When it stays silent
        A pickling error without worker processes, such as a checkpoint that cannot be saved, gets the cause
        code_error, a mistake in the program. The finding is info if the program went on.
    What to do
        Define the functions and classes that you pass at the top level of a module (`functools.partial`
        instead of a lambda), open files and databases in the worker, and start the program under `if __name__
        == "__main__":`. Until then `num_workers=0` works, but slowly.
    Sources
        Python's pickle and multiprocessing ("Contexts and start methods"); torch.utils.data,
        "Platform-specific behaviors".
    """

    code = "DAT012"
    name = "worker-pickle"
    cause = "dataloader_pickle"

    def cause_of(self, hit: LogHit) -> str | None:
        """`code_error` for a checkpoint that cannot be saved or was saved by another program, which raises
        the same error."""
        if "result" in hit.fields or "inherited" in hit.fields or "remote" in hit.fields:
            return None
        is_sent = _SENDING.search("\n".join(hit.traceback)) if hit.traceback else "main" not in hit.fields
        return None if is_sent else "code_error"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = next((value for value in hit.fields.values()), "")
        where = "sent to a worker process" if self.cause_of(hit) is None else "pickled"
        return f"An object could not be {where}: {words[:200]}"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Define the objects that the workers get at the top level of a module: no lambda, no local "
            "function, no open file"
        )
        yield Fix(
            "num_workers=0 needs no worker, and shows whether the rest works",
            {"num_workers": 0} if snapshot.run else {},
        )
