"""FedJAX's time for a job, through its own federated averaging and its jit backend."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax

jax.tree_map = jax.tree_util.tree_map  # gone from current JAX; FedJAX 0.0.17 still calls it by this name

import fedjax
import jax.numpy as jnp
from works import Job, contend

WIDTHS = {"twonn": (784, 200, 200, 10), "logreg": (784, 10)}


def parameters(job: Job) -> list[tuple[jax.Array, jax.Array]]:
    """Dense layers with small random weights."""
    widths = WIDTHS[job.model]
    keys = jax.random.split(jax.random.PRNGKey(0), len(widths))
    pairs = zip(widths[:-1], widths[1:], keys, strict=False)
    return [(jax.random.normal(key, (a, b)) * a**-0.5, jnp.zeros(b)) for a, b, key in pairs]


def forward(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """A ReLU network on flattened inputs."""
    for index, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        x = jax.nn.relu(x) if index < len(layers) - 1 else x
    return x


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """Federated averaging, one round at a time."""
    x, y = job.inputs()
    flat = x.reshape(len(y), -1)
    slices = [slice(i * job.rows, (i + 1) * job.rows) for i in range(job.clients)]
    data = {str(i).encode(): fedjax.ClientDataset({"x": flat[s], "y": y[s]}) for i, s in enumerate(slices)}

    def loss(layers: list[tuple[jax.Array, jax.Array]], batch: dict[str, jax.Array]) -> jax.Array:
        logs = jax.nn.log_softmax(forward(layers, batch["x"]))
        return -jnp.mean(jnp.take_along_axis(logs, batch["y"][:, None], 1))

    def slope(layers, batch, key):  # type: ignore[no-untyped-def]
        decay = job.weight_decay
        return jax.tree_util.tree_map(lambda g, p: g + decay * p, jax.grad(loss)(layers, batch), layers)

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        slope,
        fedjax.optimizers.sgd(job.lr, job.momentum or None),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, num_epochs=job.epochs),
    )
    state = algorithm.init(parameters(job))
    for number, cohort in enumerate(job.cohorts(count)):
        keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
        clients = [(str(i).encode(), data[str(i).encode()], key) for i, key in zip(cohort, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        yield


if __name__ == "__main__":
    contend(rounds)
