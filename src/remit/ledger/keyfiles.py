"""Private keys in files, one each, in a folder of the home.

Keeps this invariant: the name of a file is the thumbprint of the key in it, so a key that was swapped or damaged is
never used. Which key signs now, and since when, is the ledger's business; who may read the files is the home's.
"""

import re
import secrets
from typing import Final, final

from remit.claims.keys import SEED_BYTES, SigningKey
from remit.errors import KeyMaterialError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

__all__ = ["KeyFiles"]

_KID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_ENDING: Final = ".pem"
_MAX_BYTES: Final = 4096


@final
class KeyFiles:
    """The private keys in a folder: `<kid>.pem`, PKCS #8, unencrypted, readable for their owner alone."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Home) -> None:
        """Keep keys in `folder`, which is theirs alone."""
        self._folder = folder

    def create(self) -> SigningKey:
        """Return a new key that is in its file, durable. A crash on the way leaves no file, never half of one."""
        key = SigningKey.derive(secrets.token_bytes(SEED_BYTES))
        self._folder.replace(key.kid + _ENDING, key.unsafe_to_pem())
        return key

    def load(self, kid: str) -> SigningKey:
        """Return the key called `kid`, or raise `StateMissing`: nobody makes a new one in its place."""
        pem = self._folder.read(kid + _ENDING, max_bytes=_MAX_BYTES) if _KID.fullmatch(kid) else None
        if pem is None:
            raise StateMissing(f"the private key {quote(kid)} does not exist")
        try:
            key = SigningKey.from_pem(pem)
        except KeyMaterialError as error:
            raise StateCorrupt(f"the file of the private key {quote(kid)} is damaged: {error}") from None
        if key.kid != kid:
            raise StateCorrupt(f"the file of the private key {quote(kid)} holds another key")
        return key

    def kids(self) -> list[str]:
        """Return the ids of the keys that have a file, sorted; other files are not looked at."""
        stems = (name.removesuffix(_ENDING) for name in self._folder.names() if name.endswith(_ENDING))
        return [kid for kid in stems if _KID.fullmatch(kid)]

    def remove(self, kid: str) -> None:
        """Remove the file of a key, durable; one that is not there is no error.

        It is not overwritten: journals, copies on write and flash keep the old blocks all the same. A key that must
        not be used again has to be distrusted, not only removed.
        """
        if _KID.fullmatch(kid):
            self._folder.remove(kid + _ENDING)
