"""The program that hooks run: posts the hook event on stdin to the Hub, and prints the response of the Hub.

It is run as a script (`python -I -S -B hook.py WIRE`, where WIRE is the path of a wire file, or the id of a protection
whose wire file is beside the script). It imports only modules that the interpreter has loaded or built in, because the
assistant waits for it at every call. It makes no decisions.

Invariants:

- It exits with 0 only after the Hub that the wire file names has sent a complete response in time, and has proved its
  identity. Otherwise it prints one line to stderr and exits with 2, which every assistant treats as "blocked".
- That line contains neither the token, nor the secret of a session, nor input of the assistant.

Each session of an assistant has a secret, which is created with its first event and stored in the Remit home. The Hub
binds the session to it, so that someone who has only the token cannot send events for a running session.
"""

# The C modules behind `json`, `socket` and `hashlib`: importing those, `typing` or `signal` would make the start two or
# three times as slow.
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

_MAX_WIRE = 64 * 1024
_MAX_INPUT = 16 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_MAX_ANSWER = 1024 * 1024
_MAX_DEADLINE_S = 60.0
_CHUNK = 64 * 1024
_PROOF = "x-remit-hook"
_SECRET_BYTES = 32
_SECRETS = "sessions"
# The members with the session id. If a subagent has its own session, the id of its parent comes first.
_SESSION_MEMBERS = {"copilot": ("parentAgentId", "sessionId", "session_id"), "": ("session_id",)}
# Address family and address of each host that is accepted: the Hub is on this machine.
_HOSTS = {
    "127.0.0.1": (_socket.AF_INET, "127.0.0.1"),
    "localhost": (_socket.AF_INET, "127.0.0.1"),
    "[::1]": (_socket.AF_INET6, "::1"),
}


class Unanswered(Exception):
    """The Hub gave no valid response. The text is the reason; the user and the model read it."""


def main(arguments: list[str]) -> int:
    """Run the hook and return the exit code: 0 after a response was printed, else 2 after a reason on stderr."""
    started = time.monotonic()
    try:
        wire = _read_wire(arguments)
        folder = os.path.dirname(os.path.abspath(_wire_path(arguments)))  # noqa: PTH100, PTH120 - pathlib is slow to import
        _write(_answer(wire, folder, started + _deadline_s(wire)))
    except Unanswered as reason:
        return _block(str(reason))
    except Exception as error:  # noqa: BLE001 - every error must block the call
        return _block(f"the hook failed ({type(error).__name__})")
    return 0


def _block(reason: str) -> int:
    line = f"Remit: {reason}; nothing is let through without it. Start it with: remit up --background\n"
    os.write(2, line.encode("ascii", "replace"))
    return 2


def _read_wire(arguments: list[str]) -> str:
    """Read the wire file. Only root and the user may be able to write it."""
    try:
        fd = os.open(_wire_path(arguments), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        raise Unanswered("this protection belongs to another user of this machine, and does not answer you") from None
    except OSError:
        raise Unanswered("the wire file of this protection cannot be opened: run remit protect here") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise Unanswered("the wire file of this protection can be changed by others")
    return os.read(fd, _MAX_WIRE).decode("ascii")


def _wire_path(arguments: list[str]) -> str:
    if len(arguments) != 1:
        raise Unanswered("the hook needs the name of its wire file")
    if "/" in arguments[0]:
        return arguments[0]
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{arguments[0]}.wire.json")  # noqa: PTH100, PTH118, PTH120


def _member(wire: str, name: str) -> str:
    """Return a string member of the wire file: a flat object that Remit wrote, without escapes or spaces in values."""
    before, quote, rest = wire.partition(f'"{name}":')[2].partition('"')
    value = rest.partition('"')[0]
    if before.strip() or not quote or not value or "\\" in wire or " " in value:
        raise Unanswered("the wire file of this protection is damaged")
    return value


def _deadline_s(wire: str) -> float:
    return min(float(wire.partition('"deadline_s":')[2].replace("}", ",").partition(",")[0]), _MAX_DEADLINE_S)


def _answer(wire: str, folder: str, deadline: float) -> bytes:
    """Send the event to the Hub, and return the body of its response."""
    token, assistant = _member(wire, "token"), _member(wire, "assistant")
    # Wire files of the first release have no key.
    key = _member(wire, "proof") if '"proof":' in wire else ""
    host, port, path = _parse_url(_member(wire, "url"))
    event = _read_input(deadline)
    secret = _secret(folder, path, _session_id(event, assistant))
    nonce = os.urandom(16).hex()
    family, address = _HOSTS[host]
    peer = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        peer.settimeout(_remaining(deadline))
        peer.connect((address, port))
        peer.sendall(_request((host, port, path), token, secret, nonce, len(event)) + event)
        status, headers, body = _read_response(peer, deadline)
    except OSError:  # a timeout is an OSError, too
        raise Unanswered("the Hub does not answer") from None
    proof = headers.get(_PROOF, "")
    signed = f"{nonce}\n{sha256(event).hexdigest()}\n".encode("ascii") + body
    if not proof or (key and proof != _mac(key.encode("ascii"), signed)):
        raise Unanswered("the response does not prove that it comes from the Hub (for details: remit doctor)")
    if status != "200" or body[:1] != b"{" or body[-1:] != b"}":
        raise Unanswered(f"the Hub did not decide (status {status})")
    return body


def _mac(key: bytes, text: bytes) -> str:
    """Return the HMAC-SHA256 in hexadecimal; `key` is not longer than a block."""
    inner = sha256(bytes(byte ^ 0x36 for byte in key.ljust(64, b"\0")) + text).digest()
    return str(sha256(bytes(byte ^ 0x5C for byte in key.ljust(64, b"\0")) + inner).hexdigest())


class _ScannerOptions:
    """The options of the JSON scanner."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = parse_int = parse_constant = bool


def _session_id(event: bytes, assistant: str) -> str:
    """Return the assistant's session id, which its secret depends on. Raises if the event has none."""
    try:
        text = event.decode("utf-8")
        value, _ = _json.make_scanner(_ScannerOptions)(text, len(text) - len(text.lstrip()))  # type: ignore[arg-type]
        names = _SESSION_MEMBERS.get(assistant, _SESSION_MEMBERS[""])
        return str(next(value[name] for name in names if isinstance(value.get(name), str) and value[name]))
    except (ValueError, StopIteration, AttributeError, RecursionError):
        raise Unanswered("the event of the assistant names no session") from None


def _secret(folder: str, path: str, session: str) -> str:
    """Return the secret of a session. It is created if there is none yet."""
    name = sha256(f"{path}\n{session}".encode("utf-8", "surrogatepass")).hexdigest()
    secret_path = f"{folder}/{_SECRETS}/{name}"
    try:
        return _read_secret(secret_path)
    except FileNotFoundError:
        pass
    temporary = f"{secret_path}.{os.urandom(8).hex()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.write(fd, os.urandom(_SECRET_BYTES).hex().encode("ascii"))
        os.close(fd)
        try:
            # Atomic: two hooks of one session may do this at the same time.
            os.link(temporary, secret_path)
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)  # noqa: PTH108 - pathlib is slow to import
        return _read_secret(secret_path)
    except OSError:
        raise Unanswered("the secret of this session cannot be stored: run remit protect here") from None


def _read_secret(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    secret = os.read(fd, 4 * _SECRET_BYTES).decode("ascii")
    if len(secret) != 2 * _SECRET_BYTES or not secret.isalnum():
        raise Unanswered("the secret of this session is damaged: start a new one")
    return secret


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Unanswered("the Hub did not answer in time")
    return remaining


def _read_input(deadline: float) -> bytes:
    chunks, size = list[bytes](), 0
    while size <= _MAX_INPUT:
        if not select.select([0], [], [], _remaining(deadline))[0]:
            raise Unanswered("the assistant did not send the event in time")
        chunk = os.read(0, _CHUNK)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    if not 0 < size <= _MAX_INPUT:
        raise Unanswered("the assistant sent no event, or one that is too large")
    return b"".join(chunks)


def _parse_url(url: str) -> tuple[str, int, str]:
    """Return host, port and path of a URL on this machine."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = authority.rpartition(":")
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


def _read_response(peer: _socket.socket, deadline: float) -> tuple[str, dict[str, str], bytes]:
    """Read a complete response. Return status, headers and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(peer, deadline)
        if len(data) > _MAX_HEAD + _MAX_ANSWER:
            break
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    if not first.startswith("HTTP/1.1 ") or not length.isdecimal() or int(length) > _MAX_ANSWER:
        raise Unanswered("another program answers in place of the Hub")
    while len(body) < int(length):
        body += _receive(peer, deadline)
    return first[9:12], headers, body[: int(length)]


def _receive(peer: _socket.socket, deadline: float) -> bytes:
    peer.settimeout(_remaining(deadline))
    chunk = peer.recv(_CHUNK)
    if not chunk:
        raise Unanswered("the Hub closed the connection before its response was complete")
    return chunk


def _write(answer: bytes) -> None:
    rest = memoryview(answer)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    # Not sys.exit: nothing that the interpreter does at exit may change the exit code.
    os._exit(main(sys.argv[1:]))
