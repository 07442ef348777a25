"""The nouns of a workshop: drill, cohort, rehearsal."""
