"""Assign exceptions with unknown messages to the rule about the library that raised them, by the innermost
frame.

`KeyError: 'type'` from DeepSpeed's configuration reader is not a mistake in the user's code. This table of
frames serves the library rules, and COD001, which reports all other exceptions. It also finds those that no
signature knows: one is known by the end of its name (`…Error`), but Python allows any name, and the end of a
log may cut the name off. There the place counts: the last line of a traceback, below its frames.
"""

from __future__ import annotations

import re
from dataclasses import replace

from coach.model.error_block import ErrorBlock
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import cut_block, is_uncaught
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.quoted_evidence import is_library

PLAIN = "COD001"
"""The rule whose signature matches every exception."""
CUT = "cut"
"""The signature of a traceback that the end of its log cuts off: its type is not known."""

_FRAMES = {
    "DST024": re.compile(
        r"/torch/distributed/(?:fsdp|_composable/fsdp)/"
        r"|/fairscale/nn/data_parallel/fully_sharded_data_parallel\.py"
    ),
    "DST022": re.compile(r'(?:[\\/]os\.py|<frozen os>)", line \d+, in __getitem__'),
    "TOR003": re.compile(
        r"/torch/_(?:dynamo|inductor)/|/triton/(?:compiler|backends|runtime/(?:build|driver))\b"
    ),
    "DSP001": re.compile(r"/deepspeed/ops/op_builder/|/torch/utils/cpp_extension\.py"),
    "DSP002": re.compile(r"/deepspeed/runtime/(?:config\w*|\w+/config)\.py"),
}
_COMPILING = re.compile(
    r"/torch/_inductor/(?:\w+|codegen/\w+|runtime/triton_heuristics)\.py(?!.* in (?:run|__call__)$)"
    r"|/torch/_dynamo/(?!eval_frame)|/triton/(?:compiler|backends|runtime/(?:build|driver|jit))\b"
)
"""Frames in which torch.compile or Triton compiles; a compiled program that runs is in others."""
_LOADING = re.compile(
    r"torch[\\/]serialization\.py|\bload\b.{0,300}\(|load_(?:checkpoint|state_dict|model|weights"
    r"|pretrained)|from_pretrained|unpickl"
)
_SPAWNED = re.compile(r"spawn_main|multiprocessing[\\/](?:spawn|reduction|connection|queues)\.py")
_ASSERTION = re.compile(r'/torch/distributed/utils\.py", line \d+, in _?p_assert')
"""The frame of the helper that raises FSDP's assertions."""
_ENVIRONMENT = re.compile(r'(?:[\\/]os\.py|<frozen os>)"|environ|getenv|\benv\b')
_TAKEN = re.compile(r"(?:environ\.get|getenv)\(\s*[\"'](\w+)")


_ENVIRONMENT_RULE = "ENV007"
_EXCEPTION = "exception"
"""COD001's signature of an exception."""
_GROUP = "Group"
"""An exception group only holds the exceptions that count."""


def owner_of(hit: LogHit, snapshot: TargetSnapshot) -> str | None:
    """The rule whose library raised an exception, by its innermost frame. An exception that ends the imports
    of one of coach's own trainers is the environment's, whatever its type."""
    if is_at_imports_of_coach(hit, snapshot):
        return _ENVIRONMENT_RULE
    frames = (frame.text for frame in reversed(hit.frames))
    innermost = next((frame for frame in frames if not _ASSERTION.search(frame)), "")
    if hit.signature == CUT:  # the frame that raised it is missing
        return "TOR003" if _COMPILING.search(innermost) else None
    return next((code for code, pattern in _FRAMES.items() if pattern.search(innermost)), None)


def is_at_imports_of_coach(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if an exception was raised while one of coach's own trainers imported its modules."""
    recipe = snapshot.run.launch.get("recipe") if snapshot.run is not None else None
    if snapshot.run is None or not recipe or "/" in str(recipe):
        return False  # not launched by coach, or a recipe of the user's
    own = [frame for frame in hit.all_frames if not is_library(frame.text)]
    is_importing = bool(own) and all(frame.function == "<module>" for frame in own)
    return is_importing and not snapshot.run.launch.get("own") and snapshot.run.drill is None


def is_of_a_load(hit: LogHit) -> bool:
    """True if the frames show that a checkpoint was being loaded. EOFError has too short a message to
    tell."""
    frames = "\n".join(hit.traceback)
    return bool(_LOADING.search(frames)) and not _SPAWNED.search(frames)


def is_of_a_table(hit: LogHit) -> bool:
    """True if a KeyError that looks like a missing environment variable comes from a data frame or another
    mapping, by its frames."""
    if hit.rule == "DST022" and hit.signature == "none":
        return unset_variable(hit) is None
    frames = "\n".join(hit.traceback)
    return (
        hit.rule == "DST022"
        and "KeyError" in hit.text
        and 'File "' in frames
        and not _ENVIRONMENT.search(frames)
    )


def unset_variable(hit: LogHit) -> str | None:
    """The environment variable that the innermost source line of the program reads."""
    innermost = "\n".join(hit.traceback).rpartition(' File "')[2]
    found = _TAKEN.search(innermost)
    return found[1] if found is not None else None


def is_of_a_peer(hit: LogHit) -> bool:
    """True if the frames are those of a pipe between processes: the process at the other end has ended."""
    return bool(_SPAWNED.search("\n".join(hit.traceback)))


def exceptions_of(rule: str, snapshot: TargetSnapshot) -> list[LogHit]:
    """Exceptions raised by the rule's library with a message that no rule matches. The field `words` has the
    whole message."""
    if rule not in (*_FRAMES, _ENVIRONMENT_RULE):
        return []
    known = {(hit.file, hit.line) for hit in snapshot.log_hits if hit.rule not in (PLAIN, PROGRESS.rule)}
    return [
        replace(
            hit,
            fields={"words": ": ".join(filter(None, (hit.fields["type"], hit.fields.get("words"))))},
        )
        for hit in snapshot.log_hits
        if hit.rule == PLAIN
        and "type" in hit.fields
        and (hit.file, hit.line) not in known
        and owner_of(hit, snapshot) == rule
    ]


def unnamed_exceptions(snapshot: TargetSnapshot) -> tuple[LogHit, ...]:
    """Hits of COD001 for uncaught exceptions at whose line the log scanner has none, and for tracebacks at
    the end of a log."""
    known = {
        (hit.file, hit.line) for hit in snapshot.log_hits if (hit.rule, hit.signature) == (PLAIN, _EXCEPTION)
    }
    cut = [block for tail in snapshot.log_tails if (block := cut_block(tail)) is not None]
    return tuple(_hit_of(block, CUT) for block in cut) + tuple(
        _hit_of(block, _EXCEPTION)
        for tail in snapshot.log_tails
        for block in tail.blocks
        if is_uncaught(block) and (block.file, block.error_line) not in known and _is_named(block)
    )


def _is_named(block: ErrorBlock) -> bool:
    """True if its last line is `TYPE` or `TYPE: message`; other programs print between the frames as well."""
    rest = block.lines[-1].strip(" |\t").removeprefix(block.type or "").rstrip()
    return rest in ("", ":") or (rest.startswith(": ") and not block.name.endswith(_GROUP))


def _hit_of(block: ErrorBlock, signature: str) -> LogHit:
    fields = {"type": block.type or "", "words": block.message.partition("\n")[0]}
    line = block.error_line
    return LogHit(PLAIN, signature, block.file, line, block.lines[-1], fields, block.rank, block=block)
