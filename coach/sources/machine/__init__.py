"""The machine that coach runs on: disk, quota, terminal, user; and local runs as a cluster of one node."""
