"""Diagnoses put into an order and into words: no finding, several jobs, ranking."""
