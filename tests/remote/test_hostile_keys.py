"""Certificates, keys and arrays that nobody made by the book: one line each. Most were found by tests/fuzz.py."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from helpers.flower import federation

from fedchord.check import FedchordError
from fedchord.data.formats.npz import array_of
from fedchord.remote import certificates

NAMES = x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME
ONE, TWO = x509.ObjectIdentifier("1.2.3.4"), x509.ObjectIdentifier("1.2.3.5")


def certificate(*extensions: tuple[x509.ObjectIdentifier, bytes]) -> bytes:
    """A certificate with extensions of any bytes."""
    good = certificates.read_certificate(certificates.authority("toy").shown, "ca")
    key = ec.generate_private_key(ec.SECP384R1())
    made = x509.CertificateBuilder(good.subject, good.subject, key.public_key(), 7)
    made = made.not_valid_before(good.not_valid_before_utc).not_valid_after(good.not_valid_after_utc)
    for name, value in extensions:
        made = made.add_extension(x509.UnrecognizedExtension(name, value), critical=False)
    return made.sign(key, hashes.SHA384()).public_bytes(Encoding.DER)


def pem(content: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(content) + b"-----END CERTIFICATE-----\n"


def test_a_certificate_is_refused_where_it_is_read_and_not_where_it_is_used():
    good = certificate((ONE, b"1"), (TWO, b"2"))
    assert not certificates.covers(certificates.read_certificate(pem(good), "good"), "127.0.0.1")
    twice = good.replace(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04")  # the same extension two times
    for wrong in (twice, certificate((NAMES, b"\x30\x50")), b"", good[:-9]):
        with pytest.raises(FedchordError, match="wrong: is no certificate in PEM form"):
            certificates.read_certificate(pem(wrong), "wrong")


def test_a_key_with_a_compressed_point_is_one_line():
    """Which cryptography answers with NotImplementedError."""
    text = certificates.node_key("one").key.decode()
    body = base64.b64decode("".join(text.splitlines()[1:-1]))
    wrong = body.replace(struct.pack(">I", 97) + b"\x04", struct.pack(">I", 97) + b"\x02")
    assert wrong != body
    head, tail = text.splitlines()[0], text.splitlines()[-1]
    for content in (f"{head}\n{base64.encodebytes(wrong).decode()}{tail}\n", "", head):
        with pytest.raises(FedchordError, match="key: is no private key"):
            certificates.read_key(content.encode(), "key")
    line = certificates.node_key("one").shown.decode().split()
    blob = base64.b64decode(line[1]).replace(struct.pack(">I", 97) + b"\x04", struct.pack(">I", 97) + b"\x02")
    with pytest.raises(FedchordError, match="one: is no public key"):
        certificates.check_public(f"{line[0]} {base64.b64encode(blob).decode()}", "one")


def test_a_registered_key_that_is_none_is_told_before_anybody_is_let_in(tmp_path: Path):
    serving = pytest.importorskip("fedchord.remote.serving")
    fed = federation(tmp_path, 2)
    assert len(serving.registered(fed)) == 2
    (tmp_path / "nodes.toml").write_text('[party0]\nkey = "ecdsa-sha2-nistp384 AAAA"\n')
    with pytest.raises(FedchordError, match="the key of party0: is no public key"):
        serving.registered(fed)


def test_an_array_that_claims_40_gb_takes_no_memory():
    """A large message of Flower is such an array."""
    good = np.arange(6, dtype=np.uint8)
    header = str({"descr": "|u1", "fortran_order": False, "shape": (40 << 30,)}).ljust(117).encode() + b"\n"
    claims = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with pytest.raises(ValueError, match=f"has 6 bytes, its header promises {40 << 30}"):
        array_of(claims + good.tobytes())
    for wrong in (b"", claims[:20], b"PK\x03\x04" + bytes(40)):
        with pytest.raises(ValueError):
            array_of(wrong)
