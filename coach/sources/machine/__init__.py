"""The machine that coach runs on: disk, quota, terminal, user, local processes as a cluster."""
