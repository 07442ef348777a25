"""A JAX training loop: a jitted step, a tree of parameters, no framework on top."""

import argparse
import time

import jax
import jax.numpy as jnp


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
        for k, m, n in zip(keys, sizes, sizes[1:])
    ]


def predict(params, inputs):
    for weights, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ weights + bias)
    weights, bias = params[-1]
    return inputs @ weights + bias


def loss_of(params, inputs, targets):
    return jnp.mean((predict(params, inputs) - targets) ** 2)


@jax.jit
def train_step(params, inputs, targets, learning_rate):
    loss, gradients = jax.value_and_grad(loss_of)(params, inputs, targets)
    return jax.tree.map(lambda p, g: p - learning_rate * g, params, gradients), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_steps", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=0.02)
    args = parser.parse_args()

    key = jax.random.key(0)
    params = init(key, (16, 64, 64, 1))
    started = time.time()
    for step in range(args.num_steps):
        key, batch_key = jax.random.split(key)
        inputs = jax.random.normal(batch_key, (args.batch_size, 16))
        targets = jnp.sin(inputs[:, :1]) + inputs[:, 1:2]
        params, loss = train_step(params, inputs, targets, args.learning_rate)
        if step % 10 == 0:
            print(f"step: {step}, loss: {float(loss):.5f}, time: {time.time() - started:.2f}", flush=True)


if __name__ == "__main__":
    main()
