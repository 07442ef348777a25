"""Import coach and its packages from the one file, and read coach's own files there. Nothing is unpacked.

The file holds zip files that are not compressed again: `cpython-3xx/code.zip` with the byte code for one
minor version of Python, `files.zip` with the files that coach reads while it runs, and `sources.zip` with the
text of all modules. Code and files are read whole, each by one read: a login node's home answers slowly, and
a file that is replaced while coach is open does no harm. Python's own zipimport opens the file again for each
module.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from typing import IO, Any

STAND_INS = "stand_ins"
"""The folder of pure Python for native packages. It comes last: one that the interpreter has is faster."""

LIBRARY = os.path.dirname(os.__file__)
"""Where Python's own modules lie."""

_DIRECTORY_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL_HEADER_BYTES = 30
_DEFLATED = 8
_PYC_HEADER_BYTES = 16


class Archive:
    """A zip file in memory. Python's zipfile takes longer to import than this class takes to run."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._entries: dict[str, tuple[int, int, int, int]] = {}
        end = _DIRECTORY_END.unpack_from(data, data.rindex(b"PK\5\6"))
        count, at = end[4], end[6]
        for _ in range(count):
            entry = _ENTRY.unpack_from(data, at)
            method, packed, size, name_bytes, offset = entry[4], entry[8], entry[9], entry[10], entry[16]
            at += _ENTRY.size
            name = data[at : at + name_bytes].decode()
            at += name_bytes + entry[11] + entry[12]
            self._entries[name] = (offset, method, packed, size)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def size(self, name: str) -> int:
        """The size of a file, unpacked."""
        return self._entries[name][3]

    def read(self, name: str) -> bytes:
        """A file. Raises KeyError."""
        offset, method, packed, _ = self._entries[name]
        start = offset + _LOCAL_HEADER_BYTES + sum(struct.unpack_from("<2H", self._data, offset + 26))
        data = self._data[start : start + packed]
        return zlib.decompress(data, -15) if method == _DEFLATED else data


class OneFile:
    """The parts of the file, each read when it is first needed."""

    def __init__(self, path: str, part: Callable[[str], bytes]) -> None:
        self.path = path
        self._part = part
        self.code = self._code()
        self.files = Archive(part("files.zip"))
        self._folders: dict[str, set[str]] = {}
        self._sources: Archive | None = None

    def _code(self) -> Archive | None:
        """None where the file was made without this version of Python: each start compiles the sources."""
        try:
            code = Archive(self._part(f"{sys.implementation.cache_tag}/code.zip"))
        except OSError:
            return None
        return code if code.read("coach/__init__.pyc")[:4] == importlib.util.MAGIC_NUMBER else None

    @property
    def sources(self) -> Archive:
        """The text of all modules."""
        if self._sources is None:
            self._sources = Archive(self._part("sources.zip"))
        return self._sources

    def folders(self) -> dict[str, set[str]]:
        """Folder → the names in it, for the files that coach reads while it runs."""
        if not self._folders:
            folders: dict[str, set[str]] = {"": set()}
            for name in self.files:
                parts = name.split("/")
                for depth, part in enumerate(parts):
                    folders.setdefault("/".join(parts[:depth]), set()).add(part)
            self._folders = folders
        return self._folders

    def find(self, name: str) -> bool | None:
        """True for a package of this path, False for a module, None where there is neither."""
        archive, suffix = (self.sources, ".py") if self.code is None else (self.code, ".pyc")
        if f"{name}/__init__{suffix}" in archive:
            return True
        return False if name + suffix in archive else None

    def compiled(self, name: str) -> Any:
        """The code of a module; `name` is a path without its suffix."""
        if self.code is None:
            return compile(
                self.sources.read(f"{name}.py"), f"{self.path}/{name}.py", "exec", dont_inherit=True
            )
        return marshal.loads(self.code.read(f"{name}.pyc")[_PYC_HEADER_BYTES:])

    def hook(self, entry: str) -> Finder:
        """The finder of an entry of sys.path that lies in this file. Raises ImportError."""
        if entry == self.path:
            return Finder(self, "")
        if entry.startswith(f"{self.path}/"):
            return Finder(self, f"{entry[len(self.path) + 1 :]}/")
        raise ImportError(entry)


class StandardFinder(FileFinder):
    """Finds modules of Python itself: looks into a folder once, where Python's own finder asks for the
    folder's time and for the file at each import. A start imports 150 of them."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (StandardLoader, [".py"]))
        self._names = frozenset(os.listdir(folder))

    @classmethod
    def hook(cls, entry: str) -> StandardFinder:
        """The finder of an entry of sys.path, or of a package's. Raises ImportError if it is not Python's."""
        inside = entry == LIBRARY or entry.startswith(f"{LIBRARY}/")
        if not inside or entry.endswith("-packages") or "-packages/" in entry:
            raise ImportError(entry)
        try:
            return cls(entry)
        except OSError:
            raise ImportError(entry) from None

    def find_spec(self, name: str, target: object = None) -> ModuleSpec | None:
        """Where a module lies: a package, an extension or a source, in this order."""
        last = name.rpartition(".")[2]
        if last in self._names:
            return super().find_spec(name, None)
        for suffix in (*EXTENSION_SUFFIXES, ".py"):
            if last + suffix in self._names:
                file = f"{self.path}/{last}{suffix}"
                kind = StandardLoader if suffix == ".py" else ExtensionFileLoader
                return importlib.util.spec_from_file_location(name, file, loader=kind(name, file))
        return None


class StandardLoader(SourceFileLoader):
    """Loads a module of Python itself. As ever, its byte code must not be older than its source."""

    def get_data(self, path: str) -> bytes:
        """Read a file without asking for its size."""
        data = []
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(descriptor, 1 << 20):
                data.append(piece)
        finally:
            os.close(descriptor)
        return b"".join(data)


class Finder:
    """Finds modules below one entry of a path."""

    def __init__(self, file: OneFile, prefix: str) -> None:
        self._file = file
        self._prefix = prefix

    def find_spec(self, name: str, target: object = None) -> ModuleSpec | None:
        """Where a module lies in the file."""
        place = self._prefix + name.rpartition(".")[2]
        is_package = self._file.find(place)
        if is_package is None:
            return None
        inside = f"{place}/__init__" if is_package else place
        return importlib.util.spec_from_file_location(
            name,
            f"{self._file.path}/{inside}.py",
            loader=Loader(self._file, inside),
            submodule_search_locations=[f"{self._file.path}/{place}"] if is_package else None,
        )

    def iter_modules(self, prefix: str = "") -> Iterable[tuple[str, bool]]:
        """For pkgutil: name and whether it is a package, of each module here."""
        archive = self._file.sources if self._file.code is None else self._file.code
        found = set()
        for name in archive:
            first, *below = (
                name.removeprefix(self._prefix).split("/") if name.startswith(self._prefix) else ("",)
            )
            stem = first.partition(".")[0]
            if (below and below[0].startswith("__init__.")) or (not below and stem not in ("", "__init__")):
                found.add((prefix + stem, bool(below)))
        return sorted(found)

    def invalidate_caches(self) -> None:
        """Nothing in the file changes."""


class Loader:
    """Loads one module."""

    def __init__(self, file: OneFile, inside: str) -> None:
        self._file = file
        self._inside = inside

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own way."""

    def exec_module(self, module: Any) -> None:
        """Run its code."""
        exec(self._file.compiled(self._inside), module.__dict__)

    def get_code(self, name: str) -> Any:
        """For runpy."""
        return self._file.compiled(self._inside)

    def is_package(self, name: str) -> bool:
        """Whether it has modules below it."""
        return self._inside.endswith("/__init__")

    def get_filename(self, name: str) -> str:
        """The value of its `__file__`."""
        return f"{self._file.path}/{self._inside}.py"

    def get_source(self, name: str) -> str | None:
        """Its text, for a traceback; None where the file was replaced since."""
        try:
            return self._file.sources.read(f"{self._inside}.py").decode()
        except (OSError, ImportError, ValueError, KeyError, struct.error, zlib.error):
            return None

    def get_resource_reader(self, name: str) -> Resources:
        """For importlib.resources."""
        return Resources(self._inside.rpartition("/")[0])


class Resources:
    """The files beside a package's modules, for importlib.resources."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def files(self) -> InnerPath:
        """The package's folder."""
        return InnerPath(InnerPath.file.path, self._folder)


class InnerPath(type(Path())):  # type: ignore[misc]
    """A path of a file in the one file. Only its own methods can read it."""

    __slots__ = ()
    file: OneFile

    @property
    def _inside(self) -> str:
        return str(self)[len(self.file.path) + 1 :]

    def is_dir(self, **_: bool) -> bool:
        return self._inside in self.file.folders()

    def is_file(self, **_: bool) -> bool:
        return self._inside in self.file.files

    def exists(self, **_: bool) -> bool:
        return self.is_file() or self.is_dir()

    def is_symlink(self) -> bool:
        return False

    def resolve(self, strict: bool = False) -> InnerPath:
        return self

    def absolute(self) -> InnerPath:
        return self

    def stat(self, **_: bool) -> os.stat_result:
        if not self.exists():
            raise FileNotFoundError(2, os.strerror(2), str(self))
        mode = stat.S_IFDIR | 0o555 if self.is_dir() else stat.S_IFREG | 0o444
        size = 0 if self.is_dir() else self.file.files.size(self._inside)
        made = os.stat(self.file.path)
        return os.stat_result((mode, 0, made.st_dev, 1, made.st_uid, made.st_gid, size, *made[7:10]))

    lstat = stat

    def read_bytes(self) -> bytes:
        try:
            return self.file.files.read(self._inside)
        except KeyError:
            number = 21 if self.is_dir() else 2
            raise OSError(number, os.strerror(number), str(self)) from None

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        with io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding or "utf-8", errors, newline) as text:
            return text.read()

    def open(  # type: ignore[override]
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        if set(mode) & set("wax+"):
            raise OSError(30, os.strerror(30), str(self))
        data = io.BytesIO(self.read_bytes())
        return data if "b" in mode else io.TextIOWrapper(data, encoding or "utf-8", errors, newline)

    def iterdir(self) -> Iterator[InnerPath]:
        names = self.file.folders().get(self._inside)
        if names is None:
            raise FileNotFoundError(2, os.strerror(2), str(self))
        return iter([self / name for name in sorted(names)])

    def glob(self, pattern: str, **_: Any) -> Iterator[InnerPath]:
        """Files and folders of this folder: no pattern of coach's goes deeper."""
        return iter([path for path in self.iterdir() if fnmatchcase(path.name, pattern)])

    def rglob(self, pattern: str, **_: Any) -> Iterator[InnerPath]:
        for path in self.iterdir():
            if fnmatchcase(path.name, pattern):
                yield path
            if path.is_dir():
                yield from path.rglob(pattern)


def start(path: str, part: Callable[[str], bytes]) -> int:
    """Run coach, or with `-m` another module of it. Returns the exit status."""
    path = os.path.abspath(path)
    InnerPath.file = file = OneFile(path, part)
    others = [entry for entry in sys.path if os.path.abspath(entry) != path]
    sys.path[:] = [path, *others, f"{path}/{STAND_INS}"]
    sys.path_hooks[:0] = [file.hook, StandardFinder.hook]
    for entry in [entry for entry in sys.path_importer_cache if entry.startswith((path, LIBRARY))]:
        del sys.path_importer_cache[entry]
    if sys.argv[1:2] == ["-m"]:
        import runpy

        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return 0
    from coach.__main__ import main

    return main()
