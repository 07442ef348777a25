"""Writes docs/made, the pages that git does not keep: rules, causes, wordings, and what each trainer
changes. `make docs` runs it and puts them into the HTML.

    python docs/make_pages.py

Without the HTML, `coach explain CODE`, `coach recipes NAME --diff`, `coach/rules/causes.py` and the tables in
`coach/rules/wordings/` have the same.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from reference_pages.diffs import diff_pages
from reference_pages.registers import causes_page, wordings_page
from reference_pages.rules import rule_pages

MADE = Path(__file__).resolve().parent / "made"


def pages() -> dict[str, str]:
    """Path below docs/made → text of every page."""
    return {
        "causes.md": causes_page(),
        "wordings.md": wordings_page(),
        **{f"rules/{name}": text for name, text in rule_pages().items()},
        **{f"diffs/{name}": text for name, text in diff_pages().items()},
    }


def main() -> None:
    shutil.rmtree(MADE, ignore_errors=True)
    for name, text in pages().items():
        path = MADE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
