"""The types of each command's `--format json` output. mypy checks the commands against them, and the
published JSON Schemas are made from them. Only annotations use them, so no command imports them at run
time."""
