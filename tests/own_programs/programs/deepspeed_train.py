"""DeepSpeed's engine with a JSON configuration, started by torchrun or the deepspeed launcher."""

import argparse
import os
import time

import deepspeed
import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument(
        "--stuck_rank", type=int, default=-1, help="this rank waits for a file after half of the steps"
    )
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        inputs = torch.randn(engine.train_micro_batch_size_per_gpu(), 32, generator=generator)
        targets = inputs[:, :4].sum(1, keepdim=True)
        loss = nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        if rank == args.stuck_rank and step == args.steps // 2:
            while not os.path.exists("/nonexistent/lock"):
                time.sleep(0.5)
        if rank == 0 and step % 5 == 0:
            print(f"step={step}, loss={loss.item():.5f}, lr={engine.get_lr()}", flush=True)


if __name__ == "__main__":
    main()
