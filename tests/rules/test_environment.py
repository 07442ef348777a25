"""Errors in the first seconds of a job: each as it is really written, the same words in harmless lines, and
the job's own message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.reading import LogChunk
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Refusal, RunExit
from coach.rules.engine import Engine
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.registry import build, rule_classes, signatures
from coach.sources.io import SystemIo
from coach.sources.logs.log_source import LogSource
from coach.sources.logs.near_modules import near_name
from coach.sources.logs.scanner import LogScanner
from coach.workflows.launching.fix_offer import remedies
from tests.rules.examples import causes, diagnose_log, diagnose_whole, run, scan
from tests.rules.recorded import RECORDINGS, diagnose

CAUSE = "module_not_found"
ENDED = {
    "checkpoint-of-objects": ("ENV016", "weights_only_load"),
    "conda-not-initialised": ("ENV008", "conda_not_initialised"),
    "disk-full": ("ENV010", "disk_quota"),
    "file-not-found": ("DAT011", "file_not_found"),
    "module-command-missing": ("ENV023", "environment_module"),
    "module-conflict-tcl": ("ENV023", "environment_module"),
    "module-unknown": ("ENV023", "environment_module"),
    "module-unknown-tcl": ("ENV023", "environment_module"),
    "module-not-found": ("ENV007", "module_not_found"),
    "permission-denied": ("ENV011", "permission_denied"),
    "script-line-ends": ("ENV025", "script_format"),
    "script-env-line-ends": ("ENV025", "script_format"),
    "script-names-line-ends": ("ENV025", "script_format"),
    "script-interpreter": ("ENV025", "script_format"),
    "script-without-shebang": ("ENV025", "script_format"),
    "thread-limit": ("ENV026", "process_limit"),
    "fork-limit": ("ENV026", "process_limit"),
    "fork-limit-python": ("ENV026", "process_limit"),
    "script-unfinished": ("COD001", "code_error"),
    "copy-of-nothing": ("DAT011", "file_not_found"),
    "shell-permission": ("ENV011", "permission_denied"),
    "torch-missing": ("ENV007", "module_not_found"),
    "torch-without-cuda": ("ENV003", "cuda_unavailable"),
    "version-conflict": ("ENV016", "version_conflict"),
}
DEADLY = {
    "driver_too_old": [
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
            "driver to a newer version"
        ),
    ],
    "cuda_unavailable": [
        "RuntimeError: No HIP GPUs are available",
        "AssertionError: CUDA is not available",
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        "ValueError: FP16 Mixed precision training with AMP (`--fp16`) can only be used on CUDA devices.",
        "AssertionError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "RuntimeError: CUDA error: no CUDA-capable device is detected",
        (
            "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() "
            "is False. If you are …"
        ),
    ],
    "cuda_version_mismatch": [
        (
            "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major "
            "versions. PyTorch has …"
        ),
    ],
    "code_error": [
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[key])",
        "wandb.errors.UsageError: No API key configured. Use `wandb login` to log in.",
    ],
    "container_start": [
        "FATAL:   could not open image /scratch/torch.sif: SIF image /scratch/torch.sif is corrupted",
        'FATAL:   "python": executable file not found in $PATH',
        "FATAL:   while extracting torch.sif: root filesystem extraction failed: extract command failed: "
        "ERROR  : Failed to create user namespace: user namespace disabled",
        "FATAL:   container creation failed: mount /proc/self/fd/3->/session error: while mounting image",
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file",
        "[ERROR] No such file or directory: /scratch/images/torch.sqsh",
        "slurmstepd: error: pyxis: couldn't start container",
    ],
    "environment_module": [
        'Lmod has detected the following error: Cannot load module "openmpi/4.1"',
        'Loading broken/1\n  Module ERROR: invalid command name "nosuchcommand"',
        "/var/spool/slurmd/job17/slurm_script: line 5: module: command not found",
    ],
    "no_network": [
        "FATAL:   While making image from oci registry: error fetching image to cache: failed to get "
        "checksum for docker://pytorch: error pinging docker registry registry-1.docker.io: Get "
        '"https://registry-1.docker.io/v2/": dial tcp 162.125.32.6:443: i/o timeout',
    ],
    "invalid_device_ordinal": ["torch.AcceleratorError: CUDA error: invalid device ordinal"],
    "module_not_found": [
        "ImportError: No module named yaml",
        "/usr/bin/python3: No module named torch",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",
        "ImportError: PeftModel requires the sentencepiece library but it was not found in your environment.",
    ],
    "conda_not_initialised": [
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
        "EnvironmentNameNotFound: Could not find conda environment: training",
        "CondaError: Run 'conda init' before 'conda activate'",
        "/var/spool/slurmd/job17/slurm_script: line 5: conda: command not found",
        "/var/spool/slurmd/job17/slurm_script: line 5: torchrun: command not found",
        "bash: line 1: python3.11: command not found",
        "train.sh: 3: deepspeed: not found",
        "zsh:1: command not found: accelerate",
        "/spool/job02709/slurm_script: line 3: /root/venvs/llm/bin/activate: No such file or directory",
        "bash: venv/bin/activate: No such file or directory",
        "slurm_script: 4: .: cannot open /root/venvs/llm/bin/activate: No such file",
        "/spool/job02708/slurm_script: 4: source: not found",
    ],
    "disk_quota": [
        "OSError: [Errno 122] Disk quota exceeded: '/home/user/runs/model.pt'",
        "RuntimeError: PytorchStreamWriter failed writing file data/0: No space left on device",
        "cp: error writing '/home/user/x': Disk quota exceeded",
        "FATAL: while writing the image: write /home/user/x.sif: disk quota exceeded",
    ],
    "hub_access": [
        "huggingface_hub.errors.LocalTokenNotFoundError: Token is required (`token=True`), but no token.",
    ],
    "permission_denied": [
        "OSError: [Errno 30] Read-only file system: '/home/user/runs'",
        "mkdir: cannot create directory '/runs/a': Permission denied",
        "/var/spool/slurmd/job17/slurm_script: line 5: ./run.sh: Permission denied",
        "bash: ./run.sh: Permission denied",
    ],
    "stale_nfs": [
        "OSError: [Errno 116] Stale file handle: '/home/user/data/train.bin'",
        "cp: cannot stat '/scratch/data': Stale NFS file handle",
        (
            "OSError: Unable to open file (unable to open file: name = '/data/a.h5', errno = 116, error "
            "message = 'Stale file handle')"
        ),
    ],
    "shared_library_missing": [
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        (
            "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object "
            "file: No such file or directory"
        ),
        (
            "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by "
            "/venv/lib/pandas/_libs/window.so)"
        ),
        "./train: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./train)",
        (
            "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open "
            "shared object file"
        ),
        (
            "ImportError: /venv/lib/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
            "__nvJitLinkAddData_12_1, version libnvJitLink.so.12"
        ),
    ],
    "too_many_open_files": [
        "OSError: [Errno 24] Too many open files: '/data/00017.jpg'",
        (
            "RuntimeError: unable to open shared memory object </torch_17_88> in read-write mode: Too many "
            "open files (24)"
        ),
        "RuntimeError: received 0 items of ancdata",
        (
            "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please "
            "increase the limit using `ulimit -n`"
        ),
    ],
    "all_gpus_busy": [
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ],
    "version_conflict": [
        "RuntimeError: operator torchvision::nms does not exist",
        (
            "ImportError: /venv/lib/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
            "_ZN2at4_ops5zeros4callE"
        ),
        "AttributeError: module 'torch' has no attribute 'float8_e4m3fn'",
        (
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C "
            "header, got 88"
        ),
        (
            "ImportError: cannot import name 'cached_download' from 'huggingface_hub' "
            "(/venv/lib/python3.11/site-packages/huggingface_hub/__init__.py)"
        ),
        (
            "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but "
            "found tokenizers==0.19.1."
        ),
    ],
    "file_not_found": [
        "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        "/usr/bin/python3: can't open file '/home/user/train.py': [Errno 2] No such file or directory",
        (
            "FileNotFoundError: [Errno 2] Unable to synchronously open file (unable to open file: name = "
            "'/data/a.h5', errno = 2)"
        ),
        (
            "OSError: Error no file named pytorch_model.bin, model.safetensors found in directory "
            "/home/user/ckpt."
        ),
        "OSError: Error no file named model.safetensors, or pytorch_model.bin,",
        "RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
        (
            "OSError: Incorrect path_or_model_id: '/home/user/ckpt'. Please provide either the path to a "
            "local folder or …"
        ),
    ],
}
HARMLESS = [
    "WARNING: apex is not used: ModuleNotFoundError: No module named 'apex'",
    "12:00:01 INFO no GPU found (No CUDA GPUs are available), running on the CPU",
    "DEBUG Failed checking if running in CYGWIN due to FileNotFoundError(2, 'No such file or directory')",
    "NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file: No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'",
    "FileNotFoundError: [Errno 2] No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-x2kd/listener-9'",
    "NCCL WARN Call to posix_fallocate failed : No space left on device",
    "OSError: [Errno 28] inotify watch limit reached: No space left on device",
    "git@host: Permission denied (publickey).",
    (
        "node1:88:120 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file: No such file "
        "or directory"
    ),
    (
        "2026-11-21 04:00:00.1: W tensorflow/stream_executor/dso_loader.cc:64] Could not load dynamic "
        "library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file"
    ),
    "INFO libtpu.so: cannot open shared object file; falling back to cpu",
    "torch-scatter was not found: undefined symbol: _ZN3c10",
    "ulimit -n 65536  # else Too many files",
    "ImportError: cannot import name 'helper' from 'my_project.tools'",
    "wandb: ERROR api_key not found",
    "checking for driver: the NVIDIA driver is new enough",
]


@pytest.mark.parametrize(
    ("line", "words", "confidence"),
    [
        (
            "OSError: [Errno 122] Disk quota exceeded: '/home/user/model.pt'",
            "quota was used up at /home/user/model.pt",
            0.9,
        ),
        ("OSError: [Errno 28] Error writing bytes to file.", "No space was left on the disk", 0.9),
        ("sqlite3.OperationalError: database or disk is full", "No space was left on the disk", 0.9),
        (
            "RuntimeError: Not enough free disk space to download the file",
            "No space was left on the disk",
            0.9,
        ),
        (
            (
                "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 13216422080 vs "
                "13216421968"
            ),
            "could not be written completely, most often because the disk is full or a quota is used up",
            0.6,
        ),
        (
            (
                "RuntimeError: [enforce fail at inline_container.cc:325] . PytorchStreamWriter failed "
                "writing file data/53: file write failed"
            ),
            "could not be written completely",
            0.6,
        ),
        ("OSError: 268435456 requested and 203423744 written", "could not be written completely", 0.6),
    ],
)
def test_a_quota_is_reported_only_if_the_error_names_a_quota(
    line: str, words: str, confidence: float
) -> None:
    finding = diagnose_log(line).findings[0]
    assert words in finding.summary
    assert ("quota was used up" in finding.summary) is ("quota" in line)
    assert finding.confidence == confidence


def refused(cause: str, text: str, **more: object) -> Finding:
    """The primary finding of a run whose job stated why it stopped."""
    launched = run(resources={"num_nodes": 2, "gpus_per_node": 1, "exclude": "node7"}, state="FAILED")
    ended = RunExit("FAILED", 78, 2.0, (), Refusal(cause, text, "node2"))
    snapshot = TargetSnapshot("run", 2.0, run=launched, exit=ended)
    findings = Engine(build()).diagnose(replace(snapshot, **more), History()).findings  # type: ignore[arg-type]
    assert [finding.cause for finding in findings if finding.severity >= Severity.WARNING] == [cause]
    return findings[0]


@pytest.mark.parametrize(("name", "code", "cause"), [(name, *found) for name, found in ENDED.items()])
def test_a_program_that_really_failed_gets_its_cause(name: str, code: str, cause: str) -> None:
    finding = diagnose(f"ended/{name}.log").findings[0]
    assert (finding.rule, finding.cause, finding.is_primary) == (code, cause, True)
    assert finding.severity == Severity.CRITICAL
    assert finding.evidence[0].line
    assert finding.fixes


@pytest.mark.parametrize("log", sorted((RECORDINGS / "caught").iterdir()), ids=lambda log: str(log.stem))
def test_the_same_error_caught_by_a_program_that_trains_on_is_only_info(log: object) -> None:
    findings = diagnose(str(log)).findings
    assert {finding.severity for finding in findings} == {Severity.INFO}
    assert findings[0].summary.endswith("the program went on")


@pytest.mark.parametrize(
    ("cause", "line"), [(cause, line) for cause, lines in DEADLY.items() for line in lines]
)
def test_every_wording_of_an_error_leads_to_its_cause(cause: str, line: str) -> None:
    assert causes(diagnose_log(f"loading\n{line}\n")) == [cause]


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_mean_something_else_or_nothing_stay_silent(line: str) -> None:
    assert not causes(diagnose_log(f"{line}\nepoch 0\n"))


def test_a_driver_that_is_too_old_is_reported_with_the_cuda_that_it_supports() -> None:
    finding = diagnose("typed/driver-too-old.log").findings[0]
    assert (finding.rule, finding.cause) == ("ENV002", "driver_too_old")
    assert "CUDA up to 12.8" in finding.summary


@pytest.mark.parametrize(("gpus", "expected"), [(1, ["driver_too_old"]), (0, [])])
def test_training_on_the_cpu_beside_allotted_gpus_is_a_warning(gpus: int, expected: list[str]) -> None:
    hits = scan((RECORDINGS / "typed/driver-too-old-on-cpu.log").read_text())
    launched = run(resources={"num_nodes": 1, "gpus_per_node": gpus})
    snapshot = TargetSnapshot("run", 2.0, run=launched, log_hits=hits)
    findings = Engine(build()).diagnose(snapshot, History()).findings
    assert [f.cause for f in findings if f.severity == Severity.WARNING] == expected
    assert len(findings) == len(expected)


def test_an_error_long_before_a_log_that_ends_well_is_info_and_one_that_others_died_of_is_not() -> None:
    error = (RECORDINGS / "ended/module-not-found.log").read_text()
    progress = "".join(f"epoch {number} accuracy {number / 10:.1f} %\n" for number in range(700))
    for end, expected in (("done\n", []), ("srun: error: node2: task 1: Exited with exit code 1\n", [CAUSE])):
        scanner = LogScanner(signatures(build()), "train.log")
        hits = scanner.feed((error + progress + end).encode()) + scanner.flush()
        snapshot = TargetSnapshot("train.log", None, log_hits=tuple(hits), log_tails=(scanner.tail(),))
        assert causes(Engine(build()).diagnose(snapshot, History())) == expected


def test_a_foreign_trainer_that_says_it_trains_on_the_cpu_beside_its_gpus_is_warned() -> None:
    asked = {"num_nodes": 1, "gpus_per_node": 2}
    snapshot = TargetSnapshot("run", 2.0, run=run(resources=asked, device={"type": "cpu"}))
    (finding,) = Engine(build()).diagnose(snapshot, History()).findings
    assert (finding.cause, finding.severity) == ("cuda_unavailable", Severity.WARNING)
    on_gpu = replace(snapshot, run=run(resources=asked, device={"type": "cuda"}))
    assert not Engine(build()).diagnose(on_gpu, History()).findings


TRAINED = "".join(f"step {step} loss: {2.3 / step:.4f}\n" for step in range(1, 40))


@pytest.mark.parametrize(
    "name", ["module-command-missing", "module-conflict-tcl", "module-unknown", "module-unknown-tcl"]
)
def test_a_module_that_the_training_did_not_need_is_no_cause_of_its_end(name: str) -> None:
    failed = "".join((RECORDINGS / f"ended/{name}.log").read_text().splitlines(keepends=True)[:-1])
    assert not causes(diagnose_whole(failed + TRAINED))
    ended = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyError: 7\n'
    assert causes(diagnose_whole(failed + ended)) == ["code_error"]
    assert causes(diagnose_whole(failed + TRAINED + ended)) == ["code_error"]


@pytest.mark.parametrize(
    ("module", "first"), [("pytorch/2.1", "environment_module"), ("cuda/11.8", "module_not_found")]
)
def test_a_package_is_missing_for_its_module_only_where_that_brings_python(module: str, first: str) -> None:
    missed = (RECORDINGS / "ended/module-not-found.log").read_text()
    log = f"ERROR: Unable to locate a modulefile for '{module}'\n{missed}"
    assert causes(diagnose_whole(log))[0] == first


def test_a_missing_module_is_named_with_the_command_that_finds_others() -> None:
    finding = diagnose("ended/module-unknown.log").findings[0]
    assert finding.summary == "The environment module python/3.99 does not exist here"
    assert "module avail python" in finding.fixes[0].title
    finding = diagnose("ended/module-conflict-tcl.log").findings[0]
    assert finding.summary.startswith("The environment module python was not loaded: ")
    finding = diagnose("ended/module-command-missing.log").findings[0]
    assert "#!/bin/bash -l" in finding.fixes[0].title


PULLED = """pyxis: importing docker image: torch.sqsh
slurmstepd: error: pyxis: child 10028 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image: torch.sqsh
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/torch returned error code: 401 Unauthorized
slurmstepd: error: pyxis: couldn't start container
srun: error: node1: task 0: Exited with exit code 1
"""


@pytest.mark.parametrize(
    ("log", "said", "fix"),
    [
        (PULLED, "returned error code: 401 Unauthorized", "path that begins with / or ./"),
        ('FATAL:   "python": executable file not found in $PATH\n', "no program python", "full path"),
        (
            "FATAL:   could not open image /s/a.sif: lstat /s/a.sif: no such file or directory\n",
            "image /s/a.sif",
            "where compute nodes see it",
        ),
        ("ERROR  : Failed to create user namespace: user namespace disabled\n", "namespace", "Ask the site"),
        ("FATAL:   container creation failed: hook failure\n", "hook failure", "by hand"),
    ],
)
def test_a_container_that_does_not_start_gets_its_reason_and_a_remedy(log: str, said: str, fix: str) -> None:
    (finding,) = diagnose_log(log).findings
    assert (finding.cause, finding.severity) == ("container_start", Severity.CRITICAL)
    assert said in finding.summary
    assert fix in finding.fixes[0].title


def test_a_script_that_trained_without_its_container_is_left_alone() -> None:
    assert not causes(diagnose_whole(PULLED + TRAINED))
    assert not causes(diagnose_whole(f"FATAL:   container creation failed: hook failure\n{TRAINED}"))


def test_wandb_without_a_key_is_mended_by_writing_to_disk() -> None:
    line = "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[key])"
    (finding,) = diagnose_log(f"{line}\n").findings
    assert finding.fixes[0].changes == {"env": {"WANDB_MODE": "offline"}}
    assert not causes(diagnose_log(f"wandb: WARNING {line}\n{TRAINED}"))


def test_a_checkpoint_with_objects_names_the_class_to_allow() -> None:
    finding = diagnose("ended/checkpoint-of-objects.log").findings[0]
    assert "argparse.Namespace" in finding.summary
    assert "add_safe_globals([argparse.Namespace])" in finding.fixes[0].title
    assert "weights_only=False" in finding.fixes[1].title
    assert not finding.fixes[0].changes_learning


def test_a_job_without_a_gpu_gets_advice_to_ask_for_one() -> None:
    finding = diagnose("typed/no-gpu.log").findings[0]
    assert (finding.rule, finding.cause) == ("ENV004", "cuda_unavailable")
    assert "--gpus" in finding.fixes[0].title


def test_a_conda_environment_that_runs_below_was_activated_after_all() -> None:
    missed = "/var/spool/slurmd/job17/slurm_script: line 12: activate: No such file or directory\n"
    package = "/home/ada/miniconda3/envs/cycada/lib/python3.7/site-packages/torch"
    warned = f"{package}/nn/functional.py:3734: UserWarning: upsample is deprecated\n"
    assert [finding.rule for finding in diagnose_log(missed).findings] == ["ENV008"]
    assert diagnose_whole(missed + warned).findings == ()


@pytest.mark.parametrize(
    ("line", "why", "fix"),
    [
        (
            "critical libmamba Cannot activate, prefix does not exist at: '/opt/conda/envs/download'",
            "no environment of this user has that name or path",
            "List the environments",
        ),
        (
            "DirectoryNotACondaEnvironmentError: The target directory exists, but it is not a conda "
            "environment.",
            "no environment of this user has that name or path",
            "List the environments",
        ),
        (
            "EnvironmentNameNotFound: Could not find conda environment: training",
            "no environment of this user has that name or path",
            "List the environments",
        ),
        (
            "/opt/conda/etc/profile.d/conda.sh: line 26: PS1: unbound variable",
            "conda's script uses PS1, which is not set",
            "In the script, put `set +u` before",
        ),
        (
            "bash: /opt/conda/bin/conda: /old/bin/python: bad interpreter: No such file or directory",
            "conda needs /old/bin/python, which does not start",
            "If conda was moved or copied",
        ),
    ],
)
def test_an_environment_that_a_set_up_of_the_shell_would_not_activate_is_told_its_own_fix(
    line: str, why: str, fix: str
) -> None:
    (finding,) = diagnose_log(line).findings
    assert finding.rule == "ENV008"
    assert why in finding.summary
    assert [each.title.startswith(fix) for each in finding.fixes] == [True]


@pytest.mark.parametrize(
    ("line", "says", "fix"),
    [
        (
            "slurm_script: line 3: /venvs/llm/bin/activate: No such file or directory",
            "The environment was not activated: the node has no /venvs/llm/bin/activate",
            "See whether compute nodes have it",
        ),
        (
            "slurm_script: line 3: .venv/bin/activate: No such file or directory",
            "The environment was not activated: the node has no .venv/bin/activate",
            "Correct that line of the script: name an environment that is there, by its full path",
        ),
        ("slurm_script: 4: source: not found", "sh runs the script, not bash", "Write `. FILE` in place of"),
    ],
)
def test_an_environment_that_was_not_activated_comes_before_what_is_missing_because_of_it(
    line: str, says: str, fix: str
) -> None:
    missing = (
        "Traceback (most recent call last):",
        '  File "/home/ada/train.py", line 1, in <module>',
        "    import lightning",
        "ModuleNotFoundError: No module named 'lightning'",
    )
    first, other = diagnose_whole("\n".join((line, *missing)) + "\n").findings
    assert (first.rule, first.severity) == ("ENV008", Severity.CRITICAL)
    assert says in first.summary
    assert first.fixes[0].title.startswith(fix)
    assert (other.rule, other.consequence_of) == ("ENV007", "ENV008")
    trained = "".join(f"step {step} loss {2 / step:.3f}\n" for step in range(1, 60))
    (alone,) = diagnose_whole(f"{line}\n{trained}").findings
    assert (alone.rule, alone.severity) == ("ENV008", Severity.INFO)


def test_a_shell_without_conda_is_not_told_to_ask_conda() -> None:
    (finding,) = diagnose_whole("slurm_script: line 3: conda: command not found\n").findings
    assert not any("$(conda" in fix.title for fix in finding.fixes)
    assert any("/etc/profile.d/conda.sh" in fix.title for fix in finding.fixes)


def test_conda_comes_before_the_module_that_is_missing_because_of_it() -> None:
    findings = diagnose("ended/conda-not-initialised.log").findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("ENV008", None), ("ENV007", "ENV008")]


@pytest.mark.parametrize(
    ("cause", "text", "rule"),
    [
        ("driver_too_old", "the NVIDIA driver 570 supports CUDA up to 12.8, too old for torch 2.9", "ENV002"),
        ("cuda_unavailable", "GPUs were allotted, but torch 2.6+cpu was built without CUDA", "ENV003"),
        ("cuda_unavailable", "GPUs were allotted on node2, but none is there (no /dev/nvidia0)", "ENV004"),
        ("module_not_found", "torch is not installed in /usr/bin/python3 on node2", "ENV007"),
        ("disk_quota", "the run directory cannot take another MiB", "ENV010"),
        ("permission_denied", "the run directory cannot be written from node2", "ENV011"),
        ("version_conflict", "torch 2.3 is not what this recipe needs: torch >=2.6", "ENV016"),
        ("file_not_found", "the data directory /data does not exist on node2", "DAT011"),
    ],
)
def test_the_job_s_own_message_is_the_finding_with_or_without_its_run_directory(
    cause: str, text: str, rule: str
) -> None:
    finding = refused(cause, text)
    assert (finding.rule, finding.summary, finding.subject.node) == (rule, text, "node2")
    assert finding.evidence[0].file == "/runs/ddp/exit.json"
    alone = diagnose_log(f"coach: {cause}: {text}\n").findings
    assert [(found.rule, found.cause, found.summary) for found in alone] == [(rule, cause, text)]


def test_torch_without_cuda_is_mended_by_the_same_launch_without_gpus() -> None:
    text = "GPUs were allotted, but torch 2.6+cpu was built without CUDA"
    said = Refusal("cuda_unavailable", text, "node2")
    asked = {"num_nodes": 1, "gpus_per_node": 2, "nproc_per_node": 2}
    launched = replace(run(resources=asked, state="FAILED", launch={"recipe": "ddp"}), why_not_mine=None)
    snapshot = TargetSnapshot("run", 2.0, run=launched, exit=RunExit("FAILED", 78, 2.0, (), said))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    typed = [fix for fix in finding.fixes if fix.changes]
    assert [dict(fix.changes) for fix in typed] == [{"gpus_per_node": 0, "nproc_per_node": 2}]
    assert not typed[0].changes_learning
    (remedy,) = remedies(launched, [finding])
    assert (remedy.request.gpus_per_node, remedy.request.nproc_per_node) == (0, 2)
    without = replace(launched, resources={**asked, "gpus_per_node": 0})
    told = Engine(build()).diagnose(replace(snapshot, run=without), History()).findings[0]
    assert not any(fix.changes for fix in told.fixes)


def test_a_node_that_refused_can_be_left_out_beside_those_that_are_left_out_already() -> None:
    fixes = refused("driver_too_old", "the NVIDIA driver is too old").fixes
    assert {"exclude": "node7,node2"} in [dict(fix.changes) for fix in fixes]


def test_a_real_refused_run_names_the_data_that_are_missing() -> None:
    diagnosis = diagnose("refused")
    assert causes(diagnosis) == ["file_not_found"]
    assert "/scratch/data" in diagnosis.findings[0].summary


def test_an_error_of_a_program_that_still_runs_or_completed_is_info() -> None:
    log = (RECORDINGS / "ended/disk-full.log").read_text()
    for state in ("RUNNING", "COMPLETED"):
        assert not causes(diagnose_log(log, run(state=state)))
    assert causes(diagnose_log(log, run(state="FAILED"))) == ["disk_quota"]


def test_every_rule_of_an_ending_knows_coachs_own_line() -> None:
    families = [
        rule
        for rule in rule_classes()
        if rule.__module__.startswith("coach.rules.environment.") and issubclass(rule, EndingRule)
    ]
    assert len(families) >= 8
    for rule in families:
        words = "torch was built without CUDA" if rule.code == "ENV003" else "it lacks something"
        diagnosis = diagnose_log(f"coach: {rule.cause}: {words}\n", run(state="FAILED"))
        assert (rule.code, words) in [(each.rule, each.summary) for each in diagnosis.findings]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "hostname_resolution"),
        ("ssh: Could not resolve hostname github.com: Name or service not known", "hostname_resolution"),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='head-node', port=8265): Max "
            "retries exceeded with url: / (Caused by "
            "NameResolutionError(\"<x>: Failed to resolve 'head-node' ([Errno -2] Name or service not "
            'known)"))',
            "hostname_resolution",
        ),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='head-node', port=8265): Max "
            "retries exceeded with url: / (Caused by "
            "NewConnectionError('<x>: Failed to establish a new connection: [Errno 111] Connection refused'))",
            "code_error",
        ),
        ("OSError: [Errno 113] No route to host", "code_error"),
        ("RuntimeError: Error downloading train-images-idx3-ubyte.gz", "code_error"),
        (
            (
                "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk "
                "cache and outgoing traffic has been disabled."
            ),
            "file_not_found",
        ),
    ],
)
def test_a_host_of_the_cluster_is_no_download(line: str, cause: str) -> None:
    frames = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
    assert causes(diagnose_log(frames + line)) == [cause]


def test_a_download_is_to_be_fetched_where_there_is_a_network_and_not_named_otherwise() -> None:
    finding = diagnose_log(
        "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>"
    ).findings[0]
    assert "login node" in finding.fixes[0].title
    assert "HF_HOME" in finding.fixes[0].title
    tracker = (
        "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries "
        "exceeded (Caused by ConnectTimeoutError(1))"
    )
    assert diagnose_log(tracker).findings[0].fixes[0].changes == {"env": {"WANDB_MODE": "offline"}}


TOO_OLD = (
    "/env/torch/cuda/__init__.py:128: UserWarning: CUDA initialization: The NVIDIA driver on your system is "
    "too old (found version 11040).\n"
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
)


def test_a_warning_about_the_driver_leads_only_where_it_explains_the_end() -> None:
    shapes = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x256 and 512x10)"
    assert causes(diagnose_log(TOO_OLD + shapes)) == ["shape_mismatch", "driver_too_old"]
    told = diagnose_log(TOO_OLD + "RuntimeError: No CUDA GPUs are available").findings
    assert [(f.rule, f.consequence_of) for f in told] == [("ENV002", None), ("ENV004", "ENV002")]


@pytest.mark.parametrize("said", [TOO_OLD, "Failed to initialize NVML: Driver/library version mismatch\n"])
def test_a_driver_that_is_too_old_explains_no_plain_exception_of_the_program(said: str) -> None:
    failed = (
        "Traceback (most recent call last):\n"
        + '  File "/home/user/train.py", line 3, in main\n    step()\n'
        + "KeyError: 'val_acc'\n"
    )
    findings = diagnose_log(said + failed).findings
    assert [(f.cause, f.consequence_of) for f in findings] == [("code_error", None), ("driver_too_old", None)]


def test_an_unknown_module_that_an_own_file_imports_is_first_looked_for_there() -> None:
    head = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 2, in <module>\n'
    typo = diagnose_log(f"{head}    from modle import Net\nModuleNotFoundError: No module named 'modle'\n")
    assert typo.findings[0].fixes[0].title.startswith("If modle is a file of yours, correct its name")
    assert not any("pip install" in fix.title for fix in typo.findings[0].fixes)
    known = diagnose_log(f"{head}    import cv2\nModuleNotFoundError: No module named 'cv2'\n").findings[0]
    assert known.fixes[-1].title == "Or install it there: python -m pip install opencv-python"


def test_a_pickle_of_numpy_2_is_told_from_a_missing_numpy() -> None:
    head = 'Traceback (most recent call last):\n  File "/home/ada/data.py", line 30, in __getitem__\n'
    error = "    sample = pickle.load(file)\nModuleNotFoundError: No module named 'numpy._core.numeric'\n"
    finding = diagnose_log(head + error).findings[0]
    assert finding.summary.startswith("The file was written by numpy 2, and the numpy that reads it is older")
    assert finding.fixes[0].command == "python -m pip install 'numpy>=2'"


def test_a_file_with_a_near_name_beside_the_program_is_named_first(tmp_path: Path) -> None:
    for name in ("model.py", "data", "torchx", "notes.txt"):
        (tmp_path / name).touch()
    source = LogSource(SystemIo({}), "log", lambda: [tmp_path / "log"], lambda: signatures(build()))
    head = f'Traceback (most recent call last):\n  File "{tmp_path}/train.py", line 2, in <module>\n'
    error = "    from modle import Net\nModuleNotFoundError: No module named 'modle'\n"
    (tmp_path / "log").write_text(head + error + "step 1\n")
    hits = tuple(hit for _ in range(2) for reading in source.poll() for hit in _hits(reading.payload))
    (finding,) = Engine(build()).diagnose(TargetSnapshot("log", None, log_hits=hits), History()).findings
    assert finding.summary == f"There is no Python module modle, but model.py lies in {tmp_path}"
    assert finding.fixes[0].title == f"Import model instead of modle in {tmp_path}/train.py"


@pytest.mark.parametrize(
    ("module", "near"),
    [("modle", "model.py"), ("Model", "model.py"), ("dta", "data"), ("model", None), ("einops", None)],
)
def test_only_a_near_name_that_can_be_imported_is_offered(module: str, near: str | None) -> None:
    assert near_name(module, ["model.py", "data", "notes.txt", "my-einops.py", "einops.md"]) == near


def _hits(payload: object) -> tuple[LogHit, ...]:
    return payload.hits if isinstance(payload, LogChunk) else ()


def test_a_failed_cd_is_named_before_the_file_that_is_missing_there() -> None:
    cd = "/var/spool/job08150/slurm_script: line 4: cd: /home/ada/trainings: No such file or directory\n"
    missing = "python: can't open file '/home/ada/train.py': [Errno 2] No such file or directory\n"
    told = diagnose_whole(cd + missing).findings[0]
    assert (told.rule, told.fixes[0].title) == (
        "DAT011",
        "Correct the line `cd /home/ada/trainings` of the batch script: it failed, so the job ran elsewhere",
    )
    assert told.evidence[-1].line == 1
    assert "cd " not in diagnose_whole(missing).findings[0].fixes[0].title
