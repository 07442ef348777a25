"""ENV004: the program wanted a GPU, but the job has none that it may use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Refusal
from coach.rules.advice.launched_with import num_gpus_asked
from coach.rules.advice.remedies import ask_for_gpus, on_a_node, without_node
from coach.rules.environment.gpu_build import WITHOUT_CUDA
from coach.rules.from_logs.ending_rule import NO_LINE, EndingRule
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, quote
from coach.rules.from_numbers.unused_gpus import EMPTY_MIB, UNUSED_S, proof_of_unused

_USES_CUDA = re.compile(
    r"\bcuda:\d|\bNCCL (?:INFO|version)|\bdevice\b.{0,12}\bcuda\b|GPU:\d+ with \d+ MB memory"
)
"""Lines that show that another framework in the program, or another process of the job, uses a GPU."""
_FELL_BACK = "fell_back"
_ON_CPU = "on_cpu"


class NoGpuInJob(EndingRule):
    """The program wanted a GPU, but the job has none that it may use.

    What it sees
        "No CUDA GPUs are available", "Found no NVIDIA driver on your system", "no CUDA-capable device is
        detected", "ProcessGroupNCCL is only supported with GPUs, no GPUs found", loading a CUDA checkpoint
        where `torch.cuda.is_available()` is False, the corresponding messages of Lightning, transformers,
        JAX, TensorFlow, Triton, vLLM, sglang, Kaldi and others; as a cause of its own, "invalid device
        ordinal": a rank requested a GPU beyond those of the job. Or the result of the job's own check at its
        start: no device, no driver, or all devices hidden. Or a trainer that reports training on the CPU in a
        job that requested GPUs. Or TensorFlow or JAX that finds no CUDA at its start and uses the CPU
        ("Cannot dlopen some GPU libraries", "failed call to cuInit", "Could not find cuda drivers on your
        machine", "CUDA backend failed to initialize", "Falling back to cpu"). Or a program that reports that
        it uses the CPU ("Using cpu device", "device: cpu", torch's and Lightning's own words), in a job whose
        GPUs were measured and never used.
    Why it matters
        Without an error the same job would train on the CPU, hundreds of times slower, while it holds its
        GPUs.
    When it stays silent
        When a logger prints the words only as a warning. The finding is info if the program went on and no
        request for GPUs is known. A start on the CPU is a warning if GPUs were allocated, and info if that is
        unknown. It is not reported in a job without GPUs, if a GPU was busy, or if the log or the trainer
        names a CUDA device in use: a torch training may import TensorFlow. A program's own words about its
        device count only with the measurement: a part of a program may use the CPU on purpose.
    What to do
        Request GPUs (`--gpus N`; for sbatch `--gres=gpu:N` or `--gpus-per-node=N`) in a partition that has
        them. Pass the driver into containers (`apptainer exec --nv`). Do not set CUDA_VISIBLE_DEVICES
        yourself: Slurm sets it. Start no more ranks on a node than it has GPUs. If GPUs were allocated but
        the node shows none, leave the node out and report it to the site. TensorFlow and JAX install CUDA
        with `pip install "tensorflow[and-cuda]"` and `pip install "jax[cuda12]"`, or use the CUDA of a
        module.
    Sources
        c10/cuda/CUDAFunctions.cpp; torch/cuda/__init__.py; torch/serialization.py; Slurm's generic resources
        (gres) guide; TensorFlow's gpu_device.cc, cuda_platform.cc and cudart_stub.cc; jax/_src/xla_bridge.py.
    """

    code = "ENV004"
    name = "no-gpu-in-job"
    cause = "cuda_unavailable"
    details = (_FELL_BACK, _ON_CPU)
    unused_s = UNUSED_S
    empty_mib = EMPTY_MIB

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = list(super().check(snapshot, history))
        yield from hits
        if hits:
            return
        run = snapshot.run
        if run is not None and run.num_gpus and run.device.get("type") == "cpu":
            yield Hit(
                summary=f"{run.num_gpus} GPUs are allocated, but the training runs on the CPU",
                evidence=(
                    Evidence("the trainer reports: device cpu", f"{run.run_dir}/run.json"),
                    Evidence("GPUs requested", value=float(run.num_gpus)),
                ),
                confidence=0.9,
                fixes=tuple(self.fixes(NO_LINE, snapshot)),
                severity=Severity.WARNING,
            )
        elif said := hits_of(snapshot, self.code, _FELL_BACK):
            yield from self._fell_back(said, snapshot, history)
        elif said := hits_of(snapshot, self.code, _ON_CPU):
            yield from self._on_cpu(earliest(said), snapshot, history)

    def _on_cpu(self, first: LogHit, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits for a program that reports the CPU as its device, if the job's GPUs were never used."""
        asked = num_gpus_asked(snapshot)
        if not asked or _uses_a_gpu(snapshot, history):
            return
        if snapshot.run is not None and snapshot.run.has_torch_gpu_support is False:
            return  # ENV003 knows the reason
        unused = proof_of_unused(snapshot, history, self.unused_s, self.empty_mib)
        if unused is None:
            return
        yield Hit(
            summary=f"The program uses the CPU, while the job holds {asked} GPU{'s' if asked > 1 else ''}",
            evidence=(quote(first), unused, Evidence("GPUs requested", value=float(asked))),
            confidence=0.9,
            fixes=(
                Fix(
                    "See if the job's torch can use a GPU: python -c 'import torch; "
                    "print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'; a version "
                    "with +cpu, or None, needs the CUDA build"
                ),
                *self.fixes(NO_LINE, snapshot),
            ),
            severity=Severity.WARNING,
            since_s=first.time_s,
        )

    def _fell_back(self, said: Sequence[LogHit], snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Hits for TensorFlow or JAX on the CPU. It is not an error, and normal in a job without GPUs."""
        asked = num_gpus_asked(snapshot)
        if asked == 0 or _uses_a_gpu(snapshot, history):
            return
        first = earliest(said)
        library = "JAX" if "backend failed" in first.text or "alling back to" in first.text else "TensorFlow"
        proof = (Evidence("GPUs requested", value=float(asked)),) if asked else ()
        yield Hit(
            summary=f"{library} found no CUDA that works, and took the CPU"
            + (f", while the job holds {asked} GPU{'s' if asked > 1 else ''}" if asked else ""),
            evidence=(quote(first), *proof),
            confidence=0.8 if asked else 0.5,
            fixes=(
                *self.fixes(NO_LINE, snapshot),
                Fix(
                    'Take an environment that brings CUDA (pip install "tensorflow[and-cuda]" or '
                    '"jax[cuda12]"), or load the modules of CUDA and cuDNN in the job'
                ),
            ),
            severity=Severity.WARNING if asked else Severity.INFO,
            since_s=first.time_s,
        )

    def is_mine(self, refusal: Refusal) -> bool:
        return refusal.cause == self.cause and WITHOUT_CUDA not in refusal.text

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if hit.signature == "ordinal":
            return "A process asked for a GPU that the job does not have"
        asked = num_gpus_asked(snapshot)
        if asked:
            return f"The job requested {asked} GPU{'s' if asked > 1 else ''}, but the program could use none"
        return "The program needed a GPU, but could use none"

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        return Severity.WARNING if num_gpus_asked(snapshot) else Severity.INFO

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if not num_gpus_asked(snapshot):
            yield from ask_for_gpus()
        else:
            yield from without_node(snapshot, "whose GPUs cannot be used")
            yield from on_a_node("See what the job sees on the node", "nvidia-smi")
            yield Fix("Pass the driver into the container: --nv", needs=("container",))


def _uses_a_gpu(snapshot: TargetSnapshot, history: History) -> bool:
    """True if a GPU of the job was busy, or the trainer or the log names a CUDA device in use."""
    if snapshot.run is not None and snapshot.run.device.get("type") == "cuda":
        return True
    if any(sample.utilization_pct for key in history.gpus for sample in history.gpu(*key)):
        return True
    return any(map(_USES_CUDA.search, snapshot.lines))
