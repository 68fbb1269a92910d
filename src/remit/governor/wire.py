"""The protocol between a front process (proxy, Hub or command) and the ledger process.

A frame is a length of four bytes, big-endian, followed by that many bytes of MessagePack: an array of messages. A front
sends `[id, name, case]` and receives `[id, kind, answer]`. A case is decoded by its type, which validates its members;
an answer by the return type of the case. Only the types in `USE_CASES` are decoded and run.

Answers are trusted: the ledger process has authenticated itself (`handshake.py`). Receipts and passports in them are
rebuilt without verifying their signatures again.
"""

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, msgpack

from remit import errors
from remit.claims.receipt import BudgetDelta, choose_budget_delta
from remit.errors import BrokenChain, FieldInvalid, JsonTooLarge, NotCanonicalizable, RemitError
from remit.governor.assistant_sessions import ContinueAssistantSession
from remit.governor.assistants import BeginAssistantSession, EndAssistantSession, EvaluateAssistantCall
from remit.governor.attest import Attest
from remit.governor.closing import CloseOpenDelegates
from remit.governor.conclude import RecordAssistantResult
from remit.governor.context import UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.issue import IssuePassport
from remit.governor.keys import DistrustKey, RotateKey
from remit.governor.observe import GetJudgingState, ObserveEvent, ReportEvent
from remit.governor.rate import ReportSkipped
from remit.governor.results import RecordResult
from remit.governor.revoke import CloseRevoked, KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.governor.sources import StartSourceSession
from remit.governor.statements import RecordStatement
from remit.governor.tampering import EndReporterSession, RevokeTamperedSessions
from remit.governor.verification import Quarantine
from remit.policy.call import SpawnedProgram

# The use cases that may write, even if they are named `Get...`: they run in the ledger process. Those that never write
# run in the front, with its own reader.
USE_CASES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        Attest,
        BeginAssistantSession,
        CloseOpenDelegates,
        CloseRevoked,
        ContinueAssistantSession,
        Delegate,
        DistrustKey,
        EndAssistantSession,
        EndReporterSession,
        EndSession,
        Evaluate,
        EvaluateAssistantCall,
        GetJudgingState,
        GetSession,
        IssuePassport,
        KillSwitch,
        ObserveEvent,
        Quarantine,
        RecordAssistantResult,
        RecordResult,
        RecordStatement,
        ReportEvent,
        ReportSkipped,
        RevokePassport,
        RevokeSession,
        RevokeTamperedSessions,
        RotateKey,
        StartSession,
        StartSourceSession,
    )
}

HEADER_BYTES: Final = 4
# An HTTP request is at most one megabyte; with the findings of the front it is still far below this.
MAX_FRAME: Final = 16 * 1024 * 1024
# The kinds of messages from the ledger process: an answer, an error, or an unsolicited event.
ANSWER: Final = 0
FAILURE: Final = 1
EVENT: Final = 2
# Sent by a front that disconnects, in place of the name of a use case.
BYE: Final = "bye"

_T = TypeVar("_T")

_LARGE_INTEGER: Final = 1
_MAX_DIGITS: Final = 64
_UNEXPECTED: Final = "unexpected"


class FrameDecoder:
    """Splits received data into frames of at most `max_bytes` bytes."""

    __slots__ = ("_buffer", "max_bytes")

    def __init__(self, max_bytes: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies of the complete frames; raise `JsonTooLarge` if a length prefix exceeds the limit."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER_BYTES:
            size = int.from_bytes(buffer[:HEADER_BYTES])
            if size > self.max_bytes:
                raise JsonTooLarge(f"a frame of {size} bytes; the limit is {self.max_bytes}")
            end = HEADER_BYTES + size
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER_BYTES:end])
            del buffer[:end]
            yield body

    def feed_all(self, data: bytes) -> Sequence[bytes]:
        """Return what `feed` yields, with a fast path for data that is exactly one frame."""
        if not self._buffer and HEADER_BYTES + int.from_bytes(data[:HEADER_BYTES]) == len(data) <= self.max_bytes:
            return (data[HEADER_BYTES:],)
        return tuple(self.feed(data))


def encode_frame(messages: Sequence[bytes]) -> bytes:
    """Return a frame of these encoded messages."""
    count = len(messages)
    body = b"".join((b"\xdd", count.to_bytes(4), *messages))  # the header of a MessagePack array
    return len(body).to_bytes(HEADER_BYTES) + body


_Messages: Final = msgpack.Decoder(list[tuple[int, int | str, Raw]])


def decode_messages(body: bytes) -> list[tuple[int, int | str, Raw]]:
    """Return the messages of a frame, with the content of each still encoded, or raise `FieldInvalid`."""
    try:
        return _Messages.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise FieldInvalid("a frame must hold an array of messages") from None


def encode_message(number: int, kind: int | str, content: object) -> bytes:
    """Return an encoded message."""
    message = (number, kind, content)
    try:
        return _encoder.encode(message)
    except OverflowError:
        return _encode_large(message)


def _encode_large(message: tuple[int, int | str, object]) -> bytes:
    """Encode a message with integers beyond 64 bits, which the arguments of a call may contain."""
    return _encoder.encode(_with_large_integers(msgspec.to_builtins(message, builtin_types=_BYTES)))


def encode_case(number: int, case: UseCase[Any]) -> bytes:
    """Return the request message of a use case, whose type is one of `USE_CASES`; raise if it cannot be encoded."""
    try:
        message = encode_message(number, type(case).__name__, case)
    except (OverflowError, TypeError, ValueError, RecursionError):
        raise NotCanonicalizable("has no canonical form") from None
    if len(message) > MAX_FRAME // 2:
        raise JsonTooLarge(f"{len(message)} bytes; the limit for the ledger process is {MAX_FRAME // 2}")
    return message


def decode_case(name: int | str, content: Raw) -> UseCase[Any]:
    """Return the use case of a message, or raise `FieldInvalid`."""
    kind = USE_CASES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FieldInvalid("is not a use case", place="$.case")
    decoder = _decoders.get(kind) or _decoder(kind)
    case: UseCase[Any] = _decode(decoder, content)
    return case


def answer_type(kind: type[UseCase[_T]]) -> Any:  # noqa: ANN401 - whatever the use case returns
    """Return the return type of a use case's `run`."""
    known = _answers.get(kind)
    if known is None:
        known = get_type_hints(kind.run)["return"]
        if get_origin(known) is Coroutine:
            *_, known = get_args(known)
        _answers[kind] = known
    return known


_answers: Final = dict[Any, Any]()


def decode_answer(kind: type[UseCase[_T]], content: Raw) -> _T:
    """Decode the answer to a use case of this type."""
    decoder = _answer_decoders.get(kind)
    if decoder is None:
        decoder = _answer_decoders[kind] = _decoder(answer_type(kind))
    answer: _T = _decode(decoder, content)
    return answer


_answer_decoders: Final = dict[Any, "msgpack.Decoder[Any]"]()


def encode_failure(number: int, error: BaseException) -> bytes:
    """Return the message of an error: its class name, text and attributes."""
    if not isinstance(error, RemitError):
        return encode_message(number, FAILURE, (_UNEXPECTED, type(error).__name__, {}))
    members = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
    return encode_message(number, FAILURE, (type(error).__name__, str(error), members))


_Failure: Final = msgpack.Decoder(tuple[str, str, dict[str, str | int]])


def decode_failure(content: Raw) -> Exception:
    """Return the error in a message of the ledger process."""
    name, text, members = _decode(_Failure, content)
    kind = _ERRORS.get(name)
    if kind is None:
        return RuntimeError(f"unexpected error in the ledger process ({text})")
    error = kind.__new__(kind, text)
    error.args = (text,)
    vars(error).update(members)
    return error


_ERRORS: Final[Mapping[str, type[RemitError]]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RemitError)
}


def _decode(decoder: "msgpack.Decoder[_T]", content: Raw) -> _T:
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise FieldInvalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise FieldInvalid(f"cannot be decoded ({type(error).__name__})") from None


_decoders: Final = dict[Any, "msgpack.Decoder[Any]"]()


def _decoder(kind: Any) -> "msgpack.Decoder[Any]":  # noqa: ANN401 - a type
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgpack.Decoder(kind, dec_hook=_decode_hook, ext_hook=_decode_extension)
    return decoder


def _decode_hook(kind: type, value: Any) -> object:  # noqa: ANN401 - as decoded
    """Convert decoded builtins to a type that msgspec does not support."""
    if kind is BudgetDelta:
        return choose_budget_delta(kind, value)
    if kind is BrokenChain:
        return BrokenChain(*msgspec.convert(value, tuple[int, str, str]))
    if get_origin(kind) is Iterable:
        return msgspec.convert(value, tuple[SpawnedProgram, ...])
    raise NotImplementedError(f"{kind} cannot be sent to the ledger process")


def _encode_hook(value: object) -> object:
    """Convert a value of a type that msgspec does not support to builtins."""
    if isinstance(value, BrokenChain):
        return value.index, value.fault, str(value).partition(": ")[2]
    raise TypeError(f"{type(value).__name__} cannot be sent to the ledger process")


_encoder: Final = msgpack.Encoder(enc_hook=_encode_hook)
_BYTES: Final = (bytes,)


def _with_large_integers(value: Any) -> Any:  # noqa: ANN401 - builtins of any kind
    """Replace each integer that MessagePack cannot represent with an extension that contains its decimal digits."""
    if isinstance(value, dict):
        return {name: _with_large_integers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_large_integers(item) for item in value]
    if type(value) is int and not -(2**63) <= value < 2**64:
        return msgpack.Ext(_LARGE_INTEGER, str(value).encode("ascii"))
    return value


def _decode_extension(code: int, data: memoryview) -> int:
    if code != _LARGE_INTEGER or len(data) > _MAX_DIGITS + 1:
        raise ValueError("unknown extension")
    return int(bytes(data))
