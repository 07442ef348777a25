"""Numbers and dumps that a training writes: metrics, telemetry, stacks, flight records."""
