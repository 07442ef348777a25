"""The types of each command's `--format json` output: the published JSON Schemas are made from them, and the
tests hold to these what each command prints."""
