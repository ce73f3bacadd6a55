"""A federation's own authority, the server's certificate, and the keys by which nodes are known.

All keys are ECDSA on P-384. The authority signs the server's certificate and nothing else; nodes are known by keys in
the form of OpenSSH, which is what Flower takes.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from fedchord.check import fail

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""How long certificates are good for; some programs take no server's certificate of a longer life."""
EARLIER = datetime.timedelta(hours=1)
"""They are good from before they were made, for machines whose clocks are a little behind."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@final
@dataclass(frozen=True)
class Pair:
    """A private key and what is shown of it: a certificate, or a public key in one line."""

    key: bytes
    shown: bytes


def authority(name: str, now: datetime.datetime | None = None) -> Pair:
    """A new authority for the federation of a name."""
    from cryptography import x509

    key, subject = _new_key(), _subject(f"fedchord {name}")
    builder = _builder(subject, subject, key, AUTHORITY_DAYS, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return _signed(builder, key, key)


def server_certificate(ca: Pair, host: str, now: datetime.datetime | None = None) -> Pair:
    """A key and a certificate for a server that nodes reach by a name or an address; on its own machine also by
    localhost."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    above, signer = read_certificate(ca.shown, "ca.pem"), read_key(ca.key, "ca.key")
    key = _new_key()
    builder = _builder(_subject(host[:64]), above.subject, key, SERVER_DAYS, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    names = [_alternative(name) for name in dict.fromkeys((host, *LOOPBACK))]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return _signed(builder.add_extension(issuer, critical=False), key, signer)


def node_key(name: str) -> Pair:
    """A key by which a node is known: private in the form of OpenSSH, public in one line."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = _new_key()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return Pair(private, f"{public_line(key)} {name}".encode())


def public_line(key: EllipticCurvePrivateKey) -> str:
    """The public half of a key as OpenSSH writes it, without a comment."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def read_certificate(content: bytes, owner: str) -> x509.Certificate:
    """The certificate of a PEM file; its parts are looked at here, since they are read only when they are asked for."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(content)
        parts = found.extensions, found.public_key(), found.not_valid_before_utc, found.not_valid_after_utc
        assert parts is not None
    except Exception:  # a damaged one raises almost anything
        raise fail(owner, "is no certificate in PEM form") from None
    return found


def read_key(content: bytes, owner: str) -> EllipticCurvePrivateKey:
    """The private key of a file in the form of OpenSSH or in PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    ssh = b"BEGIN OPENSSH" in content
    try:
        load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
        key = load(content, None)
    except Exception:  # a damaged one raises almost anything
        raise fail(owner, "is no private key without a password, in PEM or as ssh-keygen writes it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != ec.SECP384R1().name:
        raise fail(owner, "must be an ECDSA key on P-384 (ssh-keygen -t ecdsa -b 384)")
    return key


def check_public(line: str, owner: str) -> None:
    """Refuse what is no public key of a node."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(line.encode())
    except Exception:  # a damaged one raises almost anything
        raise fail(owner, "is no public key as ssh-keygen writes it") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP384R1().name:
        raise fail(owner, "must be an ECDSA key on P-384 (ssh-keygen -t ecdsa -b 384)")


def covers(certificate: x509.Certificate, host: str) -> bool:
    """Whether a certificate is for a host."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return _alternative(host) in list(names)


def signed_by(certificate: x509.Certificate, above: x509.Certificate) -> bool:
    """Whether a certificate was signed by the key of another."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def load_certificate(path: Path) -> x509.Certificate:
    """The certificate of a file."""
    return read_certificate(path.read_bytes(), str(path))


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int, now: datetime.datetime | None
) -> x509.CertificateBuilder:
    from cryptography import x509

    start = (now or datetime.datetime.now(datetime.UTC)).replace(microsecond=0)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - EARLIER)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    """For signing certificates, or for TLS."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, signer: EllipticCurvePrivateKey) -> Pair:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(private, builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM))
