"""The settings of a client: the address of the service, TLS, tokens, timeout and retries.

Invariants: plain HTTP is for loopback addresses only; a certificate is verified against the given authority
alone, or against those of the system if none is given; and tokens appear in no text.
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

__all__ = ["MAX_RETRIES", "MAX_TIMEOUT_S", "ClientCert", "ClientSettings", "FilePath", "make_settings"]

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
class ClientSettings:
    """Checked settings. `address` is the host and port of the service, for messages."""

    origin: str
    address: str
    tls: ssl.SSLContext = field(repr=False)
    token: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)
    timeout_s: float
    retries: int
    keyring: Keyring | None = field(repr=False)
    # Raised if the service does not respond.
    unavailable_error: type[ServiceError] = ServiceUnavailable

    def no_response(self, reason: str) -> ServiceError:
        """Return the error for a response that is missing or incomplete."""
        return self.unavailable_error(f"no answer from {self.address}: {reason}")


def make_settings(
    url: str,
    *,
    ca: FilePath | None,
    client_cert: ClientCert | None,
    token: str | None,
    admin_token: str | None,
    timeout_s: float,
    retries: int,
    keyring: Keyring | None,
    unavailable_error: type[ServiceError] = ServiceUnavailable,
) -> ClientSettings:
    """Check the settings of a client. Raises `FieldInvalid` with the name of the one that cannot be used."""
    parsed = _parse_url(url)
    if parsed.scheme == "http" and (ca is not None or client_cert is not None):
        raise FieldInvalid("ca and client_cert need an https URL", place="$.url")
    if not (_is_number(timeout_s) and 0 < timeout_s <= MAX_TIMEOUT_S):
        raise FieldInvalid(f"must be a number above 0 and at most {MAX_TIMEOUT_S:.0f}", place="$.timeout_s")
    if not (_is_number(retries, int) and 0 <= retries <= MAX_RETRIES):
        raise FieldInvalid(f"must be a whole number of 0 to {MAX_RETRIES}", place="$.retries")
    _check_bearer(token, "$.token")
    _check_bearer(admin_token, "$.admin_token")
    _check_files(ca, client_cert)
    if not (keyring is None or isinstance(keyring, Keyring)):
        raise FieldInvalid("must be a keyring", place="$.keyring")
    address = _address(parsed)
    tls = _tls(ca, client_cert, is_used=parsed.scheme == "https")
    return ClientSettings(
        f"{parsed.scheme}://{address}", address, tls, token, admin_token, timeout_s, retries, keyring, unavailable_error
    )


def _parse_url(url: str) -> httpx.URL:
    """Parse the URL of a service: scheme, host and port only. Errors do not quote it: it could hold a password."""
    try:
        parsed = httpx.URL(url)
        shown = parsed.host  # decodes the name, and raises if its ASCII form is invalid
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise FieldInvalid("is not a URL", place="$.url") from None
    if not shown or parsed.scheme not in _PORTS or not _HOST.fullmatch(_host(parsed)):
        raise FieldInvalid("must be an http or https URL with a host", place="$.url")
    if parsed.port is not None and not 0 < parsed.port <= _MAX_PORT:
        raise FieldInvalid(f"must have a port of 1 to {_MAX_PORT}", place="$.url")
    if parsed.userinfo or parsed.path not in {"", "/"} or parsed.query or parsed.fragment:
        raise FieldInvalid("must end after the host and port, and have no user name", place="$.url")
    if parsed.scheme == "http" and not _is_loopback(_host(parsed)):
        raise FieldInvalid("plain http is allowed for this machine only: use https", place="$.url")
    return parsed


def _host(url: httpx.URL) -> str:
    """Return the host as it is looked up, in its ASCII form."""
    return url.raw_host.decode("ascii")


def _address(url: httpx.URL) -> str:
    host = _host(url)
    return f"{f'[{host}]' if ':' in host else host}:{url.port or _PORTS[url.scheme]}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# Callers may be untyped, so any value can arrive here. These checks name the setting that is wrong.


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds or (int, float)) and not isinstance(value, bool)


def _check_bearer(token: object, place: str) -> None:
    """Raise for a token with characters that could end the header and start another."""
    if token is not None and not (isinstance(token, str) and _BEARER.fullmatch(token)):
        raise FieldInvalid("must consist of visible ASCII characters", place=place)


def _check_files(ca: object, client_cert: object) -> None:
    if not (ca is None or _is_path(ca)):
        raise FieldInvalid("must be the path of a file", place="$.ca")
    if client_cert is None:
        return
    if not (isinstance(client_cert, tuple | list) and len(client_cert) == _PAIR and all(map(_is_path, client_cert))):
        raise FieldInvalid("must be the paths of two files: a certificate and its key", place="$.client_cert")


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)


def _tls(ca: FilePath | None, client_cert: ClientCert | None, *, is_used: bool) -> ssl.SSLContext:
    """Return the TLS context.

    Not from `ssl.create_default_context`, which honours SSLKEYLOGFILE of the environment and so logs session keys.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
        elif is_used:
            context.load_default_certs()
        if client_cert is not None:
            # An empty password makes an encrypted key an error; without one, OpenSSL would prompt on the terminal.
            context.load_cert_chain(*client_cert, password="")
    except (OSError, ValueError):
        raise CertificateUnusable("the authority, the certificate or its key cannot be used for TLS") from None
    return context
