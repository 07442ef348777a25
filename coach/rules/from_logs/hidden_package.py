"""Find a file of the user's that hides a package of the same name: Python's path has the program's folder
first.

Only a file that the log itself shows is named: in Python's own hint, in the message, or in a frame.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import PurePosixPath

from coach.model.error_block import Frame
from coach.model.judging.finding import Fix
from coach.model.training.log import LogHit
from coach.rules.from_logs.quoted_evidence import is_library

PACKAGES = {
    "PIL": "pillow",
    "accelerate": "accelerate",
    "cv2": "opencv-python",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "einops": "einops",
    "h5py": "h5py",
    "hydra": "hydra-core",
    "jax": "jax",
    "lightning": "lightning",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "omegaconf": "omegaconf",
    "pandas": "pandas",
    "peft": "peft",
    "pytorch_lightning": "pytorch-lightning",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "tensorboard": "tensorboard",
    "tensorflow": "tensorflow",
    "timm": "timm",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "torchaudio": "torchaudio",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "transformers": "transformers",
    "triton": "triton",
    "wandb": "wandb",
    "yaml": "pyyaml",
}
"""Modules of well-known packages → the name by which pip installs them."""
_HINT = re.compile(r"\(consider renaming '(?P<file>[^']{1,400}\.py)'")
"""Python 3.13 and newer name the file."""
_MODULE = re.compile(
    r"(?:partially initialized module|^module) '(?P<module>\w{1,80})[\w.]{0,200}'"
    r"|; '(?P<package>\w{1,80})' is not a package"
)
_PATH = re.compile(r"\((/[^()]{1,400}\.py)\)")


def hiding_file(hit: LogHit) -> tuple[str, str] | None:
    """(the user's file, the package that it hides), if the error shows one: a library imports a file from the
    program's own folder, or the module at fault has the name of a package and lies elsewhere."""
    words = hit.block.message if hit.block is not None else hit.text
    if hint := _HINT.search(words):
        return hint["file"], _stem(hint["file"])
    folders = (PurePosixPath(frame.file).parent for frame in hit.all_frames if not is_library(frame.text))
    own = next(folders, None)
    for outer, inner in pairwise(hit.all_frames):
        if _imports_own(outer, inner) and PurePosixPath(inner.file).parent == own:
            return inner.file, _stem(inner.file)
    return _by_message(words, hit)


def rename(file: str, package: str) -> Fix:
    """The remedy."""
    name = PurePosixPath(file).name
    return Fix(
        f"Rename {file}, for example to my_{name}: programs in its folder get it instead of the package "
        f"{package}"
    )


def _imports_own(outer: Frame, inner: Frame) -> bool:
    """True if a library imports a file of the user's."""
    if not is_library(outer.text) or is_library(inner.text) or inner.function != "<module>":
        return False
    words = (outer.source or "").replace(",", " ").replace(".", " ").split()
    return words[:1] in (["from"], ["import"]) and words[1:2] == [_stem(inner.file)]


def _by_message(words: str, hit: LogHit) -> tuple[str, str] | None:
    found = _MODULE.search(words)
    module = (found["module"] or found["package"]) if found else None
    if module is None or not (module in PACKAGES or module in sys.stdlib_module_names):
        return None
    told = [*_PATH.findall(words), *(frame.file for frame in hit.all_frames)]
    own = (file for file in told if _stem(file) == module and not is_library(f'File "{file}"'))
    return next(((file, module) for file in own), None)


def _stem(file: str) -> str:
    return PurePosixPath(file).stem
