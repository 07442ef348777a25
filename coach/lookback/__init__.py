"""The bounded past of a target: metrics and telemetry. Pure."""
