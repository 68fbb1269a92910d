"""How the proxy speaks TLS: one context, made from files, and made anew when they change.

Keeps these invariants: TLS 1.2 with forward secrecy and authenticated encryption, or 1.3; with an authority of clients,
nobody is served without a certificate of it that is for clients and valid now, in a resumed session too. A context that
would fail its first client is not made: it has shaken hands with itself. Certificates are made in `authority.py`.
"""

import errno
import os
import ssl
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from remit.claims.canonical import sha256_base64url
from remit.errors import CertificateUnusable, quote
from remit.proxy.authority import is_for_clients, is_strict_authority

__all__ = ["CertificateFiles", "server_context", "thumbprint_of"]

_CERT: Final = "the certificate"
_KEY: Final = "the key"
_CLIENT_CA: Final = "the authority of clients"
_MAX_BYTES: Final = 4 * 1024 * 1024

# For TLS 1.2. All suites of 1.3 are of this kind.
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
_REHEARSAL: Final = {9: "is not valid yet", 10: "has expired", 26: "is not for servers"}
_OTHER_KEY: Final = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


class CertificateFiles(NamedTuple):
    """The paths of the certificate, its key, and the authorities of clients."""

    cert: str
    key: str
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context of what the files hold now. Whoever has one keeps using it when this raises.

        A new one each time: an authority cannot be taken out of a context, and sessions end with theirs. So it is for
        new connections; one that changes its context on the way keeps the old one's sessions.
        """
        return server_context(self.cert, self.key, self.client_ca)


def server_context(cert: str, key: str, client_ca: str | None = None) -> ssl.SSLContext:
    """Return the context of a server; with `client_ca`, of one for clients with a certificate of these authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(":".join(_SUITES))
    context.options |= _OPTIONS
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    chain = _read_pem(cert, _CERT, "CERTIFICATE-----")
    _read_pem(key, _KEY, "PRIVATE KEY-----")
    _load_chain(context, cert, key)
    _rehearse(context, chain, _shown(cert, _CERT))
    if client_ca is not None:
        _ask_for_certificate(context, client_ca)
    return context


def thumbprint_of(der: bytes) -> str:
    """Return what a passport is bound to a certificate by (RFC 8705, `x5t#S256`)."""
    return sha256_base64url(der)


def _load_chain(context: ssl.SSLContext, cert: str, key: str) -> None:
    shown = _shown(key, _KEY)

    def refuse() -> str:
        """Answer for a person: without this OpenSSL would ask on the terminal."""
        raise CertificateUnusable(f"{shown} is encrypted: give one that is not")

    try:
        context.load_cert_chain(cert, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise CertificateUnusable(f"{shown} is not that of {_shown(cert, _CERT)}") from None
        raise CertificateUnusable(f"{_shown(cert, _CERT)} or {shown} cannot be used ({error.reason})") from None
    except OSError as error:
        raise _unreadable(f"{_shown(cert, _CERT)} or {shown}", error) from None


def _rehearse(context: ssl.SSLContext, chain: str, shown: str) -> None:
    """Shake hands with the context in memory, as a client that trusts this certificate and looks at everything else."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        trusting.load_verify_locations(cadata=chain)
        client = trusting.wrap_bio(to_client, to_server)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        for turn in (client, server, client):
            _take(turn)
    except ssl.SSLCertVerificationError as error:
        raise CertificateUnusable(f"{shown} {_REHEARSAL.get(error.verify_code, error.verify_message)}") from None
    except ssl.SSLError as error:
        raise CertificateUnusable(f"{shown} cannot be used ({error.reason})") from None


def _take(turn: ssl.SSLObject) -> None:
    try:
        turn.do_handshake()
    except ssl.SSLWantReadError:
        return


def _ask_for_certificate(context: ssl.SSLContext, client_ca: str) -> None:
    """Let nobody in without a certificate of these authorities, each of which counts by itself, root or not."""
    shown = _shown(client_ca, _CLIENT_CA)
    text = _read_pem(client_ca, _CLIENT_CA, "CERTIFICATE-----")
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise CertificateUnusable(f"{shown} cannot be used ({error.reason})") from None
    try:
        authorities = context.get_ca_certs()
        has_expired = all(ssl.cert_time_to_seconds(str(ca["notAfter"])) < time.time() for ca in authorities)
    except ValueError:
        raise CertificateUnusable(f"{shown} is not written as a certificate must be") from None
    if not authorities:
        raise CertificateUnusable(f"{shown} is a certificate, but not of an authority")
    if has_expired:
        raise CertificateUnusable(f"{shown} has expired")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Authorities made with plain `openssl req` lack what the strict rules ask for, so all of their clients would be
    # refused for want of form. Signatures, times, CA, path length and use are checked for them too.
    if is_strict_authority(text.encode()):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.sslobject_class = _OfClient
    context.sslsocket_class = _SocketOfClient


def _check_client(der: bytes | None) -> None:
    """Raise unless the certificate is for clients, and still valid.

    OpenSSL takes one that does not say what it is for. And TLS 1.2 resumes a session by its id for two hours, which
    Python cannot turn off; then the certificate is not looked at again but here.
    """
    if der is None or not is_for_clients(der, datetime.now(UTC)):
        raise ssl.SSLCertVerificationError("the certificate is not for clients, or has expired")


class _OfClient(ssl.SSLObject):
    """The server's end of a connection in an event loop."""

    def do_handshake(self) -> None:
        """Finish the handshake, or raise: then the loop drops the connection, and nothing was read from it."""
        super().do_handshake()
        _check_client(self.getpeercert(binary_form=True))


class _SocketOfClient(ssl.SSLSocket):
    """The same on a blocking socket."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as inherited
        """Finish the handshake, or raise."""
        super().do_handshake(block)
        _check_client(self.getpeercert(binary_form=True))


def _read_pem(path: str, role: str, label: str) -> str:
    """Return the text of a file that has such a block. Beside the blocks it may say anything, in any encoding."""
    shown = _shown(path, role)
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            is_plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(_MAX_BYTES + 1) if is_plain else b""
    except (OSError, ValueError) as error:
        raise _unreadable(shown, error) from None
    if not is_plain or len(data) > _MAX_BYTES:
        raise CertificateUnusable(f"{shown} is not a plain file of {_MAX_BYTES} bytes at most")
    text = data.decode("ascii", "ignore")
    if label not in text:
        raise CertificateUnusable(f"{shown} is not in PEM form")
    return text


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _unreadable(shown: str, error: OSError | ValueError) -> CertificateUnusable:
    reason = errno.errorcode.get(getattr(error, "errno", None) or 0, "not a path")
    return CertificateUnusable(f"{shown} cannot be read ({reason})")


def _shown(path: str, role: str) -> str:
    """Return the file's name for a message, without where it lies."""
    return f"{role} {quote(Path(path).name)}"
