"""Where the evidence of a test is kept: in memory or in a home, with a weather that makes commits fail."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from remit.claims.keys import SigningKey
from remit.claims.succession import sign_key_change
from remit.errors import LedgerUnavailable
from remit.governor.clock import Moment
from remit.governor.context import Keys
from remit.ledger.commit import GroupCommit
from remit.ledger.embedded import EmbeddedLedger, open_embedded_ledger
from remit.ledger.keyfiles import KeyFiles
from remit.ledger.keys import LedgerKeys
from remit.ledger.records import KeyRecord, LedgerState, Session, StoredReceipt
from remit.ledger.sqlite import SqliteStore
from remit.ledger.store import LedgerReader, Transaction
from remit.ledger.transaction import Store, TransactionChanges
from tests.ledger.changing import rotate
from tests.ledger.memory import MemoryStore, MemoryTables
from tests.world import NOW, key_named

__all__ = ["DEADLINE_S", "CountingReader", "MemoryPlace", "Place", "SqlitePlace", "Weather"]

# Long enough that no test ever waits for it: nothing is timed here.
DEADLINE_S = 60.0


@dataclass
class Weather:
    """What happens to the next commit: it is `lost` before it is written, or written and then `unknown`.

    `meanwhile` is done after work has read and before it is written, as by another process. `written` is how many
    sessions and receipts each commit has written.
    """

    lost: bool = False
    unknown: bool = False
    meanwhile: Callable[[], object] | None = None
    written: list[tuple[int, int]] = field(default_factory=list)

    def before_begin(self) -> None:
        """Let another process do what it does."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def before_commit(self, changes: TransactionChanges) -> None:
        """Fail if the commit is to be lost."""
        self.written.append((len(changes.sessions), len(changes.receipts)))
        if self.lost:
            self.lost = False
            raise LedgerUnavailable("the disk is full")

    def after_commit(self) -> None:
        """Fail although everything is written."""
        if self.unknown:
            self.unknown = False
            raise LedgerUnavailable("the connection broke after the commit")


class _WeatheredMemory(MemoryStore):
    def __init__(self, shelf: MemoryTables, weather: Weather) -> None:
        super().__init__(shelf)
        self._weather = weather

    def begin(self) -> None:
        self._weather.before_begin()
        super().begin()

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        self._weather.before_commit(changes)
        kept = super().commit(changes)
        self._weather.after_commit()
        return kept


class _WeatheredSqlite(SqliteStore):
    weather: Weather

    def begin(self) -> None:
        self.weather.before_begin()
        super().begin()

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        self.weather.before_commit(changes)
        kept = super().commit(changes)
        self.weather.after_commit()
        return kept


class Place(Protocol):
    """Where evidence is kept, and what outlives a process."""

    def open_store(self, weather: Weather) -> Store:
        """Return a store for a writer."""

    def reader(self) -> LedgerReader:
        """Return a reader."""

    def keys(self) -> Keys:
        """Return the keys, as a new process reads them."""

    def rotate(self, ledger: GroupCommit, keys: Keys, now: Moment) -> KeyRecord:
        """Change the key that signs, and return the record of the new one."""

    def restart(self) -> None:
        """Forget whatever a process has in memory."""

    def close(self) -> None:
        """Let go."""


def _numbered_key(number: int) -> SigningKey:
    return key_named(f"governor: key {number}")


class _NumberedFiles:
    """Stands for the files of private keys: each follows from its number."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    def load(self, kid: str) -> SigningKey:
        return next(key for key in map(_numbered_key, range(len(self._reader.keys()))) if key.kid == kid)


class MemoryPlace:
    """A shelf, which outlives its stores."""

    def __init__(self) -> None:
        first = _numbered_key(0)
        self.shelf = MemoryTables("ledger:test", LedgerState(first.kid))
        self.shelf.keys.append(_key_record(first, None, NOW * 1000))

    def open_store(self, weather: Weather) -> Store:
        """Return a store for a writer."""
        return _WeatheredMemory(self.shelf, weather)

    def reader(self) -> LedgerReader:
        """Return a reader."""
        return MemoryStore(self.shelf)

    def keys(self) -> Keys:
        """Return the keys, as a new process reads them."""
        reader = self.reader()
        return LedgerKeys(_NumberedFiles(reader), reader)  # type: ignore[arg-type]  # it only loads

    def rotate(self, ledger: GroupCommit, keys: Keys, now: Moment) -> KeyRecord:
        """Change the key that signs, and return the record of the new one."""

        def work(transaction: Transaction) -> KeyRecord:
            number = len(self.shelf.keys)
            old, new = keys.signing(transaction.ledger_state.kid), _numbered_key(number)
            change = sign_key_change(old, new.public, jti=f"key:change:{number}", now=now.wall_s)
            record = _key_record(new, change, now.wall_ms)
            transaction.put_key(record)
            transaction.put_ledger_state(transaction.ledger_state._replace(kid=new.kid))
            return record

        record = ledger.run(work, alone=True)
        assert isinstance(keys, LedgerKeys)
        keys.refresh()
        return record

    def restart(self) -> None:
        """Forget nothing: it is all on the shelf."""

    def close(self) -> None:
        """Let go."""


def _key_record(key: SigningKey, change: str | None, now_ms: int) -> KeyRecord:
    return KeyRecord(key.kid, key.public.to_pem().decode("ascii"), change, now_ms)


class SqlitePlace:
    """A home with the embedded ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve() / "home"
        self._embedded: EmbeddedLedger = open_embedded_ledger(self.path, deadline_s=DEADLINE_S)

    @property
    def key_files(self) -> KeyFiles:
        """The files of private keys."""
        return self._embedded.key_files

    def open_store(self, weather: Weather) -> Store:
        """Return a store for a writer."""
        store = _WeatheredSqlite.open(self._embedded.path)
        assert isinstance(store, _WeatheredSqlite)
        store.weather = weather
        return store

    def reader(self) -> LedgerReader:
        """Return a reader."""
        return self._embedded.ledger.read()

    def keys(self) -> Keys:
        """Return the keys, as a new process reads them."""
        return LedgerKeys(self._embedded.key_files, self.reader())

    def rotate(self, ledger: GroupCommit, keys: Keys, now: Moment) -> KeyRecord:
        """Change the key that signs, and return the record of the new one."""
        assert isinstance(keys, LedgerKeys)
        return rotate(ledger, keys, self._embedded.key_files, now.wall_ms)

    def restart(self) -> None:
        """Close everything and open it again."""
        self._embedded.close()
        self._embedded = open_embedded_ledger(self.path, deadline_s=DEADLINE_S)

    def close(self) -> None:
        """Let go."""
        self._embedded.close()


class CountingReader(MemoryStore):
    """A reader that counts how many receipts were read, and in how many pages."""

    def __init__(self, shelf: MemoryTables) -> None:
        super().__init__(shelf)
        self.receipts_read = 0
        self.pages_read = 0

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[StoredReceipt]:
        """Return a page of receipts, and count it."""
        page = super().receipts(session_id, after=after, limit=limit)
        self.pages_read += 1
        self.receipts_read += len(page)
        return page
