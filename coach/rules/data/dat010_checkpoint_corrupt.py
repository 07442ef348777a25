"""DAT010: a checkpoint (or another file of weights) is cut short, or is not what its name says."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule
from coach.rules.from_logs.library_exceptions import is_of_a_load

_CORRUPT = re.compile(
    UNHEEDED + r"(?:.*?(?:"
    r"PytorchStreamReader failed (?P<stream>.+)"
    r"|\[enforce fail at inline_container\.cc:\d+\] \. (?P<archive>file not found: .*|invalid .*)"
    r"|UnpicklingError: (?:.{0,200}?(?P<key>invalid load key, .*|pickle data was truncated"
    r"|unpickling stack underflow|pickle exhausted.*|unexpected MARK.*|could not find MARK"
    r"|A load persistent id instruction was encountered.*))"
    r"|WeightsUnpickler error: (?P<operand>Unsupported operand \d+.*)"
    r"|(?:Error: |^)(?P<eof>unexpected EOF(?:, expected \d+ more bytes)?\. The file might be corrupted.*)"
    r"|RuntimeError: (?P<storage>storage has wrong (?:byte )?size: .*)"
    r"|(?:SafetensorError: |^(?=Error while deserializing header: ))(?P<safetensors>.{0,200}?(?:[Hh]eader"
    r"|[Mm]etadata|UTF-8|[Ii]ncomplete|buffer).*)"
    r"|OSError: (?P<hdf5>Unable to (?:synchronously )?open (?:file|object) \((?:truncated file"
    r"|file signature not found|bad object header).*)"
    r"|OSError: (?P<weights>Unable to load weights from (?:pytorch|tf|TF|the|flax|safetensors).*)"
    r"|DataLossError: (?P<tensorflow>.*)"
    r"|RuntimeError: (?P<magic>Invalid magic number; corrupt file.*)"
    r"|(?<!raise )(?P<short>EOFError(?:: Ran out of input)?)$"
    r"|EOFError: (?P<gzip>Compressed file ended before the end-of-stream marker.*|No data left in file)"
    r"|ArrowInvalid: (?P<arrow>.*(?:magic bytes not found|Not an Arrow file|[Cc]orrupt).*)|lmdb\.(?:Corrupted"
    r"|Invalid)Error: (?P<lmdb>.*)"
    r"|BadZipFile: (?P<zip>.*)|(?:BadGzipFile|OSError): (?P<gzipped>Not a gzipped file.*)"
    r"|zlib\.error: (?P<zlib>Error -\d while decompressing.*)"
    r"|OSError: (?P<filter>Can't (?:synchronously )?read data \((?:inflate\(\) failed"
    r"|filter returned failure).*)|gguf_init_from_file\w*: (?P<gguf_magic>invalid magic.*)"
    r"|(?:Runtime|Value|OS|Unpickling)Error: (?P<said>You seem to have cloned a repository without having "
    r"git-lfs.*|The state dictionary of the model you are trying to load is corrupt.*"
    r"|invalid hash value \(expected .*|Model has been downloaded but the SHA256 checksum .*"
    r"|Failed to interpret file .* as a pickle"
    r"|Internal: .*(?:ParseFromArray|could not parse ModelProto).*)"
    r"|error loading model: (?P<gguf>.*(?:corrupt|not within the file bounds).*)"
    r"|INVALID_PROTOBUF : (?P<onnx>Load model from .* failed.*)"
    r"|tarfile\.ReadError: (?P<tar>.*)"
    r")|(?>.*?RuntimeError: )(?P<corrupt>.{0,200}?(?:[Cc]heckpoint|model file|weights?|\.pth?\b|\.ckpt"
    r"|\.safetensors).{0,200}?(?:is |are |be |seems )(?:corrupt|truncated|incomplete).*))"
)


class CheckpointCorrupt(EndingRule):
    """A checkpoint or another file of weights is cut short, or is not what its name says.

    What it sees
        torch.load's "PytorchStreamReader failed …" (finding central directory, invalid header), "unexpected
        EOF … The file might be corrupted", "pickle data was truncated", "invalid load key", "Ran out of
        input" inside of a load; safetensors' errors of its header; truncated HDF5 files; archives that are
        none.
    Why it matters
        It fails at the same place each time. A file that was cut short was most often being written when the
        job was killed, the quota was used up, or another rank wrote the same path. A key of '<' or 'v' is a
        web page or a git-lfs pointer in the place of the file.
    When it stays silent
        On keys or sizes that do not fit the model (another cause), and where the program went on with another
        file.
    What to do
        Go on from the checkpoint before it. Write new ones to a temporary name and rename them, from one rank
        only. Fetch again what was downloaded (`git lfs pull`, a fresh download), and compare its size with
        that of the source.
    Sources
        torch/serialization.py, caffe2/serialize/inline_container.cc; Python's pickle; safetensors; h5py.
    """

    code = "DAT010"
    name = "checkpoint-corrupt"
    cause = "checkpoint_corrupt"
    consequence_of = ("ENV010",)
    signatures = (
        Signature(
            "DAT010",
            "corrupt",
            (
                "PytorchStreamReader failed",
                "inline_container.cc",
                "UnpicklingError: ",
                "WeightsUnpickler error",
                "unexpected EOF",
                "storage has wrong",
                "SafetensorError: ",
                "deserializing header",
                "Unable to open ",
                "Unable to synchronously open ",
                "Unable to load weights from",
                "DataLossError",
                "EOFError",
                "BadZipFile: ",
                "ArrowInvalid: ",
                "lmdb.CorruptedError: ",
                "lmdb.InvalidError: ",
                "tarfile.ReadError: ",
                "corrupt",
                "truncated",
                "incomplete",
                "without having git-lfs",
                "invalid hash value",
                "SHA256 checksum",
                "Failed to interpret file",
                "ParseFromArray",
                "could not parse ModelProto",
                "not within the file bounds",
                "INVALID_PROTOBUF",
                "Not a gzipped file",
                "while decompressing",
                "inflate() failed",
                "filter returned failure",
                "gguf_init_from_file",
            ),
            _CORRUPT,
        ),
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """A process whose peer ended has the same words as an empty file."""
        return "short" not in hit.fields or is_of_a_load(hit)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "short" in hit.fields:
            return "A checkpoint or a file of weights is empty, or was cut short"
        if "key" in hit.fields and re.search(r"invalid load key, '[<v{]'", hit.fields["key"]):
            return "A file of weights is a text (a web page, or a git-lfs pointer) and no checkpoint"
        words = next((value for value in hit.fields.values()), "")
        return (
            f"A checkpoint or a file of weights could not be read, it is cut short or damaged: {words[:160]}"
        )

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Go on from the checkpoint before it; fetch it again, if it was downloaded")
        yield Fix("Write checkpoints to a temporary name and rename them, from one rank only")
