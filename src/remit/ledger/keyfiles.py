"""Private keys in files, one each, in a folder of the home.

Invariant: the name of a file is the thumbprint of its key, so a key that was swapped or damaged is never used. The
ledger records which key signs; `home.py` checks the permissions of the files.
"""

import re
import secrets
from typing import Final, final

from remit.claims.keys import SEED_BYTES, SigningKey
from remit.errors import KeyMaterialError, StateCorrupt, StateMissing, quote
from remit.ledger.home import Home

_KID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_ENDING: Final = ".pem"
_MAX_BYTES: Final = 4096


@final
class KeyFiles:
    """The private keys in a folder: `<kid>.pem`, PKCS #8, unencrypted, readable only by their owner."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Home) -> None:
        """Store keys in `folder`, which contains nothing else."""
        self._folder = folder

    def create(self) -> SigningKey:
        """Create a key and its file, durable on return. A crash never leaves a partial file."""
        key = SigningKey.derive(secrets.token_bytes(SEED_BYTES))
        self._folder.replace(key.kid + _ENDING, key.unsafe_to_pem())
        return key

    def load(self, kid: str) -> SigningKey:
        """Return the key with this id, or raise `StateMissing`; a missing key is never replaced by a new one."""
        pem = self._folder.read(kid + _ENDING, max_bytes=_MAX_BYTES) if _KID.fullmatch(kid) else None
        if pem is None:
            raise StateMissing(f"the private key {quote(kid)} does not exist")
        try:
            key = SigningKey.from_pem(pem)
        except KeyMaterialError as error:
            raise StateCorrupt(f"the file of the private key {quote(kid)} is damaged: {error}") from None
        if key.kid != kid:
            raise StateCorrupt(f"the file of the private key {quote(kid)} contains another key")
        return key

    def kids(self) -> list[str]:
        """Return the sorted ids of the keys that have a file; other files are ignored."""
        stems = (name.removesuffix(_ENDING) for name in self._folder.names() if name.endswith(_ENDING))
        return [kid for kid in stems if _KID.fullmatch(kid)]

    def remove(self, kid: str) -> None:
        """Remove the file of a key if it exists, durable on return.

        It is not overwritten: journals, copy-on-write and flash storage keep the old blocks anyway. A key that must
        not be used again has to be distrusted, not only removed.
        """
        if _KID.fullmatch(kid):
            self._folder.remove(kid + _ENDING)
