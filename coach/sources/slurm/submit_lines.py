"""Read the commands that submitted a user's jobs from the accounting database.

The queue forgets a job minutes after its end; the accounting keeps it, with the command line. One request
returns all jobs of a user since a given time. All functions are pure except for the random separator.
"""

from __future__ import annotations

from coach.model.slurm.cluster import Job
from coach.sources.io import Query, new_separator
from coach.sources.slurm.text import parse_time

TIMEOUT_S = 5.0
"""If the database is stopped, sacct hangs for 45 s."""

_FIELDS = ("JobID", "User", "State", "Submit", "Start", "End", "SubmitLine")


def submit_lines_query(user: str, past_s: float) -> Query:
    """All jobs of a user that were active within the last `past_s` seconds."""
    separator = new_separator()
    since = f"now-{max(1, round(past_s / 60))}minutes"
    argv = ("sacct", "-n", "-p", "-X", "--delimiter", separator, "-u", user, "-S", since, "-E", "now")
    return Query("submit-lines", (*argv, "-o", ",".join(_FIELDS)), separator)


def parse_submit_lines(text: str, separator: str) -> list[tuple[str, Job]]:
    """Each job with its command, oldest first.

    A line ends with a separator, so no command can break a record.
    """
    words = text.split(separator)
    found = []
    for start in range(0, len(words) - len(_FIELDS), len(_FIELDS)):
        row = dict(zip(_FIELDS, words[start : start + len(_FIELDS)], strict=True))
        job_id, state = row["JobID"].lstrip("\n"), row["State"].partition(" ")[0].rstrip("+")
        job = Job(
            *(job_id, "", row["User"], state, None, "", None),
            *(None,) * 6,
            submit_time_s=parse_time(row["Submit"]),
            start_time_s=parse_time(row["Start"]),
            end_time_s=parse_time(row["End"]),
        )
        found.append((row["SubmitLine"], job))
    return sorted(found, key=lambda told: told[1].submit_time_s or 0.0)
