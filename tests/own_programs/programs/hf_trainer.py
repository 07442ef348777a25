"""Train a tiny GPT-2 with the Trainer of transformers on made sequences, without any download."""

from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ModelArguments:
    n_embd: int = field(default=64, metadata={"help": "Width of the model."})
    n_layer: int = field(default=2, metadata={"help": "Number of blocks."})


class Counting(Dataset):
    """Sequences that count on from a random start: easy to learn."""

    def __init__(self, size, length=32, vocabulary=64):
        generator = torch.Generator().manual_seed(0)
        starts = torch.randint(0, vocabulary, (size, 1), generator=generator)
        self.sequences = (starts + torch.arange(length)) % vocabulary

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, index):
        return {"input_ids": self.sequences[index], "labels": self.sequences[index]}


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    config = GPT2Config(
        vocab_size=64, n_positions=32, n_embd=model_args.n_embd, n_layer=model_args.n_layer, n_head=2
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=Counting(1024),
        eval_dataset=Counting(128),
    )
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
