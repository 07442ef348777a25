"""Logs: where jobs write them, and one scan that finds the lines that rules look for."""
