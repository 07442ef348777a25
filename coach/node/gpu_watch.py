"""Reads the GPUs in a thread, so that a driver that does not answer costs only the GPUs' values.

A call into a driver in trouble hangs, for seconds or for ever, and cannot be interrupted. The sampler waits
for an answer only as long as its pace allows. A late answer is taken with the next sample. While an answer is
outstanding, no other call is made.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Dict, List, Mapping, Optional, Tuple

from coach.node.gap import Gap
from coach.node.gpus import Gpus, Sample
from coach.node.visible_gpus import Counts

_IS_SILENT_AFTER_S = 5.0
_REOPENS_AFTER_S = 60.0


class GpuWatch:
    """Reads the job's GPUs in a thread that starts here and ends with the process."""

    def __init__(self, env: Mapping[str, str], has_gpm: bool, slow_interval_s: float) -> None:
        self.counts: Optional[Counts] = None
        self._questions: SimpleQueue[float] = SimpleQueue()
        self._answers: SimpleQueue[Tuple[float, Sample]] = SimpleQueue()
        self._xids: SimpleQueue[Dict[str, Any]] = SimpleQueue()
        self._asked_s: Optional[float] = None
        self._has_said_silence = False
        self._is_open = False
        self._open = partial(Gpus, dict(env), has_gpm, slow_interval_s, self._tell_xid)
        threading.Thread(target=self._work, daemon=True).start()

    def sample(self, time_s: float, limit_s: float) -> Sample:
        """The GPUs' answer, if it came within the limit or since the last call. `time_s` is a monotonic
        clock."""
        if self._asked_s is None:
            self._asked_s = time_s
            self._questions.put(time_s)
        waited_s = time_s - self._asked_s
        if not self._is_open:
            # Opening the driver takes time: the first sample does not wait for it.
            self._is_open, limit_s = True, 0.0
        try:
            took_s, answer = self._answers.get(timeout=limit_s)
        except Empty:
            return Sample(self._new_xids(), {}, self._silence(waited_s))
        gaps = [*answer.gaps, *self._silence(took_s)]
        self._asked_s, self._has_said_silence = None, False
        # Values read before the driver hung are out of date.
        records = answer.records if took_s < _IS_SILENT_AFTER_S else []
        return Sample([*records, *self._new_xids()], answer.processes, gaps)

    def _silence(self, for_s: float) -> List[Gap]:
        if for_s < _IS_SILENT_AFTER_S or self._has_said_silence:
            return []
        self._has_said_silence = True
        return [("gpu.utilization", f"the driver has not answered for {for_s:.0f} s", _HOW_SILENT)]

    def _new_xids(self) -> List[Dict[str, Any]]:
        return [self._xids.get() for _ in range(self._xids.qsize())]

    def _tell_xid(self, gpu: int, uuid: str, xid: int) -> None:
        self._xids.put({"kind": "gpu_event", "gpu": gpu, "uuid": uuid, "xid": xid})

    def _work(self) -> None:
        gpus: Optional[Gpus] = None
        open_due_s: Optional[float] = None
        while True:
            time_s = self._questions.get()
            started_s = time.monotonic()
            try:
                if gpus is None and (open_due_s is None or time_s >= open_due_s):
                    open_due_s = time_s + _REOPENS_AFTER_S
                    gpus = self._open()
                    self.counts = gpus.counts
                    started_s = time.monotonic()  # the time to open the driver does not make the values old
                answer = Sample([], {}, []) if gpus is None else gpus.sample(time_s)
            except Exception as error:  # an untested binding or driver: the host is still sampled
                why = f"reading the GPUs failed: {type(error).__name__}: {error}"
                answer = Sample([], {}, [("gpu.utilization", why, "report it")])
            self._answers.put((time.monotonic() - started_s, answer))


_HOW_SILENT = (
    "`nvidia-smi` will hang there as well: leave this node out (--exclude) and tell its administrators"
)
