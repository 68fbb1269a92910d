"""The command of a hook: posts what an assistant says on its input to the Hub, and prints the Hub's answer.

It runs by itself (`python -I -S -B command.py WIRE`, where WIRE is the path of a wire file, or the id of a protection
whose wire file lies beside this script), with the few modules that an interpreter starts with anyway, because an
assistant waits for every start of it. Keeps these invariants: it ends with 0 only after the Hub of the wire file has
answered in time and in full, and has proved that it is the Hub; anything else is one line on stderr and exit code 2,
which every assistant takes for "blocked"; and neither the token, nor the secret of a session, nor what the assistant
said is ever part of that line. It judges nothing.

Each session of an assistant has a secret, which its first event makes and keeps in the home. The Hub binds the session
to it, so that whoever has only the token of the protection cannot speak for a session that runs.
"""

# The cores of `json`, `socket` and `hashlib`: with those, or with `typing` or `signal`, a start takes two or three
# times as long.
import _json
import _socket
import os
import select
import stat
import sys
import time

try:
    from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]

__all__ = ["Unanswered", "main"]

_MAX_WIRE = 64 * 1024
_MAX_INPUT = 16 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_MAX_ANSWER = 1024 * 1024
_LONGEST_S = 60.0
_PIECE = 64 * 1024
_PROOF = "x-remit-hook"
_SECRET_BYTES = 32
_SECRETS = "sessions"
# The members that name the session of an assistant; where a subagent has one of its own, that of its lead comes first.
_SESSION_NAMES = {"copilot": ("parentAgentId", "sessionId", "session_id"), "": ("session_id",)}
# The Hub is on this machine, under one of its names.
_HOSTS = {
    "127.0.0.1": (_socket.AF_INET, "127.0.0.1"),
    "localhost": (_socket.AF_INET, "127.0.0.1"),
    "[::1]": (_socket.AF_INET6, "::1"),
}


class Unanswered(Exception):
    """There is no answer that counts; the text says why, to a person and to a model."""


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 with an answer printed, else 2 with the reason on stderr."""
    begun = time.monotonic()
    try:
        wire = _wire(arguments)
        folder = os.path.dirname(os.path.abspath(_wire_path(arguments)))  # noqa: PTH100, PTH120 - nothing is imported
        _write(_answer(wire, folder, begun + _deadline_s(wire)))
    except Unanswered as reason:
        return _blocked(str(reason))
    except Exception as error:  # noqa: BLE001 - the edge of the program: whatever it is, nothing may run because of it
        return _blocked(f"the hook failed ({type(error).__name__})")
    return 0


def _blocked(reason: str) -> int:
    line = f"Remit: {reason}; nothing is let through without it. Start it with: remit up --background\n"
    os.write(2, line.encode("ascii", "replace"))
    return 2


def _wire(arguments: list[str]) -> str:
    """Return the wire file; nobody but root and its owner may be able to change it."""
    try:
        fd = os.open(_wire_path(arguments), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        raise Unanswered("this protection belongs to another user of this machine, and does not answer you") from None
    except OSError:
        raise Unanswered("the wire file of this protection cannot be opened: run remit protect here") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise Unanswered("the wire file of this protection can be changed by others")
    return os.read(fd, _MAX_WIRE).decode("ascii")


def _wire_path(arguments: list[str]) -> str:
    if len(arguments) != 1:
        raise Unanswered("the hook needs the name of its wire file")
    if "/" in arguments[0]:
        return arguments[0]
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{arguments[0]}.wire.json")  # noqa: PTH100, PTH118, PTH120


def _member(wire: str, name: str) -> str:
    """Return a text of the wire file: an object of our own writing, flat, without spaces in values and escapes."""
    before, quote, said = wire.partition(f'"{name}":')[2].partition('"')
    value = said.partition('"')[0]
    if before.strip() or not quote or not value or "\\" in wire or " " in value:
        raise Unanswered("the wire file of this protection is damaged")
    return value


def _deadline_s(wire: str) -> float:
    return min(float(wire.partition('"deadline_s":')[2].replace("}", ",").partition(",")[0]), _LONGEST_S)


def _answer(wire: str, folder: str, deadline: float) -> bytes:
    """Return the body of the Hub's answer."""
    token, assistant = _member(wire, "token"), _member(wire, "assistant")
    # The first release wrote wire files without a key.
    key = _member(wire, "proof") if '"proof":' in wire else ""
    host, port, path = _address(_member(wire, "url"))
    said = _input(deadline)
    secret = _secret(folder, path, _session_of(said, assistant))
    nonce = os.urandom(16).hex()
    family, number = _HOSTS[host]
    peer = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        peer.settimeout(_left(deadline))
        peer.connect((number, port))
        peer.sendall(_request((host, port, path), token, secret, nonce, len(said)) + said)
        status, headers, body = _read(peer, deadline)
    except OSError:  # one that took too long is one too
        raise Unanswered("the Hub does not answer") from None
    proof = headers.get(_PROOF, "")
    proved = f"{nonce}\n{sha256(said).hexdigest()}\n".encode("ascii") + body
    if not proof or (key and proof != _mac(key.encode("ascii"), proved)):
        raise Unanswered("what answers does not prove that it is the Hub (remit doctor tells more)")
    if status != "200" or body[:1] != b"{" or body[-1:] != b"}":
        raise Unanswered(f"the Hub did not decide (status {status})")
    return body


def _mac(key: bytes, text: bytes) -> str:
    """Return the HMAC-SHA256 in hexadecimal; `key` is not longer than a block."""
    inner = sha256(bytes(byte ^ 0x36 for byte in key.ljust(64, b"\0")) + text).digest()
    return str(sha256(bytes(byte ^ 0x5C for byte in key.ljust(64, b"\0")) + inner).hexdigest())


class _Plain:
    """How JSON is read."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = parse_int = parse_constant = bool


def _session_of(said: bytes, assistant: str) -> str:
    """Return the name of the assistant's session. One that cannot be read is refused: no secret would belong to it."""
    try:
        text = said.decode("utf-8")
        value, _ = _json.make_scanner(_Plain)(text, len(text) - len(text.lstrip()))  # type: ignore[arg-type]
        names = _SESSION_NAMES.get(assistant, _SESSION_NAMES[""])
        return str(next(value[name] for name in names if isinstance(value.get(name), str) and value[name]))
    except (ValueError, StopIteration, AttributeError, RecursionError):
        raise Unanswered("the assistant did not say which session this is") from None


def _secret(folder: str, path: str, session: str) -> str:
    """Return the secret of a session, which is made where there is none yet."""
    name = sha256(f"{path}\n{session}".encode("utf-8", "surrogatepass")).hexdigest()
    place = f"{folder}/{_SECRETS}/{name}"
    try:
        return _read_secret(place)
    except FileNotFoundError:
        pass
    made = f"{place}.{os.urandom(8).hex()}"
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.write(fd, os.urandom(_SECRET_BYTES).hex().encode("ascii"))
        os.close(fd)
        try:
            # Whole or not at all: two hooks of one session may be here at once.
            os.link(made, place)
        except FileExistsError:
            pass
        finally:
            os.unlink(made)  # noqa: PTH108 - nothing more is imported
        return _read_secret(place)
    except OSError:
        raise Unanswered("the secret of this session cannot be kept: run remit protect here") from None


def _read_secret(place: str) -> str:
    fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    secret = os.read(fd, 4 * _SECRET_BYTES).decode("ascii")
    if len(secret) != 2 * _SECRET_BYTES or not secret.isalnum():
        raise Unanswered("the secret of this session is damaged: start a new one")
    return secret


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unanswered("the Hub did not answer in time")
    return left


def _input(deadline: float) -> bytes:
    pieces, size = list[bytes](), 0
    while size <= _MAX_INPUT:
        if not select.select([0], [], [], _left(deadline))[0]:
            raise Unanswered("the assistant did not say in time what it wants")
        piece = os.read(0, _PIECE)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    if not 0 < size <= _MAX_INPUT:
        raise Unanswered("the assistant has said nothing, or too much")
    return b"".join(pieces)


def _address(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an address on this machine."""
    scheme, _, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    host, _, port = where.rpartition(":")
    if scheme != "http" or host not in _HOSTS or not port.isdigit():
        raise Unanswered("the wire file names a Hub that is not on this machine")
    return host, int(port), slash + path


def _request(address: tuple[str, int, str], token: str, secret: str, nonce: str, length: int) -> bytes:
    host, port, path = address
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}:{port}",
        f"Authorization: Bearer {token}",
        f"X-Remit-Session: {secret}",
        f"X-Remit-Nonce: {nonce}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Connection: close",
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")


def _read(peer: _socket.socket, deadline: float) -> tuple[str, dict[str, str], bytes]:
    """Return status, headers and body of an answer that came in full."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += _piece(peer, deadline)
        if len(seen) > _MAX_HEAD + _MAX_ANSWER:
            break
    head, _, body = seen.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if not first.startswith("HTTP/1.1 ") or not length.isdecimal() or int(length) > _MAX_ANSWER:
        raise Unanswered("something else than the Hub answers in its place")
    while len(body) < int(length):
        body += _piece(peer, deadline)
    return first[9:12], headers, body[: int(length)]


def _piece(peer: _socket.socket, deadline: float) -> bytes:
    peer.settimeout(_left(deadline))
    piece = peer.recv(_PIECE)
    if not piece:
        raise Unanswered("the Hub broke off its answer")
    return piece


def _write(answer: bytes) -> None:
    rest = memoryview(answer)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    # At once: nothing that an interpreter does in the end may turn the code into another.
    os._exit(main(sys.argv[1:]))
