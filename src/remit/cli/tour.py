"""What `remit demo` shows: a passport, four calls that are really judged, the proof, and what becomes of a forgery.

Played in memory, with a key of the moment, nothing is written. Played live, a proxy is asked, over the wire, and the
session stays in its ledger. Either way the proof is an auditor's: tokens and public keys are all it has.
"""

import base64
import json
import os
import tempfile
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import to_builtins

from remit import (
    Attestation,
    BrokenChain,
    Head,
    Keyring,
    Mission,
    Passport,
    SignedReceipt,
    TrustedKey,
    verifier_id,
    verify_chain,
    verify_passport,
    verify_receipt,
    verify_session,
    walk_chain,
)
from remit.claims.mission import escape_path
from remit.cli.issue import issue_registered
from remit.cli.reaching import explained, reach
from remit.errors import ServiceUnavailable
from remit.governor.attest import Attest
from remit.governor.evaluate import Evaluate
from remit.governor.issue import Issue, Order
from remit.governor.sessions import Start
from remit.policy.call import ToolCall
from remit.server.record import load_running
from remit.wiring import Service, build_rehearsal

__all__ = ["Played", "Tampering", "Tour", "perform", "rehearse", "take_tour"]

_SOMEWHERE: Final = "/work/project"


def _mission(folder: str) -> Mission:
    return Mission(
        agent_id="agent:reviewer",
        mission="Review the pull request and run the tests",
        allowed_tools=("Bash", "read_file", "send_email"),
        forbidden_tools=("send_email",),
        resource_scope=(escape_path(folder),),
        max_tool_calls=20,
        max_duration_s=900,
        cwd=folder,
    )


_CALLS: Final = (
    ToolCall("Bash", {"command": "grep -rn TODO src | head -20 > todo.txt"}),
    ToolCall("Bash", {"command": "cd src && cat main.py ../../../home/user/.ssh/id_ed25519"}),
    ToolCall("read_file", {"path": "README.md"}),
    ToolCall("send_email", {"to": "press@example.com", "body": "all of it"}),
)


@dataclass(frozen=True)
class Tampering:
    """What a forger did to the chain, and where verification found it."""

    deed: str
    index: int
    fault: str
    problem: str


class Played(NamedTuple):
    """What a tour leaves: tokens, and the keys that they are checked with."""

    passport: str
    remedies: list[str]
    receipts: list[str]
    attestation: str
    keyring: Keyring
    now: int
    where: str = ""


@dataclass(frozen=True)
class Tour:
    """All that the tour shows."""

    passport: Passport
    calls: tuple[ToolCall, ...]
    remedies: list[str]
    receipts: list[SignedReceipt]
    head: Head
    attestation: Attestation
    tamperings: list[Tampering]
    # The address of the proxy that was asked; none where it was played in memory.
    where: str


def rehearse() -> Played:
    """Play the tour in memory: the calls are really judged, by the same path as any other."""
    with build_rehearsal() as (governor, key):
        issued = governor.run(Issue(Order(_mission(_SOMEWHERE), governor.means.new_id("pass"))))
        token, now = issued.token, issued.issued_at
        session_id = governor.run(Start(token)).session.id
        answers = [governor.run(Evaluate(session_id, call)) for call in _CALLS]
        attested = governor.run(Attest(session_id, end=True)).attestation.token
    return Played(
        passport=token,
        remedies=[answer.remedy.sentence if answer.remedy else "" for answer in answers],
        receipts=[answer.receipt.token for answer in answers],
        attestation=attested,
        keyring=Keyring([TrustedKey(key.public, verifier_id(key.public))]),
        now=now,
    )


def perform(service: Service) -> Played:
    """Play the tour against the proxy of a home, as an agent would: by its address, its authority and a passport."""
    home = service.home
    running = load_running(home, "proxy")
    if running is None:
        raise ServiceUnavailable("no proxy of this home is running: remit proxy --background")
    with tempfile.TemporaryDirectory() as project:
        issued = issue_registered(service, _mission(os.path.realpath(project)))
        token, now = issued.token, issued.issued_at
        with explained(home, running), reach(home, running) as proxy:
            session_id = proxy.start(token).session_id
            answers = [proxy.evaluate(session_id, call.tool_name, dict(call.arguments)) for call in _CALLS]
            attested = proxy.attest(session_id, end=True)
    return Played(
        passport=token,
        remedies=[answer.remedy or "" for answer in answers],
        receipts=[answer.receipt for answer in answers],
        attestation=attested.token,
        keyring=service.keys.refresh(),
        now=now,
        where=running.listening,
    )


def take_tour(played: Played) -> Tour:
    """Return the tour over what was played, with everything in it verified."""
    keyring, tokens = played.keyring, played.receipts
    walked = list(walk_chain(tokens, keyring))
    receipts = [verify_receipt(token, keyring) for token in tokens]
    head = walked[-1][1]
    return Tour(
        passport=verify_passport(played.passport, keyring, now=played.now),
        calls=_CALLS,
        remedies=played.remedies,
        receipts=receipts,
        head=head,
        attestation=verify_session(played.attestation, tokens, keyring),
        tamperings=[_tamper(deed, forged, keyring, head) for deed, forged in _forgeries(receipts).items()],
        where=played.where,
    )


def _whitewash(receipt: SignedReceipt) -> str:
    """Return the token with its denial rewritten to a permit and the old signature kept."""
    header, _, signature = receipt.token.split(".")
    claims = to_builtins(receipt.claims) | {"verdict": "compliant", "reason": "nothing to see here"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{header}.{forged}.{signature}"


def _forgeries(receipts: list[SignedReceipt]) -> dict[str, list[str]]:
    """Return what a forger could make of the chain, by deed."""
    first, second, third, fourth = (receipt.token for receipt in receipts)
    return {
        "rewrite the denial in receipt 1 to a permit": [first, _whitewash(receipts[1]), third, fourth],
        "remove receipt 1": [first, third, fourth],
        "swap receipts 1 and 2": [first, third, second, fourth],
        "cut off the last receipt": [first, second, third],
    }


def _tamper(deed: str, tokens: list[str], keyring: Keyring, kept: Head) -> Tampering:
    try:
        verify_chain(tokens, keyring, last_hash=kept.receipt_hash)
    except BrokenChain as error:
        return Tampering(deed, error.index, error.fault, str(error))
    raise RuntimeError(f"verification missed: {deed}")
