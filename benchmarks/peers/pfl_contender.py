"""pfl's time for a job, through its own federated averaging and simulated backend.

Two processes of one thread each, started by torchrun, which is how pfl spreads the clients of a round. Client tensors
stay in memory and their batches are cut once: pfl's in-memory dataset does not shuffle, which spares it work that the
other contenders do. No evaluation in the rounds that count. With PEER_DEFAULTS set: one process with two threads.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["PFL_PYTORCH_DEVICE"] = "cpu"  # unless told, pfl looks for a GPU at every batch
os.environ["OMP_NUM_THREADS"] = "2" if "PEER_DEFAULTS" in os.environ else "1"
if __name__ == "__main__" and not {"TORCHELASTIC_RUN_ID", "PEER_DEFAULTS"} & os.environ.keys():
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])

import torch
import torch.nn.functional as F
from networks import network
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn
from works import Job, contend


class Network(nn.Module):
    """The job's model in plain torch, with the loss that pfl asks of a model."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.inner = network(job)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(inputs)
        return outputs

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self(inputs), labels)

    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
        """Asked for in the first round only, which is not counted."""
        return {"loss": self.loss(inputs, labels).item()}


def clients(job: Job) -> FederatedDataset:
    """The job's clients, drawn as pfl recommends; their batches are cut once."""
    inputs, labels = map(torch.from_numpy, job.inputs())
    pairs = zip(inputs.split(job.rows), labels.split(job.rows), strict=True)
    data = [PyTorchTensorDataset(pair, user_id=str(number)) for number, pair in enumerate(pairs)]
    return FederatedDataset(data.__getitem__, get_user_sampler("minimize_reuse", range(job.clients)))


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """Federated averaging, one round at a time: a later run goes on where the one before stopped."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)  # every process has to start from the same parameters
    module = Network(job)

    def sgd(parameters: Iterator[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr, job.momentum, weight_decay=job.weight_decay)

    model = PyTorchModel(module, sgd, torch.optim.SGD(module.parameters(), 1.0))
    data = clients(job)
    backend = SimulatedBackend(data, data)
    algorithm = FederatedAveraging()
    training = NNTrainHyperParams(local_batch_size=job.batch, local_num_epochs=job.epochs, local_learning_rate=job.lr)
    for number in range(count):
        plan = NNAlgorithmParams(
            number + 1, evaluation_frequency=count, train_cohort_size=job.cohort, val_cohort_size=0
        )
        model = algorithm.run(plan, backend, model, training, send_metrics_to_platform=False)
        yield


if __name__ == "__main__":
    first = os.environ.get("RANK", "0") == "0"
    with contextlib.nullcontext() if first else contextlib.redirect_stdout(None):  # one process prints the times
        contend(rounds)
