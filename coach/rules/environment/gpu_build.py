"""The job's message that its torch was built without GPU support. Two rules with the same cause are told
apart by it."""

from __future__ import annotations

WITHOUT_CUDA = "was built without CUDA"
