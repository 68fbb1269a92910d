"""The TLS context of the proxy, loaded from certificate files.

Invariants: TLS 1.3, or 1.2 with forward secrecy and authenticated encryption. With a client authority, every client
needs a certificate that this authority issued, that is for clients, and that is valid now, in resumed sessions too. A
context is tested by a handshake in memory before it is returned. `authority.py` issues certificates.
"""

import errno
import os
import ssl
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from remit.errors import CertificateUnusable, quote
from remit.proxy.authority import is_for_clients, is_strict_authority

_CERT: Final = "the certificate"
_KEY: Final = "the key"
_CLIENT_CA: Final = "the authority of clients"
_MAX_BYTES: Final = 4 * 1024 * 1024

# For TLS 1.2. All suites of 1.3 have these properties.
_SUITES: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
_OPTIONS: Final = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
# X509_verify_cert_error_string(3) by number, and what OpenSSL calls a key of another certificate.
_VERIFY_ERRORS: Final = {9: "is not valid yet", 10: "has expired", 26: "is not for servers"}
_OTHER_KEY: Final = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


class CertificateFiles(NamedTuple):
    """The paths of the certificate, its key, and the client authorities."""

    cert: str
    key: str
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a new context from the files. If this raises, an older context can still be used.

        It is a new one each time, because an authority cannot be removed from a context, and because TLS sessions
        cannot be resumed with another context. Use it for new connections only.
        """
        return server_context(self.cert, self.key, self.client_ca)


def server_context(cert: str, key: str, client_ca: str | None = None) -> ssl.SSLContext:
    """Return a server context; with `client_ca`, one that requires client certificates of these authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(":".join(_SUITES))
    context.options |= _OPTIONS
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    chain = _read_pem(cert, _CERT, "CERTIFICATE-----")
    _read_pem(key, _KEY, "PRIVATE KEY-----")
    _load_chain(context, cert, key)
    _test_handshake(context, chain, _describe(cert, _CERT))
    if client_ca is not None:
        _require_client_certificate(context, client_ca)
    return context


def _load_chain(context: ssl.SSLContext, cert: str, key: str) -> None:
    shown = _describe(key, _KEY)

    def refuse() -> str:
        """Raise instead of letting OpenSSL prompt on the terminal."""
        raise CertificateUnusable(f"{shown} is encrypted: an unencrypted key is required")

    try:
        context.load_cert_chain(cert, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise CertificateUnusable(f"{shown} is not that of {_describe(cert, _CERT)}") from None
        raise CertificateUnusable(f"{_describe(cert, _CERT)} or {shown} cannot be used ({error.reason})") from None
    except OSError as error:
        raise _unreadable(f"{_describe(cert, _CERT)} or {shown}", error) from None


def _test_handshake(context: ssl.SSLContext, chain: str, shown: str) -> None:
    """Do a handshake in memory with a client that trusts this certificate; raise if it fails."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client_context.load_verify_locations(cadata=chain)
        client = client_context.wrap_bio(to_client, to_server)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server, client):
            _handshake_step(side)
    except ssl.SSLCertVerificationError as error:
        raise CertificateUnusable(f"{shown} {_VERIFY_ERRORS.get(error.verify_code, error.verify_message)}") from None
    except ssl.SSLError as error:
        raise CertificateUnusable(f"{shown} cannot be used ({error.reason})") from None


def _handshake_step(side: ssl.SSLObject) -> None:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return


def _require_client_certificate(context: ssl.SSLContext, client_ca: str) -> None:
    """Require a client certificate of one of these authorities. They are trusted even if they are not root."""
    shown = _describe(client_ca, _CLIENT_CA)
    text = _read_pem(client_ca, _CLIENT_CA, "CERTIFICATE-----")
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise CertificateUnusable(f"{shown} cannot be used ({error.reason})") from None
    try:
        authorities = context.get_ca_certs()
        has_expired = all(ssl.cert_time_to_seconds(str(ca["notAfter"])) < time.time() for ca in authorities)
    except ValueError:
        raise CertificateUnusable(f"{shown} is not a valid certificate") from None
    if not authorities:
        raise CertificateUnusable(f"{shown} is a certificate, but not of an authority")
    if has_expired:
        raise CertificateUnusable(f"{shown} has expired")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Authorities made with plain `openssl req` lack extensions that strict mode requires, so all of their clients would
    # be refused. Signatures, times, CA, path length and key usage are checked without strict mode too.
    if is_strict_authority(text.encode()):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.sslobject_class = _ClientCheckingObject
    context.sslsocket_class = _ClientCheckingSocket


def _check_client(der: bytes | None) -> None:
    """Raise unless the certificate is for clients, and still valid.

    OpenSSL accepts a certificate without extended key usage. And TLS 1.2 sessions can be resumed by id for two hours,
    which Python cannot turn off; OpenSSL does not check the certificate again then.
    """
    if der is None or not is_for_clients(der, datetime.now(UTC)):
        raise ssl.SSLCertVerificationError("the certificate is not for clients, or has expired")


class _ClientCheckingObject(ssl.SSLObject):
    """Checks the client's certificate after the handshake, in an event loop."""

    def do_handshake(self) -> None:
        """Finish the handshake and check the certificate. If this raises, the event loop closes the connection."""
        super().do_handshake()
        _check_client(self.getpeercert(binary_form=True))


class _ClientCheckingSocket(ssl.SSLSocket):
    """Checks the client's certificate after the handshake, on a blocking socket."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as inherited
        """Finish the handshake, or raise."""
        super().do_handshake(block)
        _check_client(self.getpeercert(binary_form=True))


def _read_pem(path: str, role: str, label: str) -> str:
    """Return the text of a file with a PEM block of this label. It may have other text, in any encoding."""
    shown = _describe(path, role)
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            is_plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(_MAX_BYTES + 1) if is_plain else b""
    except (OSError, ValueError) as error:
        raise _unreadable(shown, error) from None
    if not is_plain or len(data) > _MAX_BYTES:
        raise CertificateUnusable(f"{shown} is not a regular file of at most {_MAX_BYTES} bytes")
    text = data.decode("ascii", "ignore")
    if label not in text:
        raise CertificateUnusable(f"{shown} is not in PEM form")
    return text


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _unreadable(shown: str, error: OSError | ValueError) -> CertificateUnusable:
    reason = errno.errorcode.get(getattr(error, "errno", None) or 0, "not a path")
    return CertificateUnusable(f"{shown} cannot be read ({reason})")


def _describe(path: str, role: str) -> str:
    """Return the role and the name of a file for a message, without its folder."""
    return f"{role} {quote(Path(path).name)}"
