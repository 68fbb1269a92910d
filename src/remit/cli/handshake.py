"""The proxy's certificate, tried out: a handshake with itself, in memory, as a client would make it."""

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from remit.errors import CertificateUnusable
from remit.ledger.home import Home

__all__ = ["days_left"]

_DAY_S: Final = 24 * 3600
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_TURNS: Final = 4


def days_left(tls: Home) -> int:
    """Return for how many days the proxy's certificate is good, if clients that trust the authority would take it."""
    try:
        end = _shown_certificate(tls)["notAfter"]
    except ssl.SSLCertVerificationError as error:
        expired = error.verify_code == _EXPIRED
        raise CertificateUnusable(
            "the certificate has expired" if expired else "the certificate is not of the authority in tls/ca.pem"
        ) from None
    except (OSError, KeyError):  # what the library says of files that it cannot use
        raise CertificateUnusable("the certificate, its key or the authority cannot be read") from None
    return int(ssl.cert_time_to_seconds(str(end)) - time.time()) // _DAY_S


def _shown_certificate(tls: Home) -> Mapping[str, object]:
    """Return what a client sees of the certificate."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tls.path_of("proxy.pem"), tls.path_of("proxy-key.pem"))
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False  # which names it is for is asked of a proxy that runs
    asking.load_verify_locations(tls.path_of("ca.pem"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(_TURNS):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.getpeercert() or {}
