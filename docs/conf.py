"""How Sphinx builds the pages: `make docs` writes them as HTML into `build/docs/`.

The source directory is the checkout, so that a page's relative links lead to the same files here, on a code
host, and in the HTML: also to the READMEs of the rooms and to the lessons. `make_pages.py` has written
`docs/made` before, which git does not keep.
"""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

project = "coach"
author = "the authors of coach"
release = _VERSION.findall((CHECKOUT / "coach" / "__init__.py").read_text())[0]
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = [
    "docs/**.md",
    "*.md",
    "coach/**/README.md",
    "recipes/**.md",
    "trainers/README.md",
    "tests/README.md",
    "tests/**/README.md",
    "site/README.md",
    "single/README.md",
]
html_theme = "furo"
html_title = f"coach {release}"
html_extra_path: list[str] = []
myst_heading_anchors = 4
suppress_warnings = ["toc.not_included"]
