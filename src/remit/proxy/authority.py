"""Certificates: the two local authorities in `<home>/tls/`, what they issue, and what others' certificates say.

`ca.pem` is whom clients trust for the proxy's certificate; `client-ca.pem` is whom the proxy trusts for clients.
Keeps these invariants: an authority is its key, and a key that is gone or damaged is never silently replaced, because
clients trust it; a certificate of the proxy has exactly the names asked for, and matches its key at any moment.
How TLS is spoken with them is for `tls.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remit.errors import CertificateUnusable, FieldInvalid, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

__all__ = [
    "ClientIdentity",
    "Identity",
    "check_authorities",
    "is_for_clients",
    "is_strict_authority",
    "issue_client",
    "server_identity",
]

_FOLDER: Final = "tls"
_LOCK: Final = "tls.lock"
_LEAF: Final = "proxy.pem"
_LEAF_KEY: Final = "proxy-key.pem"
_MAX_BYTES: Final = 64 * 1024

_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_LEAF_LIFETIME: Final = timedelta(days=90)
_RENEWED_BEFORE: Final = timedelta(days=30)
# For clients whose clock is behind ours.
_BACKDATED: Final = timedelta(hours=1)

_MAX_NAMES: Final = 100
_MAX_HOST: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_CLIENT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._@:-]{0,62}[A-Za-z0-9])?")
_UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class Identity(NamedTuple):
    """The paths of the proxy's certificate, of its key, and of the authority that clients trust."""

    cert: str
    key: str
    ca: str


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client's certificate and its key, both in PEM, and the path of the authority that vouches for it."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: str


class _Kind(NamedTuple):
    """What tells the two authorities apart. They are two, so that the proxy's certificate is nobody's client."""

    cert: str
    key: str
    subject: str
    vouches_for: x509.ObjectIdentifier


class _Authority(NamedTuple):
    kind: _Kind
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


_SERVERS: Final = _Kind("ca.pem", "ca-key.pem", "Remit local authority", ExtendedKeyUsageOID.SERVER_AUTH)
_CLIENTS: Final = _Kind("client-ca.pem", "client-ca-key.pem", "Remit client authority", ExtendedKeyUsageOID.CLIENT_AUTH)


def server_identity(home: Home, names: Sequence[str], now: datetime) -> Identity:
    """Return a certificate for exactly these hosts and addresses, good for 30 days at least; made where it is not.

    The key stays while it can be read: then a certificate that is replaced under a process that loads the two files
    still matches. A new key would gain nothing, for the authority's lies beside it.
    """
    wanted = _alternatives(names)
    with home.locked(_LOCK), home.folder(_FOLDER) as folder:
        authority = _open_authority(folder, _SERVERS, now)
        key = _open_leaf_key(folder)
        if not _is_current(_glance(folder, _LEAF), authority, key, wanted, now):
            leaf = _issue(authority, key, "Remit proxy", names=wanted, now=now, lifetime=_LEAF_LIFETIME)
            folder.replace(_LEAF, _pem_of(leaf))
        return Identity(folder.path_of(_LEAF), folder.path_of(_LEAF_KEY), folder.path_of(_SERVERS.cert))


def issue_client(home: Home, name: str, now: datetime, *, lifetime: timedelta = _LEAF_LIFETIME) -> ClientIdentity:
    """Return a new certificate and key for a client called `name`; neither is kept here."""
    if not _CLIENT.fullmatch(name):
        raise FieldInvalid("name: letters, digits and ._@:- between them, 64 at most")
    if not timedelta() < lifetime <= _AUTHORITY_LIFETIME:
        raise FieldInvalid(f"lifetime: more than nothing, and {_AUTHORITY_LIFETIME.days} days at most")
    with home.locked(_LOCK), home.folder(_FOLDER) as folder:
        authority = _open_authority(folder, _CLIENTS, now)
        path = folder.path_of(_CLIENTS.cert)
    key = _new_key()
    cert = _issue(authority, key, name, now=now, lifetime=lifetime)
    return ClientIdentity(_pem_of(cert), _pem_of_key(key), path)


def check_authorities(home: Home, now: datetime) -> None:
    """Raise for an authority that is damaged, not valid now, or not of its key. Nothing is made, or changed."""
    with home.folder(_FOLDER, create=False) as folder:
        for kind in (_SERVERS, _CLIENTS):
            if folder.exists(kind.cert):
                _open_authority(folder, kind, now)
            elif folder.exists(kind.key):
                _open_authority_key(folder, kind, is_trusted=True)


def is_for_clients(der: bytes, now: datetime) -> bool:
    """Tell whether a certificate says that it is for clients, and has not expired.

    One that says nothing about its use is not: it may have been made for anything.
    """
    try:
        cert = x509.load_der_x509_certificate(der)
        uses = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except _UNREADABLE:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses and now <= cert.not_valid_after_utc


def is_strict_authority(pem: bytes) -> bool:
    """Tell whether all certificates in a file are what RFC 5280, 4.2.1, asks of an authority."""
    try:
        return all(map(_is_strict, x509.load_pem_x509_certificates(pem)))
    except _UNREADABLE:
        return False


def _is_strict(cert: x509.Certificate) -> bool:
    constraints = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    usage = cert.extensions.get_extension_for_class(x509.KeyUsage).value
    return constraints.critical and constraints.value.ca and usage.key_cert_sign


def _alternatives(names: Sequence[str]) -> tuple[x509.GeneralName, ...]:
    if not 1 <= len(names) <= _MAX_NAMES:
        raise FieldInvalid(f"names: 1 to {_MAX_NAMES}")
    return tuple(dict.fromkeys(map(_alternative, names)))


def _alternative(name: str) -> x509.GeneralName:
    try:
        # The zone of a link-local address is this machine's own affair, and a certificate has no place for it.
        return x509.IPAddress(ip_address(name.partition("%")[0]))
    except ValueError:
        host = name.lower()
    labels = host.split(".")
    # What looks like an address and is none must not become a host.
    if len(host) > _MAX_HOST or labels[-1].isdigit() or not all(map(_LABEL.fullmatch, labels)):
        raise FieldInvalid(f"names: {quote(name)} is neither an address nor a host in ASCII")
    return x509.DNSName(host)


def _open_authority(folder: Home, kind: _Kind, now: datetime) -> _Authority:
    """Return the authority, made first if there is nothing of it.

    The key is written first. A crash leaves a key without certificate; it is made again, and says the same.
    """
    pem = folder.read(kind.cert, max_bytes=_MAX_BYTES)
    key = _open_authority_key(folder, kind, is_trusted=pem is not None)
    if pem is None:
        pem = _pem_of(_self_signed(kind, key, now))
        folder.replace(kind.cert, pem)
    cert = _parse(pem)
    if cert is None or cert.public_key() != key.public_key():
        advice = f"put a copy back, or remove 'tls/{kind.cert}' and it is made again"
        raise StateCorrupt(f"'tls/{kind.cert}' is damaged, or not of 'tls/{kind.key}': {advice}")
    if not cert.not_valid_before_utc <= now <= cert.not_valid_after_utc:
        advice = f"check the clock; if it has expired, remove it and 'tls/{kind.key}' to get a new one to trust"
        raise CertificateUnusable(f"'tls/{kind.cert}' is not valid now: {advice}")
    return _Authority(kind, cert, key)


def _open_authority_key(folder: Home, kind: _Kind, *, is_trusted: bool) -> ec.EllipticCurvePrivateKey:
    advice = f"put a copy back, or remove 'tls/{kind.cert}' too to get a new authority, which all must trust anew"
    pem = folder.read(kind.key, max_bytes=_MAX_BYTES)
    if pem is None and is_trusted:
        raise StateMissing(f"'tls/{kind.key}', the key of 'tls/{kind.cert}', is gone: {advice}")
    if pem is None:
        key = _new_key()
        folder.replace(kind.key, _pem_of_key(key))
        return key
    found = _parse_key(pem)
    if found is None:
        raise StateCorrupt(f"'tls/{kind.key}' is not a P-256 key in PEM form, unencrypted: {advice}")
    return found


def _open_leaf_key(folder: Home) -> ec.EllipticCurvePrivateKey:
    """Return the key of the proxy's certificate; one that cannot be read is replaced, as nobody trusts it by itself."""
    key = _parse_key(_glance(folder, _LEAF_KEY))
    if key is None:
        key = _new_key()
        folder.replace(_LEAF_KEY, _pem_of_key(key))
    return key


def _glance(folder: Home, name: str) -> bytes:
    """Return what a file holds that is made anew if it is not right; nothing, if it is absurdly large."""
    try:
        return folder.read(name, max_bytes=_MAX_BYTES) or b""
    except StateCorrupt:
        return b""


def _is_current(
    pem: bytes,
    authority: _Authority,
    key: ec.EllipticCurvePrivateKey,
    wanted: Sequence[x509.GeneralName],
    now: datetime,
) -> bool:
    cert = _parse(pem)
    if cert is None or cert.public_key() != key.public_key():
        return False
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        cert.verify_directly_issued_by(authority.cert)
    except (*_UNREADABLE, TypeError, InvalidSignature):
        return False
    return set(names) == set(wanted) and cert.not_valid_before_utc <= now <= cert.not_valid_after_utc - _RENEWED_BEFORE


def _self_signed(kind: _Kind, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # By the key, so that a certificate made again from it continues what clients trust.
    name = _named(f"{kind.subject} {identifier.digest.hex()[:8]}")
    return (
        _started(name, name, key, now)
        .not_valid_after(now + _AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _issue(
    authority: _Authority,
    key: ec.EllipticCurvePrivateKey,
    subject: str,
    *,
    names: Sequence[x509.GeneralName] = (),
    now: datetime,
    lifetime: timedelta,
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _started(_named(subject), authority.cert.subject, key, now)
        .not_valid_after(min(now + lifetime, authority.cert.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([authority.kind.vouches_for]), critical=False)
        .add_extension(issuer, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _started(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _BACKDATED)


def _named(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _parse(pem: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem)
    except _UNREADABLE:
        return None


def _parse_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (*_UNREADABLE, TypeError):  # the type of a password that is needed and not there
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1) else None


def _pem_of(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
