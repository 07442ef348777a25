"""The start of a fine-tuning: a model that gpt.py or its sisters have trained, and pairs of an instruction
and its response."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils.data import Dataset

from common.checkpoint import load_checkpoint, newest_checkpoint
from common.distributed import TrainerError, print_rank0
from common.models import GPT, count_parameters, gpt2
from common.sharded import load_state
from common.sharded import newest_checkpoint as newest_sharded
from common.tokenizer import END_OF_TEXT, FILE, learn, read_tokenizer
from common.tokens import HELD_OUT_EVERY, Text, TextInfo, field_of_line

IGNORED = -100
"""A target that is not learned: cross entropy leaves it out."""
SIZES = ("embedding", "layers", "heads", "sequence_length")
"""Options that say the size of a model, in the order in which `gpt2` takes them."""
NUM_GENERATED = 2000


@dataclass(frozen=True)
class Base:
    """A model to start from, its tokenizer, and where it comes from."""

    model: GPT
    tokenizer: Any
    name: str


def load_base(args: argparse.Namespace, pairs: Sequence[tuple[str, str]]) -> Base:
    """The model that --base names, whose sizes `args` get. Without one a fresh model, not trained yet."""
    if not args.base:
        if args.embedding % args.heads:
            raise TrainerError(f"embedding={args.embedding} must be a multiple of heads={args.heads}")
        tokenizer = learn((asked_and_said(*pair) for pair in pairs), args.vocabulary)
        model = gpt2(*(getattr(args, name) for name in SIZES), _padded(tokenizer), args.dropout)
        print_rank0(
            f"base: none is named: a fresh model of {count_parameters(model):,} parameters, "
            "which knows nothing"
        )
        return Base(model, tokenizer, "none")
    path = _checkpoint_of(Path(args.base).expanduser())
    is_sharded = path.is_dir()
    saved = load_state(path, {}) if is_sharded else load_checkpoint(path, {})
    made_with = saved["made_with"]
    missing = [name for name in (*SIZES, "vocabulary") if name not in made_with]
    if missing:
        raise TrainerError(
            f"{path}: a checkpoint of another trainer than gpt.py: it lacks {', '.join(missing)}"
        )
    if not (path.parent / FILE).is_file():
        raise TrainerError(
            f"{path.parent / FILE} is missing: instructions cannot be put into this model's tokens"
        )
    for name in SIZES:
        setattr(args, name, made_with[name])
    model = gpt2(*(getattr(args, name) for name in SIZES), made_with["vocabulary"], args.dropout)
    if is_sharded:
        dcp.load({"model": model.state_dict()}, checkpoint_id=path)  # fills the model's own tensors
    else:
        model.load_state_dict(saved["model"])
    print_rank0(f"base: {path}, step {saved['step']}: {count_parameters(model):,} parameters")
    return Base(model, read_tokenizer(str(path.parent)), str(path))


def _padded(tokenizer: Any) -> int:
    return (int(tokenizer.get_vocab_size()) + 63) // 64 * 64


def _checkpoint_of(named: Path) -> Path:
    """The checkpoint itself, or the newest one of a run."""
    if named.is_file() or named.name.startswith("step-"):
        return named
    found = newest_checkpoint(str(named)) or newest_sharded(str(named))
    if found is None:
        raise TrainerError(f"--base {named}: neither a checkpoint nor a run directory with one")
    return found


def load_pairs(path: str) -> tuple[list[tuple[str, str]], str, bool]:
    """The pairs of a .jsonl file, their name, and True if they were generated because none is named."""
    if not path:
        return generated_pairs(), f"{NUM_GENERATED} generated pairs on twelve words", True
    file = Path(path).expanduser()
    try:
        # Not splitlines: in JSON a text may hold the other characters at which that cuts.
        lines = file.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except OSError as error:
        raise TrainerError(f"--pairs {file}: {error.strerror}") from None
    pairs = [
        (field_of_line(file, number, line, "instruction"), field_of_line(file, number, line, "response"))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if len(pairs) < HELD_OUT_EVERY:
        raise TrainerError(
            f"--pairs {file}: {len(pairs)} pairs are too few: one in {HELD_OUT_EVERY} is held out"
        )
    return pairs, f"{file} ({len(pairs):,} pairs)", False


def generated_pairs() -> list[tuple[str, str]]:
    """Small tasks with one right answer each, the same in every run."""
    chance = random.Random(0)
    words = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew"]
    found = []
    for _ in range(NUM_GENERATED):
        chosen = chance.sample(words, 3)
        listed = ", ".join(chosen)
        found.append(
            chance.choice(
                [
                    (f"Name the first of: {listed}.", chosen[0]),
                    (f"Name the last of: {listed}.", chosen[-1]),
                    (f"Repeat: {listed}.", listed),
                    (f"Put in reverse: {listed}.", ", ".join(reversed(chosen))),
                ]
            )
        )
    return found


def asked(instruction: str) -> str:
    """The text before a response."""
    return f"### Instruction:\n{instruction}\n### Response:\n"


def asked_and_said(instruction: str, response: str) -> str:
    return asked(instruction) + response


def _tokens_of(text: str, tokenizer: Any) -> list[int]:
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return tokens


class Answers(Dataset[Any]):
    """Item i: the tokens of a pair, and as targets those of its response and of its end alone.

    A pair is a sample of its own. Padding behind its end is not learned.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Any, length: int) -> None:
        self.pairs, self.tokenizer, self.length = pairs, tokenizer, length
        self.end = tokenizer.token_to_id(END_OF_TEXT)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        instruction, response = self.pairs[index]
        question, answer = (_tokens_of(text, self.tokenizer) for text in (asked(instruction), response))
        tokens = [*question, *answer, self.end][: self.length + 1]
        targets = [IGNORED] * (len(question) - 1) + tokens[len(question) :]
        inputs = torch.full((self.length,), self.end)
        inputs[: len(tokens) - 1] = torch.tensor(tokens[:-1])
        learned = torch.full((self.length,), IGNORED)
        learned[: len(targets)] = torch.tensor(targets[: self.length])
        return inputs, learned


def answers_of(
    pairs: Sequence[tuple[str, str]], name: str, is_generated: bool, base: Base, length: int
) -> Text:
    """Pairs to train on, and held-out ones: every tenth. A pair whose instruction alone fills `length` tokens
    is left out: without a token to learn it has no loss."""
    num_all = len(pairs)
    pairs = [pair for pair in pairs if len(_tokens_of(asked(pair[0]), base.tokenizer)) <= length]
    if len(pairs) < num_all:
        print_rank0(
            f"data: left out, as the instruction alone fills {length} tokens: {num_all - len(pairs):,}"
        )
    trained = [pair for number, pair in enumerate(pairs) if number % HELD_OUT_EVERY != HELD_OUT_EVERY - 1]
    known = set(trained)
    held_out = [pair for pair in pairs[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY] if pair not in known]
    sets = [Answers(part, base.tokenizer, length) for part in (trained, held_out)]
    if not held_out:
        raise TrainerError(
            f"no pair to hold out among {num_all}: it takes {HELD_OUT_EVERY} different ones whose responses "
            f"begin within {length} tokens; bring more, raise num_train_samples, or take a model of longer "
            "sequences"
        )
    print_rank0(f"data: {name}: {len(trained):,} to train on, {len(held_out):,} held out")
    info = TextInfo(name, name, is_synthetic=is_generated, tokens_per_sample=length)
    return Text(sets[0], sets[1], info, base.tokenizer.get_vocab_size(), base.tokenizer, None)


@torch.no_grad()
def show_answers(
    model: nn.Module, text: Text, args: argparse.Namespace, device: torch.device, num: int = 3
) -> None:
    """Print the likeliest response to some held-out instructions."""
    model.eval()
    held_out: Any = text.held_out
    for instruction, response in held_out.pairs[: num if args.sample_tokens else 0]:
        question = _tokens_of(asked(instruction), text.tokenizer)
        tokens = list(question)
        while len(tokens) < min(args.sequence_length, len(question) + args.sample_tokens):
            logits = model(torch.tensor([tokens], device=device))[0, -1, : text.vocabulary]
            tokens.append(int(logits.argmax()))
            if tokens[-1] == held_out.end:
                break
        said = text.tokenizer.decode(tokens[len(question) :])
        print_rank0(f"asked {instruction!r}: said {said!r}, expected {response!r}")
    model.train()
