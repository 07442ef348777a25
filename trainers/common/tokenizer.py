"""Byte-pair tokenizers: learned from a text, or read from the files in which they are published.

The work is that of Hugging Face's library `tokenizers`. It is imported only where text is met: a training on
tokens that one brings needs none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

from common.distributed import TrainerError
from common.needed import needed

END_OF_TEXT = "<|endoftext|>"
"""Between two documents, as GPT-2 has it."""
FILE = "tokenizer.json"
HOW = "`pip install tokenizers`, or install coach's extra `language`"


def _library() -> Any:
    with needed(HOW):
        import tokenizers
    return tokenizers


def learn(texts: Iterable[str], vocabulary: int) -> Any:
    """A tokenizer of at most so many tokens: all bytes, the end of a text, and the pairs that these texts
    join most often."""
    library = _library()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer = _on_bytes(library, library.models.BPE())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def read_tokenizer(path: str) -> Any:
    """The tokenizer of a file tokenizer.json, or of a folder with it or with GPT-2's two files."""
    library = _library()
    named = Path(path).expanduser()
    pairs = [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]
    try:
        if named.is_file() or (named / FILE).is_file():
            tokenizer = library.Tokenizer.from_file(str(named if named.is_file() else named / FILE))
        else:
            found = [pair for pair in pairs if all((named / name).is_file() for name in pair)]
            if not found:
                raise TrainerError(
                    f"--tokenizer {named}: neither {FILE} nor vocab.json and merges.txt is there"
                )
            vocabulary, merges = (str(named / name) for name in found[0])
            tokenizer = _on_bytes(library, library.models.BPE.from_file(vocabulary, merges))
    except TrainerError:
        raise
    except Exception as error:  # the library's own errors have no class of theirs
        raise TrainerError(f"{named}: not a tokenizer ({error})") from error
    tokenizer.add_special_tokens([END_OF_TEXT])  # no new token where there is one
    return tokenizer


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    (folder / FILE).write_text(tokenizer.to_str(), encoding="utf-8")


def _on_bytes(library: Any, model: Any) -> Any:
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer
