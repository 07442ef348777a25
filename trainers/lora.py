"""Fine-tune a GPT with LoRA: its weights stay as they are, and small matrices beside them learn to answer.

    python trainers/lora.py --base RUN_DIR_OF_GPT --max_steps 200

Metrics, checkpoints and the adapters end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import copy
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.distributed import TrainerError, pick_device, print_rank0, require_single_process, run
from common.finetuning import IGNORED, answers_of, load_base, load_pairs, show_answers
from common.loading import evaluation_loader, training_loader
from common.models import GPT, count_parameters, loss_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.speed import computes_in_bf16
from common.tokens import keep_tokenizer
from common.training import Training
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

TARGETS = {
    "query_value": ("attention.query", "attention.value"),
    "attention": ("attention.query", "attention.key", "attention.value", "attention.projection"),
    "all": ("attention.query", "attention.key", "attention.value", "attention.projection", "up", "down"),
}


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["model", "width", "data", "image_size", "augment", "cudnn_benchmark"])
    parser.add_argument(
        "--base",
        default="",
        help=(
            "Run directory or checkpoint of gpt, gpt_ddp, gpt_fsdp or gpt_tp to start from; the model gets "
            "its sizes. Empty: a fresh model, not trained yet"
        ),
    )
    parser.add_argument(
        "--pairs",
        default="",
        help="A .jsonl file with instruction and response in each line; empty: small generated tasks",
    )
    parser.add_argument(
        "--rank",
        type=int,
        default=8,
        min=1,
        usual=(1, 256),
        unit="columns",
        help="Rank of the small matrices: the update has at most this many directions",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        default=16.0,
        above=0,
        usual=(1, 512),
        help="The update is scaled by alpha / rank, so that another rank needs no other lr",
    )
    parser.add_argument(
        "--targets",
        default="all",
        choices=["query_value", "attention", "all"],
        help="Matrices of each block that get adapters: query and value, all of attention, or the MLP's too",
    )
    parser.add_shared("vocabulary", "layers", "heads", "embedding", "sequence_length", "dropout", "precision")
    parser.add_shared("sample_tokens")
    parser.change_shared("language")
    parser.change("lr", default=0.01, usual=(1e-4, 0.1), help="Learning rate of the adapters, after warm-up")
    parser.change("max_steps", default=200)
    parser.change("batch_size", default=16, help="Pairs of one micro-batch")
    parser.change("weight_decay", default=0.0, help="Share of each adapter that a step subtracts, times lr")
    parser.change("lr_schedule", default="linear")
    parser.change("num_train_samples", unit="pairs")
    return parser.parse_args()


class LoRALinear(nn.Module):
    """W x + b + alpha/rank * B A x: W and b stay fixed, A and B are learned (arXiv 2106.09685).

    B begins as 0, so the model begins as its base.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        learned = F.linear(F.linear(inputs, self.a), self.b)
        result: torch.Tensor = self.base(inputs) + self.scale * learned
        return result

    def merged(self) -> nn.Linear:
        """One layer that does the same: its weights include the adapter's."""
        layer = copy.deepcopy(self.base)
        with torch.no_grad():
            layer.weight += self.scale * self.b @ self.a
        return layer


class Adapters(nn.ParameterDict):
    """The parameters of all adapters, by their names."""


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Training(args, device) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    torch.manual_seed(args.seed)

    # Data: pairs, of which the response alone is learned. Seed and epoch alone decide the order of each
    # epoch, so a resumed run sees the same order.
    pairs, name, is_generated = load_pairs(args.pairs)
    base = load_base(args, pairs)
    pairs = pairs[: args.num_train_samples or None]
    text = answers_of(pairs, name, is_generated, base, args.sequence_length)
    shuffle = torch.Generator()
    sampler = RandomSampler(text.train_set, generator=shuffle)
    train_loader = training_loader(text.train_set, sampler, args, device)
    test_loader = evaluation_loader(text.held_out, args, device, args.batch_size)

    # Model and optimizer. The base learns nothing; beside its matrices stand adapters, which alone have
    # gradients, an optimizer and checkpoints.
    model = base.model.requires_grad_(False)
    adapters = add_adapters(model, TARGETS[args.targets], args.rank, args.alpha)
    model.to(device)
    num_trained, num_all = count_parameters(adapters), count_parameters(model)
    print_rank0(f"trained: {num_trained:,} of {num_all:,} parameters ({num_trained / num_all:.2%})")
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, adapters.parameters(), lr, fused=True)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=computes_in_bf16(args.precision, device))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    made_with = {"base": base.name, "rank": args.rank, "alpha": args.alpha, "targets": args.targets}
    checkpoints = Checkpoints(args, adapters, optimizer, made_with)
    training.start(text.info, checkpoints)
    keep_tokenizer(text, args.run_dir)
    for epoch in training.epochs(len(text.train_set)):
        shuffle.manual_seed(args.seed + epoch)
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean, in
            # which each token of a response counts alike.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            num_learned = sum((targets != IGNORED).sum() for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for inputs, targets in micro_batches:
                share = ((targets != IGNORED).sum() / num_learned).to(device, non_blocking=True)
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                with mixed:
                    loss = loss_of(model(inputs), targets) * share
                loss.backward()
                step_loss += loss.detach()
            grad_norm = clip_gradients(adapters, args.max_grad_norm)
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device, mixed), text.measures_of)
    save_adapters(adapters, model, made_with, args.run_dir)
    check_merged(model, text.held_out[0][0].to(device))
    training.finish(lambda: show_answers(model, text, args, device))


def add_adapters(model: GPT, targets: tuple[str, ...], rank: int, alpha: float) -> Adapters:
    """Put an adapter beside each target of each block. Returns the parameters of all."""
    adapters = Adapters()
    for number, block in enumerate(model.blocks):
        for target in targets:
            parent, name = block.get_submodule(target.rpartition(".")[0]), target.rpartition(".")[2]
            layer = LoRALinear(getattr(parent, name), rank, alpha)
            setattr(parent, name, layer)
            adapters.update({f"{number}/{target}/a".replace(".", "/"): layer.a})
            adapters.update({f"{number}/{target}/b".replace(".", "/"): layer.b})
    return adapters


def save_adapters(adapters: Adapters, model: nn.Module, made_with: dict, run_dir: str) -> None:
    """Write the adapters alone: beside its base, a training has to keep no more."""
    path = Path(run_dir) / "checkpoints" / "adapters.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"adapters": adapters.state_dict(), **made_with}, path)
    size, whole = path.stat().st_size, 4 * (count_parameters(model) - count_parameters(adapters))
    print_rank0(f"adapters: {path}, {size / 1e6:.3g} MB; the model beside them has {whole / 1e6:.3g} MB")


@torch.no_grad()
def check_merged(model: GPT, tokens: torch.Tensor) -> None:
    """Merge the adapters into the weights of a copy of the model, and compare the outputs of both."""
    model.eval()
    merged = copy.deepcopy(model)
    for parent in list(merged.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoRALinear):
                setattr(parent, name, layer.merged())
    before, after = model(tokens[None]), merged(tokens[None])
    model.train()
    difference = (before - after).abs().max().item()
    if difference > 1e-3 * before.abs().max().item():
        raise TrainerError(
            f"merged adapters change a logit by {difference:.3g}: the merged model differs from the "
            "trained one"
        )
    print_rank0(
        f"merged: {count_parameters(merged):,} parameters, as the base; "
        f"logits differ by {difference:.1e} at most"
    )


@torch.no_grad()
def evaluate(
    model: nn.Module, test_loader: DataLoader, device: torch.device, mixed: torch.autocast
) -> tuple[float, float]:
    """Mean loss and accuracy on the tokens of held-out responses."""
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with mixed:
            logits = model(inputs)
        num_learned = (targets != IGNORED).sum()
        totals[0] += loss_of(logits, targets) * num_learned
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += num_learned
    model.train()
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
