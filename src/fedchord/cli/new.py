"""`fedchord new method NAME`: a client rule of your own and its test, which pass as they are and show where to edit."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from fedchord.check import FedchordError, require

RULE = '''"""@NAME@: EDIT: say in plain words what it does.

It is used as `Algorithm(@CLASS@(), BySize(), Step())` with `fedchord.run`, see test_@MODULE@.py, and on the command
line as method=@MODULE@.py:@CLASS@.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Visit
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class @CLASS@(ClientRule):
    """Local SGD on F_i(theta) + (strength / 2) ||theta - theta_g||^2. EDIT: the formula and where it is from.

    A rule is a frozen record: its fields are its hyperparameters, its hooks are functions of their arguments, and
    nothing is kept in `self`. Every hook that is not written here is FedAvg's; `fedchord.ClientRule` lists them.
    """

    strength: float = 0.1  # EDIT: your hyperparameters, with defaults

    def __post_init__(self) -> None:
        check.at_least("@CLASS@", "strength", self.strength, 0)  # EDIT: which values are good

    def loss(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> tuple[Tensor, Tensors]:
        """EDIT: what a client minimises; autograd finds the gradient (override `direction` to write it yourself)."""
        data, buffers = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        away = trained["theta"] - visit.shared["theta"]  # one vector: all trainable parameters
        return data + self.strength / 2 * (away * away).sum(), {"buffers": buffers}
'''

TEST = '''"""@NAME@ against a plain torch loop, and as a whole run."""

from __future__ import annotations

import pytest
import torch
from @MODULE@ import @CLASS@
from torch import nn

from fedchord import Algorithm, FedchordError, Task, federate, run
from fedchord.clients.plain import Plain
from fedchord.core.local import local_round
from fedchord.core.rules import Phase, RoundInfo
from fedchord.core.stream import ClientStream
from fedchord.core.training import Training
from fedchord.data import Iid, from_arrays
from fedchord.mixing.static import BySize
from fedchord.servers.step import Step

TRAINING = Training(epochs=2, batch=5, lr=0.1)
TASK = Task(lambda: nn.Linear(4, 3))


def clients():
    """Three clients with learnable random data."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=draw)
    y = (x @ torch.randn(4, 3, generator=draw)).argmax(1)
    return federate(from_arrays(x, y, name="toy"), Iid(), 3)


def stream(federation):
    return ClientStream(federation, client=0, batch=TRAINING.batch, key=7)


def one_round(rule, federation, shared):
    """What client 0 uploads after one round."""
    info = RoundInfo(round=0, rounds=1, num_clients=3, cohort=3, lr=TRAINING.lr, epochs=TRAINING.epochs, key=1)
    upload, _, _ = local_round(rule, TASK, TRAINING, shared, {}, stream(federation), info, client=0, key=2)
    return upload.mix["theta"]


def test_one_round_is_the_plain_loop():
    federation, shared = clients(), TASK.init(3)
    model = nn.Linear(4, 3)
    model.load_state_dict(TASK.state_dict(shared["theta"], shared["buffers"]))
    received = [p.detach().clone() for p in model.parameters()]
    optimiser = torch.optim.SGD(model.parameters(), lr=TRAINING.lr)
    for batch in stream(federation).batches(0, Phase(epochs=TRAINING.epochs)):
        away = sum(((p - r) ** 2).sum() for p, r in zip(model.parameters(), received, strict=True))
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"]) + 0.5 / 2 * away  # EDIT: your formula
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    expected = TASK.layout.flatten(dict(model.named_parameters())).detach() - shared["theta"]
    assert torch.allclose(one_round(@CLASS@(strength=0.5), federation, shared), expected, atol=1e-5)


def test_without_strength_it_is_fedavg():  # EDIT: a case where your rule must equal a known one
    federation, shared = clients(), TASK.init(3)
    plain = one_round(Plain(), federation, shared)
    assert torch.allclose(one_round(@CLASS@(strength=0), federation, shared), plain, atol=1e-6)


def test_it_runs_and_learns():
    algorithm = Algorithm(@CLASS@(), BySize(), Step(), name="@NAME@")
    results = list(run(algorithm, TASK, clients(), rounds=10, training=TRAINING, executor="serial", eval_every=1))
    first, last = results[0].evaluation.mean("loss"), results[-1].evaluation.mean("loss")
    assert last < first


def test_bad_values_are_refused():
    with pytest.raises(FedchordError, match="@CLASS@: strength must be at least 0, got -1"):
        @CLASS@(strength=-1)
'''


def write_method(name: str, to: str | Path = ".") -> tuple[Path, Path]:
    """Write a rule file and its test into a folder; files that are there are never overwritten."""
    module = module_name(name)
    folder = Path(to)
    rule, test = folder / f"{module}.py", folder / f"test_{module}.py"
    for path in (rule, test):
        require(not path.exists(), "new method", f"{path} is there already and is not overwritten")
    _free(name, module)
    words = {"@NAME@": name, "@CLASS@": "".join(word.capitalize() for word in module.split("_")), "@MODULE@": module}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((rule, RULE), (test, TEST)):
            for mark, word in words.items():
                text = text.replace(mark, word)
            path.write_text(text)
    except OSError as error:
        raise FedchordError(f"new method: {folder} cannot be written ({error.strerror})") from None
    return rule, test


def module_name(name: str) -> str:
    """The file name of a method: my-rule becomes my_rule."""
    good = re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name)
    wanted = "small letters, digits and hyphens, starting with a letter"
    require(good is not None, "new method", f"a name is made of {wanted}, got {name!r}")
    return name.replace("-", "_")


def _free(name: str, module: str) -> None:
    """Refuse names that already mean something."""
    from fedchord.catalog import METHODS

    require(name not in METHODS, "new method", f"{name} is a method already; choose another name")
    known = keyword.iskeyword(module) or importlib.util.find_spec(module) is not None
    require(not known, "new method", f"{name} would hide Python's {module}; choose another name")


def register(app: typer.Typer) -> None:
    """Add `new` to the command line."""
    new = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Start something of your own.")
    new.callback()(lambda: None)
    new.command("method")(new_method)
    app.add_typer(new, name="new")


def new_method(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and hyphens, such as my-rule.")],
    to: Annotated[Path, typer.Option(help="The folder for the two files.")] = Path("."),
) -> None:
    """Write a client rule and its test, ready to be edited.

    \b
      fedchord new method my-rule
      python -m pytest test_my_rule.py
    """
    rule, test = write_method(name, to)
    print(f"wrote {rule} and {test}")
    print(f"try: python -m pytest {test}; then edit what is marked EDIT in both")
