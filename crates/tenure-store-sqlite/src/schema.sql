-- The embedded store of tenure: one file.
--
-- Tables
--   heads         one row per session: its place in the queue, its fence, and its head as JSON
--   events        the logs, insert-only; (session, seq) is unique and gap-free
--   inbox         inputs that were accepted and not consumed yet
--   agents, environments   definitions; versions of agents are never changed
--   nodes         one row per start of a worker; dead is final
--   idempotency   what repeated requests get back
--   meta          schema version, the clock's high water
--
-- Lifecycle of heads.state: 0 queued -> 1 leased -> 0 queued | 2 parked | 3 ended; 2 -> 0 by an
-- input, a due timer or nothing else. The queue index holds queued rows only, the timer index parked
-- rows with a time, the node index leased rows; a commit inside a lease moves none of them.
--
-- Guarantees
--   Every write of a lease's holder begins with an UPDATE of heads that names (id, epoch, nonce,
--   state = 1); no row means that the lease is gone and nothing is written (hazards Z-02, Z-05).
--   Every input raises heads.inbox_tail in the transaction that stores it; a commit parks only if
--   it consumed up to inbox_tail (hazard Z-01).
--   All transactions are BEGIN IMMEDIATE from one writer thread per process (hazard Z-22).
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE heads (
  id          BLOB PRIMARY KEY,
  shard       INTEGER NOT NULL,
  tenant      TEXT NOT NULL,
  agent       BLOB NOT NULL,
  environment BLOB NOT NULL,
  state       INTEGER NOT NULL,
  phase       TEXT NOT NULL,
  epoch       INTEGER NOT NULL DEFAULT 0,
  nonce       BLOB,
  node        BLOB,
  leased_at   INTEGER,
  commit_id   BLOB,
  claims      INTEGER NOT NULL DEFAULT 0,
  inbox_tail  INTEGER NOT NULL DEFAULT 0,
  consumed    INTEGER NOT NULL DEFAULT 0,
  urgent      INTEGER NOT NULL DEFAULT 0,
  last_seq    INTEGER NOT NULL,
  queued_at   INTEGER NOT NULL,
  wake_at     INTEGER,
  state_since INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  archived_at INTEGER,
  metadata    TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT;
CREATE INDEX heads_tenant ON heads (tenant, id);
CREATE INDEX heads_queue ON heads (queued_at) WHERE state = 0;
CREATE INDEX heads_node ON heads (node) WHERE state = 1;
CREATE INDEX heads_timer ON heads (wake_at) WHERE state = 2 AND wake_at IS NOT NULL;

CREATE TABLE events (
  session BLOB NOT NULL,
  seq     INTEGER NOT NULL,
  shard   INTEGER NOT NULL,
  tenant  TEXT NOT NULL,
  id      BLOB NOT NULL,
  at      INTEGER NOT NULL,
  step    INTEGER NOT NULL,
  answers BLOB,
  body    TEXT,
  blob    TEXT,
  UNIQUE (session, seq)
) STRICT;
CREATE INDEX events_answers ON events (session, answers) WHERE answers IS NOT NULL;

CREATE TABLE inbox (
  session  BLOB NOT NULL,
  position INTEGER NOT NULL,
  shard    INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  id       BLOB NOT NULL,
  at       INTEGER NOT NULL,
  body     TEXT,
  blob     TEXT,
  PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
  tenant TEXT NOT NULL, id BLOB NOT NULL, version INTEGER NOT NULL, shard INTEGER NOT NULL,
  archived INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (tenant, id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE environments (
  tenant TEXT NOT NULL, id BLOB NOT NULL, shard INTEGER NOT NULL,
  archived INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
  id BLOB PRIMARY KEY, address TEXT NOT NULL, label TEXT NOT NULL,
  beats INTEGER NOT NULL, beat_at INTEGER NOT NULL, dead INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  tenant TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, shard INTEGER NOT NULL,
  digest BLOB NOT NULL, result TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (tenant, scope, key)
) STRICT, WITHOUT ROWID;
