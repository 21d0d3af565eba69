-- The embedded store of tenure: one file.
--
-- Tables
--   heads         one row per session: its place in the queue, its fence, and its head as JSON
--   events        the logs, insert-only; (session, seq) is unique and free of gaps
--   leases        who held a session when, written when a lease ends; the newest of each session
--   lineage       of forks: whose rows their logs begin with
--   inbox         inputs that were accepted and are not consumed yet
--   agents        definitions, one row per version, never changed except for archived_at
--   environments  templates of sandboxes
--   nodes         one row per start of a worker; dead is final
--   idempotency   what a repeated request gets back
--   conditions    what is known of upstreams, one row per (credential, model); model is '' for all
--                 models of the credential. Like nodes they belong to nobody: the keys are those of
--                 the installation
--   removals      sessions whose head is gone and whose rows are still being removed
--   meta          numbers: 'now' (the clock's high water), 'sessions' and 'ended' (how many there are)
--
-- Keys
--   Ids are the 16 bytes of the id, big end first, so that their order is the order of creation.
--   tenant and shard stand in every table from the start: a distributed store puts them first in
--   every key, and moving there must not need a rewrite (hazard Z-17). nodes belong to nobody.
--
-- Lifecycle of heads.state
--   0 queued -> 1 leased -> 0 queued | 2 parked | 3 ended
--   2 parked -> 0 queued, by an input or by its time, and by nothing else
--   heads_queue and heads_loops hold queued rows only, heads_timer parked rows that have a time, heads_node leased
--   rows, heads_phase parked and ended ones. A commit inside a lease sets no column of any of them:
--   it changes one row of heads, and adds to events and its unique index (plus events_answers for
--   a row that answers a call). phase and wake_at are therefore only true while state >= 2.
--
-- External loops
--   heads.queue names who may lease a session: NULL for workers, else the queue of external loops. It
--   is the queue of the head's body, except that an urgent input empties it until the session parks or
--   yields, so that workers carry out a cancel. The leases of external loops belong to node 0, which is
--   in no row of nodes; while one is out, wake_at is when it ends, and a sweep takes it back.
--
-- Conditions
--   heads.condition is what a parked session waits on, set by the commit that parks it and only true
--   while state = 2. heads.granted is the generation of the condition in which the session was let
--   go; its next call uses it up, and parking removes it.
--
-- Forks
--   The log of a fork is made of rows of its ancestors, in the order of up_to, and of its own, which begin
--   after the last up_to. Its first own row tells of the fork, so that a reader whose page has no gap knows
--   without lineage that it is whole. Rows up to the highest up_to that names a session stay when the session
--   is removed, until the last of those forks is.
--
-- Guarantees
--   Every write of a lease's holder begins with an UPDATE of heads that names (id, epoch, nonce,
--   state = 1); no row means that the lease is gone and nothing is written (hazards Z-02, Z-05).
--   commit_id recognises the repeat of a commit whose reply was lost (hazard Z-20).
--   Every input raises heads.inbox_tail in the transaction that stores it; a commit parks only if it
--   consumed up to inbox_tail (hazard Z-01). urgent is the position of the newest urgent input: it
--   counts while it is above consumed.
--   A lease that ends is copied from heads to leases in the transaction that ends it, so that a claim
--   writes nothing more than before, and a parking commit one short row: clustered by session and
--   without a second index, because it is only ever read by session. Rows of old epochs are removed
--   with the same key range.
--   All transactions are BEGIN IMMEDIATE from one writer thread per process (hazard Z-22).
--   body is NULL where the payload is a file (blobs/), durable before the row that names it.
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE heads (
  id          BLOB PRIMARY KEY,
  shard       INTEGER NOT NULL,
  tenant      TEXT NOT NULL,
  agent       BLOB NOT NULL,
  environment BLOB NOT NULL,
  created_at  INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  phase       TEXT NOT NULL,
  epoch       INTEGER NOT NULL,
  nonce       BLOB,
  node        BLOB,
  claim_id    BLOB,
  leased_at   INTEGER,
  leased_seq  INTEGER NOT NULL DEFAULT 0,
  commit_id   BLOB,
  claims      INTEGER NOT NULL,
  inbox_tail  INTEGER NOT NULL,
  consumed    INTEGER NOT NULL,
  urgent      INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  queued_at   INTEGER NOT NULL,
  wake_at     INTEGER,
  state_since INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  archived_at INTEGER,
  metadata    TEXT NOT NULL,
  body        TEXT NOT NULL,
  condition   BLOB,
  granted     INTEGER,
  queue       TEXT
) STRICT;
CREATE INDEX heads_tenant ON heads (tenant, id);
CREATE INDEX heads_environment ON heads (environment);
CREATE INDEX heads_queue ON heads (tenant, queued_at) WHERE state = 0 AND queue IS NULL;
CREATE INDEX heads_loops ON heads (tenant, queue, queued_at) WHERE state = 0 AND queue IS NOT NULL;
CREATE INDEX heads_node ON heads (node) WHERE state = 1;
CREATE INDEX heads_timer ON heads (wake_at) WHERE state = 2 AND wake_at IS NOT NULL;
CREATE INDEX heads_condition ON heads (condition, tenant, state_since) WHERE state = 2 AND condition IS NOT NULL;
CREATE INDEX heads_phase ON heads (tenant, phase, id) WHERE state >= 2;

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

CREATE TABLE leases (
  session  BLOB NOT NULL,
  epoch    INTEGER NOT NULL,
  shard    INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  node     BLOB NOT NULL,
  from_at  INTEGER NOT NULL,
  from_seq INTEGER NOT NULL,
  to_at    INTEGER NOT NULL,
  to_seq   INTEGER NOT NULL,
  how      INTEGER NOT NULL,
  PRIMARY KEY (session, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE lineage (
  session  BLOB NOT NULL,
  up_to    INTEGER NOT NULL,
  ancestor BLOB NOT NULL,
  shard    INTEGER NOT NULL,
  PRIMARY KEY (session, up_to)
) STRICT, WITHOUT ROWID;
CREATE INDEX lineage_ancestor ON lineage (ancestor, up_to);

-- is_plain: neither answers nor controls anything, so that deciding about another input need not
-- read it.
CREATE TABLE inbox (
  session  BLOB NOT NULL,
  position INTEGER NOT NULL,
  shard    INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  id       BLOB NOT NULL,
  at       INTEGER NOT NULL,
  is_plain INTEGER NOT NULL,
  body     TEXT,
  blob     TEXT,
  PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
  tenant      TEXT NOT NULL,
  id          BLOB NOT NULL,
  version     INTEGER NOT NULL,
  shard       INTEGER NOT NULL,
  archived_at INTEGER,
  body        TEXT NOT NULL,
  PRIMARY KEY (tenant, id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE environments (
  tenant      TEXT NOT NULL,
  id          BLOB NOT NULL,
  shard       INTEGER NOT NULL,
  archived_at INTEGER,
  body        TEXT NOT NULL,
  PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
  id      BLOB PRIMARY KEY,
  address TEXT NOT NULL,
  label   TEXT NOT NULL,
  beats   INTEGER NOT NULL,
  beat_at INTEGER NOT NULL,
  is_dead INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  tenant TEXT NOT NULL,
  scope  TEXT NOT NULL,
  key    TEXT NOT NULL,
  shard  INTEGER NOT NULL,
  digest BLOB NOT NULL,
  result TEXT NOT NULL,
  at     INTEGER NOT NULL,
  UNIQUE (tenant, scope, key)
) STRICT;
CREATE INDEX idempotency_at ON idempotency (at);

CREATE TABLE conditions (
  id         BLOB PRIMARY KEY,
  shard      INTEGER NOT NULL,
  credential TEXT NOT NULL,
  model      TEXT NOT NULL,
  body       TEXT NOT NULL,
  UNIQUE (credential, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE removals (session BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('now', 0), ('sessions', 0), ('ended', 0);
