"""To whom a session belongs: the holder of the certificate that was shown when it was started.

Keeps this invariant: a session that was started with a certificate answers to no other, whatever its id is known to;
and a passport that is bound to someone starts a session for no one else. Who holds a certificate, the face knows from
the verified connection.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import UNSET

from remit.claims.passport import Passport
from remit.errors import HolderMismatch, SessionNotFound
from remit.governor.audiences import check_client
from remit.governor.means import Means, UseCase
from remit.ledger.records import Session

__all__ = ["Held", "check_bound", "check_holder"]

_T_co = TypeVar("_T_co", covariant=True)


def check_bound(passport: Passport, holder: str) -> None:
    """Raise unless the passport is bound to no one, or to this holder."""
    bound = passport.bound_to
    if bound is None:
        return
    if bound.certificate is UNSET:
        raise HolderMismatch("the passport is bound to a key, and only certificates are checked here")
    if bound.certificate != holder:
        raise HolderMismatch("the passport is bound to a certificate that this client has not shown")


def check_holder(bound_to: str, holder: str) -> None:
    """Raise unless a session is bound to no one, or to this holder."""
    if bound_to and bound_to != holder:
        raise HolderMismatch("the session is bound to the certificate that started it")


@dataclass(frozen=True)
class Held(Generic[_T_co]):
    """A use case on a session, for a client that has shown a certificate or none."""

    case: UseCase[_T_co]
    session_id: str
    holder: str

    async def run(self, means: Means) -> _T_co:
        """See whose session it is, then go on as the case does."""
        bound_to = means.holders.get(self.session_id)
        if bound_to is None:
            bound_to = means.holder_of(await means.aside(lambda: self._session(means)))
        check_holder(bound_to, self.holder)
        return await means.run(self.case)

    def _session(self, means: Means) -> Session:
        """Return the session, if a client may use it at all; neither that nor its holder ever changes."""
        session = means.reader.session(self.session_id)
        if session is None:
            raise SessionNotFound("no session has this id")
        check_client(means.reader, session)
        return session
