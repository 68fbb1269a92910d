"""The tables of the embedded ledger, and how an older file becomes a newer one.

Forward only: a migration is never changed once it was released, and a file of a newer version is refused. Every index
on the way of a receipt grows at its end, so that the millionth costs what the first did: sequence numbers count, a
parent is named by its row, and receipt ids begin with their time. What people look for later is kept ready in the same
way: denials and broken chains in indices that hold nothing else, counts in one row per minute and per denial code.
"""

from functools import lru_cache
from typing import Final

import apsw

APPLICATION_ID: Final = int.from_bytes(b"Rmit", "big")
PAGE_SIZE: Final = 8192

_FIRST: Final = """
CREATE TABLE ledger (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  id          TEXT    NOT NULL,
  created_ms  INTEGER NOT NULL,
  kid         TEXT    NOT NULL,
  kill_switch INTEGER NOT NULL CHECK (kill_switch IN (0, 1)),
  epoch       INTEGER NOT NULL,
  killed_up_to INTEGER NOT NULL,
  sessions    INTEGER NOT NULL,
  sources     INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
  number     INTEGER PRIMARY KEY,
  kid        TEXT    NOT NULL UNIQUE,
  public_pem TEXT    NOT NULL,
  change     TEXT,
  created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
  number       INTEGER PRIMARY KEY,
  id           TEXT    NOT NULL UNIQUE,
  passport     TEXT    NOT NULL,
  actor        TEXT    NOT NULL,
  parent       TEXT,
  holder       TEXT    NOT NULL,
  trace_id     TEXT    NOT NULL,
  run_nonce    TEXT    NOT NULL,
  started_ms   INTEGER NOT NULL,
  lifetime_ms  INTEGER NOT NULL,
  expires_ms   INTEGER NOT NULL,
  "limit"      INTEGER NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('active', 'ended', 'expired', 'revoked')),
  cause        TEXT    NOT NULL,
  ended_ms     INTEGER CHECK ((ended_ms IS NULL) = (state = 'active')),
  broken       INTEGER NOT NULL CHECK (broken IN (0, 1)),
  verifier     TEXT    NOT NULL,
  length       INTEGER NOT NULL,
  receipt_id   TEXT,
  receipt_hash TEXT,
  iat          INTEGER NOT NULL,
  kid          TEXT,
  used         INTEGER NOT NULL CHECK (used >= 0),
  reserved     INTEGER NOT NULL CHECK (reserved >= 0),
  compliant    INTEGER NOT NULL,
  violation    INTEGER NOT NULL,
  insufficient_evidence INTEGER NOT NULL,
  observed     INTEGER NOT NULL CHECK (observed >= 0),
  marks        TEXT    NOT NULL,
  elapsed_ms   INTEGER NOT NULL,
  seen_boot    TEXT    NOT NULL,
  seen_mono_ms INTEGER NOT NULL,
  seen_wall_ms INTEGER NOT NULL,
  last_number  INTEGER REFERENCES receipts (number),
  version      INTEGER NOT NULL,
  CHECK (used + reserved <= "limit")
) STRICT;
CREATE INDEX active_sessions ON sessions (number) WHERE state = 'active';
CREATE INDEX broken_sessions ON sessions (number) WHERE broken = 1;

CREATE TABLE receipts (
  number  INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (number),
  seq     INTEGER NOT NULL,
  parent  INTEGER REFERENCES receipts (number),
  id      TEXT    NOT NULL UNIQUE,
  code    TEXT    NOT NULL,
  token   TEXT    NOT NULL,
  UNIQUE (session, seq),
  UNIQUE (session, parent),
  CHECK ((seq = 1) = (parent IS NULL))
) STRICT;
CREATE INDEX denials ON receipts (number) WHERE code != '';
CREATE INDEX denials_by_code ON receipts (code, number) WHERE code != '';
CREATE INDEX denials_by_session ON receipts (session, seq) WHERE code != '';

CREATE TABLE minutes (
  minute INTEGER NOT NULL,
  code   TEXT    NOT NULL,
  count  INTEGER NOT NULL CHECK (count > 0),
  PRIMARY KEY (minute, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE codes (
  code  TEXT    PRIMARY KEY,
  count INTEGER NOT NULL CHECK (count > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (
  session INTEGER PRIMARY KEY REFERENCES sessions (number),
  key     TEXT    NOT NULL,
  told    TEXT    NOT NULL
) STRICT;
CREATE INDEX sources_by_key ON sources (key, session);

CREATE TABLE notes (
  session  INTEGER NOT NULL REFERENCES sessions (number),
  slot     INTEGER NOT NULL,
  observed INTEGER NOT NULL,
  text     TEXT    NOT NULL,
  PRIMARY KEY (session, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE repeats (
  session INTEGER NOT NULL REFERENCES sessions (number),
  key     TEXT    NOT NULL,
  digest  TEXT    NOT NULL,
  receipt INTEGER NOT NULL REFERENCES receipts (number),
  PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE results (
  decision INTEGER PRIMARY KEY REFERENCES receipts (number),
  receipt  INTEGER NOT NULL REFERENCES receipts (number)
) STRICT;

CREATE TABLE delegations (
  parent     TEXT    NOT NULL REFERENCES sessions (id),
  request    TEXT    NOT NULL,
  digest     TEXT    NOT NULL,
  child      TEXT    NOT NULL UNIQUE,
  passport   TEXT    NOT NULL,
  amount     INTEGER NOT NULL,
  receipt_id TEXT    NOT NULL REFERENCES receipts (id),
  expires_ms INTEGER NOT NULL,
  settled    INTEGER NOT NULL CHECK (settled IN (0, 1)),
  PRIMARY KEY (parent, request)
) STRICT;
CREATE INDEX open_delegations ON delegations (parent) WHERE settled = 0;

CREATE TABLE revocations (
  passport TEXT    PRIMARY KEY,
  at_ms    INTEGER NOT NULL,
  reason   TEXT    NOT NULL
) STRICT;

CREATE TABLE attestations (
  number  INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (number),
  id      TEXT    NOT NULL UNIQUE,
  token   TEXT    NOT NULL
) STRICT;
CREATE INDEX attestations_by_session ON attestations (session);

CREATE TABLE bookmarks (
  session INTEGER PRIMARY KEY REFERENCES sessions (number),
  token   TEXT    NOT NULL
) STRICT;
"""

# Passports that were issued here, in the order of their registration; and where the periods of keys ended.
_REGISTRATION: Final = """
CREATE TABLE passports (
  number        INTEGER PRIMARY KEY,
  id            TEXT    NOT NULL UNIQUE,
  hash          TEXT    NOT NULL,
  kid           TEXT    NOT NULL,
  registered_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE key_limits (
  number INTEGER PRIMARY KEY,
  kid    TEXT    NOT NULL,
  token  TEXT    NOT NULL UNIQUE
) STRICT;
"""

MIGRATIONS: Final = (_FIRST, _REGISTRATION)


def differences(connection: apsw.Connection) -> list[str]:
    """Return the names of tables, indices and triggers that are not as the migrations leave them.

    A trigger that someone has added would run at every write.
    """
    present = _read_schema(connection)
    expected = _expected_schema(connection.pragma("user_version"))
    return sorted({name for _, name, _ in present ^ expected})


@lru_cache(maxsize=8)
def _expected_schema(version: int) -> frozenset[tuple[str, str, str | None]]:
    connection = apsw.Connection(":memory:")
    try:
        for script in MIGRATIONS[:version]:
            connection.execute(script)
        return _read_schema(connection)
    finally:
        connection.close()


def _read_schema(connection: apsw.Connection) -> frozenset[tuple[str, str, str | None]]:
    return frozenset(connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"))
