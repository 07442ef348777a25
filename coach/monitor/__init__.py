"""Fold Readings into the one Snapshot that screens and rules read."""
