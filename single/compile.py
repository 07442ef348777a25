"""Compile the modules of a zip file for this Python: `python3.12 compile.py SOURCES.zip CODE.zip`.

A program of its own, because only an interpreter of the same minor version can make its byte code. Prints the
version's tag.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
import zipfile

HEADER = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
"""Then the hash of the source: nobody compares it, because the source is not beside the byte code."""


def main(sources: str, code: str) -> int:
    """Exit status: 0 done, 1 this Python is too old."""
    if sys.version_info < (3, 11):
        print("Python 3.11 or newer was expected", file=sys.stderr)
        return 1
    with zipfile.ZipFile(sources) as read, zipfile.ZipFile(code, "w", zipfile.ZIP_DEFLATED) as made:
        for name in read.namelist():
            if not name.endswith(".py"):
                continue
            source = read.read(name)
            compiled = compile(source, f"coach.pyz/{name}", "exec", dont_inherit=True)
            data = HEADER + importlib.util.source_hash(source) + marshal.dumps(compiled)
            entry = zipfile.ZipInfo(f"{name}c", (1980, 1, 1, 0, 0, 0))
            made.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)
    print(sys.implementation.cache_tag)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
