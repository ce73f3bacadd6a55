"""The command `deploy check`: is everything in place at the server, or at a party? Every finding says what to do."""

from __future__ import annotations

import datetime
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import final

from fedchord import __version__
from fedchord.check import FedchordError
from fedchord.data import outline as outlines
from fedchord.files import blocked
from fedchord.remote import certificates
from fedchord.remote.checking import fits
from fedchord.remote.limits import measurements
from fedchord.remote.plan import Plan
from fedchord.remote.reach import awaited, listening
from fedchord.remote.rows import own_rows
from fedchord.remote.settings import Fed, Party, ServerTls, read_fed, read_nodes, read_party
from fedchord.remote.toml_table import is_fed

FLOWER = ((1, 41), (1, 43))
"""The versions of Flower that are good, from and below."""
PLAIN = "[tls] is missing, so everything would go in plain text: add it, or say --insecure on purpose"


@final
@dataclass(frozen=True)
class Finding:
    """Something that was looked at, in one line; where it is wrong the line says what to do."""

    good: bool
    text: str


Findings = Iterator[Finding]


def check(path: Path, offline: bool = False, now: datetime.datetime | None = None, wait: float = 0.0) -> list[Finding]:
    """What there is to say about a server's or a party's file; `offline` leaves out the network, and a server that does
    not answer yet is waited for so many seconds."""
    moment = now or datetime.datetime.now(datetime.UTC)
    if is_fed(path):
        return list(_fed(read_fed(path), offline, moment))
    return list(_party(read_party(path), offline, moment, wait))


def _fed(fed: Fed, offline: bool, now: datetime.datetime) -> Findings:
    yield Finding(True, f"{fed.path}: the federation {fed.name} of {', '.join(fed.clients)}")
    yield from _versions()
    yield from _private(fed.folder, 0o700)
    if fed.tls is None:
        yield Finding(False, PLAIN)
    else:
        yield from _server_tls(fed, fed.tls, now)
        yield from _registered(fed, fed.tls.nodes)
    yield from _planned(fed)
    yield from _writable(fed.out)
    if not offline:
        yield Finding(*listening(fed.server.listens, fed.server.port, fed.tls and fed.tls.ca))


def _party(party: Party, offline: bool, now: datetime.datetime, wait: float) -> Findings:
    yield Finding(True, f"{party.path}: {party.name}, client {party.client} of {party.server}")
    yield from _versions()
    yield from _private(party.folder, 0o700)
    yield from _private(party.secret, 0o600, "head -c 32 /dev/urandom > {path}")
    if party.secret.is_file() and party.secret.stat().st_size < 32:
        yield Finding(False, f"{party.secret} has fewer than 32 bytes: head -c 32 /dev/urandom > {party.secret}")
    if party.memory.exists():
        yield from _private(party.memory, 0o700)
    yield from _writable(party.memory)
    if party.tls is None:
        yield Finding(False, PLAIN)
    else:
        yield from _dates(party.tls.ca, now, "ask whoever runs the server for the new ca.pem")
        yield from _private(party.tls.key, 0o600, "ssh-keygen -q -t ecdsa -b 384 -N '' -f {path}")
        if party.tls.key.exists():
            yield from _key(party.tls.key)
    yield from _rows(party)
    if not offline:
        yield Finding(*awaited(*party.address, party.tls and party.tls.ca, wait))


# -- programs and files ----------------------------------------------------------------------------------------------


def _versions() -> Findings:
    try:
        found = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        yield Finding(False, "Flower is not installed: pip install 'fedchord[flower]'")
        return
    major, minor = (int(part) for part in found.split(".")[:2])
    good = FLOWER[0] <= (major, minor) < FLOWER[1]
    wanted = "" if good else ", but from 1.41 on and below 1.43 is needed: pip install 'fedchord[flower]'"
    yield Finding(good, f"fedchord {__version__}, flwr {found}{wanted}")


def _private(path: Path, mode: int, make: str = "") -> Findings:
    """A file or folder that is its owner's alone."""
    if not path.exists():
        yield Finding(False, f"{path} is missing{f': {make.format(path=path)}' if make else ''}")
        return
    found = stat.S_IMODE(path.stat().st_mode)
    good = not found & 0o077
    yield Finding(good, f"{path} is its owner's alone" if good else f"others can read {path}: chmod {mode:o} {path}")


def _writable(path: Path) -> Findings:
    reason = blocked(path)
    if reason:
        yield Finding(False, f"{path} cannot be written ({reason}): give it to the user who runs this")


# -- keys and certificates -------------------------------------------------------------------------------------------


def _key(path: Path) -> Findings:
    advice = "make it anew with ssh-keygen, and send the public half to whoever runs the server"
    try:
        key = certificates.read_key(path.read_bytes(), str(path))
        yield Finding(True, f"{path}: ECDSA on P-384, public half ...{certificates.public_line(key)[-12:]}")
    except OSError as error:
        yield Finding(False, f"{path} cannot be read ({error.strerror}): {advice}")
    except FedchordError as error:
        yield Finding(False, f"{error}: {advice}")


def _dates(path: Path, now: datetime.datetime, advice: str) -> Findings:
    """Whether a certificate is good now, by the clock of this machine."""
    try:
        found = certificates.load_certificate(path)
    except OSError as error:
        yield Finding(False, f"{path} cannot be read ({error.strerror}): {advice}")
        return
    except FedchordError as error:
        yield Finding(False, f"{error}: {advice}")
        return
    start, end = found.not_valid_before_utc, found.not_valid_after_utc
    if now < start:
        told = f"good from {start:%Y-%m-%d %H:%M} on, and the clock here says {now:%Y-%m-%d %H:%M} (UTC)"
        yield Finding(False, f"{path} is {told}: set the clock")
    elif now > end:
        yield Finding(False, f"{path} was good until {end:%Y-%m-%d} (is the clock right? {now:%Y-%m-%d}): {advice}")
    else:
        yield Finding(True, f"{path} is good until {end:%Y-%m-%d}")


def _server_tls(fed: Fed, tls: ServerTls, now: datetime.datetime) -> Findings:
    renew = "fedchord deploy renew DIR, where DIR/ca is, makes it anew"
    before = [*_dates(tls.ca, now, "make the federation anew with fedchord deploy init")]
    before += [*_dates(tls.certificate, now, renew), *_private(tls.key, 0o600)]
    yield from before
    try:
        ca, own = (certificates.load_certificate(path) for path in (tls.ca, tls.certificate))
        key = certificates.read_key(tls.key.read_bytes(), str(tls.key))
    except (OSError, FedchordError) as error:
        if all(finding.good for finding in before):
            yield Finding(False, f"{error}: {renew}")
        return
    host = fed.server.host
    told = f"{tls.certificate} is signed by {tls.ca.name}, for {host}, with {tls.key.name}"
    if not certificates.signed_by(own, ca):
        yield Finding(False, f"{tls.certificate} is not signed by {tls.ca}: put both of the same federation here")
    elif own.public_key() != key.public_key():
        yield Finding(False, f"{tls.key} is not the key of {tls.certificate}: put both of the same federation here")
    elif not certificates.covers(own, host):
        yield Finding(False, f"{tls.certificate} is not for {host}, which [server] host says: {renew}")
    else:
        yield Finding(True, told)


def _registered(fed: Fed, path: Path) -> Findings:
    """Whether every party's key is known, and nobody else's."""
    try:
        keys = read_nodes(path)
        for name, key in keys.items():
            certificates.check_public(key, f"{path}: the key of {name}")
    except FedchordError as error:
        yield Finding(False, f"{error}")
        return
    lacking = [name for name in fed.clients if name not in keys]
    strange = [name for name in keys if name not in fed.clients]
    for name in lacking:
        yield Finding(False, f"{path} has no key of {name}: add [{name}] with key = its line of node.key.pub")
    for name in strange:
        yield Finding(False, f"{path} has a key of {name}, which is none of clients: take it out, or add the party")
    if not lacking and not strange:
        yield Finding(True, f"{path} has a key of every party")


# -- plan and rows ---------------------------------------------------------------------------------------------------


def _plan(plan: Path, outline: Path, advice: str) -> Plan | Finding:
    try:
        return Plan.read(plan.read_text(encoding="utf-8"), outlines.load(outline))
    except (OSError, UnicodeDecodeError):
        return Finding(False, f"{plan} is missing: {advice}")
    except FedchordError as error:
        return Finding(False, f"{error}: {advice}")


def _planned(fed: Fed) -> Findings:
    """Whether the plan that parties have is the one that the server's file asks for."""
    again = f"fedchord deploy plan {fed.path.name} FACTS..., and every party gets plan.json and {fed.outline.name} anew"
    found = _plan(fed.plan_file, fed.outline, again)
    if isinstance(found, Finding):
        yield found
        return
    try:
        asked = Plan.of(fed.plan, found.outline)
    except FedchordError as error:
        yield Finding(False, f"[plan]: {error}")
        return
    if found.outline.client_names != fed.clients:
        yield Finding(False, f"{fed.plan_file} is for {', '.join(found.outline.client_names)}: {again}")
    elif asked.fingerprint != found.fingerprint:
        differ = [key for key in asked.settings if asked.settings[key] != found.settings.get(key)]
        yield Finding(False, f"{fed.plan_file} is not what [plan] says ({', '.join(differ) or 'settings'}): {again}")
    else:
        yield Finding(True, f"{fed.plan_file}: {found.config.method}, fingerprint {found.fingerprint[:16]}")


def _rows(party: Party) -> Findings:
    """Whether the plan is for this party, its owner allows it, and the rows are what it says."""
    advice = "get plan.json and the outline from whoever runs the server"
    plan = _plan(party.plan, party.outline, advice)
    if isinstance(plan, Finding):
        yield plan
        return
    names = plan.outline.client_names
    if party.client >= len(names) or names[party.client] != party.name:
        told = f"client {party.client} of {', '.join(names)}"
        yield Finding(False, f"{party.plan}: {party.name} is not {told}: set name and client as the plan has them")
        return
    yield Finding(True, f"{party.plan}: {plan.config.method}, fingerprint {plan.fingerprint[:16]}")
    try:
        party.limits.allowed(plan.config.method)
    except FedchordError as error:
        yield Finding(False, f"{error}: add it to allow in [limits] if you agree")
    most, rounds = party.limits.rounds, plan.course.rounds
    if most is not None and most < rounds:
        told = f"the plan has {rounds} rounds, [limits] rounds lets this node take part in {most}"
        yield Finding(False, f"{told}: raise it if you agree")
    most, asked = party.limits.evaluations, measurements(rounds, plan.config.choices()["eval_every"])
    if most is not None and most < asked:
        told = f"the plan asks for numbers of evaluation up to {asked} times, [limits] evaluations lets this node tell"
        yield Finding(False, f"{told} {most}: raise it if you agree")
    try:
        rows = own_rows(party.data, plan, party.client)
        fits(plan, party.client, rows)
    except FedchordError as error:
        again = f"fedchord deploy facts {party.path.name} tells what they are now"
        yield Finding(False, f"rows: {error}; correct [data] or the rows; {again}")
        return
    sizes = [len(rows.part(part)[party.client]) for part in ("train", "validation", "test")]
    yield Finding(True, f"rows: {sizes[0]} training, {sizes[1]} validation, {sizes[2]} test, as the plan says")
