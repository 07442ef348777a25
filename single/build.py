"""`make single`: all of coach in one file, coach.pyz, that any Python from 3.11 on starts.

The file holds coach, the trainers, the recipes, and the packages that coach needs, in pure Python. All of
them come from this checkout and its virtual environment, so the build needs no network.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from one_file import STAND_INS

from coach import installed

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
NATIVE = frozenset({"psutil", "ahocorasick-rs"})
"""Packages with nothing in pure Python: `stand_ins/` has what coach asks of them."""
PYTHONS = tuple(f"python3.{minor}" for minor in range(11, 20))
SHEBANG = b"#!/usr/bin/env python3\n"

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,. -]+)\])?[^;]*(?:;(.*))?")
_UNUSED = re.compile(
    r"textual/demo/|ClusterShell/CLI/|pygments/sphinxext\.py|(.*/)?__pycache__/"
    r"|pygments/lexers/(?!(__init__|_mapping|special|python)\.py)"
)
"""Parts of packages that coach never asks for. Of pygments' lexers, a traceback in colours needs Python's."""
_CHECKOUT_ONLY = re.compile(r"coach/(.*/)?README\.md|coach/rules/wordings/(compile\.py|\w+\.toml)")
"""Files that only a checkout reads, as in a wheel: tables that were compiled, pages of the rooms."""
_FILES = (
    "coach/node/",
    "coach/data/",
    "coach/__init__.py",
    "coach/harmless.py",
    "coach/runs.py",
    "coach/trusted.py",
    "pynvml.py",
)
"""Modules whose text is read while coach runs: a job starts from a copy of them."""
_DATE = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    """Make the file. Exit status: 0 done, 1 with one line that says why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "coach.pyz")
    parser.add_argument(
        "pythons",
        nargs="*",
        default=PYTHONS,
        help="interpreters to carry byte code for (default: each on the PATH)",
    )
    args = parser.parse_args()
    try:
        versions = build(args.out, args.pythons or PYTHONS)
    except (OSError, PackageNotFoundError, subprocess.CalledProcessError) as error:
        print(f"{args.out} was not made: {error}", file=sys.stderr)
        return 1
    size_mb = args.out.stat().st_size / 1e6
    print(f"{args.out}: {size_mb:.1f} MB, with byte code for Python {', '.join(versions)}")
    print(f"  scp {args.out.name} cluster: && ssh cluster python3 {args.out.name} --version")
    return 0


def build(out: Path, pythons: Iterable[str]) -> list[str]:
    """Make the file, complete as soon as it is visible. Returns the versions whose byte code it has."""
    found = dict(_everything())
    modules = {name: data for name, data in found.items() if name.endswith(".py") and "/data/" not in name}
    files = {
        name: data
        for name, data in found.items()
        if (name not in modules or name.startswith(_FILES)) and not name.startswith("licences/")
    }
    sources = {name: data for name, data in found.items() if name in modules or name.startswith("licences/")}
    parts = {"files.zip": _zipped(files), "sources.zip": _zipped(sources)}
    codes = _compiled(parts["sources.zip"], pythons)
    parts |= {f"{tag}/code.zip": code for tag, code in codes.items()}
    parts["one_file.py"] = (HERE / "one_file.py").read_bytes()
    parts["__main__.py"] = (HERE / "main.py").read_bytes()
    new = out.with_name(f".{out.name}.new")
    new.write_bytes(SHEBANG + _zipped(parts, zipfile.ZIP_STORED))
    new.chmod(0o755)
    new.replace(out)
    return [f"3.{tag.removeprefix('cpython-3')}" for tag in codes]


def _everything() -> Iterator[tuple[str, bytes]]:
    """Name in the file → content, for coach and its packages."""
    for folder, place in (
        ("coach", "coach"),
        ("trainers", "coach/data/trainers"),
        ("recipes", "coach/data/recipes"),
    ):
        for path in sorted((CHECKOUT / folder).rglob("*")):
            name = f"{place}/{path.relative_to(CHECKOUT / folder).as_posix()}"
            if path.is_file() and "__pycache__" not in path.parts and not _CHECKOUT_ONLY.fullmatch(name):
                yield name, path.read_bytes()
    commit = installed.commit_of_checkout(CHECKOUT)
    if commit is not None:
        yield f"coach/{installed.COMMIT_FILE}", f"{commit}\n".encode()
    for path in sorted((HERE / STAND_INS).glob("*.py")):
        yield f"{STAND_INS}/{path.name}", path.read_bytes()
    yield "licences/coach/LICENSE", (CHECKOUT / "LICENSE").read_bytes()
    for package in needed("cluster-coach"):
        yield from _files_of(package)


def needed(name: str) -> list[Distribution]:
    """The installed distributions that one distribution needs, by their metadata."""
    found: dict[str, Distribution] = {}
    waiting = [(name, frozenset[str]())]
    while waiting:
        asked, extras = waiting.pop()
        for line in distribution(asked).requires or ():
            match = _REQUIREMENT.match(line)
            assert match is not None, line
            key, wanted, marker = match[1].lower().replace("_", "-"), match[2] or "", match[3] or ""
            extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", marker)
            if key in found or key in NATIVE or (extra is not None and extra[1] not in extras):
                continue
            try:
                found[key] = distribution(key)
            except PackageNotFoundError:
                if not marker:
                    raise
                continue  # another version of Python or another system needs it
            waiting.append((key, frozenset(wanted.replace(" ", "").split(","))))
    return [found[key] for key in sorted(found)]


def _files_of(package: Distribution) -> Iterator[tuple[str, bytes]]:
    """The files of a distribution, without those for a checkout, a compiler or another machine."""
    name = package.metadata["Name"]
    for path in sorted(package.files or (), key=str):
        text = path.as_posix()
        inside, where = PurePosixPath(text), Path(str(package.locate_file(path)))
        if text.startswith("..") or _UNUSED.match(text):
            continue
        if inside.parts[0].endswith((".dist-info", ".egg-info")):
            if re.match(r"(?i)licen[cs]e|copying|notice|author", inside.name):
                yield f"licences/{name}/{inside.name}", where.read_bytes()
        elif inside.suffix not in (".so", ".pyi", ".pyc", ".pth") and inside.name != "py.typed":
            yield text, where.read_bytes()


def _compiled(sources: bytes, pythons: Iterable[str]) -> Mapping[str, bytes]:
    """Tag of a version of Python → its byte code, zipped."""
    codes: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "sources.zip"), Path(folder, "code.zip")
        source.write_bytes(sources)
        for python in pythons:
            program = shutil.which(python)
            asked = [program, "-I", "-S", HERE / "compile.py", source, code]
            if program is None:
                if python not in PYTHONS:
                    raise FileNotFoundError(f"{python}: no such interpreter")
                continue
            done = subprocess.run([str(word) for word in asked], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                codes[done.stdout.strip()] = code.read_bytes()
            elif python not in PYTHONS:
                raise OSError(f"{python}: {done.stderr.strip()}")
    if not codes:
        raise OSError("no Python from 3.11 on was found to compile it")
    return codes


def _zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of these; the same files make the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method, compresslevel=9) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], method)
    return data.getvalue()


if __name__ == "__main__":
    sys.exit(main())
