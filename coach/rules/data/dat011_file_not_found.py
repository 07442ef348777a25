"""DAT011: a file or folder that the program was to read is not there, seen from the node it ran on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule, ending_signatures

_MISSING = re.compile(
    UNHEEDED + r".*?(?:^|[\s(|\]])(?:"
    # A missing compiler or a worker's socket is another cause, or the consequence of one.
    r"(?:FileNotFoundError|NotADirectoryError): (?!\[Errno 2\] (?:No such file or directory$"
    r"|No usable temporary))"
    r"(?!.*'(?:\S*/pymp-|\S*/torch_|(?:/\S*/)?(?:nvcc|ninja|gcc|g\+\+|cc|git"
    r"|which)'))(?P<words>(?:[^']*'(?P<path>[^']+)')?.*)"
    r"|[^\s(|\]]*python[\d.]*: can't open file '?(?P<program>[^']+?)'?: \[Errno 2\]"
    r"|OSError: Incorrect path_or_model_id: '(?P<model>[^']+)'"
    r"|OSError: (?P<repository>\S+) is not a local folder and is not a valid model identifier"
    r"|RuntimeError: (?P<dataset>Dataset not found)(?: or corrupted)?\."
    r"|(?:[^\s(|\]]+\.)?HFValidationError: Repo id must be in the form .*?: '(?P<repo_id>[^']+)'"
    r"|(?:OS|IO)Error: (?P<mmcv>\S+) is not a checkpoint file"
    r"|OSError: (?P<weights>Error no file named .*?(?: found in directory \S+|$)|\S+ does not appear to have "
    r"(?:a file|files) named \S+|Model file not found: .*|Can't load \w+ for '[^']+')"
    r"|(?:[^\s(|\]]+\.)?\w*(?:Repository|Entry|Dataset)NotFoundError: (?!.*(?:check your connection"
    r"|Internet connection))(?P<hub>.*)|RuntimeError: Parent directory (?P<parent>\S+) does not exist"
    r"|IOError: \[Errno 2\] No such file or directory: '(?P<old>[^']+)'"
    r"|(?:[^\s(|\]]+\.)?(?:OS|lmdb\.|Runtime|NotFound|RasterioIO|DECORD)Error: (?!.*(?:shared object"
    r"|\[Errno 2\]))(?P<opened>.*?(?:errno = 2, error message = '|\S[:;,] )No such file or directory)"
    r"|(?:Assertion|Value|Runtime)Error: (?!.*(?:CUDA|nvcc|\.so\b))(?P<told>(?=.*[\w.~-]/).*\b(?:[Pp]ath"
    r"|[Ff]iles?|[Dd]irectory|[Ff]older|[Cc]heckpoint|[Dd]ata ?set)\b.*(?:(?:does not|doesn't|not) exist"
    r"|not found(?! in)).*)"
    r"|ValueError: (?P<resumed>Can't find a valid checkpoint at .*|No valid checkpoint found in .*"
    r"|Couldn't find cache for .*)"
    r"|(?:[^\s(|\]]+\.)?(?:Runtime|Value|NotFound)Error: (?P<none>Found 0 (?:files|images) in .*"
    r"|Found no valid file for the classes .*|.*Failed to find any matching files for .*)"
    r"|execve\(\): (?P<executable>\S+): No such file or directory"
    r"|(?:[^\s(|\]]+\.)?LibsndfileError: Error opening '(?P<sound>[^']+)': System error"
    r"|RuntimeError: Error loading audio file: failed to open file (?P<audio>.*)"
    r"|sitk::ERROR: The file \"(?P<image>[^\"]+)\" does not exist"
    r"|mpi(?:run|exec) was unable to (?P<mpirun>find the specified executable)"
    r"|execvp error on file (?P<launched>\S+) \(No such file|[^\s(|\]]+\.sh: no such file (?P<script>\S+)$"
    r"|Error constructing TableReader: rspecifier is (?P<table>.*)|line \d+: (?P<shell>(?!\S*(?:activate"
    r"|conda|/etc/))(?=\S*/)\S+): No such file or directory$"
    r"|(?P<fopen>open file failed because of errno 2 on fopen.*)"
    r")"
)
_ASSERTED = re.compile(
    r"^\s*+(?:-++> \d++ )?+\s*+assert (?!not\b)(?:os\.path\.(?:exists|isfile|isdir)\(|[\w.]+\.(?:exists"
    r"|is_file|is_dir)\(\))"
)
"""The source line above an AssertionError that has no words of its own."""
_FIELDS = (
    "path",
    "program",
    "model",
    "repository",
    "repo_id",
    "executable",
    "weights",
    "fopen",
    "hub",
    "parent",
    "old",
    "opened",
    "told",
    "resumed",
    "mmcv",
    "none",
    "sound",
    "audio",
    "image",
    "launched",
    "script",
    "table",
    "shell",
    "words",
)


class FileNotFound(EndingRule):
    """A file that the program was to read is not there, seen from the node it ran on.

    What it sees
        Python's FileNotFoundError with its path, "can't open file", a model's path that is no folder
        ("Incorrect path_or_model_id"), torchvision's "Dataset not found", an assertion or a ValueError about
        a path that does not exist; or the job's own first look and coach's trainers: the data directory that
        was named is not there, and compute nodes do not download.
    Why it matters
        Nothing was trained. Where the path exists on the login node, the compute node does not see that file
        system.
    When it stays silent
        On missing programs (nvcc, ninja) and on sockets of worker processes, which are other causes, and on
        downloads without a way to the internet (ENV021). Info when the error was caught and the program went
        on.
    What to do
        Look from a compute node: `srun ls PATH`. Relative paths count from the directory of submission. Fetch
        data on a login node, into a file system that all nodes see, and name it in full. coach's recipes
        train on generated data without `data_dir`.
    Sources
        Python's OSError; transformers' hub utilities; torchvision.datasets.
    """

    code = "DAT011"
    name = "file-not-found"
    cause = "file_not_found"
    signatures = ending_signatures(
        "DAT011",
        ("file_not_found",),
        Signature(
            "DAT011",
            "missing",
            (
                "FileNotFoundError: ",
                "NotADirectoryError: ",
                "can't open file",
                "Incorrect path_or_model_id",
                "is not a local folder",
                "Dataset not found",
                "HFValidationError",
                "Error no file named",
                "Can't load ",
                "on fopen",
                "execve(): ",
                "NotFoundError: ",
                "Parent directory ",
                "No such file or directory",
                "valid checkpoint ",
                "is not a checkpoint file",
                "Found 0 ",
                "Found no valid file",
                "find any matching files",
                "Couldn't find cache for ",
                "not appear to have ",
                "Error opening '",
                "failed to open file",
                "unable to find the specified executable",
                "execvp error on file",
                "no such file ",
                "Error constructing TableReader",
                "not exist",
                "n't exist",
                "not found",
            ),
            _MISSING,
        ),
        Signature("DAT011", "asserted", ("assert ",), _ASSERTED, reads_source=True),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if "shell" in hit.fields and was_outlived(hit, snapshot):
            return False
        return hit.signature != "asserted" or any("AssertionError" in line for line in hit.traceback[-1:])

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "dataset" in hit.fields:
            return "The data set is not there, and was not to be downloaded"
        if hit.signature == "asserted":
            return "A file or folder that the program asserts is not there"
        what = next((hit.fields[key] for key in _FIELDS if key in hit.fields), "a file")
        return f"Not there, seen from the job: {what}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        path = hit.fields.get("path") if hit is not None else None
        if hit is None or "text" in hit.fields:
            yield Fix("Put it on a file system that compute nodes see, and name it by its full path")
        elif path and path.startswith("/"):
            yield Fix(
                "See whether compute nodes have it, and put it on a file system that they all see",
                command=f"srun ls -ld {shlex.quote(path)}",
            )
        else:
            yield Fix("Name it by its full path, on a file system that compute nodes see")
        if snapshot.run is not None:
            yield Fix(
                "Fetch data on a login node, never in the job; without data_dir coach's recipes train on "
                "generated data"
            )
