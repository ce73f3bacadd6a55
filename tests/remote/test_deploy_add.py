"""One party more: what `deploy add` makes is what `deploy init` would have made with it from the beginning."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from helpers.invoked import invoke
from helpers.parties import NAMES, cut, table

from fedchord.check import FedchordError
from fedchord.remote.adding import add
from fedchord.remote.agreed import make_plan
from fedchord.remote.attending import open_node
from fedchord.remote.checkup import check
from fedchord.remote.facts import facts_of
from fedchord.remote.init import init
from fedchord.remote.settings import read_fed, read_nodes, read_party

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates are made")
pytest.importorskip("flwr", reason="flwr is not installed, which check would say")
pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

SETTINGS = ["data.label=outcome", "data.category=code", "method=aaggff-s", "rounds=3", "cohort=all", "seed=3"]
MORE = {"host": "fed.example.org", "port": 8443, "name": "fed", "place": "/opt/fed", "command": "/opt/bin/fedchord"}


def test_added_or_there_from_the_beginning_is_the_same(tmp_path: Path) -> None:
    init(tmp_path / "a", NAMES[:2], SETTINGS, **MORE)  # type: ignore[arg-type]
    init(tmp_path / "b", NAMES, SETTINGS, **MORE)  # type: ignore[arg-type]
    before = {name: (tmp_path / "a" / name / "node.key").read_bytes() for name in NAMES[:2]}
    add(tmp_path / "a", "west")
    mine, theirs = (
        {path.relative_to(top): path for path in top.rglob("*") if path.is_file()}
        for top in (tmp_path / "a", tmp_path / "b")
    )
    assert mine.keys() == theirs.keys()
    drawn = {"node.key", "secret", "ca.pem", "ca.key", "server.pem", "server.key", "nodes.toml"}
    for name, path in mine.items():
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(theirs[name].stat().st_mode), name
        assert name.name in drawn or path.read_text() == theirs[name].read_text(), name
    keys = read_nodes(tmp_path / "a" / "server" / "nodes.toml")
    assert tuple(keys) == NAMES and len(set(keys.values())) == 3
    assert all((tmp_path / "a" / name / "node.key").read_bytes() == key for name, key in before.items())
    assert (tmp_path / "a/west/ca.pem").read_bytes() == (tmp_path / "a/ca/ca.pem").read_bytes()


def test_with_a_new_plan_all_is_well(tmp_path: Path) -> None:
    from fedchord.remote.serving import plan_of

    folder = tmp_path / "fed"
    init(folder, NAMES[:2], SETTINGS, port=9377)
    add(folder, "west")
    cut(folder, table())
    fed, facts = read_fed(folder / "server" / "fed.toml"), [folder / name / "facts.json" for name in NAMES]
    for path in facts:
        facts_of(read_party(path.with_name("node.toml")), share=("rows",)).save(path)
    make_plan(read_fed(folder / "server" / "fed.toml"), facts)
    assert plan_of(fed).clients == 3
    assert open_node(read_party(folder / "west" / "node.toml")).hello().facts["client"] == 2
    for path in (folder / "server" / "fed.toml", folder / "west" / "node.toml"):
        assert not [finding.text for finding in check(path, offline=True) if not finding.good]
    add(folder, "east")
    with pytest.raises(FedchordError, match="is of north, south, west, the file of north, south, west, east"):
        plan_of(read_fed(folder / "server" / "fed.toml"))


def test_who_is_there_and_who_shares_rows_is_refused_in_a_line(tmp_path: Path) -> None:
    init(tmp_path / "own", NAMES[:2], SETTINGS)
    (tmp_path / "own" / "east").mkdir()
    for name, words in {
        "south": "south is a party already",
        "server": "a node cannot be called 'server'",
        "East!": "must be small letters",
        "east": "is there already; nothing is overwritten",
    }.items():
        with pytest.raises(FedchordError, match=f"^deploy add: .*{words}"):
            add(tmp_path / "own", name)
    init(tmp_path / "cut", NAMES[:2], ["data=digits", "split=iid", "rounds=2"])
    before = {path: path.read_bytes() for path in (tmp_path / "cut").rglob("*") if path.is_file()}
    found = invoke("deploy", "add", str(tmp_path / "cut"), "--node", "west")
    assert "share the rows of digits; with one more everybody's are others" in str(found.exception)
    assert before == {path: path.read_bytes() for path in (tmp_path / "cut").rglob("*") if path.is_file()}
    found = invoke("deploy", "add", str(tmp_path / "own"), "--node", "west")
    assert found.exit_code == 0 and "name north, south, west" in found.stdout.replace("\n", " ")
