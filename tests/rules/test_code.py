"""A plain mistake of the program: told by its last words alone, or by an exception that another rule
declines."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.from_logs.quoted_evidence import is_library
from coach.rules.registry import build
from tests.rules.examples import diagnose_log, diagnose_whole, of_a_whole_log, scan, tail_of

STEPS = [f"epoch 1 step {step}" for step in range(10, 60, 10)]
FRAMES = ["Traceback (most recent call last):", '  File "/home/user/train.py", line 3, in main', "    step()"]


@pytest.mark.parametrize(
    "last",
    [
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
        "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct",
    ],
)
def test_a_program_that_printed_only_its_exception_ended_with_it(last: str) -> None:
    assert of_a_whole_log(*STEPS, last) == ["code_error"]
    assert of_a_whole_log(*STEPS, last, "srun: error: node1: task 0: Exited with exit code 1") == [
        "code_error"
    ]


def test_an_exception_without_a_traceback_that_is_not_the_last_word_ended_nothing() -> None:
    error = "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    assert of_a_whole_log(*STEPS, error, *STEPS) == []


@pytest.mark.parametrize(
    "start_file",
    ["/etc/profile.d/modules.sh", "/etc/bash.bashrc", "/home/user/.bashrc", "/home/user/.profile"],
)
def test_a_start_file_of_the_login_shell_explains_no_exception(start_file: str) -> None:
    missing = f"{start_file}: line 6: /usr/share/modules/init/sh: No such file or directory"
    assert of_a_whole_log(missing, *FRAMES, "ValueError: 11 classes, 10 expected") == ["code_error"]
    own = "./run.sh: line 3: ./local/clean.sh: No such file or directory"
    assert of_a_whole_log("started", own) == ["file_not_found"]


@pytest.mark.parametrize(
    "said",
    [
        "the sequence length 2851 is above the cache of 2560",
        "no objective: byol, dino or moco is expected",
        "cannot prune to a sparsity of 1.5",
        "grad_norm: 17.5 is above the bound 10.0",
        "train loss: 0.5, val loss: 0.9, the history has no third value",
    ],
)
def test_words_that_also_announce_a_stage_of_the_training_explain_no_exception(said: str) -> None:
    assert of_a_whole_log(*FRAMES, f"ValueError: {said}") == ["code_error"]


LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


def test_a_failed_rank_is_reported_although_its_error_is_in_another_log() -> None:
    told = [*FRAMES, LAUNCHER, "=====", "train.py FAILED", "Root Cause (first observed failure):"]
    assert of_a_whole_log(*STEPS, *told, "  exitcode  : 1 (pid: 17)") == ["code_error"]
    assert "code_error" not in of_a_whole_log(*STEPS, *told, "  exitcode  : -6 (pid: 17)")


def test_the_rank_that_left_with_a_code_of_its_own_is_named() -> None:
    block = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 3 (pid: 17)",
    ]
    lines = (*STEPS, *FRAMES, LAUNCHER, "=====", "train.py FAILED", *block)
    text = "\n".join(lines)
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    (finding,) = Engine(build()).diagnose(snapshot, History()).findings
    assert (finding.cause, finding.subject.rank) == ("code_error", 1)
    assert finding.summary == "Rank 1 ended with exit code 3; its error is not in this log"


def test_the_launchers_report_of_a_failed_rank_is_no_second_finding_beside_the_cause() -> None:
    told = [LAUNCHER, "  exitcode  : 1 (pid: 17)"]
    assert of_a_whole_log(
        *STEPS, *FRAMES, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", *FRAMES, *told
    ) == ["cuda_oom"]


@pytest.mark.parametrize(
    "last", ["Error: 3 samples were left out", "ValueError", "UserWarning: slow tokenizer"]
)
def test_words_without_an_exception_s_name_or_message_are_no_end(last: str) -> None:
    assert of_a_whole_log(*STEPS, last) == []


def test_an_eof_error_outside_of_a_checkpoint_is_a_mistake_of_the_program() -> None:
    assert of_a_whole_log(*STEPS, *FRAMES, "EOFError") == ["code_error"]


def test_a_pipe_whose_other_end_is_gone_is_no_mistake_of_the_program() -> None:
    connection = '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 383, in _recv'
    assert of_a_whole_log(*STEPS, *FRAMES, connection, "    raise EOFError", "EOFError") == []


@pytest.mark.parametrize(
    "error", ["zlib.error", "socket.timeout", "jsonschema.Invalid", "_queue.Empty", "Warning"]
)
def test_an_exception_of_any_name_is_seen_without_a_word_behind_it(error: str) -> None:
    assert of_a_whole_log(*STEPS, *FRAMES, error) == ["code_error"]


@pytest.mark.parametrize(
    "error",
    [
        "MyCrash",
        "__main__.MyCrash: it fell over",
        "subprocess.TimeoutExpired: Command 'x' timed out after 3 seconds",
        "torch.OutOfMemory: no room",
        "hydra.errors.Unknown: no such key",
        "GeneratorExit",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
@pytest.mark.parametrize("is_launched", [False, True])
def test_an_exception_is_known_by_its_place(error: str, prefix: str, is_launched: bool) -> None:
    report = (
        "E1121 04:00:00.000000 140 torch/elastic/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 17)",
        *FRAMES,
        LAUNCHER,
        "Root Cause (first observed failure):",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 1 (pid: 17)",
    )
    lines = (*STEPS, *(prefix + line for line in (*FRAMES, error)), *(report if is_launched else ()))
    (finding,) = diagnose_whole("\n".join(lines) + "\n").findings
    assert (finding.rule, finding.cause) == ("COD001", "code_error")
    assert finding.summary.startswith(error.partition(":")[0].rpartition(".")[2])
    assert finding.evidence[0].line == len((*STEPS, *FRAMES)) + 1


def test_an_unnamed_exception_that_was_logged_or_outlived_ended_nothing() -> None:
    logged = of_a_whole_log(*STEPS, "ERROR trial 3 failed", "ERROR " + FRAMES[0], *FRAMES[1:], "MyCrash")
    assert "code_error" not in logged
    assert of_a_whole_log(*STEPS, *FRAMES, "MyCrash: again", *STEPS * 12) == []
    assert "code_error" not in of_a_whole_log(*STEPS, *FRAMES, "Epoch 3 ended")


@pytest.mark.parametrize(
    "said",
    [
        [
            "Primary config directory not found.",
            "Check that the config directory '/home/user/conf' exists and readable",
        ],
        ["Could not override 'lr'.", "To append to your config use +lr=1", "Key 'lr' is not in struct"],
        ["In 'config': Could not find 'db/postgres'", "", "Available options in 'db':", "\tmysql"],
        ["You must specify 'model', e.g, model=<OPTION>"],
    ],
)
def test_a_configuration_that_hydra_cannot_compose_is_reported_with_its_first_words(said: list[str]) -> None:
    end = "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."
    lines = (*STEPS, *said, "", end)
    log = "\n".join(lines) + "\n"
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(log), log_tails=(tail_of(log),))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert (finding.cause, finding.summary) == ("code_error", f"The program ended with an error: {said[0]}")
    assert of_a_whole_log(*said, "", end, *(f"step {step} of the next attempt" for step in range(60))) == []


def test_the_words_of_an_exception_of_hydra_go_on_below_it() -> None:
    error = "hydra.errors.ConfigCompositionException: Could not override 'task.data'."
    assert of_a_whole_log(
        *STEPS, error, "To append to your config use +task.data=x", "Key 'data' is not in struct"
    ) == ["code_error"]
    assert of_a_whole_log(*STEPS, error, *STEPS, *STEPS) == []
    tracer = (
        "jax.errors.TracerArrayConversionError: The numpy.ndarray conversion method __array__() was called "
        "on a traced array"
    )
    assert of_a_whole_log(*STEPS, tracer, "See https://docs.jax.dev/en/latest/errors.html") == ["code_error"]


@pytest.mark.parametrize(
    "error",
    [
        "train.py: error: unrecognized arguments: --local-rank=0",
        "fairseq-train: error: the following arguments are required: data",
        "torchrun: error: argument --nnodes: expected one argument",
        "llm train: error: argument --bf16: invalid bool value: 'maybe'",
        'error: Parser key "data":',
        'error: Key "model.width" is required but not included in config object or its value is None.',
        "Error: No such option: --learning-rate Did you mean --lr?",
        "│ Missing option '--data'.                                                     │",
        "ERROR: Could not consume arg: --learning_rate",
        "FATAL Flags parsing error:",
    ],
)
def test_arguments_that_a_program_refuses_are_its_end(error: str) -> None:
    usage = "usage: train [-h] [--bf16 BF16]"
    assert of_a_whole_log(usage, error, "  expected a class path") == ["bad_arguments"]
    assert of_a_whole_log(usage, error, *(f"step {step} of the next attempt" for step in range(60))) == []


@pytest.mark.parametrize(
    "line",
    [
        "conda: error: argument COMMAND: invalid choice: 'activate'",
        "error: pathspec 'main' did not match any file(s)",
    ],
)
def test_an_error_of_a_tool_in_the_script_is_not_the_programs_end(line: str) -> None:
    assert "code_error" not in of_a_whole_log(line, *STEPS)


def test_a_line_that_could_not_be_logged_ends_nothing() -> None:
    error = "TypeError: not all arguments converted during string formatting"
    frames = [
        FRAMES[0],
        '  File "/usr/lib/python3.11/logging/__init__.py", line 1110, in emit',
        "    msg = self.format(record)",
    ]
    call_stack = ["Call stack:", *FRAMES[1:], "Message: 'epoch'", "Arguments: (1,)"]
    assert of_a_whole_log(*STEPS, "--- Logging error ---", *frames, error, *call_stack) == []
    assert of_a_whole_log(*STEPS, *frames, error) == ["code_error"]


def test_an_iterator_of_a_dataloader_that_a_forked_process_collects_ends_nothing() -> None:
    ignored = "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f4faf115ca0>"
    frames = [
        '  File "/usr/lib/python3.8/multiprocessing/process.py", line 160, in is_alive',
        "    assert self._parent_pid == os.getpid(), 'can only test a child process'",
        "AssertionError: can only test a child process",
    ]
    both = [ignored, "Traceback (most recent call last):"] * 2
    assert of_a_whole_log(*STEPS, *both, *frames, *frames) == []


def test_a_key_of_the_configuration_does_not_say_that_the_run_goes_on_offline() -> None:
    value = "[{'class_path': 'WandbLogger', 'init_args': {'project': 'code', 'offline': False}}]"
    error = f'train.py: error: Parser key "trainer.logger": Value "{value}" does not validate'
    assert of_a_whole_log("usage: train.py [-h]", error) == ["bad_arguments"]


def test_spawn_s_traceback_before_that_of_its_process_is_not_the_error() -> None:
    spawn = (
        *("Traceback (most recent call last):", '  File "/p/train.py", line 9, in <module>', "    main()"),
        *("Exception: ", "", "-- Process 1 terminated with the following error:"),
        *("Traceback (most recent call last):", '  File "/p/train.py", line 5, in work', "    x = d['x']"),
    )
    findings = diagnose_log("\n".join((*spawn, "KeyError: 'x'")) + "\n").findings
    assert [finding.summary for finding in findings] == ["KeyError: 'x'"]


@pytest.mark.parametrize(
    "file",
    [
        "/tmp/torchinductor_user/ab/cabc.py",
        f"/scratch/cache/ab/c{'a2b' * 17}.py",
        "/home/user/.triton/cache/x/y.py",
        "/home/user/venv/bin/torchrun",
        "/opt/conda/envs/train/bin/accelerate",
        "/usr/local/bin/deepspeed",
        "/home/user/.local/bin/wandb",
        "/home/user/.venv-train/bin/accelerate",
        "/home/user/.cache/huggingface/modules/transformers_modules/model.py",
        "/opt/miniconda3/pkgs/wheel-0.43/run.py",
        "/usr/lib64/python3.11/json/decoder.py",
        "<frozen importlib._bootstrap>",
        "<string>",
    ],
)
def test_a_compilers_cache_and_a_packages_command_are_not_the_users_code(file: str) -> None:
    assert is_library(f'File "{file}", line 3, in call')


@pytest.mark.parametrize(
    "file",
    [
        "/home/user/project/bin/train",
        "/home/user/venv/bin/train.py",
        "/home/user/env/train.py",
        "/src/ab/call.py",
    ],
)
def test_a_script_of_the_users_own_is_named_in_any_directory(file: str) -> None:
    assert not is_library(f'File "{file}", line 3, in call')


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("sqlite3.OperationalError: database is locked", "node's own disk"),
        ("sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) disk I/O error", "node's own disk"),
        (
            "filelock._error.Timeout: The file lock '/home/ada/.cache/x.lock' could not be acquired.",
            "holds the lock",
        ),
        ("psycopg2.OperationalError: server closed the connection", "Correct the program"),
    ],
)
def test_an_exception_of_a_library_that_waits_for_a_lock_has_its_own_advice(error: str, advice: str) -> None:
    raised = (
        f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    go()\n{error}\n'
    )
    (finding,) = diagnose_whole(raised).findings
    assert (finding.cause, advice in finding.fixes[0].title) == ("code_error", True)


def test_the_line_of_one_s_own_program_is_shown_and_not_that_of_a_library() -> None:
    library = "/home/user/venv/lib/python3.11/site-packages/torch/nn/functional.py"
    text = (
        'Traceback (most recent call last):\n  File "/home/user/train.py", line 7, in main\n    step(batch)\n'
        f'  File "{library}", line 3000, in embedding\n    return torch.embedding(weight)\n'
        "LookupError: no such word\n"
    )
    (finding,) = diagnose_log(text).findings
    assert finding.rule == "COD001"
    assert "LookupError: no such word" in finding.evidence[0].text
    frame = finding.evidence[1]
    assert (frame.file, frame.line) == ("train.log", 2)
    assert 'own code: File "/home/user/train.py", line 7' in frame.text


def fix_of(*lines: str) -> str:
    return diagnose_log("\n".join(("Traceback (most recent call last):", *lines))).findings[0].fixes[0].title


def test_an_exception_that_led_to_another_is_shown_with_the_one_that_ended_the_program() -> None:
    frame = '  File "/home/user/train.py", line 5, in <module>\n    build(name)\n'
    diagnosis = diagnose_whole(
        f"Traceback (most recent call last):\n{frame}KeyError: 'resnet7'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"Traceback (most recent call last):\n{frame}ValueError: unknown model resnet7\n"
    )
    (finding,) = diagnosis.findings
    assert finding.summary == "KeyError: 'resnet7'"
    assert "ValueError: unknown model resnet7" in [each.text for each in finding.evidence]
    assert diagnosis.outcome is not None
    assert diagnosis.outcome.reason == "ValueError"


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("train.py: error: unrecognized arguments: --foo\n", "Correct the arguments that the job"),
        ('error: Parser key "model":\n', "Correct the arguments that the job"),
        (
            "In 'config': Could not find 'model/x'\n\n"
            "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
            "Correct the configuration",
        ),
        ("ValueError: no samples\n", "Find the place in the program"),
    ],
)
def test_no_line_is_to_be_corrected_where_none_is_shown(log: str, advice: str) -> None:
    (finding,) = diagnose_whole(log).findings
    assert (finding.rule, finding.fixes[0].title.startswith(advice)) == ("COD001", True)


def test_a_missing_key_of_a_configuration_may_be_misspelt_there() -> None:
    frame = '  File "/home/user/train.py", line 5, in <module>'
    line = "    lr = cfg['optim']['learning_rate']"
    assert fix_of(frame, line, "KeyError: 'learning_rate'").startswith(
        "Look for 'learning_rate' in the configuration"
    )
    assert fix_of(frame, "    x = batch['image']", "KeyError: 'image'").startswith("Correct the program")


def test_labels_outside_the_classes_say_which_labels_are_valid() -> None:
    frame = '  File "/home/user/train.py", line 5, in <module>'
    assert fix_of(frame, "    cross_entropy(x, y)", "IndexError: Target 10 is out of bounds.").startswith(
        "Labels must lie in 0 … C-1"
    )


def test_samples_that_do_not_stack_are_a_matter_of_the_data_set() -> None:
    frame = (
        '  File "/v/lib/python3.11/site-packages/torch/utils/data/_utils/collate.py", line 275, in collate'
    )
    words = (
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 8] at entry 0 and [3, 9] at 5"
    )
    assert "collate_fn" in fix_of(frame, "    return torch.stack(batch, 0, out=out)", words)
