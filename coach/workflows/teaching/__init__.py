"""Drills, the cohort of a workshop and its rehearsal."""
