"""Flower's time for a job, through its FedAvg strategy and its simulation runtime on Ray.

Two Ray actors of one processor and one thread each. An actor builds its data and its model once and keeps them, so that
a client only loads the parameters it was sent. Neither clients nor server evaluate; logs and usage reports are off. The
server looks for replies every 5 ms instead of every 100; the runtime still looks for new messages every 100 ms only,
which is most of W3.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_LOG_LEVEL": "ERROR"}
os.environ |= {"RAY_worker_niceness": "0"}  # actors would give way to everything else on the machine (15 unless told)

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from networks import network
from torch import nn
from works import JOBS

BACKEND = {"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


@functools.cache
def resident(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """What an actor keeps: the model, and the inputs and labels of all clients."""
    torch.set_num_threads(1)
    inputs, labels = map(torch.from_numpy, JOBS[name].inputs())
    return network(JOBS[name]), inputs, labels


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Local training of one client."""
    name = str(message.content["config"]["job"])
    job = JOBS[name]
    model, inputs, labels = resident(name)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), job.lr, job.momentum, weight_decay=job.weight_decay)
    first = int(context.node_config["partition-id"]) * job.rows
    for _ in range(job.epochs):
        for rows in (first + torch.randperm(job.rows)).split(job.batch):
            optimiser.zero_grad()
            F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": job.rows})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def seconds(name: str, count: int) -> list[float]:
    """Seconds of each round after the first; the loop is Flower's own, so its evaluation hook takes the time."""
    job = JOBS[name]
    stamps: list[float] = []
    answers: list[int] = []
    server = ServerApp()

    def answered(replies: list[RecordDict], key: str) -> MetricRecord:
        answers.append(len(replies))
        return MetricRecord()

    def note(number: int, arrays: ArrayRecord) -> None:
        if number:
            stamps.append(time.perf_counter())

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        if "PEER_DEFAULTS" not in os.environ:
            grid.pull_interval = 0.005  # seconds between looking for replies; 0.1 unless told
        strategy = FedAvg(
            fraction_train=job.cohort / job.clients / 2,  # never above the smallest number, which thus decides
            fraction_evaluate=0.0,
            min_train_nodes=job.cohort,
            min_available_nodes=job.clients,
            train_metrics_aggr_fn=answered,
        )
        arrays = ArrayRecord(network(job).state_dict())
        strategy.start(grid, arrays, count, train_config=ConfigRecord({"job": name}), evaluate_fn=note)

    run_simulation(server, client, job.clients, backend_config=BACKEND)
    if answers != [job.cohort] * count:  # Flower goes on without clients that fail
        raise RuntimeError(f"clients failed: {answers} answers, expected {job.cohort} a round")
    return [after - before for before, after in itertools.pairwise(stamps)]


if __name__ == "__main__":
    import flower_contender  # the actors import the client by this name; as part of __main__ it would be sent each time

    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps({"seconds": flower_contender.seconds(options.job, options.rounds + 1)}))
