"""A run and its data: metrics, log lines, telemetry, stacks, flight records, checkpoints."""
