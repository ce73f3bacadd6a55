"""Folders of a new federation: what is in them, who may read it, and that others than we take the keys."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.remote.init import init, renew
from fedchord.remote.settings import read_fed, read_nodes, read_party

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates are made")
pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

SETTINGS = ["data=rows.csv", "data.label=ill", "data.category=cp,ecg", "method=aaggff-s", "rounds=7", "test=0.3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fed") / "heart"
    init(folder, ["north", "south"], SETTINGS, host="fed.example.org", port=8443)
    return folder


def test_every_party_has_a_folder_that_reads_back(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == ["README.md", "ca", "north", "server", "south"]
    fed = read_fed(made / "server" / "fed.toml")
    assert (fed.name, fed.clients) == ("heart", ("north", "south"))
    assert fed.plan == {"method": "aaggff-s", "rounds": 7, "seed": 0, "test": 0.3}
    assert (fed.server.address, fed.server.listens) == ("fed.example.org:8443", "0.0.0.0")
    for number, name in enumerate(fed.clients):
        party = read_party(made / name / "node.toml")
        assert (party.name, party.client, party.server) == (name, number, "fed.example.org:8443")
        assert party.data == {
            "data": str(made / name / "rows.csv"),
            "data.label": "ill",
            "data.category": ["cp", "ecg"],
        }
        assert (party.limits.allow, party.limits.rounds, party.limits.log) == (("aaggff-s",), 7, ())
        assert party.limits.evaluations == 7 + 2  # after every round, on validation rows, along lambda
        assert len(party.secret.read_bytes()) == 32
    secrets = {(made / name / "secret").read_bytes() for name in fed.clients}
    assert len(secrets) == 2


def test_folders_and_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)  # the worst there is
    try:
        init(tmp_path / "fed", ["a"])
    finally:
        os.umask(before)
    for path in (tmp_path / "fed", *(tmp_path / "fed").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        private = path.suffix == ".key" or path.name == "secret"
        assert mode == (0o700 if path.is_dir() else 0o600 if private else 0o644), path


def test_no_private_key_is_where_it_does_not_belong(made: Path) -> None:
    held = {path.relative_to(made).parts[0] for path in made.rglob("*") if path.name == "ca.key"}
    assert held == {"ca"}
    texts = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    private = [text for text in texts.values() if b"PRIVATE KEY" in text]
    assert len(private) == len(set(private)) == 4  # the authority's, the server's and two nodes'
    assert "keep it offline" in (made / "README.md").read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_takes_the_certificate_for_this_host_and_no_other(made: Path, tmp_path: Path) -> None:
    def verify(ca: Path, *options: str) -> bool:
        words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(ca), *options]
        return subprocess.run([*words, str(made / "server" / "server.pem")], capture_output=True).returncode == 0

    ca = made / "server" / "ca.pem"
    assert verify(ca) and verify(ca, "-verify_hostname", "fed.example.org") and verify(ca, "-verify_ip", "127.0.0.1")
    assert not verify(ca, "-verify_hostname", "other.example.org")
    assert not verify(ca, "-attime", str(4102444800))  # in 2100
    init(tmp_path / "other", ["a"])
    assert not verify(tmp_path / "other" / "server" / "ca.pem")


def handshake(server: Path, ca: Path, host: str) -> None:
    """A real TLS connection on this machine, by Python's ssl."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "server.pem", server / "server.key")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(ca)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as secure:
                    secure.sendall(b"here")
            except OSError:
                plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), 5) as plain,
                trusting.wrap_socket(plain, server_hostname=host) as secure,
            ):
                assert secure.recv(4) == b"here"
        finally:
            thread.join(5)


def test_a_handshake_works_with_this_authority_and_not_with_another(made: Path, tmp_path: Path) -> None:
    for host in ("fed.example.org", "localhost", "127.0.0.1"):
        handshake(made / "server", made / "north" / "ca.pem", host)
    init(tmp_path / "other", ["a"])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|issuer|signature"):
        handshake(made / "server", tmp_path / "other" / "a" / "ca.pem", "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(made / "server", made / "north" / "ca.pem", "evil.example.org")


def test_flower_loads_the_keys_of_nodes(made: Path) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed: its loaders are not tried")
    import argparse

    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication

    registered = read_nodes(made / "server" / "nodes.toml")
    for name in ("north", "south"):
        asked = argparse.Namespace(
            auth_supernode_private_key=str(made / name / "node.key"), auth_supernode_public_key=None
        )
        pair = _try_setup_client_authentication(asked)
        assert pair is not None
        line = made / f"{name}.pub"
        line.write_text(registered[name])
        try:
            assert try_load_public_key(line) == public_key_to_bytes(pair[1])
        finally:
            line.unlink()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_ssh_keygen_reads_the_same_public_half(made: Path) -> None:
    registered = read_nodes(made / "server" / "nodes.toml")
    for name in ("north", "south"):
        told = subprocess.run(["ssh-keygen", "-y", "-f", made / name / "node.key"], capture_output=True, text=True)
        assert " ".join(told.stdout.split()[:2]) == registered[name] and registered[name].startswith(
            "ecdsa-sha2-nistp384"
        )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed: units are not verified")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    init(tmp_path / "fed", ["a"], place=str(tmp_path), command=sys.executable)
    units = sorted((tmp_path / "fed").rglob("*.service"))
    assert [unit.name for unit in units] == ["fedchord-fed-a.service", "fedchord-fed-server.service"]
    for unit in units:
        told = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        assert told.returncode == 0 and unit.name not in told.stderr, told.stderr
    broken = tmp_path / "broken.service"
    broken.write_text(units[0].read_text().replace("Type=exec", "Type=exce"))
    told = subprocess.run(["systemd-analyze", "verify", broken], capture_output=True, text=True, timeout=60)
    assert "exce" in told.stderr  # it does look


def test_pages_and_units_have_every_word_filled_in(made: Path) -> None:
    for path in [*made.rglob("*.md"), *made.rglob("*.service"), *made.rglob("*.toml")]:
        assert not re.search(r"@[A-Z]+@", path.read_text()), path
    page = (made / "north" / "README.md").read_text()
    for word in ("What leaves this machine", "never", "Stop it", "Backup", "journalctl", "fed.example.org:8443"):
        assert word in page
    unit = (made / "north" / "fedchord-heart-north.service").read_text()
    assert "ExecStart=/srv/fedchord/venv/bin/fedchord join node.toml" in unit
    assert "WorkingDirectory=/srv/fedchord/heart-north" in unit and "UMask=0077" in unit


def test_a_public_data_set_is_shared_out_by_names_or_numbers(tmp_path: Path) -> None:
    init(tmp_path / "hospitals", ["va", "cleveland"], ["data=heart"])
    assert read_party(tmp_path / "hospitals" / "va" / "node.toml").data == {"data": "heart", "part": "va"}
    init(tmp_path / "digits", ["a", "b"], ["data=digits", "split=iid"])
    assert read_party(tmp_path / "digits" / "b" / "node.toml").data == {"data": "digits", "split": "iid", "clients": 2}


def test_renewing_replaces_the_servers_certificate_alone(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    init(folder, ["a"])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    renew(folder)
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"server.pem", "server.key"} and before.keys() == {p for p in folder.rglob("*") if p.is_file()}
    assert stat.S_IMODE((folder / "server" / "server.key").stat().st_mode) == 0o600
    handshake(folder / "server", folder / "a" / "ca.pem", "127.0.0.1")
    (folder / "ca" / "ca.key").unlink()
    with pytest.raises(FedchordError, match=r"deploy renew: .*ca.key is needed"):
        renew(folder)


# -- what is refused -------------------------------------------------------------------------------------------------

BAD = """
init new -> deploy init: needs nodes, such as --nodes north,south
init new --nodes a,a -> deploy init: node 'a' is named twice
init new --nodes a,B -> deploy init: a node's name must be small letters, digits, - and _ (at most 40), got 'B'
init new --nodes ../x -> deploy init: a node's name must be small letters
init new --nodes server -> deploy init: a node cannot be called 'server', which is another folder's name
init new --nodes ca -> deploy init: a node cannot be called 'ca'
init there --nodes a -> deploy init: there is there already, with something in it; nothing is overwritten
init file --nodes a -> deploy init: file is a file
init file/new --nodes a -> deploy init: file/new cannot be written (file is a file)
init NEW --nodes a -> deploy init: the federation's name (--name, else that of the folder) must be small letters
init new --nodes a --name x/y -> deploy init: the federation's name
init new --nodes a --host a/b -> deploy init: host must be a name or an address, got 'a/b'
init new --nodes a --port 0 -> deploy init: port must be a whole number of at least 1, got 0
init new --nodes a --port 70000 -> deploy init: port must be at most 65535, got 70000
init new --nodes a --place here -> deploy init: --place and --command are whole paths without blanks, got 'here'
init new --nodes a method=fedpox -> unknown method 'fedpox'; did you mean 'fedprox'?
init new --nodes a rouds=3 -> unknown key 'rouds'; did you mean 'rounds'?
init new --nodes a out=x -> deploy init: a plan cannot have out: it stands at the top of the file
init new --nodes a cohort=3 -> run: cohort must be at most the number of clients, 1, got 3
init new --nodes a --rounds 3 -> run: '--rounds' is not a setting
facts rounds=3 -> deploy facts: needs a party's file, such as node.toml
facts none.toml -> none.toml: no such file
facts none.toml --share rows rouds=1 -> unknown key 'rouds'; did you mean 'rounds'?
plan none.toml x.json -> none.toml: no such file
check none.toml -> none.toml: no such file
renew there -> there/server/fed.toml: no such file
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    from fedchord.cli import main

    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("there/x").write_text("kept")
    Path("file").write_text("kept")
    words, told = line.split(" -> ")
    with pytest.raises(SystemExit) as ended:
        main(["deploy", *words.split()])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.err.startswith(f"error: {told}"), printed.err
    assert printed.err.count("\n") == 1 and not printed.out
    assert sorted(str(path) for path in Path(".").rglob("*")) == ["file", "there", "there/x"]


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedchord.remote.init as module

    monkeypatch.setattr(module, "node_files", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        init(tmp_path / "fed", ["a"])
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    done = invoke("deploy", "init", str(tmp_path / "fed"), "--nodes", "a, b", "rounds=3")
    assert done.exit_code == 0 and "ca, server, a, b" in done.output and "offline" in done.output
    assert tomllib.loads((tmp_path / "fed" / "server" / "fed.toml").read_text())["plan"]["rounds"] == 3
