"""What each command prints with `--format json`, as types: mypy holds the commands to them, and the published
JSON Schemas are made of them. Only annotations need them, so no command loads them."""
