"""Turns the bytes of a response into a typed answer or an error.

Invariant: an answer is returned only if the status is 200, the body is strict JSON of the right shape, and
it passes the checks of its call. Anything else raises. Unknown members are ignored.
"""

import re
from typing import Final, TypeVar

import msgspec

from remit.claims.strictjson import parse_json
from remit.client.attempts import OK, RawResponse
from remit.client.call import ServiceCall
from remit.client.response_checks import CheckContext
from remit.client.settings import ClientSettings
from remit.errors import InputError, RemitError, ServiceRefused, quote
from remit.schemas.shared import Answer, ErrorAnswer

__all__ = ["MAX_ANSWER", "read_answer", "refusal"]

MAX_ANSWER: Final = 8 * 1024 * 1024
_ERRORS: Final = range(400, 600)
_ERROR_CODE: Final = re.compile(r"[a-z0-9_]{1,64}")

_Answer = TypeVar("_Answer", bound=Answer)


def read_answer(
    call: ServiceCall[_Answer], reply: RawResponse, settings: ClientSettings, context: CheckContext
) -> _Answer:
    """Decode and check the response to a call."""
    address = settings.address
    if reply.status != OK:
        raise refusal(call, reply, settings)
    answer = _decode(call.kind, reply.body)
    if answer is None:
        raise settings.unavailable_error(f"{address} sent a response that is not Remit's")
    fault = _check(call, answer, context)
    if fault:
        raise settings.unavailable_error(f"{address} sent a response that fails a check: {fault}")
    return answer


# Decoding errors contain the bytes that were read. So these functions return a value and the caller raises.


def _decode(kind: type[_Answer], body: bytes) -> _Answer | None:
    try:
        parse_json(body, max_bytes=MAX_ANSWER, exact_integers=True)
        return msgspec.json.decode(body, type=kind)
    except (InputError, msgspec.DecodeError):
        return None


def _check(call: ServiceCall[_Answer], answer: _Answer, context: CheckContext) -> str:
    try:
        call.check(answer, context)
    except RemitError as error:
        return str(error)
    return ""


def refusal(call: ServiceCall[_Answer], reply: RawResponse, settings: ClientSettings) -> RemitError:
    """Return the error for a response that is not a success. A body that is not Remit's is not quoted."""
    decoded, status = _decode(ErrorAnswer, reply.body), reply.status
    if decoded is None or status not in _ERRORS or not _ERROR_CODE.fullmatch(decoded.error_code):
        return settings.unavailable_error(f"{settings.address} answered {status}, but not with an error of Remit")
    text = decoded.error
    for secret in filter(None, (call.secret, settings.token, settings.admin_token)):
        text = text.replace(secret, "...")
    message = f"{settings.address} refused with {status} {decoded.error_code}: {quote(text)}"
    return ServiceRefused(message, status=status, error_code=decoded.error_code, error=text)
