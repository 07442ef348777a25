"""Logs: find the files that jobs write, and scan each once for the lines that rules look for."""
