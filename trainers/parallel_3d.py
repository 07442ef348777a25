"""Train the GPT with 3D parallelism: split by layers, every layer split by heads, and the whole of it
repeated on other data.

    torchrun --standalone --nproc-per-node=8 trainers/parallel_3d.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.checkpoint import restore_rng_state, rng_state
from common.data import ResumableSampler, SeededSamples, leave_signals_to_trainer, load_data, steps_of
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    TrainerError,
    any_rank_by_now,
    describe_process,
    finish,
    gather,
    node_name,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.metrics import MetricsLog
from common.models import build_model, count_parameters, loss_of, parts_of
from common.schedule import scaled_lr, warmed_up
from common.sharded import (
    groups_of,
    load_checkpoint,
    newest_checkpoint,
    norm_of_gradients,
    save_checkpoint,
)
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("microbatches")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_shared("model", "width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
    parser.change_shared("gpt_in_parts")
    parser.change("batch_size", default=8)
    parser.change("num_train_samples", default=1280)
    parser.add_argument(
        "--tp",
        type=int,
        default=2,
        min=1,
        usual=(1, 8),
        unit="ranks",
        help="Ranks that share each layer; divides the 4 heads. Neighbours, so that they lie in one node",
    )
    parser.add_argument(
        "--pp",
        type=int,
        default=2,
        min=1,
        usual=(1, 64),
        unit="stages",
        help=(
            "Stages that share the layers, at most as many as layers and micro-batches. What remains of the "
            "ranks are copies for other data"
        ),
    )
    parser.add_shared("tensorboard")
    parser.add_places()
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    with MetricsLog(
        args.run_dir, device, log_steps=args.log_metrics, tensorboard=args.tensorboard
    ) as metrics:
        train(args, device, metrics, stop)


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal) -> None:
    rank = metrics.rank
    torch.manual_seed(args.seed)
    mesh = make_mesh(args.tp, args.pp, device)
    dp_rank, tp_rank, pp_rank = (mesh.get_local_rank(name) for name in ("dp", "tp", "pp"))
    dp_size = mesh["dp"].size()

    # Data: each copy of the model has its own part of it, which all ranks of the copy read in the same order.
    # Steps are whole: the stages agree once on the size of what they hand on.
    train_set, test_set, dataset = load_data(args)
    global_batch_size = args.batch_size * args.microbatches * dp_size
    if len(train_set) < global_batch_size:
        raise TrainerError(f"one step needs {global_batch_size} samples, but there are {len(train_set)}")
    train_set = Subset(train_set, range(len(train_set) // global_batch_size * global_batch_size))
    shuffle = DistributedSampler(train_set, num_replicas=dp_size, rank=dp_rank, seed=args.seed)
    sampler = ResumableSampler(shuffle)
    train_loader = DataLoader(
        SeededSamples(train_set, args.seed),  # the same crops in whichever process, also after a resume
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        persistent_workers=args.num_workers > 0,
        worker_init_fn=leave_signals_to_trainer,
        generator=torch.Generator(),  # loading takes no number from dropout's generator
        pin_memory=device.type == "cuda",
    )
    test_set = Subset(test_set, range(dp_rank, len(test_set), dp_size))
    test_loader = DataLoader(test_set, batch_size=256, generator=torch.Generator())

    # Model: every rank keeps its layers of it, and of those its heads and hidden neurons.
    whole = build_model(args.model, args.width)
    self_check(whole, device, train_loader, shard=dp_rank)
    num_parameters, num_layers = count_parameters(whole), len(parts_of(whole))
    num_heads = args.width * 2 // parts_of(whole)[0].attention.head_size
    if num_heads % args.tp or args.pp > min(num_layers, args.microbatches):
        raise TrainerError(
            (
                f"--tp must divide {num_heads} heads, and --pp must be at most {num_layers} layers and "
                f"{args.microbatches} micro-batches"
            )
        )
    model = Layers(whole, pp_rank, args.pp).to(device)
    for block in model.blocks.values():
        plan = {
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.projection": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        parallelize_module(block, mesh["tp"], plan)
    stage = PipelineStage(model, pp_rank, args.pp, device, group=mesh["pp"].get_group())

    def loss_of_microbatch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(logits, targets) / (args.microbatches * dp_size)

    schedule = Schedule1F1B(stage, args.microbatches, loss_of_microbatch, scale_grads=False)

    # Optimizer, of this rank's parts.
    base_lr = scaled_lr(args.lr, args.lr_scaling, global_batch_size)
    if args.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(groups_of(model), lr=base_lr, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(groups_of(model), lr=base_lr)

    # Resume: from this run's own newest checkpoint, else from the one that was named.
    step, epoch, position = 0, 0, 0  # position: samples of the epoch that have been trained on
    made_with = {"model": args.model, "width": args.width, "optimizer": args.optimizer}
    resume_from = newest_checkpoint(args.run_dir) or args.resume_from
    if resume_from:
        # Every rank reads its parts of now, however many ranks wrote theirs.
        saved = load_checkpoint(resume_from, made_with, model, optimizer)
        step, epoch, position = saved["step"], saved["epoch"], saved["position"]
        position -= position % global_batch_size  # a step of another size is begun anew
        if position >= len(train_set):
            epoch, position = epoch + 1, 0
        restore_rng_state(saved["rng"], device, rank)

    metrics.event(
        "start",
        step,
        rank=rank,
        world_size=metrics.world_size,
        dataset=vars(dataset),
        num_parameters=num_parameters,
        **describe_process(device),
    )
    print_rank0(f"model: {args.model}, width {args.width}, {num_parameters:,} parameters, on {device.type}")
    metrics.event(
        "mesh", step, dp=dp_rank, tp=tp_rank, pp=pp_rank, sizes=[dp_size, args.tp, args.pp], loss_of="all"
    )
    if resume_from:
        metrics.event("resume", step, path=str(resume_from))
        print_rank0(f"resumed at step {step} from {resume_from}")

    def save(reason: str) -> None:
        started = time.perf_counter()
        state = {"step": step, "epoch": epoch, "position": position, "rng": gather(rng_state(device))}
        path = save_checkpoint(args.run_dir, {**state, "made_with": made_with}, model, optimizer)
        seconds = time.perf_counter() - started
        metrics.event("checkpoint", step, path=str(path), seconds=seconds, reason=reason)
        print_rank0(f"checkpoint at step {step}: {path} ({reason})")

    def why_stop() -> str | None:
        # All ranks leave in the same step, or those that stay would wait forever. They agree while the next
        # step is computed.
        if any_rank_by_now(stop.is_requested):
            return stop.reason
        if args.max_steps:
            return "max_steps" if step >= args.max_steps else None
        return "epochs" if epoch >= args.epochs else None

    reason = why_stop()  # a run that had ended before it was started again has nothing left to do
    while reason is None:
        shuffle.set_epoch(epoch)  # without this, every epoch has the order of the first
        sampler.begin(epoch, position // dp_size)
        epoch_started = step_ended = time.perf_counter()
        epoch_loss, epoch_samples = torch.zeros((), device=device), 0

        for micro_batches, data_time_s in steps_of(train_loader, args.microbatches):
            lr = warmed_up(base_lr, step, args.warmup_steps)
            for group in optimizer.param_groups:
                group["lr"] = lr

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            inputs, targets = (
                torch.cat(part).to(device, non_blocking=True)
                for part in zip(*micro_batches)  # noqa: B905 - no strict= in Python 3.9
            )
            losses: list[torch.Tensor] = []  # stays empty, except on the last stage
            schedule.step(*([inputs] if stage.is_first else []), target=targets, losses=losses)
            step_loss += sum(loss.detach() for loss in losses)
            add_up_gradients(model, mesh["dp"])
            # The last stages tell all the loss, and the norm is of all stages together: each counts once, in
            # whatever copies it is.
            totals = torch.stack([step_loss / args.tp, norm_of_gradients(model) ** 2 / (args.tp * dp_size)])
            dist.all_reduce(totals)
            step_loss, grad_norm = totals[0], totals[1].sqrt()
            optimizer.step()

            step += 1
            position += num_samples * dp_size
            epoch_samples += num_samples
            epoch_loss += step_loss * num_samples
            now = time.perf_counter()
            metrics.step(
                step=step,
                epoch=epoch,
                loss=step_loss,  # still on the device: reading it here would wait for the step
                lr=lr,
                num_samples=num_samples,
                num_samples_global=num_samples * dp_size,
                data_time_s=data_time_s,
                step_time_s=now - step_ended,
                grad_norm=grad_norm,
            )
            step_ended = now

            reason = why_stop()
            if reason:
                break
            if args.checkpoint_every and step % args.checkpoint_every == 0:
                save("interval")
                step_ended = time.perf_counter()

        if reason not in STOPPED_EARLY:
            mean_loss, seconds = epoch_loss.item() / epoch_samples, time.perf_counter() - epoch_started
            metrics.event(
                "epoch_end", step, epoch=epoch, loss=mean_loss, num_samples=epoch_samples, seconds=seconds
            )
            print_rank0(
                f"epoch {epoch}: loss {mean_loss:.4f}, {epoch_samples / seconds:.0f} samples/s on this rank"
            )
            if args.eval_every_epoch:
                started = time.perf_counter()
                loss_on_test, accuracy = evaluate(model, test_loader, device, mesh["pp"])
                seconds = time.perf_counter() - started
                metrics.event(
                    "eval", step, epoch=epoch, loss=loss_on_test, accuracy=accuracy, seconds=seconds
                )
                print_rank0(
                    f"epoch {epoch}: test loss {loss_on_test:.4f}, accuracy {accuracy:.2%}{dataset.caveat}"
                )
                metrics.reached(args.target_accuracy, accuracy, step)
        if position >= len(train_set):
            epoch, position = epoch + 1, 0
        reason = reason or why_stop()

    if reason in STOPPED_EARLY:
        print_rank0(f"{stop.name or 'stop signal'} received: leaving at step {step}")
    save("signal" if reason in STOPPED_EARLY else "end")
    finish(metrics, step, reason)


def make_mesh(tp: int, pp: int, device: torch.device) -> DeviceMesh:
    """All ranks, by their place in three directions. Neighbours share layers, as those speak most; stages are
    farthest apart."""
    world_size = dist.get_world_size()
    if world_size % (tp * pp):
        raise TrainerError(
            f"{world_size} ranks cannot be shared out evenly: start a multiple of --tp {tp} x --pp {pp}"
        )
    mesh = init_device_mesh(device.type, (pp, world_size // (tp * pp), tp), mesh_dim_names=("pp", "dp", "tp"))
    places = gather((*(mesh.get_local_rank(name) for name in ("dp", "tp", "pp")), node_name()))
    print_rank0(f"mesh: {mesh['dp'].size()} (dp) x {tp} (tp) x {pp} (pp)")
    for rank, (dp_rank, tp_rank, pp_rank, node) in enumerate(places):
        print_rank0(f"  rank {rank}: dp {dp_rank}, tp {tp_rank}, pp {pp_rank}, on {node}")
    return mesh


def add_up_gradients(model: nn.Module, copies: DeviceMesh) -> None:
    """Over the ranks that hold the same parts and had other data."""
    grads = [parameter.grad for parameter in model.parameters()]
    grads = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
    group = copies.get_group()
    for work in [dist.all_reduce(grad, group=group, async_op=True) for grad in grads]:
        work.wait()


class Layers(nn.Module):
    """The blocks of one stage, named as in the whole model; the first stage also embeds the bytes, and the
    last one predicts."""

    def __init__(self, whole: Any, index: int, num_stages: int) -> None:
        super().__init__()
        start, end = (len(whole.blocks) * i // num_stages for i in (index, index + 1))
        self.embedding = whole.tokens.embedding_dim
        if index == 0:
            self.tokens, self.positions = whole.tokens, whole.positions
        self.blocks = nn.ModuleDict({str(i): whole.blocks[i] for i in range(start, end)})
        if index == num_stages - 1:
            self.norm, self.output = whole.norm, whole.output

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "tokens"):
            hidden = self.tokens(hidden) + self.positions(torch.arange(hidden.shape[1], device=hidden.device))
        for block in self.blocks.values():
            hidden = block(hidden)
        return self.output(self.norm(hidden)) if hasattr(self, "output") else hidden


@torch.no_grad()
def evaluate(
    model: Layers, test_loader: DataLoader, device: torch.device, pipe: DeviceMesh
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    stage, ranks, group = pipe.get_local_rank(), pipe.mesh.tolist(), pipe.get_group()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        if stage > 0:
            inputs = torch.empty(*targets.shape, model.embedding, device=device)
            dist.recv(inputs, src=ranks[stage - 1], group=group)
        logits = model(inputs)
        if stage < len(ranks) - 1:
            dist.send(logits, dst=ranks[stage + 1], group=group)
            continue
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    dist.all_reduce(totals)
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
