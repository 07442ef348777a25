"""ENV017: a file on a network file system was replaced or removed on the server while the job had it open."""

from __future__ import annotations

import re

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.ending_rule import EndingRule, by_field

_SHELL = re.compile(r"^(?:ls|rm|cp|mv|du|find|stat|cat): ")


class StaleHandle(EndingRule):
    """A file on a network file system was removed or replaced while the job had it open.

    What it sees
        "Stale file handle" or "Stale NFS file handle" (errno 116): from Python, shell commands or HDF5. A
        path on a file system that was disconnected ("Transport endpoint is not connected", "Cannot send after
        transport endpoint shutdown", "Remote I/O error"), or could not be read ("[Errno 5] Input/output
        error" with its path).
    Why it matters
        The node still holds a handle to a file that no longer exists: another node removed or replaced the
        file or its directory, or the server was restarted.
    When it stays silent
        When a logger reports it only as a warning, and if the program went on.
    What to do
        Launch it again: a new job looks up the path again. Do not remove or replace files that running jobs
        have open. If it happens on one node only, its mount is stale: leave the node out and tell the
        administrators.
    Sources
        errno(3) ESTALE; nfs(5).
    """

    code = "ENV017"
    name = "stale-file-handle"
    cause = "stale_nfs"
    general = (
        Fix("Start again: a new job looks up the path again; replace files that jobs use only by renaming"),
    )
    other_node = "whose mount is stale"
    sentences = by_field(
        lost="The file system of {mounted} was disconnected under the job: {lost}",
        unread="A file system could not read or write: {unread}",
        path="A network file went away under the job (stale file handle): {path}",
        otherwise="A network file went away under the job (stale file handle)",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return not _SHELL.match(hit.text) or not was_outlived(hit, snapshot)
