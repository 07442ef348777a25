"""A plain mistake of the program: told by its last words alone, or by an exception that another rule declines."""

from __future__ import annotations

import pytest

from tests.rules.examples import of_a_whole_log

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
    "last", ["Error: 3 samples were left out", "ValueError", "UserWarning: slow tokenizer"]
)
def test_words_that_name_no_exception_or_tell_nothing_of_it_end_nothing(last: str) -> None:
    assert of_a_whole_log(*STEPS, last) == []


def test_the_end_of_a_file_that_is_none_of_weights_is_a_mistake_of_the_program() -> None:
    assert of_a_whole_log(*STEPS, *FRAMES, "EOFError") == ["code_error"]


def test_a_pipe_whose_other_end_is_gone_is_no_mistake_of_the_program() -> None:
    connection = '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 383, in _recv'
    assert of_a_whole_log(*STEPS, *FRAMES, connection, "    raise EOFError", "EOFError") == []


@pytest.mark.parametrize(
    "error", ["zlib.error", "socket.timeout", "jsonschema.Invalid", "_queue.Empty", "Warning"]
)
def test_an_exception_of_any_name_is_seen_without_a_word_behind_it(error: str) -> None:
    assert of_a_whole_log(*STEPS, *FRAMES, error) == ["code_error"]
