"""The files of a federation: what they say, and every mistake in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedchord.check import FedchordError
from fedchord.remote.settings import Limits, read_fed, read_nodes, read_party

FED = """
name = "heart"
clients = ["cleveland", "va"]

[plan]
method = "aaggff-s"
rounds = 10
"method.penalty" = 0.5

[server]
host = "fed.example.org"
bind = "0.0.0.0"
port = 9999
deadline = 30

[tls]
ca = "ca.pem"
certificate = "server.pem"
key = "/etc/fed/server.key"
nodes = "nodes.toml"
"""
NODE = """
name = "va"
client = 1
server = "fed.example.org:9999"

[data]
data = "rows.csv"
label = "ill"
category = ["cp"]

[tls]
ca = "ca.pem"
key = "node.key"

[limits]
allow = ["fedavg", "aaggff-s"]
rounds = 100
clip = 10
metrics = ["auroc", "loss"]
evaluations = 40
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "some.toml"
    path.write_text(text)
    return path


def test_a_federation_is_read_with_paths_beside_its_file(tmp_path: Path) -> None:
    fed = read_fed(written(tmp_path, FED))
    assert (fed.name, fed.clients, fed.folder) == ("heart", ("cleveland", "va"), tmp_path)
    assert fed.plan == {"method": "aaggff-s", "rounds": 10, "method.penalty": 0.5}
    assert (fed.outline, fed.out) == (tmp_path / "data.safetensors", tmp_path / "out")
    assert (fed.server.address, fed.server.listens) == ("fed.example.org:9999", "0.0.0.0")
    assert (fed.server.deadline, fed.server.attempts) == (30.0, 3)
    assert fed.tls is not None
    assert (fed.tls.certificate, fed.tls.key) == (tmp_path / "server.pem", Path("/etc/fed/server.key"))
    assert read_fed(written(tmp_path, FED.partition("[server]")[0])).tls is None


def test_a_party_is_read_and_its_rows_are_looked_for_beside_its_file(tmp_path: Path) -> None:
    party = read_party(written(tmp_path, NODE))
    assert (party.name, party.client, party.address) == ("va", 1, ("fed.example.org", 9999))
    assert party.data == {"data": str(tmp_path / "rows.csv"), "data.label": "ill", "data.category": ["cp"]}
    assert party.limits == Limits(("fedavg", "aaggff-s"), 100, 10.0, (), ("auroc", "loss"), 40)
    assert (party.secret, party.memory) == (tmp_path / "secret", tmp_path / "memory")
    public = read_party(written(tmp_path, NODE.replace('data = "rows.csv"', 'data = "heart"\npart = "va"')))
    assert (public.data["data"], public.data["part"]) == ("heart", "va")
    more = NODE.replace("[tls]", "augment = true\nsplit.name = 'dirichlet'\nsplit.alpha = 0.1\n[tls]")
    found = read_party(written(tmp_path, more)).data
    assert (found["augment"], found["split"], found["split.alpha"]) == (True, "dirichlet", 0.1)
    assert read_party(written(tmp_path, NODE.partition("[tls]")[0])).limits == Limits()
    six = read_party(written(tmp_path, NODE.replace("fed.example.org:9999", "[::1]:80")))
    assert six.address == ("::1", 80)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("clients =", "clinets =", "unknown key of {file} 'clinets'; did you mean 'clients'?"),
        ('name = "heart"', "", "{file}: name is missing"),
        ('"heart"', '"He art"', "{file}: name must be small letters, digits, - and _ (at most 40), got 'He art'"),
        ('"heart"', '"../up"', "{file}: name must be small letters"),
        ('["cleveland", "va"]', '"va"', "{file}: clients must be a list of words, got 'va'"),
        ('["cleveland", "va"]', "[]", "{file}: clients must name at least one party"),
        ('["cleveland", "va"]', '["va", "va"]', "{file}: clients names 'va' twice"),
        ("rounds = 10", "rouns = 10", "{file}, [plan]: unknown key 'rouns'; did you mean 'rounds'?"),
        ("rounds = 10", 'out = "x"', "{file}: [plan] cannot have out: it stands at the top of the file"),
        (
            "rounds = 10",
            "clients = 3",
            "{file}: [plan] cannot have clients: it is about rows, and stands in [data] of every",
        ),
        ("rounds = 10", "data.label = 'x'", "{file}: [plan] cannot have data.label: it is about rows"),
        ("port = 9999", "port = 99999", "{file}, [server]: port must be at most 65535, got 99999"),
        ("deadline = 30", "deadline = 0", "{file}, [server]: deadline must be above 0, got 0"),
        ("deadline = 30", "deadlin = 30", "unknown key of {file}, [server] 'deadlin'; did you mean 'deadline'?"),
        ("deadline = 30", "phases = 3", "{file}, [server]: phases must be at most 2, got 3"),
        ("deadline = 30", "minimum = 2", "{file}, [server]: minimum must be between 0 and 1, got 2"),
        ('ca = "ca.pem"', "ca = 3", "{file}, [tls]: ca must be a word, got 3"),
        ('ca = "ca.pem"', "", "{file}, [tls]: ca is missing"),
        ("[server]", "[server", "{file}: is not valid TOML"),
    ],
)
def test_mistakes_in_a_servers_file_are_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in FED
    path = written(tmp_path, FED.replace(old, new, 1))
    with pytest.raises(FedchordError) as caught:
        read_fed(path)
    assert str(caught.value).startswith(told.format(file=path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("client = 1", "client = -1", "{file}: client must be a whole number of at least 0, got -1"),
        ("client = 1", "", "{file}: client is missing"),
        ("fed.example.org:9999", "fed.example.org", "{file}: server must be HOST:PORT"),
        ("fed.example.org:9999", "https://fed:9", "{file}: server must be HOST:PORT"),
        ("fed.example.org:9999", "fed:0", "{file}: server must be HOST:PORT"),
        ('label = "ill"', 'lable = "ill"', "unknown key of {file}, [data] 'lable'; did you mean 'label'?"),
        ('data = "rows.csv"', "", "{file}, [data]: data is missing"),
        ('"aaggff-s"', '"agff-s"', "{file}, [limits], allow: unknown method 'agff-s'; did you mean 'aaggff-s'?"),
        ('"auroc"', '"aurok"', "{file}, [limits], metrics: unknown metric 'aurok'; did you mean 'auroc'?"),
        ("rounds = 100", "rounds = 1.5", "{file}, [limits]: rounds must be a whole number of at least 0, got 1.5"),
        ("ions = 40", "ions = -1", "{file}, [limits]: evaluations must be a whole number of at least 0, got -1"),
        ("clip = 10", "clip = 0", "{file}, [limits]: clip must be above 0, got 0"),
        ("clip = 10", "clp = 10", "unknown key of {file}, [limits] 'clp'; did you mean 'clip'?"),
        ('key = "node.key"', "", "{file}, [tls]: key is missing"),
    ],
)
def test_mistakes_in_a_partys_file_are_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in NODE
    path = written(tmp_path, NODE.replace(old, new, 1))
    with pytest.raises(FedchordError) as caught:
        read_party(path)
    assert str(caught.value).startswith(told.format(file=path)) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_a_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedchordError, match=r"none.toml: no such file"):
        read_fed(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FedchordError, match=r"b.toml: is not a text file"):
        read_party(tmp_path / "b.toml")


def test_registered_keys_are_read_without_their_comments_and_no_two_are_alike(tmp_path: Path) -> None:
    path = written(tmp_path, '[a]\nkey = "ecdsa-sha2-nistp384 AAAA a@host"\n[b]\nkey = "ecdsa-sha2-nistp384 BBBB"\n')
    assert read_nodes(path) == {"a": "ecdsa-sha2-nistp384 AAAA", "b": "ecdsa-sha2-nistp384 BBBB"}
    with pytest.raises(FedchordError, match="a and b have the same key"):
        read_nodes(written(tmp_path, '[a]\nkey = "e AAAA"\n[b]\nkey = "e AAAA other"\n'))
    with pytest.raises(FedchordError, match=r"unknown key of .*\[a\] 'kye'; did you mean 'key'"):
        read_nodes(written(tmp_path, '[a]\nkye = "e AAAA"\n'))
