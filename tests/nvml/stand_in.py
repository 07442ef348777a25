"""Build the NVML stand-in and drive it: the real binding then sees the GPUs that a test describes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_name("stand_in.c")
_LIBRARY = "libnvidia-ml.so.1"


def has_compiler() -> bool:
    """True if the stand-in can be built here."""
    return shutil.which("gcc") is not None


def build(directory: Path, is_old: bool = False) -> Path:
    """Compile the stand-in into a directory, once. Returns the directory, for LD_LIBRARY_PATH. With `is_old`
    it lacks newer functions."""
    library = directory / _LIBRARY
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f".{_LIBRARY}.{os.getpid()}"
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-pthread",
            "-O1",
            "-Wall",
            "-Wextra",
            f"-Wl,-soname,{_LIBRARY}",
        ]
        command += ["-DOLD_DRIVER"] if is_old else []
        subprocess.run([*command, "-o", temporary, _SOURCE], check=True)
        temporary.replace(library)
    return directory


class NvmlStandIn:
    """GPUs as a test describes them. `env` holds the variables that a process needs to see them."""

    def __init__(self, directory: Path, is_old: bool = False) -> None:
        self._state = directory / "gpus.txt"
        library_dir = build(directory, is_old)
        old_path = os.environ.get("LD_LIBRARY_PATH")
        self.env = {
            "NVML_STAND_IN": str(self._state),
            "LD_LIBRARY_PATH": f"{library_dir}:{old_path}" if old_path else str(library_dir),
        }
        self.set_gpus([])

    def set_gpus(self, gpus: Iterable[Mapping[str, object]]) -> None:
        """Describe all GPUs again, also while a program reads them; the keys are explained in stand_in.c.

        A list as a value repeats its key (`process`), text may hold underscores but no spaces.
        """
        lines = []
        for gpu in gpus:
            words = []
            for key, value in gpu.items():
                values = value if isinstance(value, list) else [value]
                words += [f"{key}={one}" for one in values]
            lines.append(" ".join(words or ["util=0"]) + "\n")
        self._write("".join(lines))

    def unload_driver(self) -> None:
        """From now on NVML answers that the driver is not loaded."""
        self._write("no-driver\n")

    def _write(self, text: str) -> None:
        temporary = self._state.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self._state)
