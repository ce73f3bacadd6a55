"""Is all well? A federation that is in place, and everything that can be wrong with it, each told with what to do."""

from __future__ import annotations

import datetime
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from helpers.invoked import invoke
from helpers.parties import NAMES, cut, table, write

from fedchord.remote.agreed import make_plan
from fedchord.remote.checkup import check
from fedchord.remote.facts import facts_of
from fedchord.remote.init import init
from fedchord.remote.reach import awaited, listening, reach
from fedchord.remote.settings import read_fed, read_party

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates are made")
pytest.importorskip("flwr", reason="flwr is not installed, which check would say")
pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

SETTINGS = ["data.label=outcome", "data.category=code", "method=aaggff-s", "rounds=3", "cohort=all", "seed=3"]


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation with its plan; tests take copies."""
    folder = tmp_path_factory.mktemp("ready") / "fed"
    init(folder, NAMES, SETTINGS, port=free())
    cut(folder, table())
    facts = []
    for name in NAMES:
        facts.append(folder / name / "facts.json")
        facts_of(read_party(folder / name / "node.toml"), share=("rows",)).save(facts[-1])
    told = make_plan(read_fed(folder / "server" / "fed.toml"), facts)
    assert [line for line in told if line.startswith("copied both")] == [f"copied both to {folder / n}" for n in NAMES]
    return folder


@pytest.fixture
def fed(ready: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ready, tmp_path / "fed"))


def wrong(path: Path, **asked: object) -> list[str]:
    found = check(path, **asked)  # type: ignore[arg-type]
    assert all(finding.text and "\n" not in finding.text for finding in found)
    return [finding.text for finding in found if not finding.good]


def test_all_is_well(fed: Path) -> None:
    assert wrong(fed / "server" / "fed.toml") == []
    for name in NAMES:
        assert wrong(fed / name / "node.toml", offline=True) == []
    done = invoke("deploy", "check", str(fed / "server" / "fed.toml"))
    assert done.exit_code == 0 and done.output.endswith("all is well\n")
    done = invoke("deploy", "check", str(fed / "north" / "node.toml"))  # no server is there
    assert done.exit_code == 1 and "WRONG nobody listens at 127.0.0.1:" in done.output
    assert done.output.endswith("1 of 10 findings are wrong\n")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def swap(fed: Path, *names: str) -> None:
    """Files of another federation in place of these."""
    other = fed.parent / "other"
    init(other, NAMES)
    for name in names:
        shutil.copy(other / name, fed / name)


Change = Callable[[Path], object]
SERVER: list[tuple[str, Change, str]] = [
    ("folder", lambda f: (f / "server").chmod(0o755), "others can read {f}/server: chmod 700 {f}/server"),
    ("key mode", lambda f: (f / "server/server.key").chmod(0o640), "others can read {f}/server/server.key: chmod 600"),
    ("no key", lambda f: (f / "server/server.key").unlink(), "{f}/server/server.key is missing"),
    ("no certificate", lambda f: (f / "server/server.pem").unlink(), "{f}/server/server.pem cannot be read (No such"),
    ("garbage", lambda f: (f / "server/server.pem").write_text("x"), "{f}/server/server.pem: is no certificate in PEM"),
    ("other ca", lambda f: swap(f, "server/ca.pem"), "{f}/server/server.pem is not signed by {f}/server/ca.pem: put"),
    ("other key", lambda f: swap(f, "server/server.key"), "{f}/server/server.key is not the key of {f}/server/server"),
    (
        "host",
        lambda f: edit(f / "server/fed.toml", 'host = "127.0.0.1"', 'host = "fed.example.org"'),
        "{f}/server/server.pem is not for fed.example.org, which [server] host says: fedchord deploy renew",
    ),
    ("node's key", lambda f: edit(f / "server/nodes.toml", "[west]", "[east]"), "{f}/server/nodes.toml has no key of"),
    ("bad key", lambda f: edit(f / "server/nodes.toml", "AAAAE2Vj", "AAAAE2Vk"), "{f}/server/nodes.toml: the key of n"),
    ("no plan", lambda f: (f / "server/plan.json").unlink(), "{f}/server/plan.json is missing: fedchord deploy plan"),
    (
        "plan changed",
        lambda f: edit(f / "server/fed.toml", "rounds = 3", "rounds = 4"),
        "{f}/server/plan.json is not what [plan] says (rounds): fedchord deploy plan fed.toml FACTS..., and every",
    ),
    ("plan edited", lambda f: edit(f / "server/plan.json", '"rounds": 3', '"rounds": 9'), "plan: was changed: its"),
    (
        "other parties",
        lambda f: edit(f / "server/fed.toml", '"north", "south"', '"south", "north"'),
        "{f}/server/plan.json is for north, south, west: fedchord deploy plan",
    ),
    ("no tls", lambda f: edit(f / "server/fed.toml", "[tls]", "[x]") or None, ""),
    (
        "outline",
        lambda f: (f / "server/data.safetensors").write_bytes(b"x" * 99),
        "{f}/server/data.safetensors: is dam",
    ),
]


@pytest.mark.parametrize(("what", "change", "told"), SERVER, ids=[case[0] for case in SERVER])
def test_what_is_wrong_at_the_server_is_told_with_what_to_do(fed: Path, what: str, change: Change, told: str) -> None:
    if what == "no tls":
        path = fed / "server" / "fed.toml"
        path.write_text(path.read_text().partition("[tls]")[0])
        told = "[tls] is missing, so everything would go in plain text"
    else:
        change(fed)
    found = wrong(fed / "server" / "fed.toml", offline=True)
    assert any(line.startswith(told.format(f=fed)) for line in found), found
    assert len(found) <= 2


NODE: list[tuple[str, Change, str]] = [
    ("folder", lambda f: (f / "north").chmod(0o750), "others can read {f}/north: chmod 700 {f}/north"),
    ("secret", lambda f: (f / "north/secret").chmod(0o644), "others can read {f}/north/secret: chmod 600"),
    (
        "no secret",
        lambda f: (f / "north/secret").unlink(),
        "{f}/north/secret is missing: head -c 32 /dev/urandom > {f}",
    ),
    ("short secret", lambda f: (f / "north/secret").write_bytes(b"x"), "{f}/north/secret has fewer than 32 bytes"),
    ("no key", lambda f: (f / "north/node.key").unlink(), "{f}/north/node.key is missing: ssh-keygen -q -t ecdsa"),
    (
        "bad key",
        lambda f: (f / "north/node.key").write_text("x"),
        "{f}/north/node.key: is no private key without a pas",
    ),
    ("memory", lambda f: (f / "north/memory").mkdir(mode=0o755), "others can read {f}/north/memory: chmod 700"),
    ("no plan", lambda f: (f / "north/plan.json").unlink(), "{f}/north/plan.json is missing: get plan.json and"),
    (
        "plan",
        lambda f: edit(f / "north/plan.json", '"lr": 0.05', '"lr": 5.0'),
        "plan: was changed: its settings do not",
    ),
    (
        "who",
        lambda f: edit(f / "north/node.toml", "client = 0", "client = 1"),
        "{f}/north/plan.json: north is not client",
    ),
    (
        "method",
        lambda f: edit(f / "north/node.toml", '["aaggff-s"]', '["fedavg"]'),
        "limits: this node takes part in fedavg, not in aaggff-s: add it to allow in [limits] if you agree",
    ),
    (
        "rounds",
        lambda f: edit(f / "north/node.toml", "rounds = 3", "rounds = 2"),
        "the plan has 3 rounds, [limits] rounds lets this node take part in 2: raise it if you agree",
    ),
    (
        "evaluations",
        lambda f: edit(f / "north/node.toml", "evaluations = 5", "evaluations = 4"),
        "the plan asks for numbers of evaluation up to 5 times, [limits] evaluations lets this node tell 4: raise it",
    ),
    (
        "no rows",
        lambda f: (f / "north/rows.csv").unlink(),
        "rows: data: {f}/north/rows.csv: no such file; correct [data]",
    ),
    ("fewer rows", lambda f: drop_row(f / "north/rows.csv"), "rows: node: north has 23 train rows, the plan says 24"),
    ("column", lambda f: edit(f / "north/rows.csv", "dose", "doses"), "rows: rows.csv: has no column 'dose' (columns:"),
    ("word", lambda f: new_class(f / "north/rows.csv"), "rows: north: class 'dead' is none of the agreed ones (ill, w"),
    (
        "cell",
        lambda f: bad_cell(f / "north/rows.csv"),
        "rows: rows.csv: line 2, column 'dose' must be a number, got 'lot",
    ),
]


def rows_of(path: Path) -> list[dict[str, str]]:
    return [row for row in table() if row["client"] == path.parent.name]


COLUMNS = ["age", "ward", "dose", "code", "outcome"]


def drop_row(path: Path) -> None:
    write(path, rows_of(path)[:-1], COLUMNS)


def new_class(path: Path) -> None:
    write(path, [{**rows_of(path)[0], "outcome": "dead"}, *rows_of(path)[1:]], COLUMNS)


def bad_cell(path: Path) -> None:
    write(path, [{**rows_of(path)[0], "dose": "lots"}, *rows_of(path)[1:]], COLUMNS)


@pytest.mark.parametrize(("what", "change", "told"), NODE, ids=[case[0] for case in NODE])
def test_what_is_wrong_at_a_party_is_told_with_what_to_do(fed: Path, what: str, change: Change, told: str) -> None:
    change(fed)
    found = wrong(fed / "north" / "node.toml", offline=True)
    assert len(found) == 1 and found[0].startswith(told.format(f=fed)), found


def test_the_clock_is_told_from_the_certificates(fed: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    early = wrong(fed / "north" / "node.toml", offline=True, now=now - datetime.timedelta(days=2))
    assert len(early) == 1 and "the clock here says" in early[0] and early[0].endswith("set the clock")
    late = wrong(fed / "server" / "fed.toml", offline=True, now=now + datetime.timedelta(days=900))
    assert len(late) == 1 and "server.pem was good until" in late[0] and "fedchord deploy renew" in late[0]
    assert len(wrong(fed / "north" / "node.toml", offline=True, now=now + datetime.timedelta(days=4000))) == 1


@pytest.mark.parametrize(
    ("version", "good"), [("1.41.0", True), ("1.42.3", True), ("1.40.9", False), ("1.43.0", False)]
)
def test_another_flower_is_told(fed: Path, monkeypatch: pytest.MonkeyPatch, version: str, good: bool) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    found = wrong(fed / "north" / "node.toml", offline=True)
    assert found == [] if good else len(found) == 1 and "from 1.41 on and below 1.43 is needed" in found[0]


def test_a_folder_that_cannot_be_written_is_told(fed: Path) -> None:
    edit(fed / "server" / "fed.toml", 'out = "out"', 'out = "nodes.toml/out"')
    (told,) = wrong(fed / "server" / "fed.toml", offline=True)
    assert told.startswith(f"{fed}/server/nodes.toml/out cannot be written ({fed}/server/nodes.toml is a file): give")


# -- the network -----------------------------------------------------------------------------------------------------


@contextmanager
def answering(server: Path | None, port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """A server that makes one handshake by the certificate of a folder, or speaks plain text (None)."""
    context = None
    if server is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server / "server.pem", server / "server.key")
    with socket.create_server((host, port)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            plain, _ = listener.accept()
            try:
                if context is None:
                    plain.recv(1)
                    plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    plain.close()
                else:
                    with context.wrap_socket(plain, server_side=True) as secure:
                        secure.recv(1)
            except OSError:
                plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            thread.join(10)
            assert not thread.is_alive()


def test_the_way_to_the_server_is_tried(fed: Path) -> None:
    ca = fed / "north" / "ca.pem"
    with answering(fed / "server") as port:
        assert reach("127.0.0.1", port, ca) == (
            True,
            f"127.0.0.1:{port} answers, and its certificate is signed by ca.pem",
        )
    with answering(None) as port:
        assert reach("127.0.0.1", port, ca) == (False, f"127.0.0.1:{port} speaks no TLS: is it the right port?")
    init(fed.parent / "other", NAMES)
    with answering(fed.parent / "other" / "server") as port:
        good, told = reach("127.0.0.1", port, ca)
        assert not good and f"its certificate is not signed by {ca}: somebody else answers" in told
    good, told = reach("127.0.0.1", free(), ca)
    assert not good and told.startswith("nobody listens at 127.0.0.1:")
    port = free()
    late = threading.Timer(0.7, lambda: kept.enter_context(answering(fed / "server", port)))
    with ExitStack() as kept:
        late.start()
        assert awaited("127.0.0.1", port, ca, 0.0)[0] is False
        assert awaited("127.0.0.1", port, ca, 30.0)[0] is True
        late.join()
    good, told = reach("no-such-host.invalid", 9092, ca)
    assert not good and told.startswith("nobody knows the host no-such-host.invalid")


def test_a_certificate_for_another_name_is_told(tmp_path: Path) -> None:
    from fedchord.remote import certificates

    ca = certificates.authority("x")
    (tmp_path / "ca.pem").write_bytes(ca.shown)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=900)
    future = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=9)
    for host, when, told in (
        ("127.0.0.2", None, "its certificate is not for 127.0.0.2: use the name that the certificate has"),
        ("127.0.0.1", past, "its certificate has expired: whoever runs the server needs fedchord deploy renew"),
        ("127.0.0.1", future, "its certificate is not good yet by the clock here: set the clock"),
    ):
        made = certificates.server_certificate(ca, "fed.example.org", when)
        (tmp_path / "server.pem").write_bytes(made.shown)
        (tmp_path / "server.key").write_bytes(made.key)
        with answering(tmp_path, host=host) as port:  # all of 127/8 is this machine, one is in the certificate
            good, found = reach(host, port, tmp_path / "ca.pem")
        assert not good and told in found


def test_a_port_is_free_taken_or_our_own(fed: Path) -> None:
    ca = fed / "server" / "ca.pem"
    port = free()
    assert listening("127.0.0.1", port, ca) == (True, f"port {port} is free")
    with answering(fed / "server", port):
        assert listening("127.0.0.1", port, ca) == (
            True,
            f"port {port}: the server of this federation listens there already",
        )
    with answering(None) as other:
        good, told = listening("127.0.0.1", other, ca)
        assert not good and told.startswith(f"port {other} is taken by another program: end it, or choose another")
    good, told = listening("192.0.2.1", port, ca)
    assert not good and told.startswith("192.0.2.1 is no address of this machine: set bind in [server]")
