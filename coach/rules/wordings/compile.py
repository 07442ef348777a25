"""Write `compiled.json` from the tables: `python -m coach.rules.wordings.compile`."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from coach.model.judging.finding import Fix
from coach.model.training.log import Signature
from coach.rules.wordings.rows import COMPILED, digest, parse, shipped_files


def compiled() -> str:
    """The text of `compiled.json`: for each row the fields that differ from their defaults."""
    tables = shipped_files()
    rows = [row.signature for table in tables for row in parse(table.read_text("utf-8"), table.name)]
    lines = ",\n".join(json.dumps(_told(row), ensure_ascii=False) for row in rows)
    return f'{{"digest": "{digest(tables)}", "rows": [\n{lines}\n]}}\n'


def _told(row: Signature | Fix) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    if isinstance(row, Signature):
        values["fixes"] = [_told(fix) for fix in row.fixes]
    defaults = {field.name: field.default for field in fields(row)}
    return {name: value for name, value in values.items() if value and value != defaults[name]}


if __name__ == "__main__":
    Path(__file__).with_name(COMPILED).write_text(compiled(), "utf-8")
