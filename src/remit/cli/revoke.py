"""`remit revoke`: revokes a passport, a session or a whole lineage.

Invariant: a mistyped id is never reported as revoked. An id that is not in the ledger is revoked in advance
only if it has the form of Remit's ids or the passport itself was given; the output states that.
"""

import re
from typing import Final

import click

from remit.claims.keys import Keyring
from remit.claims.types import ID_STRING
from remit.cli.homes import open_service
from remit.cli.options import common_options
from remit.cli.render import note, show_data, show_facts
from remit.cli.token_input import read_token_argument, verify_passport_ignoring_time
from remit.errors import FieldInvalid, SessionNotFound
from remit.governor.revoke import RevokePassport, RevokeSession
from remit.ledger.records import Session
from remit.ledger.rows import LedgerQueries

_ID: Final = re.compile(ID_STRING)
_OUR_ID: Final = re.compile(r"pass:[0-9a-f]{32}")
_MAX_ID: Final = 64


@click.command()
@click.argument("which", metavar="ID")
@click.option("--session", is_flag=True, help="Revoke the session of this id, which must exist, and its delegates.")
@click.option("--lineage", is_flag=True, help="Revoke the first session of its lineage, and all its delegates.")
@click.option("--reason", default="", metavar="TEXT", help="Stored with the revocation of a passport.")
@common_options
def revoke(*, which: str, session: bool, lineage: bool, reason: str, home: str | None, as_json: bool) -> None:
    """Revoke a passport by its ID, which is also the id of its session. Its delegates are revoked too.

    ID can also be the token itself, `-` to read the token from stdin, or @FILE. A passport that was not used is revoked
    in advance. Exit code 1 if the ID is unknown and does not have the form of Remit's ids.

    Example: remit revoke pass:0123456789abcdef0123456789abcdef --reason "laptop lost"
    """
    if session and lineage:
        raise click.UsageError("--session and --lineage cannot be used together.")
    with open_service(home, as_json=as_json) as service:
        passport_id, is_shown = _parse_id(read_token_argument(which), service.keys.keyring())
        known = _is_known(passport_id, service.reader)
        if session or lineage:
            revoked: Session | None = service.governor.run(RevokeSession(passport_id, lineage=lineage))
        elif not (known or is_shown or _OUR_ID.fullmatch(passport_id)):
            raise SessionNotFound(
                "no passport with this id was used here, and it does not have the form of Remit's ids"
            )
        else:
            revoked = service.governor.run(RevokePassport(passport_id, reason))
        first = _first_session(revoked, service.reader) if revoked is not None and lineage else ""
    if reason and (session or lineage):
        note("the reason is not stored: only the revocation of a passport has one")
    what = "lineage" if lineage else "session" if session else "passport"
    _show({what: passport_id}, first, revoked, known=known, as_json=as_json)


def _parse_id(text: str, keyring: Keyring) -> tuple[str, bool]:
    """Return the id, and whether it came from a token that verifies."""
    if len(text) > _MAX_ID:
        return verify_passport_ignoring_time(text, keyring).jti, True
    if not _ID.fullmatch(text):
        raise FieldInvalid("is neither an id nor a token", place="$.id")
    return text, False


def _is_known(passport_id: str, rows: LedgerQueries) -> bool:
    """Return whether a passport was used here, or issued for a delegate."""
    return rows.session(passport_id) is not None or rows.delegation_to(passport_id) is not None


def _first_session(session: Session, reader: LedgerQueries) -> str:
    """Return the id of the first session of a lineage."""
    above: Session | None = session
    while above is not None and above.parent is not None:
        session, above = above, reader.session(above.parent)
    return (above or session).id


def _show(named: dict[str, str], first: str, session: Session | None, *, known: bool, as_json: bool) -> None:
    ((what, passport_id),) = named.items()
    if as_json:
        state = {} if session is None else {"session_state": session.state, "cause": session.cause}
        more = {"first": first} if first else {}
        data = {"ok": True, "revoked": what, "id": passport_id, "known": known, "in_advance": session is None}
        return show_data(data | state | more)
    if session is None:
        said = "not started, and cannot be started any more: revoked in advance"
    elif session.state == "revoked":
        said = f"revoked ({session.cause})"
    else:
        said = f"was already {session.state}"
    facts = named | ({"from": first} if first else {}) | {"session": said}
    return show_facts(facts, mark="REVOKED" if known else "REVOKED IN ADVANCE: it was not used here yet")
