"""Record the outcome of each run and job that coach has judged, one line each, in the cache.

Every look at a job checks if its failure occurred before. With this record no log is read twice for that, and
it works after the logs are gone. Several coaches of one user append to the file, under a lock; a malformed
line is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.judging.verdict import PastRun
from coach.model.slurm.cluster import is_final
from coach.sources.values import Fields, finite
from coach.trusted import private_folder, read_tail

FILE_NAME = "verdicts.jsonl"
MAX_RUNS = 2000
"""Largest number of outcomes that are kept, the last judged ones: a few megabytes."""
_MAX_FILE_BYTES = 8 << 20
_MAX_TEXT = 400

_PAST_RUN = Fields(PastRun, set(PastRun.__match_args__) - {"is_judged", "has_gone_well"})
_Key = tuple[str, float | None]


class Verdicts:
    """The recorded outcomes of one user. Used by one thread at a time."""

    def __init__(self, cache_dir: Path) -> None:
        self._file = cache_dir / FILE_NAME
        self._known: dict[_Key, PastRun] = {}
        self._read_bytes: int | None = None

    def read(self) -> Mapping[_Key, PastRun]:
        """All recorded outcomes by target and submission time. The file is read again after it changed."""
        try:
            size = self._file.stat().st_size
            if size != self._read_bytes:
                records, _, _ = runs.decode_records(
                    read_tail(self._file, _MAX_FILE_BYTES, owner=os.geteuid())
                )
                found = {_key(past): past for past in map(_parse, records) if past is not None}
                self._known = dict(list(found.items())[-MAX_RUNS:])
                self._read_bytes = size
        except OSError:
            return self._known
        return self._known

    def keep(self, *ended: PastRun) -> None:
        """Record these outcomes, unless they are known already. If the file cannot be written, they are lost.

        An outcome is completed from an earlier record: accounting has the memory, the log has the cause.
        """
        known, news = self.read(), []
        for past in ended:
            before = known.get(_key(past))
            record = runs.encode_record(_as_record(_completed(past, before)))
            kept = next(map(_parse, runs.decode_records(record)[0]), None)
            if kept is not None and is_final(kept.state) and kept != before:
                self._known.pop(_key(kept), None)
                self._known[_key(kept)] = kept
                news.append(record)
        if not news:
            return
        try:
            private_folder(self._file.parent)
            with runs.locked(self._file):
                self._append(b"".join(news))
        except OSError:
            return

    def _append(self, records: bytes) -> None:
        with open(self._file, "ab") as file:
            before = file.tell()
            file.write(b"\n" + records)  # ends a line that a killed coach left unfinished
            size = file.tell()
        if before == (self._read_bytes or 0):
            self._read_bytes = size  # no other process wrote meanwhile, so all lines are known
        self._file.chmod(0o600)
        if size > _MAX_FILE_BYTES // 2:
            self._read_bytes = None  # keep only the end of the file
            lines = [runs.encode_record(_as_record(each)) for each in self.read().values()]
            runs.write_atomic(self._file, b"".join(lines).decode())
            self._file.chmod(0o600)


def _key(past: PastRun) -> _Key:
    """A reinstalled cluster reuses job ids: the submission time distinguishes them. A requeue sets a new
    submission time as well."""
    return past.target, past.submitted_s


def _completed(past: PastRun, before: PastRun | None) -> PastRun:
    if before is None:
        return past
    if before.is_judged and not past.is_judged:
        past, before = before, past
    return replace(
        past,
        memory_asked_mib=past.memory_asked_mib or before.memory_asked_mib,
        memory_used_mib=past.memory_used_mib or before.memory_used_mib,
    )


def _as_record(past: PastRun) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for item in fields(PastRun):
        value = getattr(past, item.name)
        if isinstance(value, str):
            record[item.name] = value[:_MAX_TEXT]
        elif isinstance(value, Mapping):
            record[item.name] = {name: each for name, each in value.items() if _is_plain(each)}
        elif value is not None and value != ():
            record[item.name] = value
    return record


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | bool) or finite(value) is not None


def _parse(record: Mapping[str, Any]) -> PastRun | None:
    values = _PAST_RUN.read(record)
    values["is_judged"] = record.get("is_judged") is not False
    values["has_gone_well"] = record.get("has_gone_well") is True
    return PastRun(**values) if values["target"] and values["work"] else None
