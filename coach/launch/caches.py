"""Where a job's libraries keep what they compile and download, when the site wants that off home.

Home is small, backed up, and slow from two hundred ranks at once, and it is where these libraries write unless they are told. Only
variables that name one library's cache are set. XDG_CACHE_HOME is not: it would also move the caches of programs that this job does not
know, and torch and Hugging Face have variables of their own. Nor is PIP_CACHE_DIR: a job installs nothing.
"""

from __future__ import annotations

from shlex import quote

CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",  # torch.compile's programs; /tmp otherwise, and compiled anew by every job
    "TRITON_CACHE_DIR": "triton",  # Triton's kernels; ~/.triton otherwise
    "TORCH_EXTENSIONS_DIR": "torch_extensions",  # operators that DeepSpeed and others build; ~/.cache otherwise
    "CUDA_CACHE_PATH": "cuda",  # what the driver compiles; ~/.nv otherwise
    "TORCH_HOME": "torch",  # weights from torch.hub and torchvision
    "HF_HOME": "huggingface",  # models and data sets from the hub
}
"""Variable → folder below the cache directory."""


def cache_lines(cache_dir: str | None) -> list[str]:
    """Lines of a batch script. What the job's environment says already is kept: somebody has chosen it."""
    if cache_dir is None:
        return []
    return [
        "# Caches off home, as the site wants them; what is set already is kept.",
        f"CACHES={quote(cache_dir)}",
        'mkdir -p -m 700 "$CACHES" || true',
        *(f'export {name}="${{{name}:-$CACHES/{folder}}}"' for name, folder in CACHES.items()),
    ]
