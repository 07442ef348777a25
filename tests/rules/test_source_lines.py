"""A traceback shows source lines beside its error: an error text in such a line is no evidence."""

from __future__ import annotations

import pytest

from coach.rules.registry import build, signatures
from coach.sources.logs.scanner import LogScanner
from tests.rules.examples import causes, diagnose_log, of_a_whole_log

HEAD = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n'


@pytest.mark.parametrize(
    "source",
    [
        'raise RuntimeError(f"NCCL error in: {file}") from error',
        'raise RuntimeError(f"Error: CUDA out of memory. Tried to allocate {n} MiB")',
        'assert loss == loss, "loss: nan"',
        'raise RuntimeError(\n        "RuntimeError: Expected all tensors to be on the same device"\n    )',
        (
            'raise FileNotFoundError(\n    ^^^^^^^^^^^^^^^^^^^^^^^^\n        "FileNotFoundError: [Errno 2] '
            "'/x'\",\n    )"
        ),
    ],
)
def test_an_error_text_in_a_source_line_of_a_traceback_is_not_an_error(source: str) -> None:
    diagnosis = diagnose_log(f"{HEAD}    {source}\nValueError: bad label")
    assert causes(diagnosis) == ["code_error"]
    assert diagnosis.findings[0].summary.endswith("ValueError: bad label")


@pytest.mark.parametrize(
    "log",
    [
        "[rank1]: "
        + HEAD.replace("\n", "\n[rank1]: ")
        + '    raise RuntimeError("NCCL error in: x")\n[rank1]: ValueError: bad label',
        HEAD.replace("/home/user/", "/home/user/RuntimeError: CUDA error: unspecified launch failure/")
        + "    step()\nValueError: bad label",
        "╭──────────── Traceback (most recent call last) ────────────╮\n"
        "│ /home/user/train.py:12 in main                             │\n"
        "│   10 │   if x:                                             │\n"
        '│ ❱ 12 │   │   raise RuntimeError("Error: NCCL error in: x")  │\n'
        "╰────────────────────────────────────────────────────────────╯\nValueError: bad label",
        "Traceback (most recent call last)\n"
        '----> 3 raise RuntimeError("Error: NCCL error in: x")\n\nValueError: bad label',
    ],
    ids=["rank-prefix", "frame", "box", "notebook"],
)
def test_an_error_text_in_a_source_line_of_a_rank_a_box_or_a_file_name_is_not_an_error(log: str) -> None:
    assert of_a_whole_log(*log.splitlines()) == ["code_error"]


@pytest.mark.parametrize(
    "log",
    [
        '/home/user/train.py:3: UserWarning: slow\n  raise RuntimeError("CUDA error: out of memory")\nstep 1',
        "ERROR: asked for the stack\nStack (most recent call last):\n"
        + HEAD.partition("\n")[2]
        + '    raise RuntimeError("Error: CUDA error: out of memory")\nstep 1',
        "    def test():\n>       raise RuntimeError('CUDA error: out of memory')\n"
        "E       ValueError: bad label",
        "ValueError                                Traceback (most recent call last)\nFile ~/a.py:9, in f()\n"
        "      9     raise RuntimeError('CUDA error: out of memory')\n---> 10     y()\n\n"
        "ValueError: bad label",
        "".join(
            f"W1121 03:00:01.123000 17 torch/_dynamo/convert_frame.py:1125] [0/0] {line}\n"
            for line in (*HEAD.splitlines(), "    raise RuntimeError('CUDA error: out of memory')", "E: x")
        ),
    ],
    ids=["warning", "stack", "pytest", "context", "dynamo"],
)
def test_nor_below_a_warning_in_a_logged_stack_or_beside_the_line_that_raised(log: str) -> None:
    assert "cuda_oom" not in of_a_whole_log(*log.splitlines())


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/home/user/train.py", line 3, in main
  |     raise ExceptionGroup("RuntimeError: NCCL error in: x", [x])
  | ExceptionGroup: bad (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/user/train.py", line 2, in main
    |     raise y
    | torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
    +------------------------------------"""
INDENTED = """[ERROR] Traceback (most recent call last):
    File "/home/user/train.py", line 3, in main
      raise RuntimeError("NCCL error in: x")
    torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"""
SUMMARY = """  traceback : Traceback (most recent call last):
    File "/home/user/train.py", line 3, in main
      raise RuntimeError("NCCL error in: x")
  torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"""


@pytest.mark.parametrize("log", [GROUP, INDENTED, SUMMARY], ids=["group", "logger", "torchrun"])
def test_an_exception_indented_with_its_whole_traceback_is_found(log: str) -> None:
    assert causes(diagnose_log(log)) == ["cuda_oom"]


def test_a_path_that_is_asserted_is_read_from_the_source_as_the_error_has_no_words() -> None:
    log = f"{HEAD}    assert os.path.exists(path)\n           ^^^^^^^^^^^^^^^^^^^^\nAssertionError"
    assert causes(diagnose_log(log))[0] == "file_not_found"


BARS = {
    "tqdm": "\r".join(f" {done}0%|#         | {done}/10 [00:0{done}<00:09,  1.10s/it]" for done in range(6)),
    "Keras": "\r".join(f" {done}/10 [>.........] - ETA: 3s" for done in range(1, 6)),
    "its own": "\r".join(f"   part {done} of 10" for done in range(6)),
}
LIMIT = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-10T08:00:00 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (LIMIT, "slurm_timeout"),
        (LIMIT.replace("TIME LIMIT", "PREEMPTION"), "slurm_preempted"),
        ("Killed", "host_oom"),
        (" Killed", "host_oom"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=17.batch.", "host_oom"),
        ("slurm_script: line 9: 4242 Killed                  python train.py", "host_oom"),
        ("Segmentation fault (core dumped)", "segfault"),
        ("Terminated", "sigterm_signal"),
    ],
)
@pytest.mark.parametrize("bar", BARS)
def test_a_progress_bar_is_no_source_line_and_hides_no_end(bar: str, end: str, cause: str) -> None:
    warning = "/env/torch/functional.py:504: UserWarning: indexing is required\n  return _VF.meshgrid(x)"
    assert of_a_whole_log("start", BARS[bar] + end) == [cause]
    assert of_a_whole_log(warning, BARS[bar] + end) == [cause]


@pytest.mark.parametrize("num_bytes", [1, 3, 50])
@pytest.mark.parametrize("bar", BARS)
def test_a_kill_behind_a_bar_is_found_once_however_the_log_is_read(bar: str, num_bytes: int) -> None:
    data = f"start\n{BARS[bar]}Killed\n".encode()
    scanner = LogScanner(signatures(build()), "train.log")
    hits = []
    for start in range(0, len(data), num_bytes):
        hits += scanner.feed(data[start : start + num_bytes]) + scanner.flush()
    assert [(hit.text, hit.line) for hit in hits if hit.rule == "MEM008"] == [("Killed", 2)]


@pytest.mark.parametrize("line", ["12 agents Killed", "all jobs were Terminated"])
def test_a_line_that_ends_with_a_signal_s_word_is_no_bar(line: str) -> None:
    assert of_a_whole_log("start", line, "step 1 loss 0.5") == []
