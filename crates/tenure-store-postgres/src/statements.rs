//! Every SQL statement of the store, in one place; a test prepares each against a real database.

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $text;)*

        /// All that can be prepared, with their names.
        pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// Columns of a session's view, in the order that `rows::StoredView` reads.
macro_rules! view {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.body, s.metadata, h.state, h.epoch, h.node, h.state_since, s.updated_at, s.archived_at, ",
            "h.inbox_tail - h.consumed, h.queued_at, h.queue FROM sessions s JOIN heads h ON h.shard = s.shard AND h.id = s.id ",
            $rest
        )
    };
}

/// Columns of an input, in the order that `rows::Stored` reads.
macro_rules! inputs {
    ($rest:literal) => {
        concat!("SELECT position, id, at, body, payload, 0::bigint FROM inbox ", $rest)
    };
}

/// Columns of an event, in the order that `rows::Stored` reads.
macro_rules! events {
    ($rest:literal) => {
        concat!("SELECT seq, id, at, body, payload, step FROM events ", $rest)
    };
}

/// Writes down the lease that an update ends, and ends it. `$1` shard, `$2` id, `$3` time, `$4` how.
macro_rules! end_lease {
    ($which:literal, $set:literal) => {
        concat!(
            "WITH old AS (SELECT shard, id, tenant, epoch, node, leased_at, leased_seq, last_seq FROM heads ",
            "WHERE shard = $1 AND id = $2 AND state = 1 AND ",
            $which,
            " FOR UPDATE), noted AS (INSERT INTO leases (shard, session, epoch, tenant, node, from_at, from_seq, to_at, to_seq, how) ",
            "SELECT shard, id, epoch, tenant, node, leased_at, leased_seq, $3, last_seq, $4 FROM old ",
            "ON CONFLICT (shard, session, epoch) DO NOTHING) ",
            "UPDATE heads h SET nonce = NULL, node = NULL, state_since = $3, ",
            $set,
            " FROM old WHERE h.shard = old.shard AND h.id = old.id RETURNING old.epoch"
        )
    };
}

statements! {
    CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    GET_CEILING = "SELECT coalesce((SELECT value FROM meta WHERE key = 'now'), 0)";
    RAISE_CEILING = "UPDATE meta SET value = greatest(value, $1) WHERE key = 'now'";

    NEW_HEAD = "INSERT INTO heads (shard, id, tenant, state, epoch, leased_seq, claims, inbox_tail, consumed, urgent, last_seq, \
                queued_at, wake_at, state_since, queue) VALUES ($1, $2, $3, 2, 0, 0, 0, 0, 0, 0, $4, $5, $6, $5, $7) \
                ON CONFLICT (shard, id) DO NOTHING";
    NEW_SESSION = "INSERT INTO sessions (shard, id, tenant, agent, environment, created_at, updated_at, phase, metadata, body) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    LOCK_HEAD = "SELECT state, inbox_tail, consumed, delivered FROM heads WHERE shard = $1 AND id = $2 AND tenant = $3 FOR UPDATE";
    BODY = "SELECT body FROM sessions WHERE shard = $1 AND id = $2";
    /// Something urgent is for the workers, whatever loop the session has.
    TAKE_INPUTS = "UPDATE heads SET inbox_tail = $3, urgent = greatest(urgent, $4), delivered = $5, \
                   queue = CASE WHEN $4 > 0 THEN NULL ELSE queue END, \
                   state = CASE WHEN state = 2 THEN 0 ELSE state END, \
                   queued_at = CASE WHEN state = 2 THEN $6 ELSE queued_at END, \
                   state_since = CASE WHEN state = 2 THEN $6 ELSE state_since END WHERE shard = $1 AND id = $2";
    ARCHIVE = "UPDATE sessions SET archived_at = coalesce(archived_at, $3), updated_at = $3 WHERE shard = $1 AND id = $2";

    NEW_INPUT = "INSERT INTO inbox (shard, session, position, tenant, id, at, is_plain, body, payload) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    INBOX = inputs!("WHERE shard = $1 AND session = $2 AND position > $3 ORDER BY position LIMIT $4");
    INBOX_FOR_DECISION = "SELECT position, id, at, CASE WHEN is_plain THEN NULL ELSE body END, \
                          CASE WHEN is_plain THEN NULL ELSE payload END, is_plain::int::bigint \
                          FROM inbox WHERE shard = $1 AND session = $2 ORDER BY position";
    INPUT_BY_ID = inputs!("WHERE shard = $1 AND session = $2 AND id = $3");
    CONSUME = "DELETE FROM inbox WHERE shard = $1 AND session = $2 AND position <= $3";
    CLEAR_INBOX = "DELETE FROM inbox WHERE shard = $1 AND session = $2";

    /// The fence: everything else of a commit hangs on the row that this returns.
    CHECKPOINT = "UPDATE heads SET last_seq = $5, consumed = greatest(consumed, $6), commit_id = $7, \
                  claims = CASE WHEN $8 THEN 1 ELSE claims END \
                  WHERE shard = $1 AND id = $2 AND epoch = $3 AND nonce = $4 AND state = 1 AND last_seq = $9 AND inbox_tail >= $6 \
                  RETURNING inbox_tail, consumed";
    FENCE_STATE = "SELECT state, epoch, nonce, commit_id, last_seq, inbox_tail, consumed FROM heads WHERE shard = $1 AND id = $2";
    SET_BODY = "UPDATE sessions SET body = $3, updated_at = $4, phase = coalesce($5, phase), \
                archived_at = coalesce(archived_at, $6) WHERE shard = $1 AND id = $2";
    NEW_EVENTS = "INSERT INTO events (shard, session, seq, tenant, id, at, step, body, payload) \
                  SELECT $1, $2, e.seq, $3, e.id, e.at, e.step, e.body, e.payload \
                  FROM unnest($4::bigint[], $5::uuid[], $6::bigint[], $7::bigint[], $8::text[], $9::bytea[]) \
                  AS e (seq, id, at, step, body, payload)";
    NEW_ANSWERS = "INSERT INTO answers (shard, session, call, seq) SELECT $1, $2, a.call, a.seq \
                   FROM unnest($3::uuid[], $4::bigint[]) AS a (call, seq)";
    PARK = end_lease!("true", "state = 2, claims = 0, wake_at = $5, condition = $6, granted = NULL, queue = $7");
    YIELD = end_lease!("true", "state = 0, queued_at = $3, claims = greatest(h.claims - 1, 0), queue = CASE WHEN h.urgent > h.consumed THEN NULL ELSE $5 END");
    END = end_lease!("true", "state = 3, wake_at = NULL, consumed = h.inbox_tail");

    RELEASE = end_lease!("epoch = $5 AND nonce = $6", "state = 0, queued_at = $3, epoch = h.epoch + 1, claims = greatest(h.claims - 1, 0)");
    TAKE_BACK = end_lease!("node = $5 AND epoch = $6", "state = 0, queued_at = $3, epoch = h.epoch + 1");
    TAKE_BACK_UNCOUNTED = end_lease!("node = $5 AND epoch = $6", "state = 0, queued_at = $3, epoch = h.epoch + 1, claims = greatest(h.claims - 1, 0)");
    SET_ASIDE = "UPDATE heads SET state = 2, epoch = epoch + 1, nonce = NULL, node = NULL, wake_at = NULL, condition = NULL, \
                 state_since = $5 WHERE shard = $1 AND id = $2 AND epoch = $3 AND nonce = $4 AND state = 1";
    FORGET_LEASES = "DELETE FROM leases WHERE shard = $1 AND session = $2 AND epoch <= $3";
    CLEAR_LEASES = "DELETE FROM leases WHERE shard = $1 AND session = $2";
    LEASES = "SELECT epoch, node, from_at, from_seq, to_at, to_seq, how FROM leases \
              WHERE shard = $1 AND session = $2 AND tenant = $3 AND epoch > $4 ORDER BY epoch LIMIT $5";
    LEASE_NOW = "SELECT epoch, node, leased_at, leased_seq FROM heads \
                 WHERE shard = $1 AND id = $2 AND tenant = $3 AND state = 1 AND epoch > $4";

    /// Steps from tenant to tenant, the ones after `$1` up to `$2`, and takes the oldest of each.
    QUEUE = "WITH RECURSIVE turn (tenant, place) AS ( \
             (SELECT tenant, 1 FROM heads WHERE state = 0 AND queue IS NULL AND tenant > $1 ORDER BY tenant LIMIT 1) \
             UNION ALL SELECT (SELECT h.tenant FROM heads h WHERE h.state = 0 AND h.queue IS NULL AND h.tenant > turn.tenant ORDER BY h.tenant LIMIT 1), place + 1 \
             FROM turn WHERE turn.tenant IS NOT NULL AND place < $3) \
             SELECT q.shard, q.id, turn.tenant, q.claims, q.claim_id FROM turn, LATERAL ( \
             SELECT shard, id, claims, claim_id, queued_at FROM heads WHERE state = 0 AND queue IS NULL AND tenant = turn.tenant AND ($4 OR claims < $5) \
             ORDER BY queued_at, id LIMIT $3) q WHERE turn.tenant IS NOT NULL AND ($2::text IS NULL OR turn.tenant <= $2) ORDER BY turn.place, q.queued_at, q.id";
    QUEUE_OF_LOOPS = "SELECT shard, id, tenant, claims, claim_id FROM heads WHERE state = 0 AND queue = $2 AND tenant = $1 \
                      ORDER BY queued_at, id LIMIT $3";
    /// While an external loop holds a lease, this is when it ends.
    SET_UNTIL = "UPDATE heads SET wake_at = $3 WHERE shard = $1 AND id = $2 AND state = 1 AND claim_id = $4";
    RENEW = "UPDATE heads SET wake_at = $5 WHERE shard = $1 AND id = $2 AND epoch = $3 AND nonce = $4 AND state = 1 \
             RETURNING urgent > consumed";
    DEPTH = "SELECT count(*), min(queued_at) FROM heads WHERE state = 0 AND tenant = $1 AND queue = $2";
    DEPTH_LEASED = "SELECT count(*) FROM heads WHERE state = 1 AND node = $3 AND tenant = $1 AND queue = $2";
    HAS_SUSPECT = "SELECT 1 FROM heads WHERE state = 1 AND node = $1 AND claims > $2 LIMIT 1";
    LEASE = "UPDATE heads SET state = 1, epoch = epoch + 1, nonce = $3, node = $4, claim_id = $5, leased_at = $6, leased_seq = last_seq, \
             claims = claims + 1, state_since = $6 WHERE shard = $1 AND id = $2 AND state = 0";
    LEASE_UNLOCKED = "UPDATE heads SET state = 1, epoch = epoch + 1, nonce = $3, node = $4, claim_id = $5, leased_at = $6, leased_seq = last_seq, \
             claims = claims + 1, state_since = $6 WHERE shard = $1 AND id IN (SELECT id FROM heads WHERE shard = $1 AND id = $2 AND state = 0 FOR UPDATE SKIP LOCKED)";
    LEASES_OF_CLAIM = "SELECT h.shard, h.id, h.tenant, h.epoch, h.nonce, h.claims, h.queued_at, h.consumed, h.inbox_tail, s.body \
                       FROM heads h JOIN sessions s ON s.shard = h.shard AND s.id = h.id \
                       WHERE h.state = 1 AND h.node = $1 AND h.claim_id = $2 ORDER BY h.queued_at, h.id";

    NEW_NODE = "INSERT INTO nodes (shard, id, address, label, beats, beat_at, is_dead) VALUES (0, $1, $2, $3, 0, $4, false) \
                ON CONFLICT (shard, id) DO NOTHING";
    FORGET_NODES = "DELETE FROM nodes WHERE shard = 0 AND is_dead AND beat_at < $1";
    NODE = "SELECT is_dead, address, label FROM nodes WHERE shard = 0 AND id = $1";
    BEAT = "UPDATE nodes SET beats = beats + 1, beat_at = $2 WHERE shard = 0 AND id = $1 AND NOT is_dead";
    BURY = "UPDATE nodes SET is_dead = true WHERE shard = 0 AND id = $1 AND beats = $2 AND NOT is_dead";
    RETIRE = "UPDATE nodes SET is_dead = true WHERE shard = 0 AND id = $1";
    OWNED = "SELECT shard, id, epoch, leased_at, urgent > consumed FROM heads WHERE state = 1 AND node = $1 ORDER BY shard, id";
    ORPHANS = "SELECT shard, id, epoch, node FROM heads h WHERE state = 1 AND CASE WHEN node = $1 THEN wake_at <= $2 ELSE NOT EXISTS ( \
               SELECT 1 FROM nodes n WHERE n.shard = 0 AND n.id = h.node AND NOT n.is_dead) END ORDER BY shard, id";
    CONTROLS = "SELECT id FROM heads WHERE state = 1 AND node = $1 AND urgent > consumed";
    NODES = "SELECT n.id, n.address, n.label, n.beats, n.beat_at, n.is_dead, \
             (SELECT count(*) FROM heads h WHERE h.state = 1 AND h.node = n.id) FROM nodes n WHERE n.shard = 0 ORDER BY n.id";

    DUE = "UPDATE heads h SET state = 0, queued_at = $1, state_since = $1 FROM ( \
           SELECT shard, id FROM heads WHERE state = 2 AND wake_at IS NOT NULL AND wake_at <= $1 ORDER BY wake_at LIMIT $2) d \
           WHERE h.shard = d.shard AND h.id = d.id AND h.state = 2 AND h.wake_at <= $1 RETURNING h.id";
    NEXT_DUE = "SELECT min(wake_at) FROM heads WHERE state = 2 AND wake_at IS NOT NULL";

    CONDITION = "SELECT body FROM conditions WHERE shard = 0 AND id = $1 FOR UPDATE";
    CONDITION_OF_KEY = "SELECT body FROM conditions WHERE shard = 0 AND credential = $1 AND model = $2 FOR UPDATE";
    CONDITIONS = "SELECT body FROM conditions WHERE shard = 0 ORDER BY credential, model";
    CONDITIONS_LOCKED = "SELECT body FROM conditions WHERE shard = 0 ORDER BY credential, model FOR UPDATE";
    PUT_CONDITION = "INSERT INTO conditions (shard, id, credential, model, body) VALUES (0, $1, $2, $3, $4) \
                     ON CONFLICT (shard, id) DO UPDATE SET body = $4";
    REMOVE_CONDITION = "DELETE FROM conditions WHERE shard = 0 AND id = $1";
    COUNT_WAITING = "SELECT count(*) FROM heads WHERE state = 2 AND condition = $1 AND ($2::text IS NULL OR tenant = $2)";
    SOME_WAITING = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 2 AND condition = $1 LIMIT $2) AS waiting";
    NEXT_WAITING_TENANT = "SELECT tenant FROM heads WHERE state = 2 AND condition = $1 AND tenant > $2 ORDER BY tenant LIMIT 1";
    LONGEST_WAITING = "SELECT shard, id FROM heads WHERE state = 2 AND condition = $1 AND tenant = $2 ORDER BY state_since, id LIMIT 1";
    LET_GO = "UPDATE heads SET state = 0, queued_at = $3, state_since = $3, granted = $4 WHERE shard = $1 AND id = $2 AND state = 2";
    GRANT_OF_LEASE = "SELECT granted FROM heads WHERE shard = $1 AND id = $2 AND epoch = $3 AND nonce = $4 AND state = 1 FOR UPDATE";
    USE_GRANT = "UPDATE heads SET granted = NULL WHERE shard = $1 AND id = $2";

    VIEW = view!("WHERE s.shard = $1 AND s.id = $2 AND s.tenant = $3");
    QUEUED_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 0 AND queue IS NULL AND tenant = $1 AND (queued_at, id) < ($2, $3) LIMIT $4) AS before";
    QUEUED_BEFORE_OF_LOOPS = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 0 AND queue = $5 AND tenant = $1 AND (queued_at, id) < ($2, $3) LIMIT $4) AS before";
    VIEWS_ASCENDING = view!("WHERE s.tenant = $1 AND s.id > $2 AND ($3::uuid IS NULL OR s.agent = $3) AND ($4 OR s.archived_at IS NULL) \
                             AND s.created_at >= $5 AND s.created_at < $6 AND ($7 OR (CASE h.state WHEN 0 THEN 'queued' WHEN 1 THEN 'working' ELSE s.phase END) = ANY($8)) \
                             ORDER BY s.id LIMIT $9");
    VIEWS_DESCENDING = view!("WHERE s.tenant = $1 AND s.id < $2 AND ($3::uuid IS NULL OR s.agent = $3) AND ($4 OR s.archived_at IS NULL) \
                              AND s.created_at >= $5 AND s.created_at < $6 AND ($7 OR (CASE h.state WHEN 0 THEN 'queued' WHEN 1 THEN 'working' ELSE s.phase END) = ANY($8)) \
                              ORDER BY s.id DESC LIMIT $9");
    /// One phase of parked or ended sessions is a range of its own index.
    VIEWS_OF_PHASE_ASCENDING = view!("WHERE h.state >= 2 AND s.tenant = $1 AND s.phase = $7 AND s.id > $2 AND ($3::uuid IS NULL OR s.agent = $3) \
                                      AND ($4 OR s.archived_at IS NULL) AND s.created_at >= $5 AND s.created_at < $6 ORDER BY s.id LIMIT $8");
    VIEWS_OF_PHASE_DESCENDING = view!("WHERE h.state >= 2 AND s.tenant = $1 AND s.phase = $7 AND s.id < $2 AND ($3::uuid IS NULL OR s.agent = $3) \
                                       AND ($4 OR s.archived_at IS NULL) AND s.created_at >= $5 AND s.created_at < $6 ORDER BY s.id DESC LIMIT $8");
    IDS_BELOW = "SELECT id FROM sessions WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    COUNT_PHASES = "SELECT CASE h.state WHEN 0 THEN 'queued' WHEN 1 THEN 'working' ELSE s.phase END AS phase, count(*) \
                    FROM sessions s JOIN heads h ON h.shard = s.shard AND h.id = s.id WHERE s.tenant = $1 GROUP BY 1";
    COUNTS = "SELECT state, count(*) FROM heads GROUP BY state";
    /// Steps from tenant to tenant, so that it costs nothing to have many of one.
    QUEUED_SINCE = "WITH RECURSIVE turn (tenant) AS ((SELECT tenant FROM heads WHERE state = 0 AND queue IS NULL ORDER BY tenant LIMIT 1) UNION ALL \
                    SELECT (SELECT h.tenant FROM heads h WHERE h.state = 0 AND h.queue IS NULL AND h.tenant > turn.tenant ORDER BY h.tenant LIMIT 1) FROM turn \
                    WHERE turn.tenant IS NOT NULL) \
                    SELECT min((SELECT min(queued_at) FROM heads WHERE state = 0 AND queue IS NULL AND tenant = turn.tenant)) FROM turn WHERE turn.tenant IS NOT NULL";
    EVENTS_ASCENDING = events!("WHERE shard = $1 AND session = $2 AND tenant = $3 AND seq > $4 AND seq <= $5 ORDER BY seq LIMIT $6");
    EVENTS_DESCENDING = events!("WHERE shard = $1 AND session = $2 AND tenant = $3 AND seq > $4 AND seq <= $5 ORDER BY seq DESC LIMIT $6");
    NEW_LINEAGE = "INSERT INTO lineage (shard, session, up_to, ancestor) VALUES ($1, $2, $3, $4)";
    LINEAGE = "SELECT ancestor, up_to FROM lineage WHERE shard = $1 AND session = $2 ORDER BY up_to";
    REMOVE_LINEAGE = "DELETE FROM lineage WHERE shard = $1 AND session = $2";
    /// The last row of a session that a fork shares.
    SHARED_UP_TO = "SELECT coalesce(max(up_to), 0) FROM lineage WHERE shard = $1 AND ancestor = $2";
    /// Locked, so that the parent of a fork is not removed meanwhile.
    LAST_SEQ = "SELECT last_seq FROM heads WHERE shard = $1 AND id = $2 AND tenant = $3 FOR UPDATE";
    /// Locked, so that one of two that are removed at the same time sees the other.
    LOCK_ANCESTOR = "SELECT 1 FROM heads WHERE shard = $1 AND id = $2 FOR UPDATE";
    EVENT_THAT_ANSWERS = events!("WHERE shard = $1 AND session = $2 AND seq = \
                                  (SELECT min(seq) FROM answers WHERE shard = $1 AND session = $2 AND call = $3 AND seq <= $4)");
    EVENT_AT = events!("WHERE shard = $1 AND session = $2 AND seq = $3");
    HAS_EVENT_LATELY = "SELECT 1 FROM (SELECT id FROM events WHERE shard = $1 AND session = $2 ORDER BY seq DESC LIMIT $4) AS late WHERE id = $3 LIMIT 1";
    METADATA = "SELECT metadata FROM sessions WHERE shard = $1 AND id = $2 AND tenant = $3 FOR UPDATE";
    SET_METADATA = "UPDATE sessions SET metadata = $3, updated_at = $4 WHERE shard = $1 AND id = $2";

    REMOVE_HEAD = "DELETE FROM heads WHERE shard = $1 AND id = $2";
    REMOVE_SESSION = "DELETE FROM sessions WHERE shard = $1 AND id = $2";
    NEW_REMOVAL = "INSERT INTO removals (shard, session) VALUES ($1, $2) ON CONFLICT (shard, session) DO NOTHING";
    REMOVE_EVENTS = "DELETE FROM events WHERE shard = $1 AND session = $2 AND seq IN \
                     (SELECT seq FROM events WHERE shard = $1 AND session = $2 AND seq > \
                     (SELECT coalesce(max(up_to), 0) FROM lineage WHERE shard = $1 AND ancestor = $2) ORDER BY seq LIMIT $3)";
    REMOVE_ANSWERS = "DELETE FROM answers WHERE shard = $1 AND session = $2 AND seq > \
                      (SELECT coalesce(max(up_to), 0) FROM lineage WHERE shard = $1 AND ancestor = $2)";
    END_REMOVAL = "DELETE FROM removals WHERE shard = $1 AND session = $2";
    REMOVALS = "SELECT session FROM removals";

    GET_KEY = "SELECT body, result FROM idempotency WHERE shard = $1 AND digest = $2";
    NEW_KEY = "INSERT INTO idempotency (shard, digest, body, result, at) VALUES ($1, $2, $3, $4, $5)";
    FORGET_KEYS = "DELETE FROM idempotency WHERE shard = $1 AND digest IN \
                   (SELECT digest FROM idempotency WHERE shard = $1 AND at < $2 ORDER BY at LIMIT $3)";

    NEW_PART = "INSERT INTO payloads (shard, tenant, digest, part, bytes) VALUES ($1, $2, $3, $4, $5) \
                ON CONFLICT (shard, digest, part) DO NOTHING";
    PARTS = "SELECT bytes, tenant FROM payloads WHERE shard = $1 AND digest = $2 ORDER BY part";

    NEWEST_VERSION = "SELECT version, archived_at, body FROM agents WHERE shard = 0 AND tenant = $1 AND id = $2 ORDER BY version DESC LIMIT 1";
    NEW_AGENT = "INSERT INTO agents (shard, tenant, id, version, archived_at, body) VALUES (0, $1, $2, $3, $4, $5)";
    AGENT = "SELECT body, archived_at FROM agents WHERE shard = 0 AND tenant = $1 AND id = $2 AND version = $3";
    NEWEST_AGENT = "SELECT body, archived_at FROM agents WHERE shard = 0 AND tenant = $1 AND id = $2 ORDER BY version DESC LIMIT 1";
    AGENTS = "SELECT body, archived_at FROM agents AS this WHERE shard = 0 AND tenant = $1 AND ($2 OR archived_at IS NULL) \
              AND version = (SELECT max(version) FROM agents WHERE shard = 0 AND tenant = $1 AND id = this.id) \
              AND ($4::uuid IS NULL OR id < $4) ORDER BY id DESC LIMIT $3";
    AGENT_VERSIONS = "SELECT body, archived_at FROM agents WHERE shard = 0 AND tenant = $1 AND id = $2 AND ($4::bigint IS NULL OR version < $4) \
                      ORDER BY version DESC LIMIT $3";
    ARCHIVE_AGENT = "UPDATE agents SET archived_at = coalesce(archived_at, $3) WHERE shard = 0 AND tenant = $1 AND id = $2";
    PUT_ENVIRONMENT = "INSERT INTO environments (shard, tenant, id, archived_at, body) VALUES (0, $1, $2, $3, $4) \
                       ON CONFLICT (shard, tenant, id) DO UPDATE SET archived_at = $3, body = $4";
    ENVIRONMENT = "SELECT body, archived_at FROM environments WHERE shard = 0 AND tenant = $1 AND id = $2";
    ENVIRONMENTS = "SELECT body, archived_at FROM environments WHERE shard = 0 AND tenant = $1 AND ($2 OR archived_at IS NULL) \
                    AND ($4::uuid IS NULL OR id < $4) ORDER BY id DESC LIMIT $3";
    IS_ENVIRONMENT_USED = "SELECT 1 FROM sessions s JOIN heads h ON h.shard = s.shard AND h.id = s.id \
                           WHERE s.environment = $1 AND s.tenant = $2 AND h.state < 3 LIMIT 1";
    REMOVE_ENVIRONMENT = "DELETE FROM environments WHERE shard = 0 AND tenant = $1 AND id = $2";

    SETTINGS = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'fsync', 'full_page_writes', \
                'synchronous_commit', 'synchronous_standby_names')";
    GET_VERSION = "SELECT value FROM meta WHERE key = 'schema'";
    LOCK_VERSION = "SELECT value FROM meta WHERE key = 'schema' FOR UPDATE";
    SET_VERSION = "UPDATE meta SET value = $1 WHERE key = 'schema'";
}

/// The table that says which tables there are.
pub(crate) const NEW_META: &str = "CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50); \
                                   INSERT INTO meta (key, value) VALUES ('schema', 0), ('now', 0) ON CONFLICT (key) DO NOTHING";
