"""Adapters beside a language model: they alone learn, the response alone is learned, and merged they say the
same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = [pytest.mark.train, pytest.mark.language]

FLAGS: dict[str, Any] = {
    "width": None,
    "num_train_samples": 64,
    "batch_size": 8,
    "lr": 0.01,
    "warmup_steps": 2,
    "sample_tokens": 4,
}
SIZES: dict[str, Any] = {
    "vocabulary": 300,
    "layers": 2,
    "heads": 2,
    "embedding": 32,
    "sequence_length": 64,
}

MASKED = """
import sys
from common.finetuning import Answers, IGNORED, asked, load_pairs
from common.tokenizer import learn

pairs, _, is_generated = load_pairs(sys.argv[1])
assert not is_generated
tokenizer = learn([asked(one) + other for one, other in pairs], 300)
answers = Answers(pairs, tokenizer, 64)
for (instruction, response), (inputs, targets) in zip(pairs, answers):
    learned = targets[targets != IGNORED].tolist()
    assert tokenizer.decode(learned[:-1]) == response, (response, learned)
    assert learned[-1] == answers.end
    place = (targets != IGNORED).nonzero()[0].item()
    assert tokenizer.decode(inputs[: place + 1].tolist()) == asked(instruction)
    assert inputs[place + 1].item() == learned[0]  # each target stands behind its input
print(len(Answers([("a " * 200, "b")], tokenizer, 64)[0][1]))
"""


USUAL_FILES = """
import json, sys
from pathlib import Path
from common.finetuning import load_pairs
from common.tokens import documents

folder = Path(sys.argv[1])
said = {"instruction": "one\\u2028two\\x85three", "response": "yes", "text": "a\\u2029b"}
lines = (json.dumps(said, ensure_ascii=False) + "\\n") * 12
for encoding in ("utf-8", "utf-8-sig"):  # the second is that of editors on Windows
    file = folder / f"{encoding}.jsonl"
    file.write_text(lines + "\\n", encoding=encoding)
    pairs = load_pairs(str(file))[0]
    assert pairs == [(said["instruction"], said["response"])] * 12, pairs
    assert list(documents([file])) == [(number, said["text"], True) for number in range(12)]
"""

TOO_LONG = """
from common.distributed import TrainerError
from common.finetuning import Base, IGNORED, answers_of
from common.tokenizer import learn

pairs = [(f"Say {number}.", "yes") for number in range(30)]
pairs[4] = pairs[19] = ("word " * 200, "no")  # the second would be held out
tokenizer = learn((" ".join(pair) for pair in pairs), 300)
text = answers_of(pairs, "pairs", False, Base(None, tokenizer, "none"), 48)
for part in (text.train_set, text.held_out):
    assert all((targets != IGNORED).any() for _, targets in part)
try:
    answers_of(pairs[:6], "pairs", False, Base(None, tokenizer, "none"), 48)
except TrainerError as error:
    assert str(error).startswith("no pair to hold out among 6: it takes 10 different ones"), error
else:
    raise AssertionError("nothing to hold out")
"""


def pairs_in(path: Path) -> Path:
    lines = [{"instruction": f"Say {word}.", "response": word * 2} for word in "abcdefghijklmnopqrst"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_response_and_its_end_alone_are_learned(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.python(MASKED, pairs_in(tmp_path / "pairs.jsonl"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "64\n"


def test_lines_of_json_are_read_with_blank_ones_and_with_any_character_in_a_text(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(USUAL_FILES, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_pair_without_a_token_to_learn_is_left_out(trainer: Trainer) -> None:
    """The loss of such a pair is no number, which made the loss of its whole step none."""
    done = trainer.python(TOO_LONG)
    assert done.returncode == 0, done.stderr
    assert "data: left out, as the instruction alone fills 48 tokens: 2\n" in done.stdout
    assert "26 to train on, 2 held out" in done.stdout


def test_adapters_learn_beside_a_trained_model_are_kept_alone_and_merge(
    trainer: Trainer, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Name the first of: ash, birch, cedar.\nRepeat: elm, fir, hazel.\n" * 200)
    flags = {**FLAGS, **SIZES, "text": texts, "max_steps": 40}
    base = trainer.run("gpt.py", tmp_path / "base", **flags)
    assert base.returncode == 0, base.stderr

    for name, until in (("parted", 6), ("parted", 24), ("whole", 24)):
        # Other sizes than the base's are not looked at: a model has those that it was trained with.
        done = trainer.run(
            "lora.py",
            tmp_path / name,
            **{**FLAGS, "lr": 0.03},
            base=tmp_path / "base",
            max_steps=until,
            lr_schedule="constant",
            heads=3,  # the default embedding is no multiple of
        )
        assert done.returncode == 0, done.stderr
    records = [read_records(tmp_path / name) for name in ("parted", "whole")]
    losses = [[step["loss"] for step in steps_in(of_run)] for of_run in records]
    assert losses[0] == losses[1]  # resumed bit for bit
    assert losses[0][-1] < losses[0][0] - 0.5
    assert f"base: {tmp_path / 'base' / 'checkpoints' / 'step-00000040.pt'}, step 40: " in done.stdout

    # Two matrices of rank 8 beside each of six in both blocks; of the whole model nothing else has learned.
    num_adapters = 2 * 8 * (4 * (32 + 32) + 2 * (32 + 128))
    assert f"trained: {num_adapters:,} of " in done.stdout
    assert "model: adapters, layers 2, heads 2, " in done.stdout
    assert event_in(records[1], "start")["num_parameters"] == num_adapters
    size = (tmp_path / "whole" / "checkpoints" / "adapters.pt").stat().st_size
    assert 4 * num_adapters < size < 4 * num_adapters + 24 * 1000
    (difference,) = re.findall(r"logits differ by (\S+) at most", done.stdout)
    assert float(difference) < 1e-4
    assert done.stdout.count("expected '") == 3


@pytest.mark.long
def test_a_base_of_many_ranks_is_read_and_a_foreign_one_refused_in_one_line(
    trainer: Trainer, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Name the first of: ash, birch, cedar.\nRepeat: elm, fir, hazel.\n" * 200)
    flags = {**FLAGS, **SIZES, "text": texts, "max_steps": 2}
    made = trainer.run("gpt_fsdp.py", tmp_path / "base", ranks=2, **flags)
    assert made.returncode == 0, made.stderr
    done = trainer.run("lora.py", tmp_path / "lora", **FLAGS, base=tmp_path / "base", max_steps=1)
    assert done.returncode == 0, done.stderr
    assert "step-00000002, step 2: " in done.stdout
    foreign = trainer.run("baseline.py", tmp_path / "foreign", max_steps=1, model="gpt")
    assert foreign.returncode == 0, foreign.stderr
    done = trainer.run("lora.py", tmp_path / "refused", **FLAGS, base=tmp_path / "foreign", max_steps=1)
    assert done.returncode == 2
    assert "a checkpoint of another trainer than gpt.py" in done.stderr
