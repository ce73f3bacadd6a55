"""The plug-in of pytest: `--fedchord-method my_rule.py:Rule` runs every test of the contract on a rule.

It is found by pytest wherever fedchord is installed, and imports nothing heavy unless one of its options is used.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedchord.check import FedchordError

if "fedchord.testing.contract" not in sys.modules:
    pytest.register_assert_rewrite("fedchord.testing.contract")  # so that what failed is told with its values

RULES = ("method", "mixing", "server")
TOLD = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each of them any number of times, and the setting."""
    group = parser.getgroup("fedchord", "the contract of federated methods (fedchord)")
    for rule in RULES:
        group.addoption(
            f"--fedchord-{rule}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"test this {rule} rule: FILE.py:NAME or a name, with parameters as 'NAME {rule}.x=VALUE'",
        )
    about = "methods to test beside the tests of a project, one a line, such as src/my_rule/rule.py:MyRule method.x=2"
    parser.addini("fedchord_methods", about, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot be tested, before anything is collected."""
    told = _told(config)
    config.stash[TOLD] = told
    if told["alone"]:
        config.args = []
    if told["asked"] and not hasattr(config, "workerinput"):
        try:
            list(_contracts(config))
        except FedchordError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what was asked for here: it does not see the command line as it was."""
    node.workerinput["fedchord"] = node.config.stash[TOLD]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests of the contract to those that were collected; -k and the like then choose among all."""
    if found := list(_contracts(config)):
        items += session.genitems(Methods.from_parent(session, name="fedchord", nodeid="fedchord", contracts=found))


class Methods(pytest.Collector):
    """The methods to be tested."""

    def __init__(self, *, contracts: Any, **others: Any) -> None:
        super().__init__(**others)
        self._contracts = contracts

    def collect(self) -> Iterator[pytest.Collector]:
        for contract in self._contracts:
            yield Method.from_parent(self, name=contract.label, contract=contract)


class Method(pytest.Collector):
    """The tests of one method."""

    def __init__(self, *, contract: Any, **others: Any) -> None:
        super().__init__(**others)
        self._contract = contract

    def collect(self) -> Iterator[pytest.Item]:
        from fedchord.testing.named import checks

        for name, check in checks(self._contract):
            yield Check.from_parent(self, name=name, check=check)


class Check(pytest.Item):
    """One test of the contract on one method."""

    def __init__(self, *, check: Any, **others: Any) -> None:
        super().__init__(**others)
        self._check = check

    def runtest(self) -> None:
        from fedchord.testing.named import wants_folder

        if not wants_folder(self._check):
            self._check()
            return
        with tempfile.TemporaryDirectory(prefix="fedchord-") as folder:
            self._check(tmp_path=Path(folder))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """What is a user's mistake is one line; anything else is shown as pytest does, from the test on."""
        if isinstance(excinfo.value, FedchordError):
            return str(excinfo.value)
        excinfo.traceback = excinfo.traceback.cut(path=Path(__file__).with_name("contract.py"))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.parent.name if self.parent else ''}: {self.name}"


def _told(config: pytest.Config) -> dict[str, Any]:
    """What is to be tested, as (name, folder of its file), and whether that is all.

    Named on the command line without paths, methods are tested alone. Those of the settings come beside the project's
    tests, unless single files of these are named.
    """
    if hasattr(config, "workerinput"):
        found: dict[str, Any] = config.workerinput["fedchord"]
        return found
    options = [(rule, name) for rule in RULES for name in config.getoption(f"fedchord_{rule}")]
    paths = config.args_source == pytest.Config.ArgsSource.ARGS
    typed = any(str(word).startswith("--fedchord-") for word in config.invocation_params.args)
    asked = [(name if rule == "method" else f"{rule}={name}", ".") for rule, name in options]
    folders = all((config.invocation_params.dir / word).is_dir() for word in config.args)
    if folders and not typed:
        asked += [(name, str(config.rootpath)) for name in config.getini("fedchord_methods")]
    return {"asked": list(dict.fromkeys(asked)), "alone": typed and not paths}


def _contracts(config: pytest.Config) -> Iterator[Any]:
    asked = config.stash[TOLD]["asked"]
    if asked:
        from fedchord.testing.named import Named

        yield from (Named(name, home) for name, home in asked)
