"""The last error of a ticket: the one that the verdict is about."""

from __future__ import annotations

from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.workflows.judging.log_ends import error_and_ends
from tests.rules.examples import scan, tail_of

SUMMARY = """\
E1126 22:14:24.878000 285 torch/elastic/api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 287)
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Root Cause (first observed failure):
[0]:
  host      : node2
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 287)
"""
RAISED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ada/train.py", line 11, in <module>
[rank1]:     raise NoMoreShards(rank)
[rank1]: NoMoreShards: shard index 26 of 26
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ada/train.py", line 7, in <module>
[rank0]:     dist.all_reduce(t)
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.1.2]:1456
"""


def last_error(text: str) -> list[str]:
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    told = error_and_ends(snapshot, Engine(build()).diagnose(snapshot, History()))
    return list(told["error"]["lines"])


def test_the_last_error_below_torchrun_is_the_exception_of_the_rank() -> None:
    assert last_error(RAISED + SUMMARY.format(code=1))[-1] == "NoMoreShards: shard index 26 of 26"


def test_of_a_rank_that_was_killed_only_the_launcher_tells() -> None:
    lines = last_error("step 1 loss 2.0\n" + SUMMARY.format(code=-9))
    assert lines[0].startswith("Root Cause")
