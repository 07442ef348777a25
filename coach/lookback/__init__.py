"""The bounded past of a target: metrics, telemetry, log hits. Pure."""
