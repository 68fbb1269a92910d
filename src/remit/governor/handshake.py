"""How a front and the ledger process prove to each other that they belong to the same home.

Both know a secret that lies in the home, in a file that only its owner can read. Each side proves that it knows it by
an HMAC over the nonces of both, with its own name, so that a proof cannot be sent back to where it came from. Both
must be of the same version, because use cases are written as this version has them.

1. The front sends its hello: protocol, version, nonce.
2. The ledger process sends its own, and its proof.
3. The front sends its proof, and then who it is (`Introduction`).
4. The ledger process answers that it is accepted, or why not.
"""

import hmac
import os
import secrets
import socket
import struct
import sys
from typing import Final

import msgspec
from msgspec import Struct, msgpack

from remit.errors import FieldInvalid, LedgerInUse, LedgerUnavailable, StateMissing
from remit.ledger.home import Home
from remit.version import __version__

__all__ = [
    "MAX_HANDSHAKE",
    "SOCKET",
    "Hello",
    "Introduction",
    "Judging",
    "check_peer",
    "check_version",
    "compute_proof",
    "decode_hello",
    "encode",
    "is_valid_proof",
    "load_secret",
    "make_secret",
    "new_hello",
]

SOCKET: Final = "ledger.sock"
# No message before the proof is longer.
MAX_HANDSHAKE: Final = 1024

_MAGIC: Final = "remit-ledger"
_PROTOCOL: Final = 1
_NONCE: Final = 32
_SECRET_FILE: Final = "ledger.secret"  # noqa: S105 - the name of a file
_SECRET: Final = 32
# Of macOS: the option that holds the credentials of a peer, and where the user id is in it.
_LOCAL_PEERCRED: Final = 1
_XUCRED: Final = struct.Struct("=II")


class Hello(Struct, frozen=True, array_like=True):
    """The first message of each side."""

    magic: str
    protocol: int
    version: str
    nonce: bytes
    # Of the ledger process only.
    proof: bytes = b""


class Judging(Struct, frozen=True):
    """How a front judges calls: the ledger process judges in the same way what it has to judge itself.

    `home` is what `~` stands for in calls, `policies` the text of Cedar policies; `numbers` and `line` tell which
    processes no call may stop.
    """

    home: str | None = None
    policies: str | None = None
    numbers: frozenset[int] = frozenset()
    line: str = ""


class Introduction(Struct, frozen=True):
    """Who connects: the name of a service, which keeps the ledger process running, or nothing."""

    service: str
    judging: Judging


def encode(message: Struct | bytes) -> bytes:
    """Return a message of the handshake."""
    return msgpack.encode(message)


def new_hello() -> Hello:
    """Return the first message of a side."""
    return Hello(_MAGIC, _PROTOCOL, __version__, secrets.token_bytes(_NONCE))


_decode_hello: Final = msgpack.Decoder(Hello).decode


def decode_hello(data: bytes) -> Hello:
    """Return the first message of the other side, or raise `FieldInvalid`."""
    try:
        found = _decode_hello(data)
    except (msgspec.DecodeError, UnicodeError):
        raise FieldInvalid("is not a hello of ours") from None
    if found.magic != _MAGIC or len(found.nonce) != _NONCE:
        raise FieldInvalid("is not a hello of ours")
    return found


def check_version(other: Hello) -> None:
    """Raise `LedgerInUse` if the ledger process is of another version."""
    if (other.protocol, other.version) != (_PROTOCOL, __version__):
        raise LedgerInUse(
            f"the ledger process of this home is Remit {other.version}, and this is Remit {__version__}: restart the "
            "services of the home, by remit up --stop and then remit up"
        )


def compute_proof(side: str, secret: bytes, client: Hello, server: Hello) -> bytes:
    """Return the proof that a side, `client` or `server`, knows the secret."""
    said = msgpack.encode((side, client.version, client.nonce, server.version, server.nonce))
    return hmac.digest(secret, said, "sha256")


def is_valid_proof(given: bytes, side: str, secret: bytes, client: Hello, server: Hello) -> bool:
    """Tell whether a proof is right, in the same time whatever it is."""
    return hmac.compare_digest(given, compute_proof(side, secret, client, server))


def make_secret(folder: Home) -> bytes:
    """Return the secret of the home, made first where there is none. The caller holds the lock of the ledger."""
    found = folder.read(_SECRET_FILE, max_bytes=_SECRET)
    if found is None or len(found) != _SECRET:
        found = secrets.token_bytes(_SECRET)
        folder.replace(_SECRET_FILE, found)
    return found


def load_secret(folder: Home) -> bytes:
    """Return the secret of the home; `StateMissing` where no ledger process has run yet."""
    found = folder.read(_SECRET_FILE, max_bytes=_SECRET)
    if found is None or len(found) != _SECRET:  # one that is empty or short could be proved by anyone
        raise StateMissing("run/ledger.secret is missing")
    return found


def check_peer(connection: socket.socket) -> None:
    """Raise `LedgerUnavailable` unless the other end of a Unix socket belongs to the user who runs this."""
    if sys.platform == "linux":
        _, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:
        try:
            _, user = _XUCRED.unpack(connection.getsockopt(0, _LOCAL_PEERCRED, _XUCRED.size))
        except OSError:
            raise LedgerUnavailable("the user at the other end of the socket is not known") from None
    if user != os.geteuid():
        raise LedgerUnavailable("the other end of the ledger's socket belongs to another user")
