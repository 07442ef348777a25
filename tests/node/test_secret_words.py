"""Which words of a command line are secrets, and which only look like them."""

from __future__ import annotations

import pytest

from coach.node.secret_words import mask_command, mask_text


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["--api-key=X"], ["--api-key=***"]),
        (["--api_key", "X", "--lr", "0.1"], ["--api_key", "***", "--lr", "0.1"]),
        (["WANDB_API_KEY=abc"], ["WANDB_API_KEY=***"]),
        (["--password", "--lr=1"], ["--password", "--lr=1"]),
        (["--hf-token", "x y"], ["--hf-token", "***"]),
        (["model.auth_key=secret"], ["model.auth_key=***"]),
        (["hf_abcdefghijklmnopqrstuvwx"], ["***"]),
        (["-c", "login --token abcdefgh"], ["-c", "login --token ***"]),
        (["https://me:pass@host/x"], ["https://me:***@host/x"]),
        (["-H", "Authorization: Bearer abcdefghijklmnop"], ["-H", "Authorization: Bearer ***"]),
        (["--tokenizer=gpt2", "--max_tokens=4096"], ["--tokenizer=gpt2", "--max_tokens=4096"]),
        (["--pad_token", "<pad>", "--eos-token=</s>"], ["--pad_token", "<pad>", "--eos-token=</s>"]),
        (["--num_tokens", "5", "--author", "ada"], ["--num_tokens", "5", "--author", "ada"]),
    ],
)
def test_the_value_of_a_secret_is_masked_and_its_name_stays(words: list[str], masked: list[str]) -> None:
    assert mask_command(words) == masked


def test_numbers_and_code_of_a_log_stay_as_they_are() -> None:
    for text in ("max_token: 131072", "1.5 ms/token", "token=1", "secret santa", "tokens: abcdefgh"):
        assert mask_text(text) == text
