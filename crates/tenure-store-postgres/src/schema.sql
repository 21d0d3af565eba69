-- The store of tenure on PostgreSQL, and on those that speak its tongue.
--
-- Tables
--   heads         one narrow row per session: its place in the queue and its fence
--   sessions      what is wide of a session: its head as JSON text, notes, agent, environment
--   events        the logs, insert-only
--   answers       which event of a log answers which call
--   leases        who held a session when, written when a lease ends; the newest of each session
--   lineage       of forks: whose rows their logs begin with; a fork is on the shard of its parent
--   inbox         inputs that were accepted and are not consumed yet
--   payloads      bodies over 32 KiB in parts, named by their content, durable before the row that names them
--   agents, environments, conditions, nodes, idempotency, removals, meta
--                 as in the embedded store; rows that belong to no session live on shard 0
--
-- Keys
--   Every key begins with the shard, which is in the session's id, so that a distributed member of the
--   family can place all rows of a session together. Names of tenants are compared by their bytes: a claim
--   steps from one to the next. Nothing here is a sequence, a foreign key, a JSON
--   column, a trigger or an advisory lock, and no row is larger than 1 MiB.
--
-- Lifecycle of heads.state
--   0 queued -> 1 leased -> 0 queued | 2 parked | 3 ended
--   2 parked -> 0 queued, by an input, its time or its condition, and by nothing else
--   A commit inside a lease sets no column that an index of heads names, so that the update stays on its
--   page (HOT): half of each page is left free for that. sessions.phase, heads.wake_at and
--   heads.condition are therefore only true while state >= 2.
--
-- External loops
--   heads.queue names who may lease a session: NULL for workers, else the queue of external loops; an
--   urgent input empties it until the session parks or yields. Their leases belong to node 0, which is in
--   no row of nodes; while one is out, wake_at is when it ends.
--
-- Guarantees
--   Every write of a lease's holder begins with an UPDATE of heads that names (shard, id, epoch, nonce,
--   state = 1); no row means that the lease is gone (hazards Z-02, Z-05).
--   Every input raises heads.inbox_tail in the transaction that stores it, whatever the state; a commit
--   parks by comparing the tail that its own UPDATE returned (hazard Z-01).
--   commit_id and delivered recognise the repeat of a write whose reply was lost (hazard Z-20).
CREATE TABLE heads (
  shard       smallint NOT NULL,
  id          uuid NOT NULL,
  tenant      text COLLATE "C" NOT NULL,
  state       smallint NOT NULL,
  epoch       bigint NOT NULL,
  nonce       uuid,
  node        uuid,
  claim_id    uuid,
  leased_at   bigint,
  leased_seq  bigint NOT NULL,
  commit_id   uuid,
  delivered   uuid,
  claims      integer NOT NULL,
  inbox_tail  bigint NOT NULL,
  consumed    bigint NOT NULL,
  urgent      bigint NOT NULL,
  last_seq    bigint NOT NULL,
  queued_at   bigint NOT NULL,
  wake_at     bigint,
  state_since bigint NOT NULL,
  condition   uuid,
  granted     bigint,
  queue       text COLLATE "C",
  PRIMARY KEY (shard, id)
) WITH (fillfactor = 50);
CREATE INDEX heads_queue ON heads (tenant, queued_at, id) WHERE state = 0 AND queue IS NULL;
CREATE INDEX heads_loops ON heads (tenant, queue, queued_at, id) WHERE state = 0 AND queue IS NOT NULL;
CREATE INDEX heads_node ON heads (node) WHERE state = 1;
CREATE INDEX heads_timer ON heads (wake_at) WHERE state = 2 AND wake_at IS NOT NULL;
CREATE INDEX heads_condition ON heads (condition, tenant, state_since) WHERE state = 2 AND condition IS NOT NULL;

CREATE TABLE sessions (
  shard       smallint NOT NULL,
  id          uuid NOT NULL,
  tenant      text COLLATE "C" NOT NULL,
  agent       uuid NOT NULL,
  environment uuid NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL,
  archived_at bigint,
  phase       text NOT NULL,
  metadata    text NOT NULL,
  body        text NOT NULL,
  PRIMARY KEY (shard, id)
) WITH (fillfactor = 70);
CREATE INDEX sessions_tenant ON sessions (tenant, id);
CREATE INDEX sessions_environment ON sessions (environment);
CREATE INDEX sessions_phase ON sessions (tenant, phase, id);

CREATE TABLE events (
  shard   smallint NOT NULL,
  session uuid NOT NULL,
  seq     bigint NOT NULL,
  tenant  text NOT NULL,
  id      uuid NOT NULL,
  at      bigint NOT NULL,
  step    bigint NOT NULL,
  body    text,
  payload bytea,
  PRIMARY KEY (shard, session, seq)
);

CREATE TABLE answers (
  shard   smallint NOT NULL,
  session uuid NOT NULL,
  call    uuid NOT NULL,
  seq     bigint NOT NULL,
  PRIMARY KEY (shard, session, call, seq)
);

CREATE TABLE leases (
  shard    smallint NOT NULL,
  session  uuid NOT NULL,
  epoch    bigint NOT NULL,
  tenant   text NOT NULL,
  node     uuid NOT NULL,
  from_at  bigint NOT NULL,
  from_seq bigint NOT NULL,
  to_at    bigint NOT NULL,
  to_seq   bigint NOT NULL,
  how      smallint NOT NULL,
  PRIMARY KEY (shard, session, epoch)
);

CREATE TABLE lineage (
  shard    smallint NOT NULL,
  session  uuid NOT NULL,
  up_to    bigint NOT NULL,
  ancestor uuid NOT NULL,
  PRIMARY KEY (shard, session, up_to)
);
CREATE INDEX lineage_ancestor ON lineage (shard, ancestor, up_to);

CREATE TABLE inbox (
  shard    smallint NOT NULL,
  session  uuid NOT NULL,
  position bigint NOT NULL,
  tenant   text NOT NULL,
  id       uuid NOT NULL,
  at       bigint NOT NULL,
  is_plain boolean NOT NULL,
  body     text,
  payload  bytea,
  PRIMARY KEY (shard, session, position)
);

CREATE TABLE payloads (
  shard  smallint NOT NULL,
  digest bytea NOT NULL,
  tenant text NOT NULL,
  part   integer NOT NULL,
  bytes  bytea NOT NULL,
  PRIMARY KEY (shard, digest, part)
);

CREATE TABLE agents (
  shard       smallint NOT NULL,
  tenant      text NOT NULL,
  id          uuid NOT NULL,
  version     bigint NOT NULL,
  archived_at bigint,
  body        text NOT NULL,
  PRIMARY KEY (shard, tenant, id, version)
);

CREATE TABLE environments (
  shard       smallint NOT NULL,
  tenant      text NOT NULL,
  id          uuid NOT NULL,
  archived_at bigint,
  body        text NOT NULL,
  PRIMARY KEY (shard, tenant, id)
);

-- No index but the key: a heartbeat changes columns of none (HOT).
CREATE TABLE nodes (
  shard   smallint NOT NULL,
  id      uuid NOT NULL,
  address text NOT NULL,
  label   text NOT NULL,
  beats   bigint NOT NULL,
  beat_at bigint NOT NULL,
  is_dead boolean NOT NULL,
  PRIMARY KEY (shard, id)
) WITH (fillfactor = 50);

CREATE TABLE idempotency (
  shard  smallint NOT NULL,
  digest bytea NOT NULL,
  body   bytea NOT NULL,
  result text NOT NULL,
  at     bigint NOT NULL,
  PRIMARY KEY (shard, digest)
);
CREATE INDEX idempotency_at ON idempotency (shard, at);

CREATE TABLE conditions (
  shard      smallint NOT NULL,
  id         uuid NOT NULL,
  credential text NOT NULL,
  model      text NOT NULL,
  body       text NOT NULL,
  PRIMARY KEY (shard, id),
  UNIQUE (shard, credential, model)
) WITH (fillfactor = 50);

CREATE TABLE removals (
  shard   smallint NOT NULL,
  session uuid NOT NULL,
  PRIMARY KEY (shard, session)
);
