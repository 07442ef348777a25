"""DAT010: a checkpoint or another file of weights is truncated, or has another format than its name says."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.library_exceptions import is_of_a_load


class CheckpointCorrupt(EndingRule):
    """A checkpoint or another file of weights is truncated, or has another format than its name says.

    What it sees
        torch.load's "PytorchStreamReader failed …" (finding central directory, invalid header), "unexpected
        EOF … The file might be corrupted", "pickle data was truncated", "invalid load key", "Ran out of
        input" while loading; safetensors' header errors; truncated HDF5 files; files that are not valid
        archives.
    Why it matters
        It fails at the same place each time. A truncated file was mostly being written when the job was
        killed, the quota was used up, or another rank wrote to the same path. An invalid load key '<' or 'v'
        means that the file is a web page or a git-lfs pointer.
    When it stays silent
        On keys or sizes that do not fit the model (TOR002), and if the program went on with another file.
    What to do
        Resume from the previous checkpoint. Write new ones from one rank only, to a temporary name, and then
        rename them. Repeat a download (`git lfs pull`), and compare the file's size with the source.
    Sources
        torch/serialization.py, caffe2/serialize/inline_container.cc; Python's pickle; safetensors; h5py.
    """

    code = "DAT010"
    name = "checkpoint-corrupt"
    cause = "checkpoint_corrupt"
    general = (
        Fix(
            "Resume from the checkpoint before it; if it was downloaded, download it again",
            needs=("checkpoint",),
        ),
        Fix(
            "If it was downloaded, download it again; if the training wrote it, take an earlier one",
            needs=("not checkpoint",),
        ),
        Fix("Write checkpoints to a temporary name and rename them, from one rank only"),
    )
    sentences = by_field(
        short="A checkpoint or a file of weights is empty, or was cut short",
        text="A file of weights is text (a web page, or a git-lfs pointer), not a checkpoint",
        otherwise=(
            "A checkpoint or a file of weights could not be read, it is cut short or damaged: {first:.160}"
        ),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a process whose peer ended: it raises the same error as an empty file."""
        return "short" not in hit.fields or is_of_a_load(hit)
