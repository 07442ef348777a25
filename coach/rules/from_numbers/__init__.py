"""Evidence from metrics and telemetry that several rules share: windows and courses. No rules here."""
