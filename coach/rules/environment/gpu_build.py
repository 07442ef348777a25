"""How a job says that its torch is no build for GPUs: the one wording by which two rules with the same cause
tell themselves apart."""

from __future__ import annotations

WITHOUT_CUDA = "was built without CUDA"
