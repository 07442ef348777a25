"""ENV004: torch could use a GPU, but the job has none that it may use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.model.training.run import Refusal
from coach.rules.advice.placement import num_gpus_asked, without_node
from coach.rules.environment.gpu_build import WITHOUT_CUDA
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule, ending_signatures

_NONE = re.compile(
    UNHEEDED + r".*?(?:RuntimeError: No (?:CUDA|HIP) GPUs are available"
    r"|(?:Error: .{0,300}?|^)Found no NVIDIA driver on your system"
    r"|(?:Error: .{0,300}?|\berror ?[=(]802\)? ?: )system not yet initialized|Error: CUDA must be available"
    r"|(?:Error: .{0,300}?|\berror\b.{0,30}?|^cudaGetDeviceCount failed |^ on Pe \d.*?: )no CUDA-capable "
    r"device is detected|cudaErrorNoDevice"
    r"|Error: ProcessGroupNCCL is only supported with GPUs, no GPUs found|Error: CUDA driver initialization "
    r"failed"
    r"|Error: Unable to initialize backend '(?:cuda|gpu)'(?!: Unable to use CUDA because)"
    r"|Error: Unknown backend:? '(?:gpu|cuda)' requested|Error: Failed to infer device type"
    r"|RuntimeError: Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is "
    r"False"
    r"|Error: CUDA is not available|(?:Error|Exception)(?:: |\(['\"])No (?:supported )?(?:GPU"
    r"|gpu)s?(?: backend| devices)? (?:found|available|detected)"
    r"|`CUDAAccelerator` can not run on your system|Error: .*can only be used on CUDA\b"
    r"|your machine only has: \[\]"
    r"|Error: Your setup doesn't support bf16/gpu|Error: (?:fp16 mixed precision|\S+ quantization) requires "
    r"a GPU|CUDA unavailable, invalid device|Error: Invalid CUDA '(?:--)?device|RuntimeError: CUDA unknown "
    r"error|(?:Error|Exception): .*?torch\.cuda\.is_available\(\) (?:should be True but is False|is False"
    r"|returned False)"
    r"|Error: Cannot assign a device for operation .*?device:GPU:\d+ but available devices are "
    r"(?!.*?device:GPU)|Error: 0 active drivers \(\[\]\)"
    r"|Error: Unable to proceed, no GPU resources available|Error: .{0,300}?found no CUDA devices\. Set"
    r"|Error: No accelerator \([\w, ]+\) is available|Error: Megatron requires CUDA"
    r"|(?:Error: .{0,300}?|^\[100\] Call to cuInit )results in CUDA_ERROR_NO_DEVICE"
    r"|^CUDA driver library cannot be found\.|Error: .{0,300}?PaddlePaddle is not compiled with CUDA"
    r"|ERROR \(.*?No CUDA GPU detected!, diagnostics: cudaError_t (?!35\b)|^Cannot run .*? on a GPU because "
    r"no GPU is\b|Check failed: .*?Device API cuda is not enabled"
    r"|Error: .{0,300}?cannot find any torch accelerator|Error: GPU is required to |Error: CUDA is required "
    r"but not available for|Error: Cannot access accelerator device when none is"
    r"|^(?:[\w.]+\.)?NVMLError_(?:LibraryNotFound|DriverNotLoaded): |Error: CUDA Tree Learner was not enabled"
    r"|Exception: No compatible CUDA device is available|Error: Backend '(?:gpu|cuda)' failed to initialize"
    r"|Unexpected error from cudaGetDeviceCount\(\).*Error (?:100|101|802))"
)
_ORDINAL = re.compile(
    UNHEEDED
    + r".*?(?:(?:CUDA|HIP) error: invalid device ordinal|error(?: \(\d+\)|=\d+) : invalid device ordinal"
    r"|cudaErrorInvalidDevice: invalid device ordinal|Cuda failure (?:\d+ )?'invalid device ordinal'"
    r"|Check failed: .*?cudaSuccess.*?invalid device ordinal|Error: .*?CUDA_ERROR_INVALID_DEVICE: invalid "
    r"device ordinal|Error: Invalid device id\b"
    r"|Error: Attempting to deserialize object on CUDA device \d+ but|Error: device_id \d+ is out of range"
    r"|your machine only has: \[\d|Error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED"
    r"|Error: You requested to find \d+ devices but this machine only has [1-9]|Error: 'visible_device_list' "
    r"listed an invalid (?:GPU|Device) id|Error: .{0,300}?Device id must be less than GPU count"
    r"|Error: The number of required GPUs exceeds the total number of available GPUs"
    r"|Error: .{0,300}?is larger than the number of available GPUs)"
)


class NoGpuInJob(EndingRule):
    """The program wanted a GPU, and the job has none that it may use.

    What it sees
        "No CUDA GPUs are available", "Found no NVIDIA driver on your system", "no CUDA-capable device is
        detected", "ProcessGroupNCCL is only supported with GPUs, no GPUs found", loading a CUDA checkpoint
        where `torch.cuda.is_available()` is False, the same in the words of Lightning, transformers, JAX,
        TensorFlow, Triton, vLLM, sglang, Kaldi and others; as a cause of its own, "invalid device ordinal": a
        rank asked for a GPU beyond those of the job. Or what the job's own first look found: no device, no
        driver, all of them hidden. Or a trainer that says it trains on the CPU in a job that asked for GPUs.
    Why it matters
        Without an error the same job would train on the CPU, hundreds of times slower, while it holds its
        GPUs.
    When it stays silent
        Where a logger gives the words as a warning. It is info when the program
        went on and nothing says that GPUs were asked for.
    What to do
        Ask for GPUs (`--gpus N`; `--gres=gpu:N` or `--gpus-per-node=N` of sbatch), in the partition that has
        them. In a container pass the driver in (`apptainer exec --nv`). Do not set CUDA_VISIBLE_DEVICES by
        hand: Slurm sets it. With more ranks than GPUs on a node, start as many ranks as GPUs. Where GPUs were
        allotted and the node has none, leave the node out and tell the site.
    Sources
        c10/cuda/CUDAFunctions.cpp; torch/cuda/__init__.py; torch/serialization.py; Slurm's generic resources
        (gres) guide.
    """

    code = "ENV004"
    name = "no-gpu-in-job"
    cause = "cuda_unavailable"
    consequence_of = ("ENV002",)
    signatures = ending_signatures(
        "ENV004",
        ("cuda_unavailable",),
        Signature(
            "ENV004",
            "none",
            (
                "GPUs are available",
                "no NVIDIA driver",
                "system not yet initialized",
                "CUDA must be available",
                "no CUDA-capable device",
                "cudaErrorNoDevice",
                "deserialize object on a CUDA device",
                "CUDA is not available",
                "n: No ",
                "r: No ",
                "('No ",
                '("No ',
                "CUDAAccelerator",
                "only be used on CUDA",
                "your machine only has: []",
                "doesn't support bf16/gpu",
                "requires a GPU",
                "CUDA unavailable, invalid",
                "Invalid CUDA '",
                "CUDA unknown error",
                "no GPUs found",
                "CUDA driver initialization failed",
                "Unable to initialize backend",
                "Failed to infer device type",
                "torch.cuda.is_available()",
                "cudaGetDeviceCount",
                "Unknown backend",
                "Cannot assign a device for",
                "0 active drivers",
                "no GPU resources available",
                "found no CUDA devices",
                "Megatron requires CUDA",
                "results in CUDA_ERROR_NO_DEVICE",
                "CUDA driver library cannot be",
                "PaddlePaddle is not compiled with",
                "No CUDA GPU detected!",
                "on a GPU because no GPU is",
                "Device API cuda is not enabled",
                "find any torch accelerator",
                "GPU is required to ",
                "CUDA is required but not available",
                "Cannot access accelerator device",
                "NVMLError_LibraryNotFound",
                "NVMLError_DriverNotLoaded",
                "CUDA Tree Learner was not",
                "No compatible CUDA device",
                "' failed to initialize",
            ),
            _NONE,
        ),
        Signature(
            "ENV004",
            "ordinal",
            (
                "invalid device ordinal",
                "Invalid device id",
                "object on CUDA device ",
                "is out of range",
                "your machine only has: [",
                "device < num_gpus INTERNAL ASSERT",
                "devices but this machine only",
                "'visible_device_list' listed",
                "Device id must be less than",
                "number of required GPUs exceeds",
                "larger than the number of available GPUs",
            ),
            _ORDINAL,
        ),
        refusal=f"(?!.*{WITHOUT_CUDA}).+",
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = list(super().check(snapshot, history))
        yield from hits
        run = snapshot.run
        if not hits and run is not None and run.num_gpus and run.device.get("type") == "cpu":
            yield Hit(
                summary=f"{run.num_gpus} GPUs are held, and the training runs on the CPU",
                evidence=(
                    Evidence("the trainer's own word: device cpu", f"{run.run_dir}/run.json"),
                    Evidence("GPUs asked for", value=float(run.num_gpus)),
                ),
                confidence=0.9,
                fixes=tuple(self.fixes(None, snapshot)),
                severity=Severity.WARNING,
            )

    def is_mine(self, refusal: Refusal) -> bool:
        return refusal.cause == self.cause and WITHOUT_CUDA not in refusal.text

    def cause_of(self, hit: LogHit) -> str | None:
        return "invalid_device_ordinal" if hit.signature == "ordinal" else None

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if hit.signature == "ordinal":
            return "A process asked for a GPU beyond those that the job has"
        asked = num_gpus_asked(snapshot)
        if asked:
            return f"The job asked for {asked} GPU{'s' if asked > 1 else ''}, and the program could use none"
        return "The program wanted a GPU, and could use none"

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        return Severity.WARNING if num_gpus_asked(snapshot) else Severity.INFO

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if hit is not None and hit.signature == "ordinal":
            yield Fix(
                "Start as many ranks on a node as the job has GPUs there: --nproc-per-node and --gpus alike"
            )
        elif not num_gpus_asked(snapshot):
            yield Fix(
                "Ask for GPUs: --gpus 1 or more (sbatch: --gpus-per-node), in a partition that has them"
            )
        else:
            yield from without_node(snapshot, "whose GPUs cannot be used")
            yield Fix(
                "See what the job sees on the node: srun --pty nvidia-smi; in a container, pass the "
                "driver in (--nv)"
            )
