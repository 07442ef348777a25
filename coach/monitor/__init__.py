"""Readings become the one Snapshot that screens and rules read."""
