"""The language model: its tokens, its learning, and ranks that train it like one device.

It learns a small text of its own, in which each word tells the next one: the default text takes seconds to
tokenize.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in
from tests.trainers.test_equivalence import alone, losses

pytestmark = [pytest.mark.train, pytest.mark.language]

TINY: dict[str, Any] = {
    "width": None,
    "vocabulary": 300,
    "layers": 2,
    "heads": 2,
    "embedding": 32,
    "sequence_length": 32,
    "num_train_samples": 64,
    "sample_tokens": 0,
    "warmup_steps": 2,
    "lr": 0.003,
}
"""A step of 16 blocks; four are an epoch."""
WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")
ONE_DEVICE: dict[str, Any] = {**TINY, "max_steps": 6, "gradient_accumulation": 2, "eval_at_end": "false"}

FIGURES = """
import torch
from common.models import count_parameters, gpt2, weights_of_gpt
from common.speed import flops_per_token

with torch.device("meta"):
    model = gpt2(768, 12, 12, 1024, 50257)
print(count_parameters(model))
print(flops_per_token(weights_of_gpt(model), 12, 768, 1024) * 1024)
print(flops_per_token(540_350_000_000, 118, 48 * 256, 2048) * 238_300 / (6144 * 275e12))
"""

NOT_FINITE = """
from argparse import Namespace
import torch
from common.tokens import Text, show_sample

model = torch.nn.Embedding(4, 4)
torch.nn.init.constant_(model.weight, float("nan"))
text = Text(None, None, None, vocabulary=4, tokenizer=None, bytes_per_token=None)
show_sample(model, text, Namespace(sample_tokens=3, seed=0, sequence_length=8), torch.device("cpu"))
"""

BROUGHT = """
import sys
from argparse import Namespace
from pathlib import Path
import numpy as np
import tokenizers
from common.distributed import TrainerError
from common.tokens import load_tokens

folder = Path(sys.argv[1])

def load(text, tokenizer=""):
    args = Namespace(text=str(text), tokenizer=str(tokenizer), vocabulary=300, sequence_length=16,
                     num_train_samples=0, cache_dir=str(folder))
    return load_tokens(args)

one = folder / "test_of_time.bin"
(np.arange(1000) % 300).astype(np.uint16).tofile(one)
assert load(one).train_set[0][0].tolist() == list(range(16))

words = tokenizers.models.WordLevel({f"w{number}": number for number in range(70_000)}, unk_token="w0")
tokenizers.Tokenizer(words).save(str(folder / "tokenizer.json"))
(folder / "large").mkdir()
for name in ("train", "val"):
    np.arange(66_000, 68_000, dtype=np.uint32).tofile(folder / "large" / f"{name}.bin")
np.save(folder / "padded.npy", np.arange(1000) % 300 - 1)
try:
    load(folder / "padded.npy")
except TrainerError as error:
    assert str(error).startswith("token -1 to train on: tokens are numbered from 0 on"), error
else:
    raise AssertionError("a token of -1 was accepted")
text = load(folder / "large", folder)
assert text.train_set[0][0].tolist() == list(range(66_000, 66_016)), text.train_set[0][0]
assert len(text.train_set) == 1999 // 16
"""

ONE_LINE = """
import sys
from pathlib import Path
from common.tokens import PIECE, documents

file = Path(sys.argv[1]) / "text8.txt"
text = "anarchism originated " * (3 * PIECE // 20)
file.write_text(text)
pieces = list(documents([file]))
assert "".join(piece for _, piece, _ in pieces) == text
assert max(len(piece) for _, piece, _ in pieces) <= PIECE
assert [is_end for _, _, is_end in pieces] == [False] * (len(pieces) - 1) + [True]
"""

PACKED = """
import sys
from argparse import Namespace
from common.tokens import load_tokens

args = Namespace(text=sys.argv[1], tokenizer="", vocabulary=300, sequence_length=16, num_train_samples=0,
                 cache_dir=sys.argv[2])
text = load_tokens(args)
end = text.tokenizer.token_to_id("<|endoftext|>")
blocks = [inputs.tolist() for inputs, _ in text.train_set]
assert {len(block) for block in blocks} == {16}  # none is padded
assert all(inputs[1:].tolist() == targets[:-1].tolist() for inputs, targets in text.train_set)
stream = [token for block in blocks for token in block]
documents = " ".join(map(str, stream)).split(f" {end} ")
read = [text.tokenizer.decode([int(token) for token in document.split()]) for document in documents]
print("|".join(read))
held_out = [token for inputs, _ in text.held_out for token in inputs.tolist()]
print(text.tokenizer.decode(held_out))
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of a language of twelve words, in which four may follow each."""
    folder = tmp_path_factory.mktemp("words")
    chance = random.Random(0)
    for number in range(20):
        place, said = chance.randrange(12), []
        for _ in range(300):
            said.append(WORDS[place])
            place = (place * 2 + chance.randrange(4)) % 12
        (folder / f"{number:02}.txt").write_text(" ".join(said))
    return folder


@pytest.fixture(scope="module")
def on_one_device(trainer: Trainer, words: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run_dir = tmp_path_factory.mktemp("gpt")
    done = trainer.run("gpt.py", run_dir, **ONE_DEVICE, batch_size=8, text=words)
    assert done.returncode == 0, done.stderr
    return losses(run_dir)


def test_its_size_and_its_operations_are_those_that_others_have_published(trainer: Trainer) -> None:
    """GPT-2's parameters; the operations of a sequence, which nanoGPT's transformer_sizing.ipynb counts one
    matrix after the other, without biases; and the share that PaLM 540B had of 6144 TPU v4."""
    done = trainer.python(FIGURES)
    assert done.returncode == 0, done.stderr
    parameters, operations, of_palm = map(float, done.stdout.split())
    assert parameters == 124_439_808
    assert operations == pytest.approx(874_944_921_600, rel=1e-3)
    assert of_palm == pytest.approx(0.462, abs=5e-4)


def test_it_learns_says_its_loss_in_three_ways_and_goes_on_bit_for_bit_where_it_was_stopped(
    trainer: Trainer, words: Path, tmp_path: Path
) -> None:
    flags = {
        **TINY,
        "text": words,
        "dropout": 0.1,
        "sample_tokens": 12,
        "lr": 0.01,
        "lr_schedule": "constant",
    }
    for name, until in (("whole", 102), ("parted", 30), ("parted", 102)):
        done = trainer.run("gpt.py", tmp_path / name, **flags, max_steps=until)
        assert done.returncode == 0, done.stderr
        if name == "whole":
            written = read_samples(done.stdout)
    assert "resumed at step 30" in done.stdout

    records = read_records(tmp_path / "whole")
    steps, measured = steps_in(records), event_in(records, "eval")
    assert steps[0]["loss"] == pytest.approx(5.7, abs=0.1)  # the logarithm of 300 tokens: it knows nothing
    assert measured["loss"] < 2.3  # it knows the words, and has an idea of those that may follow one
    assert (
        2 ** measured["bits_per_byte"]
        < measured["perplexity"]
        == pytest.approx(2.718281828 ** measured["loss"])
    )
    assert event_in(records, "start")["dataset"]["tokens_per_sample"] == 32
    speed = event_in(records, "mfu")
    assert speed["mfu"] is None  # a CPU's peak is not known
    assert speed["tokens_per_s"] == pytest.approx(event_in(records, "summary")["samples_per_s"] * 32)

    assert read_samples(done.stdout) == written
    assert any(name in written for name in WORDS)
    values = [
        [(step["step"], step["loss"], step["grad_norm"]) for step in steps_in(read_records(tmp_path / name))]
        for name in ("whole", "parted")
    ]
    assert values[0] == values[1]


def test_a_model_that_is_not_finite_any_more_writes_no_sample_and_ends_well(trainer: Trainer) -> None:
    done = trainer.python(NOT_FINITE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sample: none, as the model's outputs are not finite\n"


def read_samples(stdout: str) -> str:
    return "".join(line for line in stdout.splitlines(keepends=True) if line.startswith("  | "))


@pytest.mark.parametrize("name", [pytest.param("gpt_ddp", marks=pytest.mark.long), "gpt_fsdp", "gpt_tp"])
def test_two_ranks_train_it_like_one_device(
    trainer: Trainer, words: Path, tmp_path: Path, on_one_device: list[float], name: str
) -> None:
    flags = {**ONE_DEVICE, "text": words, "batch_size": 8 if name == "gpt_tp" else 4}
    if name == "gpt_fsdp":
        flags["recompute"] = "true"
    done = trainer.run(f"{name}.py", tmp_path, ranks=2, **flags)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path, ranks=2) == pytest.approx(on_one_device, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt_fsdp", "gpt_tp"])
def test_one_rank_goes_on_where_two_have_stopped(
    trainer: Trainer, words: Path, tmp_path: Path, on_one_device: list[float], name: str
) -> None:
    for ranks, until, starter in ((2, 3, trainer), (1, 6, alone(trainer))):
        flags = {**ONE_DEVICE, "text": words, "max_steps": until, "lr_schedule": "constant"}
        flags["batch_size"] = 8 if name == "gpt_tp" else 8 // ranks
        done = starter.run(f"{name}.py", tmp_path, ranks=ranks, **flags)
        assert done.returncode == 0, done.stderr
    assert "resumed at step 3" in done.stdout
    whole = trainer.run(
        "gpt.py", tmp_path / "whole", **{**ONE_DEVICE, "lr_schedule": "constant"}, batch_size=8, text=words
    )
    assert whole.returncode == 0, whole.stderr
    found = [step["loss"] for step in steps_in(read_records(tmp_path))]
    assert found[3:] == pytest.approx(losses(tmp_path / "whole")[3:], rel=1e-6)


def test_documents_follow_each_other_without_padding_and_one_in_ten_is_held_out(
    trainer: Trainer, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"text": "document {number} says ü {number}"}}\n' for number in range(40)))
    done = trainer.python(PACKED, texts, tmp_path)
    assert done.returncode == 0, done.stderr
    trained, held_out = done.stdout.splitlines()[-2:]
    documents = trained.split("|")
    assert documents[:9] == [f"document {number} says ü {number}" for number in range(9)]
    assert documents[9] == "document 10 says ü 10"
    assert held_out.startswith("document 9 says ü 9")
    assert not [document for document in documents if "document 9 " in document or "19 says" in document]


def test_a_text_of_one_line_is_tokenized_in_pieces_like_any_other(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.python(ONE_LINE, tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_file_of_tokens_may_have_any_name_and_as_many_bits_as_its_tokenizer_needs(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(BROUGHT, tmp_path)
    assert done.returncode == 0, done.stderr


def test_tokens_that_one_brings_are_trained_on_as_they_are(
    trainer: Trainer, words: Path, tmp_path: Path
) -> None:
    made = trainer.run("gpt.py", tmp_path / "made", **TINY, text=words, max_steps=1)
    assert made.returncode == 0, made.stderr
    (folder,) = (
        Path(line.rpartition("(in ")[2].removesuffix(")"))
        for line in made.stdout.splitlines()
        if line.startswith("data: /")
    )
    brought = trainer.run("gpt.py", tmp_path / "brought", **TINY, text=folder, max_steps=1)
    assert brought.returncode == 0, brought.stderr
    one, other = (read_records(tmp_path / name) for name in ("made", "brought"))
    assert steps_in(one)[0]["loss"] == steps_in(other)[0]["loss"]
    assert "bits_per_byte" not in event_in(other, "eval")  # the meaning of the numbers is missing
    assert event_in(one, "eval")["loss"] == event_in(other, "eval")["loss"]
    few = trainer.run("gpt.py", tmp_path / "few", **{**TINY, "vocabulary": 260}, text=folder, max_steps=1)
    assert few.returncode == 2
    assert "to train on, but there are 260: name the tokenizer they were made with" in few.stderr
