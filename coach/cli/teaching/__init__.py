"""The commands of a workshop: drill, cohort, workshop."""
