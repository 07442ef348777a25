"""Submissions in the accounting: the command is the last field, and may contain anything."""

from __future__ import annotations

from coach.sources.slurm.submit_lines import parse_submit_lines, submit_lines_query


def test_the_query_selects_one_users_jobs_of_the_last_minutes() -> None:
    query = submit_lines_query("ada", 90.0)
    words = " ".join(query.argv).replace(query.separator, "SEP")
    assert words == (
        "sacct -n -p -X --delimiter SEP -u ada -S now-2minutes -E now "
        "-o JobID,User,State,Submit,Start,End,SubmitLine"
    )
    assert "now-1minutes" in submit_lines_query("ada", 5.0).argv


def test_each_job_has_its_command_and_times_the_oldest_first() -> None:
    rows = (
        ("18", "ada", "RUNNING", "2026-11-25T10:02:00", "2026-11-25T10:02:05", "Unknown", "sbatch a\nb.sh"),
        ("17", "ada", "CANCELLED by 0", "2026-11-25T10:01:00", "None", "2026-11-25T10:03:00", "sbatch x.sh"),
    )
    text = "".join("|S|".join(row) + "|S|\n" for row in rows)
    (first, older), (second, newer) = parse_submit_lines(text, "|S|")
    assert (first, second) == ("sbatch x.sh", "sbatch a\nb.sh")
    assert [(job.job_id, job.user, job.state) for job in (older, newer)] == [
        ("17", "ada", "CANCELLED"),
        ("18", "ada", "RUNNING"),
    ]
    assert older.submit_time_s is not None
    assert older.end_time_s == older.submit_time_s + 120
    assert newer.start_time_s == older.submit_time_s + 65
    assert (older.start_time_s, newer.end_time_s) == (None, None)
    assert parse_submit_lines("", "|S|") == []
