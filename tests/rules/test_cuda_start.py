"""TensorFlow and JAX that find no CUDA and take the CPU: a warning in a job that holds GPUs, and no news in
one without."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import gpu_samples, history, run, scan, tail_of
from tests.rules.recorded import RECORDINGS

STARTS = {
    "cuInit": "E tensorflow/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device",
    "drivers": (
        "I tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used."
    ),
    "jaxlib": (
        "WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib "
        "is not installed. Falling back to cpu."
    ),
    "absl": "WARNING:absl:No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 …)",
    "dlopen": (RECORDINGS / "typed/tensorflow-on-cpu.log").read_text(),
    "backend": (RECORDINGS / "typed/jax-on-cpu.log").read_text(),
}
USES_A_GPU = {
    "torch has a device": "training on cuda:0",
    "NCCL starts": "n1:12:12 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.7<0>",
    "a device by its name": "Trainer(device='cuda', max_steps=100)",
    "TensorFlow got one later": "Created device /job:localhost/device:GPU:0 with 38361 MB memory",
}


def of_log(
    text: str, gpus: int | None, seen: History | None = None, device: str | None = None
) -> list[Finding]:
    """ENV004's findings for a training that ended well."""
    text += "\nstep 1 loss 0.3\nstep 2 loss 0.2\n"
    launched = None
    if gpus is not None:
        resources = {"num_nodes": 1, "gpus_per_node": gpus}
        launched = run(resources=resources, state="COMPLETED", device={"type": device} if device else {})
    snapshot = TargetSnapshot("run", None, run=launched, log_hits=scan(text), log_tails=(tail_of(text),))
    findings = Engine(build()).diagnose(snapshot, seen or History()).findings
    return [finding for finding in findings if finding.rule == "ENV004"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("gpus", "expected"), [(2, [Severity.WARNING]), (None, [Severity.INFO]), (0, [])])
def test_a_start_on_the_cpu_is_judged_by_the_gpus_that_the_job_holds(
    start: str, gpus: int | None, expected: list[Severity]
) -> None:
    assert [finding.severity for finding in of_log(STARTS[start], gpus)] == expected


def test_the_finding_names_the_library_and_quotes_its_line() -> None:
    (tensorflow,) = of_log(STARTS["dlopen"], 2)
    assert tensorflow.cause == "cuda_unavailable"
    assert (
        tensorflow.summary
        == "TensorFlow found no CUDA that works, and took the CPU, while the job holds 2 GPUs"
    )
    assert (tensorflow.evidence[0].line, tensorflow.evidence[1].value) == (2, 2.0)
    (jax,) = of_log(STARTS["backend"], 1)
    assert jax.summary == "JAX found no CUDA that works, and took the CPU, while the job holds 1 GPU"


@pytest.mark.parametrize("beside", USES_A_GPU)
def test_a_training_that_only_imports_tensorflow_beside_a_gpu_in_use_is_silent(beside: str) -> None:
    assert not of_log(f"{STARTS['drivers']}\n{USES_A_GPU[beside]}", 2)


def test_a_busy_gpu_and_a_trainer_on_cuda_are_silent() -> None:
    assert not of_log(STARTS["cuInit"], 2, device="cuda")
    assert not of_log(STARTS["cuInit"], 2, history(samples=gpu_samples([0.0, 65.0, 80.0])))
    assert of_log(STARTS["cuInit"], 2, history(samples=gpu_samples([0.0, 0.0, 0.0])))


ON_CPU = (RECORDINGS / "silent/torch-on-cpu.log").read_text()
UNUSED = gpu_samples([0.0] * 320, memory_used_mib=450.0)


@pytest.mark.parametrize("line", [*ON_CPU.splitlines()[:4], "GPU available: False, used: False"])
def test_a_program_that_says_it_uses_the_cpu_is_warned_of_where_its_gpus_were_never_used(line: str) -> None:
    (finding,) = of_log(line, 1, history(samples=UNUSED))
    assert (finding.severity, finding.cause) == (Severity.WARNING, "cuda_unavailable")
    assert finding.summary == "The program uses the CPU, while the job holds 1 GPU"
    assert finding.evidence[0].text == line
    assert finding.evidence[1].value == 319


def test_words_about_the_cpu_prove_nothing_where_a_gpu_was_used_or_not_measured() -> None:
    assert not of_log(ON_CPU, 1)
    assert not of_log(ON_CPU, 0, history(samples=UNUSED))
    assert not of_log(ON_CPU, None, history(samples=UNUSED))
    assert not of_log(ON_CPU, 1, history(samples=UNUSED[:200]))
    assert not of_log(ON_CPU, 1, history(samples=[*UNUSED, *gpu_samples([5.0], start_s=1400.0)]))
    assert not of_log(ON_CPU, 1, history(samples=gpu_samples([0.0] * 320)))  # a process holds its memory
    assert not of_log(f"{ON_CPU}\nmodel moved to cuda:0", 1, history(samples=UNUSED))


@pytest.mark.parametrize(
    ("has_support", "samples", "expected"),
    [
        (False, UNUSED, [Severity.WARNING]),
        (False, [], [Severity.INFO]),
        (False, UNUSED[:100], []),
        (False, gpu_samples([0.0] * 310 + [60.0] * 10, memory_used_mib=450.0), []),
        (True, UNUSED, []),
        (None, UNUSED, []),
    ],
)
def test_a_torch_without_cuda_is_named_where_the_gpus_of_its_job_were_never_used(
    has_support: bool | None, samples: list[GpuSample], expected: list[Severity]
) -> None:
    launched = run(
        resources={"num_nodes": 1, "gpus_per_node": 1},
        versions={"torch": "2.6.0+cpu"},
        has_torch_gpu_support=has_support,
    )
    snapshot = TargetSnapshot("run", 1320.0, run=launched, log_hits=scan(ON_CPU if expected else ""))
    findings = Engine(build()).diagnose(snapshot, history(samples=samples)).findings
    found = [finding for finding in findings if finding.cause == "cuda_unavailable"]
    assert [finding.severity for finding in found if finding.rule == "ENV003"] == expected
    assert all("torch 2.6.0+cpu was built without CUDA" in finding.summary for finding in found)
