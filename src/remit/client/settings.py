"""Where a service is, whom its certificate must come from, and what it is shown.

Keeps these invariants: plain HTTP goes to this machine and nowhere else; a certificate is held against the given
authority alone, or against those of the system where none is given; and tokens show themselves in no text.
"""

import re
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from os import PathLike
from typing import Final, TypeAlias

import httpx

from remit.claims.keys import Keyring
from remit.errors import CertificateUnusable, FieldInvalid, ServiceError, ServiceUnavailable

__all__ = ["MAX_RETRIES", "MAX_TIMEOUT_S", "ClientCert", "FilePath", "Settings", "read_settings"]

MAX_TIMEOUT_S: Final = 3600.0
MAX_RETRIES: Final = 10

FilePath: TypeAlias = str | PathLike[str]
# The certificate and its key, each in a PEM file.
ClientCert: TypeAlias = tuple[FilePath, FilePath]

_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65535
_PAIR: Final = 2
_HOST: Final = re.compile(r"[a-z0-9._:-]{1,253}")
_BEARER: Final = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True)
class Settings:
    """What a client was told, checked. `place` is the service's host and port, for messages."""

    origin: str
    place: str
    tls: ssl.SSLContext = field(repr=False)
    token: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)
    timeout_s: float
    retries: int
    keyring: Keyring | None = field(repr=False)
    # What is raised where the service does not answer.
    silence: type[ServiceError] = ServiceUnavailable

    def no_answer(self, why: str) -> ServiceError:
        """Return what is raised where no answer came, or not all of it."""
        return self.silence(f"no answer from {self.place}: {why}")


def read_settings(
    url: str,
    *,
    ca: FilePath | None,
    client_cert: ClientCert | None,
    token: str | None,
    admin_token: str | None,
    timeout_s: float,
    retries: int,
    keyring: Keyring | None,
    silence: type[ServiceError] = ServiceUnavailable,
) -> Settings:
    """Return the settings of a client, or raise for the one that cannot be used."""
    parsed = _parse_url(url)
    if parsed.scheme == "http" and (ca is not None or client_cert is not None):
        raise FieldInvalid("certificates go with https", place="$.url")
    if not (_is_number(timeout_s) and 0 < timeout_s <= MAX_TIMEOUT_S):
        raise FieldInvalid(f"must be a number above 0 and at most {MAX_TIMEOUT_S:.0f}", place="$.timeout_s")
    if not (_is_number(retries, int) and 0 <= retries <= MAX_RETRIES):
        raise FieldInvalid(f"must be a whole number of 0 to {MAX_RETRIES}", place="$.retries")
    _check_bearer(token, "$.token")
    _check_bearer(admin_token, "$.admin_token")
    _check_files(ca, client_cert)
    if not (keyring is None or isinstance(keyring, Keyring)):
        raise FieldInvalid("must be a keyring", place="$.keyring")
    place = _place(parsed)
    tls = _tls(ca, client_cert, is_used=parsed.scheme == "https")
    return Settings(f"{parsed.scheme}://{place}", place, tls, token, admin_token, timeout_s, retries, keyring, silence)


def _parse_url(url: str) -> httpx.URL:
    """Return the URL of a service: scheme, host and port, and no more. It is not shown: it could hold a password."""
    try:
        parsed = httpx.URL(url)
        shown = parsed.host  # which reads the ASCII form of a name, and may find that it is none
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise FieldInvalid("is not a URL", place="$.url") from None
    if not shown or parsed.scheme not in _PORTS or not _HOST.fullmatch(_host(parsed)):
        raise FieldInvalid("must be an http or https URL with a host", place="$.url")
    if parsed.port is not None and not 0 < parsed.port <= _MAX_PORT:
        raise FieldInvalid(f"must have a port of 1 to {_MAX_PORT}", place="$.url")
    if parsed.userinfo or parsed.path not in {"", "/"} or parsed.query or parsed.fragment:
        raise FieldInvalid("must end after host and port, and name no user", place="$.url")
    if parsed.scheme == "http" and not _is_loopback(_host(parsed)):
        raise FieldInvalid("plain http is for this machine only: use https", place="$.url")
    return parsed


def _host(url: httpx.URL) -> str:
    """Return the host as it is looked up: names of other scripts in their ASCII form."""
    return url.raw_host.decode("ascii")


def _place(url: httpx.URL) -> str:
    host = _host(url)
    return f"{f'[{host}]' if ':' in host else host}:{url.port or _PORTS[url.scheme]}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# Callers need not be typed, so what is given may be anything: these say which setting it is that cannot be used.


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds or (int, float)) and not isinstance(value, bool)


def _check_bearer(token: object, place: str) -> None:
    """Raise for a token that does not fit a header; it could end the header, and begin another."""
    if token is not None and not (isinstance(token, str) and _BEARER.fullmatch(token)):
        raise FieldInvalid("must be visible ASCII characters", place=place)


def _check_files(ca: object, client_cert: object) -> None:
    if not (ca is None or _is_path(ca)):
        raise FieldInvalid("must be the path of a file", place="$.ca")
    if client_cert is None:
        return
    if not (isinstance(client_cert, tuple | list) and len(client_cert) == _PAIR and all(map(_is_path, client_cert))):
        raise FieldInvalid("must be the paths of two files, of a certificate and of its key", place="$.client_cert")


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)


def _tls(ca: FilePath | None, client_cert: ClientCert | None, *, is_used: bool) -> ssl.SSLContext:
    """Return what TLS is made with.

    Not by `ssl.create_default_context`, which writes the keys of connections to a file that the environment names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
        elif is_used:
            context.load_default_certs()
        if client_cert is not None:
            # With an empty password, a key that is encrypted is refused; with none, a terminal would be asked for one.
            context.load_cert_chain(*client_cert, password="")
    except (OSError, ValueError):
        raise CertificateUnusable("the authority, the certificate or its key cannot be used for TLS") from None
    return context
