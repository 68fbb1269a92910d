"""From the bytes of an answer to a typed one, or to an error.

Keeps this invariant: an answer is returned only if its status is 200, it is strict JSON of the right shape, and it
belongs to what was asked. Everything else raises. An answer may have members that we do not know.
"""

import re
from typing import Final, TypeVar

import msgspec

from remit.claims.strictjson import parse_json
from remit.client.attempts import OK, Reply
from remit.client.beliefs import Grounds
from remit.client.call import Call
from remit.client.settings import Settings
from remit.errors import InputError, RemitError, ServiceRefused, quote
from remit.schemas.shared import Answer, ErrorAnswer

__all__ = ["MAX_ANSWER", "read_answer", "refusal"]

MAX_ANSWER: Final = 8 * 1024 * 1024
_ERRORS: Final = range(400, 600)
_ERROR_CODE: Final = re.compile(r"[a-z0-9_]{1,64}")

_Answer = TypeVar("_Answer", bound=Answer)


def read_answer(call: Call[_Answer], reply: Reply, settings: Settings, grounds: Grounds) -> _Answer:
    """Return the answer to a call."""
    place = settings.place
    if reply.status != OK:
        raise refusal(call, reply, settings)
    answer = _shaped(call.kind, reply.body)
    if answer is None:
        raise settings.silence(f"{place} gave an answer that is not one of Remit's")
    fault = _fault(call, answer, grounds)
    if fault:
        raise settings.silence(f"{place} gave an answer that cannot be believed: {fault}")
    return answer


# The errors of readers hold what was read, so they end here: each of these returns, and the caller raises.


def _shaped(kind: type[_Answer], body: bytes) -> _Answer | None:
    try:
        parse_json(body, max_bytes=MAX_ANSWER, exact_integers=True)
        return msgspec.json.decode(body, type=kind)
    except (InputError, msgspec.DecodeError):
        return None


def _fault(call: Call[_Answer], answer: _Answer, grounds: Grounds) -> str:
    try:
        call.check(answer, grounds)
    except RemitError as error:
        return str(error)
    return ""


def refusal(call: Call[_Answer], reply: Reply, settings: Settings) -> RemitError:
    """Return the error of an answer that is no success; one that is not of Remit's shape is not Remit's word."""
    said, status = _shaped(ErrorAnswer, reply.body), reply.status
    if said is None or status not in _ERRORS or not _ERROR_CODE.fullmatch(said.error_code):
        return settings.silence(f"{settings.place} answered {status}, and not as Remit does")
    text = said.error
    for secret in filter(None, (call.secret, settings.token, settings.admin_token)):
        text = text.replace(secret, "...")
    message = f"{settings.place} refused with {status} {said.error_code}: {quote(text)}"
    return ServiceRefused(message, status=status, error_code=said.error_code, error=text)
