"""Stacks of linear layers: logistic regression and the two-layer network.

Both consist of Flatten, Linear and ReLU only, so that the engine can recognise them and train many clients at once.
"""

from __future__ import annotations

from torch import nn

from fedchord.check import whole


class LogisticRegression(nn.Sequential):
    """One linear layer with bias on the flattened input: (n, ...) -> (n, inputs) -> (n, classes).

    It has classes * (inputs + 1) parameters: 7,850 for 28 x 28 pixels and 10 classes, 16 for the 15 features and one
    logit of Berka.
    """

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        whole("LogisticRegression", "inputs", inputs, low=1)
        whole("LogisticRegression", "classes", classes, low=1)
        self.add_module("flatten", nn.Flatten())
        self.add_module("head", nn.Linear(inputs, classes))


class TwoNN(nn.Sequential):
    """Two hidden layers with ReLU: (n, ...) -> (n, inputs) -> (n, hidden) -> (n, hidden) -> (n, classes), with biases.

    The 2NN of McMahan et al. (2017): 784-200-200-10 with 199,210 parameters. (The thesis code has a third hidden layer
    and no biases; we keep the published network.)
    """

    def __init__(self, inputs: int = 784, hidden: int = 200, classes: int = 10) -> None:
        super().__init__()
        whole("TwoNN", "inputs", inputs, low=1)
        whole("TwoNN", "hidden", hidden, low=1)
        whole("TwoNN", "classes", classes, low=1)
        self.add_module("flatten", nn.Flatten())
        self.add_module("hidden1", nn.Linear(inputs, hidden))
        self.add_module("act1", nn.ReLU())
        self.add_module("hidden2", nn.Linear(hidden, hidden))
        self.add_module("act2", nn.ReLU())
        self.add_module("head", nn.Linear(hidden, classes))
