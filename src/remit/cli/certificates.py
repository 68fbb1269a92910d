"""The certificate of a client, as a passport names it (RFC 8705)."""

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Final

from remit.claims.canonical import encode_base64url
from remit.claims.passport import Confirmation
from remit.errors import CertificateUnusable

__all__ = ["confirmation_of"]

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_MAX_BYTES: Final = 64 * 1024


def confirmation_of(file: Path) -> Confirmation:
    """Return what binds a passport to the holder of the certificate in a PEM file."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES).decode("ascii").strip()
        if text.count(_BEGIN) != 1:
            raise CertificateUnusable("the file must hold one certificate in PEM form, and nothing else")
        der = ssl.PEM_cert_to_DER_cert(text)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except OSError:  # also what the library says of bytes that are no certificate
        raise CertificateUnusable("the certificate cannot be read") from None
    except ValueError:
        raise CertificateUnusable("the file is not a certificate in PEM form") from None
    return Confirmation(certificate=encode_base64url(sha256(der).digest()))
