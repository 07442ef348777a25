"""DST016: the training uses nn.DataParallel, one process for several GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule
from coach.rules.from_logs.quoted_evidence import hits_of, quote


class DataParallel(Rule):
    """The training uses nn.DataParallel, one process for several GPUs.

    What it sees
        Its source files in a traceback or a warning (torch/nn/parallel/data_parallel.py, parallel_apply.py,
        replicate.py, _functions.py), for example the warning that it gathers scalars.
    Why it matters
        In each step the model is copied to all GPUs and the outputs are gathered on the first, by threads of
        one Python process: the first GPU runs out of memory before the others, and more GPUs gain little. It
        is limited to one node.
    When it stays silent
        It is never more than info. DataParallel goes unseen if no traceback or warning shows it.
    What to do
        Use DistributedDataParallel, also on a single node, with one process for each GPU: `torchrun
        --nproc-per-node=N train.py`.
    Sources
        torch.nn.DataParallel's own page ("It is recommended to use DistributedDataParallel"); PyTorch
        tutorial "Getting Started with DDP".
    """

    code = "DST016"
    name = "data-parallel"
    cause = "data_parallel"
    severity = Severity.INFO
    needs = (Need.LOG,)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for hit in hits_of(snapshot, self.code)[:1]:
            yield Hit(
                summary=(
                    "nn.DataParallel serves the GPUs from one process; DistributedDataParallel is faster, on "
                    "one node as well"
                ),
                evidence=(quote(hit),),
                confidence=0.95,
                fixes=(
                    Fix(
                        "Wrap the model in DistributedDataParallel, and start one process for each GPU "
                        "with torchrun"
                    ),
                ),
                since_s=hit.time_s,
            )
