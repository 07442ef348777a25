"""Findings with their fixes, the verdict that is kept of a run, the report of the doctor."""
