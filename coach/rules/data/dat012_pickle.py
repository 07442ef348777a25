"""DAT012: what a worker process needs could not be sent to it, because it cannot be pickled."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_PICKLE = re.compile(
    UNHEEDED + r".*?(?:"
    r"(?:PicklingError|AttributeError|TypeError|pickle\.PickleError): (?P<words>Can't (?:pickle"
    r"|get local object) .*|[Cc]an(?:'t|not) (?:pickle|serialize) .*|.*objects cannot be pickled.*"
    r"|self\..* cannot be converted to a Python object for pickling)"
    r"|AttributeError: (?P<main>Can't get attribute '\S+' on <module '__(?:mp_)?main__'.*)"
    r"|MaybeEncodingError: (?P<result>Error sending result: .*)|RuntimeError: (?P<leaf>Cowardly refusing to "
    r"serialize non-leaf tensor.*)"
    r"|RuntimeError: (?P<inherited>\w+ objects should only be shared between processes through inheritance)"
    r"|OverflowError: (?P<large>(?:cannot serialize|serializing) a (?:bytes|string|str)\b.{0,20} larger than "
    r"4 ?GiB.*)|struct\.error: (?P<long>'i' format requires -2147483648 .*)"
    r"|(?:Type|Value|Recursion)Error: (?P<refused>no default __reduce__ due to .*|ctypes objects .*cannot be "
    r"pickled|.*exceeded while pickling an object"
    r"|Pickling an AuthenticationString object is disallowed.*)|TypeError: (?P<remote>Could not serialize "
    r"the (?:function|actor class|argument) .*)"
    r"|NotImplementedError: (?P<h5py>h5py objects cannot be pickled.*)"
    r")"
)
_SENDING = re.compile(
    r"multiprocessing|ForkingPickler|dataloader\.py|popen_(?:spawn|forkserver)|spawn\.py|joblib|loky"
)


class WorkerPickle(EndingRule):
    """What a worker process needs could not be sent to it.

    What it sees
        "Can't pickle local object 'main.<locals>.<lambda>'", "Can't pickle <function …>: attribute lookup …
        failed", "cannot pickle 'module' object", "h5py objects cannot be pickled", in a traceback that starts
        a process or feeds its queue; in the worker, "Can't get attribute … on <module '__main__'"; more than
        4 GiB for an old protocol; Ray's "Could not serialize the function".
    Why it matters
        Where worker processes are spawned (Windows, macOS, `multiprocessing_context="spawn"`, CUDA in the
        parent), data set, transform and collate function are pickled: lambdas, local functions and open files
        cannot be.
    When it stays silent
        Pickling that has nothing to do with processes, such as a checkpoint that cannot be saved, is called a
        plain mistake of the program (code_error). Info where the program went on.
    What to do
        Define what is passed at the top level of a module (`functools.partial` in the place of a lambda),
        open files and databases in the worker, and start the program under `if __name__ == "__main__":`.
        `num_workers=0` works meanwhile, slowly.
    Sources
        Python's pickle and multiprocessing ("Contexts and start methods"); torch.utils.data,
        "Platform-specific behaviors".
    """

    code = "DAT012"
    name = "worker-pickle"
    cause = "dataloader_pickle"
    signatures = (
        Signature(
            "DAT012",
            "pickle",
            (
                "an't pickle ",
                "annot pickle ",
                "annot serialize ",
                "an't serialize ",
                "cannot be pickled",
                "Can't get local object",
                "Can't get attribute",
                "for pickling",
                "Error sending result",
                "Cowardly refusing to serialize",
                "through inheritance",
                "larger than 4",
                "'i' format requires",
                "no default __reduce__",
                "while pickling an object",
                "an AuthenticationString",
                "Could not serialize the ",
            ),
            _PICKLE,
        ),
    )

    def cause_of(self, hit: LogHit) -> str | None:
        """A checkpoint that cannot be saved, or was saved by another program, has the same words."""
        if "result" in hit.fields or "inherited" in hit.fields or "remote" in hit.fields:
            return None
        is_sent = _SENDING.search("\n".join(hit.traceback)) if hit.traceback else "main" not in hit.fields
        return None if is_sent else "code_error"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = next((value for value in hit.fields.values()), "")
        where = "sent to a worker process" if self.cause_of(hit) is None else "pickled"
        return f"Something could not be {where}: {words[:200]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Define what the workers get at the top level of a module: no lambda, no local function, no "
            "open file"
        )
        yield Fix(
            "num_workers=0 needs no worker, and shows whether the rest works",
            {"num_workers": 0} if snapshot.run else {},
        )
