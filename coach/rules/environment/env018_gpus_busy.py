"""ENV018: every GPU that the job may use is held exclusively by another process."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class GpusBusy(EndingRule):
    """Every GPU that the job may use is held exclusively by another process.

    What it sees
        "all CUDA-capable devices are busy or unavailable", in its newer wording "CUDA-capable device(s)
        is/are busy or unavailable" (cudaErrorDevicesUnavailable); Kaldi's "no more unused GPUs?".
    Why it matters
        The GPU is in exclusive mode, which allows one process. A second rank took the same GPU, a process of
        an earlier job is left over, or somebody runs outside of the scheduler.
    When it stays silent
        On lack of GPU memory (MEM001), and if the program went on.
    What to do
        Find the process: `nvidia-smi --query-compute-apps=pid,process_name --format=csv` on the node. Give
        each rank its own GPU: call `torch.cuda.set_device(LOCAL_RANK)` before any other CUDA call. Report a
        process that belongs to no job to the administrators.
    Sources
        CUDA's error codes 46 and 2; nvidia-smi(1), compute mode.
    """

    code = "ENV018"
    name = "all-gpus-busy"
    cause = "all_gpus_busy"
    general = (
        Fix(
            "See who has it, on the node",
            command="nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv",
        ),
        Fix("Let each rank take its own GPU: torch.cuda.set_device(LOCAL_RANK) before anything else of CUDA"),
    )
    other_node = "whose GPUs are taken"
    sentences = by_field(
        otherwise="Every GPU that the job may use is taken by another process",
    )
