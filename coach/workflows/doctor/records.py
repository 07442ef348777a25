"""Compare the size of all runs' records with the user's limits."""

from __future__ import annotations

from coach.analysis.jobs.thinning import total_of
from coach.analysis.spelling.sizes import format_bytes
from coach.config import Settings
from coach.model.judging.doctor_report import Check, CheckState
from coach.model.training.records import RecordLimits, Volume
from coach.sources.runs.record_sizes import RecordSizes
from coach.workflows.jobs.thin_records import limits_of

MAX_RECORD_OPERATIONS = 4000
"""Calls to the file server that a report may make for the records: about 2 s on a slow one."""


def look_at_records(settings: Settings, area: str) -> Check:
    """Ask the file server, within a limit."""
    sizes = RecordSizes(settings.runs_root, settings.cache_dir)
    try:
        records = sizes.look(MAX_RECORD_OPERATIONS)
    except OSError as error:
        return Check(area, "records", CheckState.UNKNOWN, None, error.strerror or str(error), is_needed=False)
    return judge_records(area, None if records is None else total_of(records), limits_of(settings))


def judge_records(area: str, held: Volume | None, limits: RecordLimits) -> Check:
    """The size of all runs' records, and the user's limits. None: too many runs to look at in time."""
    if held is None:
        because = "there are too many files to count in the time of this report"
        todo = "`coach runs clean --records --dry-run` counts all"
        return Check(area, "records", CheckState.UNKNOWN, None, because, todo, False)
    size = f"{format_bytes(held.size_bytes)} of {format_bytes(limits.max_bytes)}"
    value = f"{size}, {held.num_files} of {limits.max_files} files"
    if limits.is_met_by(held):
        return Check(area, "records", CheckState.OK, value, is_needed=False)
    because = "over the limit: records.max_size and records.max_files in config.toml"
    todo = "`coach runs clean --records` thins those of ended runs, oldest first"
    return Check(area, "records", CheckState.WARNING, value, because, todo, False)
