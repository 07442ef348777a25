"""Sources: one module for each. A source polls or streams and emits Readings; its parsers are pure functions
in the same module."""
