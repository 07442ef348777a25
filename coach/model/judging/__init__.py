"""Findings and their fixes, outcomes, the verdict kept of a run, and the doctor's report."""
