"""Is the server there? A connection and a handshake, and in words what is in the way."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from pathlib import Path

SECONDS = 5.0
_NAMES = (62, 64)
"""What OpenSSL says where a certificate is for another name or address."""
_EARLY, _LATE = 9, 10


def reach(host: str, port: int, ca: Path | None, seconds: float = SECONDS) -> tuple[bool, str]:
    """Whether a server answers at an address, by a certificate that the authority signed; None asks for none."""
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), seconds) as plain:
            if ca is None:
                return True, f"{where} answers (plain text)"
            with _context(ca).wrap_socket(plain, server_hostname=host):
                return True, f"{where} answers, and its certificate is signed by {ca.name}"
    except socket.gaierror:
        return False, f"nobody knows the host {host}: correct server in the file, or the name service"
    except TimeoutError:
        return False, f"{where} does not answer within {seconds:g} s: is a firewall in the way?"
    except ConnectionRefusedError:
        return False, f"nobody listens at {where}: start the server (fedchord serve), or correct the port"
    except ssl.SSLCertVerificationError as error:
        return False, f"{where}: {_distrust(error, host, ca)}"
    except (ssl.SSLError, ConnectionResetError):
        return False, f"{where} speaks no TLS: is it the right port?"
    except OSError as error:
        return False, f"{where} cannot be reached ({error.strerror or error})"


def awaited(host: str, port: int, ca: Path | None, wait: float) -> tuple[bool, str]:
    """As `reach`, for a server that may still be starting: while nobody answers it is tried again, for so long."""
    end = time.monotonic() + wait
    while not (found := reach(host, port, ca))[0] and time.monotonic() < end:
        time.sleep(min(0.5, wait))
    return found


def listening(host: str, port: int, ca: Path | None) -> tuple[bool, str]:
    """Whether a server can listen at an address, or does so already."""
    where = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            plain.bind((host, port))
        return True, f"port {port} is free"
    except socket.gaierror:
        return False, f"nobody knows the address {host}: correct bind or host in [server]"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(host, port, ca)
        if error.errno == errno.EADDRNOTAVAIL:
            return False, f"{host} is no address of this machine: set bind in [server], such as 0.0.0.0"
        return False, f"nothing can listen at {where} ({error.strerror}): choose another port"


def _taken(host: str, port: int, ca: Path | None) -> tuple[bool, str]:
    """Somebody listens: the server of this federation, or another program?"""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    ours, _ = reach(near, port, ca)
    if ca is not None and ours:
        return True, f"port {port}: the server of this federation listens there already"
    return False, f"port {port} is taken by another program: end it, or choose another port here and at all parties"


def _distrust(error: ssl.SSLCertVerificationError, host: str, ca: Path | None) -> str:
    if error.verify_code in _NAMES:
        return f"its certificate is not for {host}: use the name that the certificate has, or have it made anew"
    if error.verify_code == _EARLY:
        return "its certificate is not good yet by the clock here: set the clock"
    if error.verify_code == _LATE:
        return "its certificate has expired: whoever runs the server needs fedchord deploy renew"
    return f"its certificate is not signed by {ca}: somebody else answers, or ca.pem is of another federation"


def _context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=ca)
    return context
