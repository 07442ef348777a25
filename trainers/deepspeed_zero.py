"""Train SimpleCNN on CIFAR-10 with DeepSpeed ZeRO: data parallelism that shards the optimizer, then
gradients, then parameters.

    torchrun --standalone --nproc-per-node=2 trainers/deepspeed_zero.py --stage 2 --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.data import load_data
from common.deepspeed_start import EngineCheckpoints, cast_the_rest, checked_config, import_deepspeed
from common.distributed import pick_device, require_torchrun, run, same_buffers, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of
from common.optimization import build_optimizer, build_schedule, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.add_argument(
        "--stage",
        type=int,
        default=2,
        choices=[0, 1, 2, 3],
        help="Sharded state: 0 none, 1 the optimizer's, 2 gradients too, 3 parameters too",
    )
    parser.add_shared("offload")
    parser.add_argument(
        "--deepspeed_config",
        default="",
        help=(
            "A DeepSpeed configuration (JSON) in place of stage and offload; a key that DeepSpeed does not "
            "know is an error"
        ),
    )
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    is_gpu = device.type == "cuda"
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    with Training(args, device) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    rank, world_size = training.rank, training.world_size
    torch.manual_seed(args.seed + rank)  # every rank drops out in its own way

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    sampler = DistributedSampler(train_set, seed=args.seed)  # every rank gets its own part of each epoch
    train_loader = training_loader(train_set, sampler, args, device)
    # A forward pass needs all ranks, so all need as many batches: up to world_size - 1 samples are left out.
    test_set = Subset(test_set, range(rank, len(test_set) // world_size * world_size, world_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer. All ranks start with the parameters of rank 0.
    model = build_model(args.model, args.width, dataset).to(device)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    self_check(model, device, train_loader)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation * world_size)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # From here on the engine makes the steps: stage 1 shards the optimizer's state, 2 gradients too, 3
    # parameters too.
    deepspeed = import_deepspeed(device)
    config = {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation,
        "zero_optimization": {
            "stage": args.stage,
            "offload_optimizer": {"device": args.offload},
            "stage3_param_persistence_threshold": 0,  # small parameters are sharded too
        },
        "gradient_clipping": args.max_grad_norm,  # left out, it is 1.0
        "zero_allow_untested_optimizer": True,  # torch's own optimizers, which need no compiler
        "zero_force_ds_cpu_optimizer": False,
    }
    # Check it: DeepSpeed ignores a misspelt key in silence.
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=checked_config(config, args.deepspeed_config)
    )

    cast_the_rest(model)  # with bf16 in the configuration, the engine casts the parameters only

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, EngineCheckpoints(args, engine))
    for epoch in training.epochs(len(train_set)):
        sampler.set_epoch(epoch)  # without this, every epoch has the order of the first
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for inputs, targets in micro_batches:
                # Gradients travel with the last micro-batch only, where ZeRO has room for them until then.
                engine.set_gradient_accumulation_boundary(targets is micro_batches[-1][1])
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                loss = loss_of(engine(inputs), targets) * (len(targets) / num_samples)
                engine.backward(loss, scale_wrt_gas=False)
                step_loss += loss.detach()
            engine.step()
            grad_norm = engine.get_global_grad_norm()  # None in stage 0
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish()


@torch.no_grad()
def evaluate(model: nn.Module, test_loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    same_buffers(model)  # batch norm's statistics differ by rank
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        logits = model(inputs)
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    dist.all_reduce(totals)
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
