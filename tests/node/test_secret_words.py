"""Which words of a command line are secrets, and which only look like them."""

from __future__ import annotations

import pytest

from coach.node.secret_words import mask_command, mask_text, mask_value


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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("export DB_PASSWORD=abc", "export DB_PASSWORD=***"),
        ('export PASSWORD="correct horse battery"', 'export PASSWORD="***"'),
        (r"{\"password\": \"abc def\"}", r"{\"password\": \"***\"}"),
        ("api_key: 'x y z long'", "api_key: '***'"),
        ("PASSWORD='$ecret-x'", "PASSWORD='***'"),
        ("https://ghs0123456789@git.example.org/x", "https://***@git.example.org/x"),
        ("https://0123456789abcdef01234:x-oauth-basic@h", "https://***:***@h"),
        ("Authorization: Bearer s3cr", "Authorization: Bearer ***"),
        ('{"authorization":"token abcd"}', '{"authorization":"token ***"}'),
        ("curl -s -u ada:pw https://h", "curl -s -u ada:*** https://h"),
        ("machine h login ada password pw", "machine h login ada password ***"),
        ("wandb login 0123456789abcdef0123", "wandb login ***"),
        ("https://h/x?X-Amz-Signature=0123456789&x=1", "https://h/x?X-Amz-Signature=***&x=1"),
        ("SLURM_JWT=eyJhbGciOi.eyJleHAiOj.abc", "SLURM_JWT=***"),
        ("found eyJhbGciOiJI.eyJleHAiOjEx.abcd", "found ***"),
        ("Set-Cookie: sid=abc; path=/", "Set-Cookie: ***"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nAB\n-----END RSA PRIVATE KEY-----\nb", "a\n***\nb"),
        ("a\n-----BEGIN OPENSSH PRIVATE KEY-----\nAB\nCD", "a\n***"),
        ("AAAABBBBCCCC\nDDDDEEEE==\n-----END PRIVATE KEY-----\nb", "***\nb"),
        (f"[rank0]: {'Mi5+' * 16}\n[rank0]: {'Mi5ab' * 14}\nb", "[rank0]: ***\n[rank0]: ***\nb"),
        (rf"loaded\n{'Mi5+' * 16}\nb", r"loaded\n***\nb"),
        ("\x1b[32mhf_abcdefghijklmnopqrstuvwx\x1b[0m", "***"),
        ("\x9b1mhf_abcdefgh\x1b[0mijklmnop\u200bqrst x", "*** x"),
        (r'{"text": "\u001b[32mhf_abcdefghijklmnopqrst"}', '{"text": "***"}'),
        ("\x1b]0;x\x07api_key:\x1b[1m abcdefgh", "api_key: ***"),
        ("Bearer  \t abcdefghijklmnop", "Bearer  \t ***"),
        ("Authorization :   Basic   abcd", "Authorization :   Basic   ***"),
        ("run --api-key   X y", "run --api-key   *** y"),
        ("TOKEN =   abcdefgh", "TOKEN =   ***"),
        ("password  :  'ab cd ef'", "password  :  '***'"),
        ("redis://:X@h/0", "redis://:***@h/0"),
    ],
)
def test_secrets_of_known_forms_are_masked_in_a_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert mask_text(masked) == masked


def test_text_that_only_names_a_secret_stays() -> None:
    for text in (
        *("--token $HF_TOKEN x", 'HF_TOKEN="${HF_TOKEN}"', "WANDB_API_KEY=$(cat ~/.key)"),
        *("PWD=/home/ada OLDPWD=/tmp", "SSH_KEY=/home/ada/.ssh/id", "git@github.com:ada/x.git"),
        *(
            "TOKEN =  $HF_TOKEN",
            "--token   --lr 1",
            "\x1b[32mgreen\x1b[0m",
            "0a1b" * 16,
            "Ada/2026/" * 7 + "x",
        ),
        *("ssh://git@host/x", "MAX_TOKEN=512", "EOS_TOKEN=</s>", "sort_key=lambda row: row[1]"),
    ):
        assert mask_text(text) == text


def test_a_value_is_masked_by_the_name_of_its_key() -> None:
    assert [mask_value(*pair) for pair in (("hub_token", "x"), ("DB_PASS", "x"), ("lr", "0.1"))] == [
        *("***", "***", "0.1")
    ]


def test_numbers_and_code_of_a_log_stay_as_they_are() -> None:
    for text in ("max_token: 131072", "1.5 ms/token", "token=1", "secret santa", "tokens: abcdefgh"):
        assert mask_text(text) == text
