"""The handshake between a front and the ledger process: mutual authentication with a shared secret.

Both sides read a secret from a file in the home that only its owner can read. Each side proves that it knows the secret
by an HMAC over both nonces and its own role, so that a proof cannot be reflected. Both must have the same version,
because the encoding of use cases depends on it.

1. The front sends its hello: protocol, version, nonce.
2. The ledger process sends its own hello with its proof.
3. The front sends its proof, and then its `Introduction`.
4. The ledger process accepts it, or sends an error.
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

SOCKET_NAME: Final = "ledger.sock"
# The maximum size of messages before the proof.
MAX_HANDSHAKE: Final = 1024

_MAGIC: Final = "remit-ledger"
_PROTOCOL: Final = 1
_NONCE: Final = 32
_SECRET_FILE: Final = "ledger.secret"  # noqa: S105 - the name of a file
_SECRET: Final = 32
# macOS: the socket option with the peer credentials, and their layout up to the user id.
_LOCAL_PEERCRED: Final = 1
_XUCRED: Final = struct.Struct("=II")


class Hello(Struct, frozen=True, array_like=True):
    """The first message of each side."""

    magic: str
    protocol: int
    version: str
    nonce: bytes
    # Sent by the ledger process only.
    proof: bytes = b""


class PolicySettings(Struct, frozen=True):
    """The policy settings of a front, so that the ledger process judges in the same way when it has to.

    `home` is the expansion of `~` in calls, `policies` the text of Cedar policies. `numbers` and `line` are the ids and
    the command line of processes that no call may stop.
    """

    home: str | None = None
    policies: str | None = None
    numbers: frozenset[int] = frozenset()
    line: str = ""


class Introduction(Struct, frozen=True):
    """The client: the name of a service, which keeps the ledger process running, or an empty name for a command."""

    service: str
    judging: PolicySettings


def encode(message: Struct | bytes) -> bytes:
    """Encode a message of the handshake."""
    return msgpack.encode(message)


def new_hello() -> Hello:
    """Return a hello with a new nonce."""
    return Hello(_MAGIC, _PROTOCOL, __version__, secrets.token_bytes(_NONCE))


_decode_hello: Final = msgpack.Decoder(Hello).decode


def decode_hello(data: bytes) -> Hello:
    """Decode the hello of the other side, or raise `FieldInvalid`."""
    try:
        found = _decode_hello(data)
    except (msgspec.DecodeError, UnicodeError):
        raise FieldInvalid("is not a valid hello") from None
    if found.magic != _MAGIC or len(found.nonce) != _NONCE:
        raise FieldInvalid("is not a valid hello")
    return found


def check_version(other: Hello) -> None:
    """Raise `LedgerInUse` if the other side has another version."""
    if (other.protocol, other.version) != (_PROTOCOL, __version__):
        raise LedgerInUse(
            f"the ledger process of this home is Remit {other.version}, and this is Remit {__version__}: restart the "
            "services of the home, by remit up --stop and then remit up"
        )


def compute_proof(side: str, secret: bytes, client: Hello, server: Hello) -> bytes:
    """Return the proof of a side (`client` or `server`): an HMAC over its role, and the versions and nonces of both."""
    said = msgpack.encode((side, client.version, client.nonce, server.version, server.nonce))
    return hmac.digest(secret, said, "sha256")


def is_valid_proof(given: bytes, side: str, secret: bytes, client: Hello, server: Hello) -> bool:
    """Return whether a proof is valid, in constant time."""
    return hmac.compare_digest(given, compute_proof(side, secret, client, server))


def make_secret(folder: Home) -> bytes:
    """Return the secret of the home, creating it if necessary. The caller must hold the lock of the ledger."""
    found = folder.read(_SECRET_FILE, max_bytes=_SECRET)
    if found is None or len(found) != _SECRET:
        found = secrets.token_bytes(_SECRET)
        folder.replace(_SECRET_FILE, found)
    return found


def load_secret(folder: Home) -> bytes:
    """Return the secret of the home, or raise `StateMissing` if no ledger process has run yet."""
    found = folder.read(_SECRET_FILE, max_bytes=_SECRET)
    if found is None or len(found) != _SECRET:  # an empty or short secret could be guessed
        raise StateMissing("run/ledger.secret is missing")
    return found


def check_peer(connection: socket.socket) -> None:
    """Raise `LedgerUnavailable` unless the peer of a Unix socket runs as the same user."""
    if sys.platform == "linux":
        _, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:
        try:
            _, user = _XUCRED.unpack(connection.getsockopt(0, _LOCAL_PEERCRED, _XUCRED.size))
        except OSError:
            raise LedgerUnavailable("the user at the other end of ledger.sock cannot be determined") from None
    if user != os.geteuid():
        raise LedgerUnavailable("the other end of ledger.sock belongs to another user")
