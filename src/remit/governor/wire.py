"""How use cases and their answers are written between a front and the ledger process.

A frame is a length of four bytes, big-endian, and that many bytes of MessagePack: an array of messages. A front sends
`[id, name, case]`, and gets `[id, kind, answer]`. Every case is decoded by its type, with all rules of its members, and
every answer by what the case returns. Only the cases of `CASES` are read; nothing else that arrives is run.

Answers are believed as they are: they come from the ledger process, which has proved that it is one (`handshake.py`).
So receipts and passports are rebuilt here without their signatures being verified again.
"""

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, msgpack

from remit import errors
from remit.claims.receipt import BudgetDelta, choose_budget_delta
from remit.errors import BrokenChain, FieldInvalid, JsonTooLarge, NotCanonicalizable, RemitError
from remit.governor.assistants import Begin, Finish, Govern
from remit.governor.attest import Attest
from remit.governor.closing import FinishClosing
from remit.governor.conclude import Conclude
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate
from remit.governor.issue import Issue
from remit.governor.keys import DistrustKey, RotateKey
from remit.governor.leads import Continue
from remit.governor.means import UseCase
from remit.governor.observe import FindPlace, Observe, Report
from remit.governor.rate import ReportSkipped
from remit.governor.results import RecordResult
from remit.governor.revoke import CloseRevoked, KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import End, Look, Start
from remit.governor.sources import StartFor
from remit.governor.statements import Declare
from remit.governor.tampering import EndReporter, EndTampered
from remit.governor.verification import Quarantine
from remit.policy.call import Launched

__all__ = [
    "ANSWER",
    "BYE",
    "CASES",
    "EVENT",
    "FAILURE",
    "HEADER",
    "MAX_FRAME",
    "Frames",
    "answer_type",
    "decode_answer",
    "decode_case",
    "decode_failure",
    "decode_messages",
    "encode_case",
    "encode_failure",
    "encode_message",
    "frame_of",
]

# Every use case that is run by the ledger process. Those that only read are run by the front, with its own reader.
CASES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        Attest, Begin, CloseRevoked, Conclude, Continue, Declare, Delegate, DistrustKey, End, EndReporter, EndTampered,
        Evaluate, FindPlace, Finish, FinishClosing, Govern, Issue, KillSwitch, Look, Observe, Quarantine, RecordResult,
        Report, ReportSkipped, RevokePassport, RevokeSession, RotateKey, Start, StartFor,
    )
}  # fmt: skip

HEADER: Final = 4
# A request over HTTP has at most one megabyte; with what was found out about it, it stays far below this.
MAX_FRAME: Final = 16 * 1024 * 1024
# What a message of the ledger process is: an answer, an error, or something that it tells unasked.
ANSWER: Final = 0
FAILURE: Final = 1
EVENT: Final = 2
# What a service says that leaves, in the place of the name of a case.
BYE: Final = "bye"

_T = TypeVar("_T")

_LARGE_INTEGER: Final = 1
_DIGITS: Final = 64
_UNFORESEEN: Final = "unforeseen"


class Frames:
    """Cuts what arrives on a connection into frames, none of which is larger than `most` bytes."""

    __slots__ = ("_buffer", "most")

    def __init__(self, most: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self.most = most

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies of the frames that are complete now; `JsonTooLarge` if one is announced as too large."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER:
            size = int.from_bytes(buffer[:HEADER])
            if size > self.most:
                raise JsonTooLarge(f"a frame of {size} bytes, at most {self.most} are read")
            end = HEADER + size
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER:end])
            del buffer[:end]
            yield body

    def feed_all(self, data: bytes) -> Sequence[bytes]:
        """Return what `feed` yields. Nearly always, what arrives is one frame and nothing else."""
        if not self._buffer and HEADER + int.from_bytes(data[:HEADER]) == len(data) <= self.most:
            return (data[HEADER:],)
        return tuple(self.feed(data))


def frame_of(messages: Sequence[bytes]) -> bytes:
    """Return a frame that holds these messages, each encoded already."""
    count = len(messages)
    body = b"".join((b"\xdd", count.to_bytes(4), *messages))  # an array of so many
    return len(body).to_bytes(HEADER) + body


_Messages: Final = msgpack.Decoder(list[tuple[int, int | str, Raw]])


def decode_messages(body: bytes) -> list[tuple[int, int | str, Raw]]:
    """Return the messages of a frame, their last part not decoded yet; `FieldInvalid` if it holds anything else."""
    try:
        return _Messages.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise FieldInvalid("a frame must hold an array of messages") from None


def encode_message(number: int, kind: int | str, content: object) -> bytes:
    """Return a message."""
    message = (number, kind, content)
    try:
        return _encoder.encode(message)
    except OverflowError:
        return _encode_large(message)


def _encode_large(message: tuple[int, int | str, object]) -> bytes:
    """Return a message with integers that MessagePack has no form for, as the arguments of a call may hold."""
    return _encoder.encode(_with_large_integers(msgspec.to_builtins(message, builtin_types=_BYTES)))


def encode_case(number: int, case: UseCase[Any]) -> bytes:
    """Return the message that asks for a use case, which is one of `CASES`; an error names what cannot be sent."""
    try:
        message = encode_message(number, type(case).__name__, case)
    except (OverflowError, TypeError, ValueError, RecursionError):
        raise NotCanonicalizable("has no canonical form") from None
    if len(message) > MAX_FRAME // 2:
        raise JsonTooLarge(f"{len(message)} bytes, at most {MAX_FRAME // 2} are sent to the ledger process")
    return message


def decode_case(name: int | str, content: Raw) -> UseCase[Any]:
    """Return the use case of a message, or raise `FieldInvalid`."""
    kind = CASES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FieldInvalid("is not a use case", place="$.case")
    decoder = _decoders.get(kind) or _decoder(kind)
    case: UseCase[Any] = _decoded(decoder, content)
    return case


def answer_type(kind: type[UseCase[_T]]) -> Any:  # noqa: ANN401 - whatever the use case returns
    """Return the type of the answer of a use case."""
    known = _answers.get(kind)
    if known is None:
        known = get_type_hints(kind.run)["return"]
        if get_origin(known) is Coroutine:
            *_, known = get_args(known)
        _answers[kind] = known
    return known


_answers: Final = dict[Any, Any]()


def decode_answer(kind: type[UseCase[_T]], content: Raw) -> _T:
    """Return the answer to a use case of this type."""
    decoder = _answer_decoders.get(kind)
    if decoder is None:
        decoder = _answer_decoders[kind] = _decoder(answer_type(kind))
    answer: _T = _decoded(decoder, content)
    return answer


_answer_decoders: Final = dict[Any, "msgpack.Decoder[Any]"]()


def encode_failure(number: int, error: BaseException) -> bytes:
    """Return the message that says why there is no answer: the error's name, what it says, and its members."""
    if not isinstance(error, RemitError):
        return encode_message(number, FAILURE, (_UNFORESEEN, type(error).__name__, {}))
    members = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
    return encode_message(number, FAILURE, (type(error).__name__, str(error), members))


_Failure: Final = msgpack.Decoder(tuple[str, str, dict[str, str | int]])


def decode_failure(content: Raw) -> Exception:
    """Return the error that the ledger process has told of."""
    name, said, members = _decoded(_Failure, content)
    kind = _ERRORS.get(name)
    if kind is None:
        return RuntimeError(f"the ledger process failed in a way that is not foreseen ({said})")
    error = kind.__new__(kind, said)
    error.args = (said,)
    vars(error).update(members)
    return error


_ERRORS: Final[Mapping[str, type[RemitError]]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RemitError)
}


def _decoded(decoder: "msgpack.Decoder[_T]", content: Raw) -> _T:
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
        decoder = _decoders[kind] = msgpack.Decoder(kind, dec_hook=_rebuilt, ext_hook=_extension)
    return decoder


def _rebuilt(kind: type, value: Any) -> object:  # noqa: ANN401 - as decoded
    """Return a value of a type that the library does not know."""
    if kind is BudgetDelta:
        return choose_budget_delta(kind, value)
    if kind is BrokenChain:
        return BrokenChain(*msgspec.convert(value, tuple[int, str, str]))
    if get_origin(kind) is Iterable:
        return msgspec.convert(value, tuple[Launched, ...])
    raise NotImplementedError(f"{kind} does not cross the socket")


def _written(value: object) -> object:
    """Return a value of a type that the library does not know in a form that it does."""
    if isinstance(value, BrokenChain):
        return value.index, value.fault, str(value).partition(": ")[2]
    raise TypeError(f"{type(value).__name__} does not cross the socket")


_encoder: Final = msgpack.Encoder(enc_hook=_written)
_BYTES: Final = (bytes,)


def _with_large_integers(value: Any) -> Any:  # noqa: ANN401 - builtins of any kind
    """Return builtins with every integer that MessagePack cannot write as an extension that holds its digits."""
    if isinstance(value, dict):
        return {name: _with_large_integers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_large_integers(item) for item in value]
    if type(value) is int and not -(2**63) <= value < 2**64:
        return msgpack.Ext(_LARGE_INTEGER, str(value).encode("ascii"))
    return value


def _extension(code: int, data: memoryview) -> int:
    if code != _LARGE_INTEGER or len(data) > _DIGITS + 1:
        raise ValueError("an extension that is not known")
    return int(bytes(data))
