"""The two local certificate authorities in `<home>/tls/`, and the certificates that they issue.

Clients trust `ca.pem` for the proxy's certificate; the proxy trusts `client-ca.pem` for client certificates.
Invariants: the key of an authority is never silently replaced if it is missing or damaged, because clients trust it. A
certificate of the proxy has exactly the given names, and matches its key at any moment. `tls.py` makes TLS contexts
from the files.
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

_FOLDER: Final = "tls"
_LOCK: Final = "tls.lock"
_LEAF: Final = "proxy.pem"
_LEAF_KEY: Final = "proxy-key.pem"
_MAX_BYTES: Final = 64 * 1024

_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_LEAF_LIFETIME: Final = timedelta(days=90)
_RENEW_BEFORE: Final = timedelta(days=30)
# For clients whose clock is behind.
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
    """A client's certificate and its key, both in PEM, and the path of the authority that issued it."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: str


class _Kind(NamedTuple):
    """The file names, subject and usage of one of the two authorities. Each issues certificates for its usage only."""

    cert: str
    key: str
    subject: str
    key_usage: x509.ObjectIdentifier


class _Authority(NamedTuple):
    kind: _Kind
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


_SERVERS: Final = _Kind("ca.pem", "ca-key.pem", "Remit local authority", ExtendedKeyUsageOID.SERVER_AUTH)
_CLIENTS: Final = _Kind("client-ca.pem", "client-ca-key.pem", "Remit client authority", ExtendedKeyUsageOID.CLIENT_AUTH)


def server_identity(home: Home, names: Sequence[str], now: datetime) -> Identity:
    """Return a certificate for exactly these hosts and addresses, valid for at least 30 days; issue it if needed.

    The key is reused while it can be read, so that another process which loads the two files meanwhile gets a pair that
    matches. A new key would not be safer, because the authority's key is in the same folder.
    """
    wanted = _alternatives(names)
    with home.locked(_LOCK), home.folder(_FOLDER) as folder:
        authority = _open_authority(folder, _SERVERS, now)
        key = _open_leaf_key(folder)
        if not _is_current(_read_or_empty(folder, _LEAF), authority, key, wanted, now):
            leaf = _issue(authority, key, "Remit proxy", names=wanted, now=now, lifetime=_LEAF_LIFETIME)
            folder.replace(_LEAF, _encode_pem(leaf))
        return Identity(folder.path_of(_LEAF), folder.path_of(_LEAF_KEY), folder.path_of(_SERVERS.cert))


def issue_client(home: Home, name: str, now: datetime, *, lifetime: timedelta = _LEAF_LIFETIME) -> ClientIdentity:
    """Return a new certificate and key for a client called `name`. They are not stored."""
    if not _CLIENT.fullmatch(name):
        raise FieldInvalid("name: letters, digits and ._@:- between them, 64 at most")
    if not timedelta() < lifetime <= _AUTHORITY_LIFETIME:
        raise FieldInvalid(f"lifetime: more than 0, and at most {_AUTHORITY_LIFETIME.days} days")
    with home.locked(_LOCK), home.folder(_FOLDER) as folder:
        authority = _open_authority(folder, _CLIENTS, now)
        path = folder.path_of(_CLIENTS.cert)
    key = _new_key()
    cert = _issue(authority, key, name, now=now, lifetime=lifetime)
    return ClientIdentity(_encode_pem(cert), _pem_of_key(key), path)


def check_authorities(home: Home, now: datetime) -> None:
    """Raise if an authority is damaged, not valid now, or does not match its key. Nothing is written."""
    with home.folder(_FOLDER, create=False) as folder:
        for kind in (_SERVERS, _CLIENTS):
            if folder.exists(kind.cert):
                _open_authority(folder, kind, now)
            elif folder.exists(kind.key):
                _open_authority_key(folder, kind, is_trusted=True)


def is_for_clients(der: bytes, now: datetime) -> bool:
    """Return whether a certificate has the extended key usage for clients, and has not expired.

    A certificate without extended key usage is refused.
    """
    try:
        cert = x509.load_der_x509_certificate(der)
        uses = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except _UNREADABLE:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses and now <= cert.not_valid_after_utc


def is_strict_authority(pem: bytes) -> bool:
    """Return whether all certificates in a file have the extensions that RFC 5280, 4.2.1, requires of an authority."""
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
        # Without the zone of a link-local address, which has no meaning on other machines or in a certificate.
        return x509.IPAddress(ip_address(name.partition("%")[0]))
    except ValueError:
        host = name.lower()
    labels = host.split(".")
    # A malformed address, such as 1.2.3.999, must not be accepted as a host name.
    if len(host) > _MAX_HOST or labels[-1].isdigit() or not all(map(_LABEL.fullmatch, labels)):
        raise FieldInvalid(f"names: {quote(name)} is neither an address nor a host in ASCII")
    return x509.DNSName(host)


def _open_authority(folder: Home, kind: _Kind, now: datetime) -> _Authority:
    """Return the authority; create it if there are no files.

    The key is written first. If a crash leaves a key without a certificate, an equivalent certificate is made from it.
    """
    pem = folder.read(kind.cert, max_bytes=_MAX_BYTES)
    key = _open_authority_key(folder, kind, is_trusted=pem is not None)
    if pem is None:
        pem = _encode_pem(_sign_authority(kind, key, now))
        folder.replace(kind.cert, pem)
    cert = _parse(pem)
    if cert is None or cert.public_key() != key.public_key():
        advice = f"restore it from a copy, or remove 'tls/{kind.cert}' to have it made again"
        raise StateCorrupt(f"'tls/{kind.cert}' is damaged, or does not match 'tls/{kind.key}': {advice}")
    if not cert.not_valid_before_utc <= now <= cert.not_valid_after_utc:
        advice = f"check the clock; if it has expired, remove it and 'tls/{kind.key}' to get a new one to trust"
        raise CertificateUnusable(f"'tls/{kind.cert}' is not valid now: {advice}")
    return _Authority(kind, cert, key)


def _open_authority_key(folder: Home, kind: _Kind, *, is_trusted: bool) -> ec.EllipticCurvePrivateKey:
    advice = f"restore it from a copy, or remove 'tls/{kind.cert}' too for a new authority, which all must trust again"
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
    """Return the key of the proxy's certificate; replace it if it cannot be read: clients trust the authority only."""
    key = _parse_key(_read_or_empty(folder, _LEAF_KEY))
    if key is None:
        key = _new_key()
        folder.replace(_LEAF_KEY, _pem_of_key(key))
    return key


def _read_or_empty(folder: Home, name: str) -> bytes:
    """Return the content of a file that can be made again; empty if it is missing or too large."""
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
    return set(names) == set(wanted) and cert.not_valid_before_utc <= now <= cert.not_valid_after_utc - _RENEW_BEFORE


def _sign_authority(kind: _Kind, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # Derived from the key, so that a certificate that is made again from it has the same name.
    name = _common_name(f"{kind.subject} {identifier.digest.hex()[:8]}")
    return (
        _certificate_builder(name, name, key, now)
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
        _certificate_builder(_common_name(subject), authority.cert.subject, key, now)
        .not_valid_after(min(now + lifetime, authority.cert.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([authority.kind.key_usage]), critical=False)
        .add_extension(issuer, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _BACKDATED)


def _common_name(common: str) -> x509.Name:
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
    except (*_UNREADABLE, TypeError):  # TypeError: the key is encrypted
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1) else None


def _encode_pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
