"""Text as a stream of tokens: documents, each ended by a token of its own, from which a training cuts blocks.

Byte pairs come from a tokenizer that one names, or are learned from the text; nothing is downloaded.
Tokenizing takes far longer than reading, so it is done once, under a lock, and kept beside its tokenizer as
files of the format that nanoGPT writes. No block is padded: a document goes on in the next one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import torch
from torch.utils.data import Dataset, Subset

from common.data import DatasetInfo, default_cache_dir
from common.distributed import TrainerError, counted, print_rank0, rank_from_env
from common.once import made_once
from common.text import MOST_BYTES, standard_library_files
from common.tokenizer import END_OF_TEXT, learn, read_tokenizer, write_tokenizer

TEXTS = (".txt", ".md", ".rst", ".py", ".jsonl")
TOKENS = (".bin", ".npy")
HELD_OUT_EVERY = 10
"""One document of so many is never trained on."""
MOST_HELD_OUT = 128
"""Blocks on which the loss is measured."""
LEARN_FROM_CHARACTERS = 20_000_000
PIECE = 1_000_000
"""Characters that are tokenized at once: some tenths of a second."""
FORMAT = 2  # goes up with every change of the kept files: a cache never gives old ones
LLM_C_MAGIC, LLM_C_HEADER = 20240520, 1024


@dataclass(frozen=True)
class TextInfo(DatasetInfo):
    """A text, of which each sample is as many tokens."""

    tokens_per_sample: int

    @property
    def caveat(self) -> str:
        return " (generated pairs)" if self.is_synthetic else ""


@dataclass(frozen=True)
class Text:
    """The tokens to train on, and the meaning of their numbers. `tokenizer` is None where only numbers were
    brought."""

    train_set: Dataset[Any]
    held_out: Dataset[Any]
    info: TextInfo
    vocabulary: int
    tokenizer: Any
    bytes_per_token: float | None

    @property
    def padded_vocabulary(self) -> int:
        """A multiple of 64, which tensor cores like: GPT-2's 50,257 become 50,304."""
        return (self.vocabulary + 63) // 64 * 64

    def measures_of(self, loss: float) -> dict[str, float]:
        """The loss in other words: perplexity, and bits for each byte of text, which do not depend on the
        tokenizer."""
        found = {"perplexity": math.exp(min(loss, 700.0))}
        if self.bytes_per_token:
            found["bits_per_byte"] = loss / math.log(2) / self.bytes_per_token
        return found


class Blocks(Dataset[Any]):
    """Item i: `length` tokens from position i x length, and the same one token later."""

    def __init__(self, tokens: np.ndarray[Any, Any], length: int) -> None:
        self.tokens, self.length = tokens, length

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"block {index} of {len(self)}")  # ends a `for` over all of them
        start = index * self.length
        window = torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))
        return window[:-1], window[1:]


def load_tokens(args: argparse.Namespace) -> Text:
    """The text that --text names, in blocks of --sequence_length. All ranks call it: one of them makes
    missing files."""
    tokenizer = read_tokenizer(args.tokenizer) if args.tokenizer else None
    files, name = text_files(args.text)
    if files[0].suffix in TOKENS:
        train, held_out = brought_tokens(files, tokenizer)
        folder = Path(args.text)
    else:
        folder = _tokenized(args, files, tokenizer)
        tokenizer = read_tokenizer(str(folder))
        train, held_out = (read_tokens(folder / f"{part}.bin", tokenizer) for part in ("train", "val"))
    vocabulary = args.vocabulary if tokenizer is None else tokenizer.get_vocab_size()
    _check(train, held_out, vocabulary, args)
    train_set: Dataset[Any] = Blocks(train, args.sequence_length)
    num_samples = len(train_set)  # type: ignore[arg-type] # it has a length
    if 0 < args.num_train_samples < num_samples:
        train_set = Subset(train_set, range(args.num_train_samples))
    blocks = Blocks(held_out, args.sequence_length)
    measured = range(min(MOST_HELD_OUT, len(blocks)))
    print_rank0(
        f"data: {name}: {len(train):,} tokens of a vocabulary of {vocabulary:,} to train on, "
        f"in {num_samples:,} blocks; {len(held_out):,} held out (in {folder})"
    )
    info = TextInfo(name, str(folder), is_synthetic=False, tokens_per_sample=args.sequence_length)
    spanned = held_out[1 : len(measured) * args.sequence_length + 1]
    return Text(
        train_set, Subset(blocks, measured), info, vocabulary, tokenizer, _bytes_per_token(spanned, tokenizer)
    )


def text_files(text: str) -> tuple[list[Path], str]:
    """The files below a path, all texts or all tokens, and what they are; of no path, the standard library's
    sources."""
    if not text:
        files, size = [], 0
        for path in standard_library_files():
            files.append(path)
            size += path.stat().st_size
            if size >= MOST_BYTES:
                break
        return files, f"standard library of Python {platform.python_version()}, {len(files)} files"
    root = Path(text).expanduser()
    if not root.exists():
        raise TrainerError(f"--text {root}: no such file or folder")
    found = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    visible = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    for kinds in (TOKENS, TEXTS):
        files = [path for path in visible if path.suffix in kinds]
        if files:
            return files, f"{root} ({len(files)} files)" if len(files) > 1 else str(root)
    raise TrainerError(f"--text {root}: no file there ends in {' '.join((*TEXTS, *TOKENS))}")


def brought_tokens(
    files: list[Path], tokenizer: Any = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Tokens to train on and held-out ones: the files that are named so, else the last tenth of one file."""
    held_out = [path for path in files if path.stem.startswith(("val", "test")) and len(files) > 1]
    train = [path for path in files if path not in held_out]
    if len(train) != 1 or len(held_out) > 1:
        names = ", ".join(path.name for path in files[:5])
        raise TrainerError(f"{files[0].parent}: expected train.bin and val.bin, or one file, not {names}")
    tokens = read_tokens(train[0], tokenizer)
    if held_out:
        return tokens, read_tokens(held_out[0], tokenizer)
    cut = len(tokens) * (HELD_OUT_EVERY - 1) // HELD_OUT_EVERY
    return tokens[:cut], tokens[cut:]


def read_tokens(path: Path, tokenizer: Any = None) -> np.ndarray[Any, Any]:
    """The numbers of a file, which stay on the disk until they are read. A tokenizer of more tokens than 16
    bits can number has its own in 32."""
    try:
        if path.suffix == ".npy":
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise ValueError(f"{tokens.ndim} dimensions of {tokens.dtype}: expected one, of integers")
            return tokens
        with open(path, "rb") as file:
            is_of_llm_c = int.from_bytes(file.read(4), "little") == LLM_C_MAGIC
        return np.memmap(path, _dtype(tokenizer), mode="r", offset=LLM_C_HEADER if is_of_llm_c else 0)
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: not a file of tokens ({error})") from error


def _dtype(tokenizer: Any) -> Any:
    is_large = tokenizer is not None and tokenizer.get_vocab_size() > 1 << 16
    return np.uint32 if is_large else np.uint16


def _check(
    train: np.ndarray[Any, Any], held_out: np.ndarray[Any, Any], vocabulary: int, args: argparse.Namespace
) -> None:
    for what, tokens in (("to train on", train), ("held out", held_out)):
        if len(tokens) <= args.sequence_length:
            raise TrainerError(
                f"{len(tokens):,} tokens {what} are too few for one block of {args.sequence_length} and the "
                "token after it: bring more text, or lower sequence_length"
            )
        looked_at = tokens[:10_000_000]
        if looked_at.min() < 0:
            raise TrainerError(
                f"token {int(looked_at.min())} {what}: tokens are numbered from 0 on; leave out padding and "
                "what is not to be learned"
            )
        largest = int(looked_at.max())
        if largest >= vocabulary:
            raise TrainerError(
                f"token {largest} {what}, but there are {vocabulary:,}: name the tokenizer they were made "
                "with, or the size of its vocabulary (GPT-2's is 50257)"
            )


def _bytes_per_token(tokens: np.ndarray[Any, Any], tokenizer: Any) -> float | None:
    """Of exactly the tokens on which the loss is measured. None without a tokenizer."""
    if tokenizer is None:
        return None
    return len(tokenizer.decode(tokens.tolist()).encode()) / len(tokens)


def _tokenized(args: argparse.Namespace, files: list[Path], tokenizer: Any) -> Path:
    """The folder with train.bin, val.bin and tokenizer.json of these texts, made if it is not there."""
    cache_dir = Path(args.cache_dir) if args.cache_dir else default_cache_dir()
    final = cache_dir.absolute() / f"tokens-{_fingerprint(args, files, tokenizer)}"

    def make(folder: Path, show_alive: Callable[[], None]) -> None:
        print_rank0(f"data: tokenizing {counted(len(files), 'file')}, once, into {final}")
        _tokenize(folder, files, tokenizer, args.vocabulary, show_alive)

    try:
        made_once(final, make)
    except OSError as error:
        raise TrainerError(
            f"{cache_dir}: cannot hold the tokens ({error}); --cache_dir names another folder"
        ) from error
    return final


def _fingerprint(args: argparse.Namespace, files: list[Path], tokenizer: Any) -> str:
    """The identity of these texts and this tokenizer, without reading the texts."""
    digest = hashlib.sha256(f"{FORMAT}\n".encode())
    for path in files:
        found = path.stat()
        digest.update(
            f"{path.absolute()} {found.st_size} {found.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    digest.update((str(args.vocabulary) if tokenizer is None else tokenizer.to_str()).encode())
    return digest.hexdigest()[:16]


def _tokenize(
    folder: Path, files: list[Path], tokenizer: Any, vocabulary: int, show_alive: Callable[[], None]
) -> None:
    if tokenizer is None:
        tokenizer = learn(_to_learn_from(files, show_alive), vocabulary)
    write_tokenizer(tokenizer, folder)
    end = tokenizer.token_to_id(END_OF_TEXT)
    with open(folder / "train.bin", "wb") as train, open(folder / "val.bin", "wb") as held_out:
        for number, text, is_end in documents(files):
            tokens = tokenizer.encode(text, add_special_tokens=False).ids + [end] * is_end
            file = held_out if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else train
            np.array(tokens, dtype=_dtype(tokenizer)).tofile(file)
            show_alive()
    if not (folder / "val.bin").stat().st_size:
        _hold_out_the_end(folder, _dtype(tokenizer))


def _hold_out_the_end(folder: Path, dtype: Any) -> None:
    """Of a few documents none can be spared: the last tenth of all is held out."""
    tokens = np.fromfile(folder / "train.bin", dtype)
    cut = len(tokens) * (HELD_OUT_EVERY - 1) // HELD_OUT_EVERY
    tokens[cut:].tofile(folder / "val.bin")
    tokens[:cut].tofile(folder / "train.bin")


def _to_learn_from(files: list[Path], show_alive: Callable[[], None]) -> Iterator[str]:
    """The beginning of the text, without what is held out."""
    left = LEARN_FROM_CHARACTERS
    for number, text, _ in documents(files):
        if number % HELD_OUT_EVERY != HELD_OUT_EVERY - 1:
            yield text
            show_alive()
            left -= len(text)
        if left <= 0:
            return


def documents(files: list[Path]) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and True at the end, of each document or each piece of a long one. A file is a document;
    of a .jsonl each line is one."""
    number = 0
    for path in files:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            if path.suffix == ".jsonl":
                for line_number, line in enumerate(file, 1):
                    if not line.strip():
                        continue
                    yield number, field_of_line(path, line_number, line, "text"), True
                    number += 1
                continue
            piece: list[str] = []
            size = 0
            for line in iter(lambda: file.readline(PIECE), ""):  # some texts are one line of gigabytes
                piece.append(line)
                size += len(line)
                if size >= PIECE:
                    yield number, "".join(piece), False
                    piece, size = [], 0
            yield number, "".join(piece), True
            number += 1


def field_of_line(path: Path, number: int, line: str, field: str) -> str:
    """The text in a field of a line of JSON."""
    try:
        value = json.loads(line)[field]
        if isinstance(value, str):
            return value
    except (ValueError, KeyError, TypeError):
        pass
    raise TrainerError(f'{path}:{number}: expected a line such as {{"{field}": "some text"}}')


def keep_tokenizer(text: Text, run_dir: str) -> None:
    """Put the tokenizer beside the checkpoints, which are of no use without it."""
    if text.tokenizer is not None and rank_from_env() == 0:
        folder = Path(run_dir) / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        write_tokenizer(text.tokenizer, folder)


@torch.no_grad()
def show_sample(model: torch.nn.Module, text: Text, args: argparse.Namespace, device: torch.device) -> None:
    """Print the model's text after the end of a document. All ranks call it, and make the same."""
    if not args.sample_tokens:
        return
    model.eval()
    random = torch.Generator().manual_seed(args.seed)
    start = 0 if text.tokenizer is None else text.tokenizer.token_to_id(END_OF_TEXT)
    tokens = [start]
    for _ in range(args.sample_tokens):
        seen = torch.tensor([tokens[-args.sequence_length :]], device=device)
        logits = model(seen)[0, -1, : text.vocabulary].float().cpu()
        if not logits.isfinite().all():
            model.train()
            print_rank0("sample: none, as the model's outputs are not finite")
            return
        tokens.append(int(torch.multinomial(logits.softmax(-1), 1, generator=random)))
    model.train()
    if text.tokenizer is None:
        print_rank0(f"sample, in tokens: {' '.join(map(str, tokens[1:]))}")
        return
    written = text.tokenizer.decode(tokens[1:], skip_special_tokens=False)
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in written.split("\n")]
    print_rank0("\n".join(["sample:", *(f"  | {line}" for line in lines)]))
