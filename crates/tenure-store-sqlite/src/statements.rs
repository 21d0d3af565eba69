//! Every SQL statement of the store, in one place; a test prepares each against a real database.

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $text;)*

        /// All of them, with their names.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// Columns of a session's view, in the order that `rows::view` reads.
macro_rules! view {
    ($rest:literal) => {
        concat!(
            "SELECT body, metadata, state, epoch, node, state_since, updated_at, archived_at, inbox_tail - consumed, ",
            "queued_at, id, queue FROM heads ",
            $rest
        )
    };
}

/// Columns of an input, in the order that `rows::Stored` reads.
macro_rules! inputs {
    ($rest:literal) => {
        concat!("SELECT position, id, at, body, blob, 0 FROM inbox ", $rest)
    };
}

/// Columns of an event, in the order that `rows::Stored` reads.
macro_rules! events {
    ($rest:literal) => {
        concat!("SELECT seq, id, at, body, blob, step FROM events ", $rest)
    };
}

/// What a session that becomes runnable loses and gets; `?1` is the time.
macro_rules! queue {
    ($rest:literal) => {
        concat!("UPDATE heads SET state = 0, queued_at = ?1, state_since = ?1", $rest)
    };
}

statements! {
    BEGIN = "BEGIN IMMEDIATE";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";
    SAVEPOINT = "SAVEPOINT job";
    ROLLBACK_TO = "ROLLBACK TO job";
    RELEASE_SAVEPOINT = "RELEASE job";
    DATA_VERSION = "PRAGMA data_version";

    GET_META = "SELECT value FROM meta WHERE key = ?1";
    SET_META = "UPDATE meta SET value = ?2 WHERE key = ?1";
    ADD_META = "UPDATE meta SET value = value + ?2 WHERE key = ?1";

    NEW_HEAD = "INSERT INTO heads (id, shard, tenant, agent, environment, created_at, state, phase, epoch, claims, \
                inbox_tail, consumed, urgent, last_seq, queued_at, wake_at, state_since, updated_at, metadata, body, queue) \
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, 2, ?7, 0, 0, 0, 0, 0, ?8, ?9, ?10, ?9, ?9, ?11, ?12, ?13)";
    HAS_HEAD = "SELECT 1 FROM heads WHERE id = ?1";
    HEAD_FOR_INPUT = "SELECT body, state, inbox_tail, consumed FROM heads WHERE id = ?1 AND tenant = ?2";
    /// Something urgent is for the workers, whatever loop the session has.
    TAKE_INPUTS = "UPDATE heads SET inbox_tail = ?2, urgent = max(urgent, ?3), queue = iif(?3 > 0, NULL, queue) WHERE id = ?1";
    QUEUE_PARKED = queue!(" WHERE id = ?2 AND state = 2");
    ARCHIVE_HEAD = "UPDATE heads SET archived_at = coalesce(archived_at, ?2), updated_at = ?2 WHERE id = ?1";

    NEW_INPUT = "INSERT INTO inbox (session, position, shard, tenant, id, at, is_plain, body, blob) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    INBOX = inputs!("WHERE session = ?1 AND position > ?2 ORDER BY position LIMIT ?3");
    INBOX_FOR_DECISION = "SELECT position, id, at, CASE WHEN is_plain THEN NULL ELSE body END, \
                          CASE WHEN is_plain THEN NULL ELSE blob END, is_plain \
                          FROM inbox WHERE session = ?1 ORDER BY position";
    INPUT_BY_ID = inputs!("WHERE session = ?1 AND id = ?2");
    CONSUME = "DELETE FROM inbox WHERE session = ?1 AND position <= ?2";
    CLEAR_INBOX = "DELETE FROM inbox WHERE session = ?1";

    /// The fence: everything else of a commit hangs on the row that this returns.
    CHECKPOINT = "UPDATE heads SET last_seq = ?4, consumed = max(consumed, ?5), commit_id = ?6, \
                  claims = iif(?7, 1, claims), updated_at = ?8, body = ?9 \
                  WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1 AND last_seq = ?10 AND inbox_tail >= ?5 \
                  RETURNING inbox_tail, consumed";
    FENCE_STATE = "SELECT state, epoch, nonce, commit_id, last_seq, inbox_tail, consumed FROM heads WHERE id = ?1";
    PARK = "UPDATE heads SET state = 2, nonce = NULL, node = NULL, claims = 0, phase = ?2, wake_at = ?3, state_since = ?4, \
            condition = ?5, granted = NULL, queue = ?6 WHERE id = ?1";
    YIELD = queue!(", nonce = NULL, node = NULL, claims = max(claims - 1, 0), \
                    queue = iif(urgent > consumed, NULL, ?3) WHERE id = ?2");
    END = "UPDATE heads SET state = 3, nonce = NULL, node = NULL, phase = ?2, wake_at = NULL, state_since = ?3, consumed = inbox_tail, \
           archived_at = coalesce(archived_at, ?4) WHERE id = ?1";
    NEW_EVENT = "INSERT INTO events (session, seq, shard, tenant, id, at, step, answers, body, blob) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

    NEXT_TENANT = "SELECT tenant FROM heads WHERE state = 0 AND queue IS NULL AND tenant > ?1 ORDER BY tenant LIMIT 1";
    FIRST_TENANT = "SELECT tenant FROM heads WHERE state = 0 AND queue IS NULL ORDER BY tenant LIMIT 1";
    /// Suspects come only where `?3` says so.
    QUEUE_OF_TENANT = "SELECT id, claims, claim_id FROM heads WHERE state = 0 AND queue IS NULL AND tenant = ?1 AND (?3 OR claims < ?4) \
                       ORDER BY queued_at, rowid LIMIT ?2";
    QUEUE_OF_LOOPS = "SELECT id, claims, claim_id FROM heads WHERE state = 0 AND queue = ?2 AND tenant = ?1 \
                      ORDER BY queued_at, rowid LIMIT ?3";
    /// While an external loop holds a lease, this is when it ends.
    SET_UNTIL = "UPDATE heads SET wake_at = ?2 WHERE id = ?1";
    RENEW = "UPDATE heads SET wake_at = ?4 WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1 RETURNING urgent > consumed";
    EXPIRED = "SELECT id FROM heads WHERE state = 1 AND node = ?1 AND wake_at <= ?2";
    DEPTH = "SELECT count(*), min(queued_at) FROM heads WHERE state = 0 AND tenant = ?1 AND queue = ?2";
    DEPTH_LEASED = "SELECT count(*) FROM heads WHERE state = 1 AND node = ?3 AND tenant = ?1 AND queue = ?2";
    HAS_SUSPECT = "SELECT 1 FROM heads WHERE state = 1 AND node = ?1 AND claims > ?2 LIMIT 1";
    LEASE = "UPDATE heads SET state = 1, epoch = epoch + 1, nonce = ?2, node = ?3, claim_id = ?4, leased_at = ?5, \
             leased_seq = last_seq, claims = claims + 1, state_since = ?5 WHERE id = ?1 AND state = 0 \
             RETURNING id, tenant, epoch, nonce, claims, queued_at, consumed, inbox_tail, body";
    LEASES_OF_CLAIM = "SELECT id, tenant, epoch, nonce, claims, queued_at, consumed, inbox_tail, body \
                       FROM heads WHERE state = 1 AND node = ?1 AND claim_id = ?2 ORDER BY queued_at, rowid";
    SET_ASIDE = "UPDATE heads SET state = 2, epoch = epoch + 1, nonce = NULL, node = NULL, wake_at = NULL, condition = NULL, \
                 state_since = ?4 \
                 WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1";
    RELEASE = queue!(", epoch = epoch + 1, nonce = NULL, node = NULL, claims = max(claims - 1, 0) \
                      WHERE id = ?2 AND epoch = ?3 AND nonce = ?4 AND state = 1");
    TAKE_BACK = queue!(", epoch = epoch + 1, nonce = NULL, node = NULL WHERE id = ?2 AND state = 1");
    TAKE_BACK_UNCOUNTED = queue!(", epoch = epoch + 1, nonce = NULL, node = NULL, claims = max(claims - 1, 0) \
                                  WHERE id = ?2 AND state = 1");

    /// Runs before the statement that ends the lease, of which the head still tells.
    NOTE_LEASE = "INSERT OR IGNORE INTO leases (session, epoch, shard, tenant, node, from_at, from_seq, to_at, to_seq, how) \
                  SELECT id, epoch, shard, tenant, node, leased_at, leased_seq, ?2, last_seq, ?3 FROM heads \
                  WHERE id = ?1 AND state = 1 AND (?4 IS NULL OR nonce = ?4) RETURNING epoch";
    FORGET_LEASES = "DELETE FROM leases WHERE session = ?1 AND epoch <= ?2";
    CLEAR_LEASES = "DELETE FROM leases WHERE session = ?1";
    LEASES = "SELECT epoch, node, from_at, from_seq, to_at, to_seq, how FROM leases \
              WHERE session = ?1 AND tenant = ?2 AND epoch > ?3 ORDER BY epoch LIMIT ?4";
    LEASE_NOW = "SELECT epoch, node, leased_at, leased_seq FROM heads WHERE id = ?1 AND tenant = ?2 AND state = 1 AND epoch > ?3";

    NEW_NODE = "INSERT INTO nodes (id, address, label, beats, beat_at, is_dead) VALUES (?1, ?2, ?3, 0, ?4, 0)";
    FORGET_NODES = "DELETE FROM nodes WHERE is_dead = 1 AND beat_at < ?1";
    IS_NODE_DEAD = "SELECT is_dead FROM nodes WHERE id = ?1";
    BEAT = "UPDATE nodes SET beats = beats + 1, beat_at = ?2 WHERE id = ?1 AND is_dead = 0";
    BURY = "UPDATE nodes SET is_dead = 1 WHERE id = ?1 AND beats = ?2 AND is_dead = 0";
    RETIRE = "UPDATE nodes SET is_dead = 1 WHERE id = ?1";
    OWNED = "SELECT id, epoch, leased_at, urgent > consumed FROM heads WHERE state = 1 AND node = ?1";
    OWNERS = "SELECT DISTINCT node FROM heads WHERE state = 1";
    CONTROLS = "SELECT id FROM heads WHERE state = 1 AND node = ?1 AND urgent > consumed";
    NODES = "SELECT id, address, label, beats, beat_at, is_dead, \
             (SELECT count(*) FROM heads WHERE state = 1 AND node = nodes.id) FROM nodes ORDER BY id";

    DUE = "SELECT id FROM heads WHERE state = 2 AND wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2";
    NEXT_DUE = "SELECT min(wake_at) FROM heads WHERE state = 2 AND wake_at IS NOT NULL";

    CONDITION = "SELECT body FROM conditions WHERE id = ?1";
    CONDITION_OF_KEY = "SELECT body FROM conditions WHERE credential = ?1 AND model = ?2";
    CONDITIONS = "SELECT body FROM conditions ORDER BY credential, model";
    PUT_CONDITION = "INSERT INTO conditions (id, shard, credential, model, body) VALUES (?1, 0, ?2, ?3, ?4) \
                     ON CONFLICT (id) DO UPDATE SET body = ?4";
    REMOVE_CONDITION = "DELETE FROM conditions WHERE id = ?1";
    COUNT_WAITING = "SELECT count(*) FROM heads WHERE state = 2 AND condition = ?1";
    COUNT_WAITING_OF_TENANT = "SELECT count(*) FROM heads WHERE state = 2 AND condition = ?1 AND tenant = ?2";
    SOME_WAITING = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 2 AND condition = ?1 LIMIT ?2)";
    NEXT_WAITING_TENANT = "SELECT tenant FROM heads WHERE state = 2 AND condition = ?1 AND tenant > ?2 ORDER BY tenant LIMIT 1";
    FIRST_WAITING_TENANT = "SELECT tenant FROM heads WHERE state = 2 AND condition = ?1 ORDER BY tenant LIMIT 1";
    LONGEST_WAITING = "SELECT id FROM heads WHERE state = 2 AND condition = ?1 AND tenant = ?2 ORDER BY state_since, rowid LIMIT 1";
    LET_GO = queue!(", granted = ?3 WHERE id = ?2 AND state = 2");
    GRANT_OF_LEASE = "SELECT granted FROM heads WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1";
    USE_GRANT = "UPDATE heads SET granted = NULL WHERE id = ?1";

    VIEW = view!("WHERE id = ?1 AND tenant = ?2");
    QUEUED_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 0 AND queue IS NULL AND tenant = ?1 AND queued_at <= ?2 \
                     AND (queued_at, rowid) < (?2, (SELECT rowid FROM heads WHERE id = ?3)) LIMIT ?4)";
    QUEUED_BEFORE_OF_LOOPS = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE state = 0 AND queue = ?5 AND tenant = ?1 AND queued_at <= ?2 \
                     AND (queued_at, rowid) < (?2, (SELECT rowid FROM heads WHERE id = ?3)) LIMIT ?4)";
    VIEWS_ASCENDING = view!("WHERE tenant = ?1 AND id > ?2 AND (?3 IS NULL OR agent = ?3) AND (?4 OR archived_at IS NULL) \
                             AND created_at >= ?5 AND created_at < ?6 AND (?7 OR instr(?8, iif(state >= 2, phase, iif(state, 'working', 'queued')) || ' ')) \
                             ORDER BY id LIMIT ?9");
    VIEWS_DESCENDING = view!("WHERE tenant = ?1 AND id < ?2 AND (?3 IS NULL OR agent = ?3) AND (?4 OR archived_at IS NULL) \
                              AND created_at >= ?5 AND created_at < ?6 AND (?7 OR instr(?8, iif(state >= 2, phase, iif(state, 'working', 'queued')) || ' ')) \
                              ORDER BY id DESC LIMIT ?9");
    /// One phase of parked or ended sessions is a range of its own index.
    VIEWS_OF_PHASE_ASCENDING = view!("WHERE state >= 2 AND tenant = ?1 AND phase = ?7 AND id > ?2 AND (?3 IS NULL OR agent = ?3) \
                                      AND (?4 OR archived_at IS NULL) AND created_at >= ?5 AND created_at < ?6 ORDER BY id LIMIT ?8");
    VIEWS_OF_PHASE_DESCENDING = view!("WHERE state >= 2 AND tenant = ?1 AND phase = ?7 AND id < ?2 AND (?3 IS NULL OR agent = ?3) \
                                       AND (?4 OR archived_at IS NULL) AND created_at >= ?5 AND created_at < ?6 ORDER BY id DESC LIMIT ?8");
    IDS_NEWEST_FIRST = "SELECT id FROM heads WHERE tenant = ?1 ORDER BY id DESC";
    COUNT_PHASES = "SELECT phase, count(*) FROM heads WHERE tenant = ?1 AND state >= 2 GROUP BY phase \
                    UNION ALL SELECT 'queued', count(*) FROM heads WHERE tenant = ?1 AND state = 0 AND queue IS NULL \
                    UNION ALL SELECT 'queued', count(*) FROM heads WHERE tenant = ?1 AND state = 0 AND queue IS NOT NULL \
                    UNION ALL SELECT 'working', count(*) FROM heads WHERE tenant = ?1 AND state = 1";
    /// In two parts, each from its own index.
    COUNT_QUEUED = "SELECT sum(n) FROM (SELECT count(*) AS n FROM heads WHERE state = 0 AND queue IS NULL \
                    UNION ALL SELECT count(*) FROM heads WHERE state = 0 AND queue IS NOT NULL)";
    /// Steps from tenant to tenant, so that it costs nothing to have many of one.
    QUEUED_SINCE = "WITH RECURSIVE turn (tenant) AS (SELECT min(tenant) FROM heads WHERE state = 0 AND queue IS NULL UNION ALL \
                    SELECT (SELECT min(tenant) FROM heads WHERE state = 0 AND queue IS NULL AND tenant > turn.tenant) FROM turn \
                    WHERE turn.tenant IS NOT NULL) \
                    SELECT min((SELECT min(queued_at) FROM heads WHERE state = 0 AND queue IS NULL AND tenant = turn.tenant)) FROM turn";
    COUNT_LEASED = "SELECT count(*) FROM heads WHERE state = 1";
    EVENTS_ASCENDING = events!("WHERE session = ?1 AND tenant = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq LIMIT ?5");
    EVENTS_DESCENDING = events!("WHERE session = ?1 AND tenant = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq DESC LIMIT ?5");
    NEW_LINEAGE = "INSERT INTO lineage (session, up_to, ancestor, shard) VALUES (?1, ?2, ?3, ?4)";
    LINEAGE = "SELECT ancestor, up_to FROM lineage WHERE session = ?1 ORDER BY up_to";
    REMOVE_LINEAGE = "DELETE FROM lineage WHERE session = ?1";
    /// The last row of a session that a fork shares.
    SHARED_UP_TO = "SELECT coalesce(max(up_to), 0) FROM lineage WHERE ancestor = ?1";
    LAST_SEQ = "SELECT last_seq FROM heads WHERE id = ?1 AND tenant = ?2";
    EVENT_THAT_ANSWERS = events!("WHERE session = ?1 AND answers = ?2 AND seq <= ?3 ORDER BY seq LIMIT 1");
    EVENT_AT = events!("WHERE session = ?1 AND seq = ?2");
    METADATA = "SELECT metadata FROM heads WHERE id = ?1 AND tenant = ?2";
    SET_METADATA = "UPDATE heads SET metadata = ?2, updated_at = ?3 WHERE id = ?1";

    STATE = "SELECT state FROM heads WHERE id = ?1 AND tenant = ?2";
    REMOVE_HEAD = "DELETE FROM heads WHERE id = ?1";
    NEW_REMOVAL = "INSERT OR IGNORE INTO removals (session) VALUES (?1)";
    REMOVE_EVENTS = "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE session = ?1 AND seq > \
                     (SELECT coalesce(max(up_to), 0) FROM lineage WHERE ancestor = ?1) LIMIT ?2)";
    END_REMOVAL = "DELETE FROM removals WHERE session = ?1";
    REMOVALS = "SELECT session FROM removals";

    GET_KEY = "SELECT digest, result FROM idempotency WHERE tenant = ?1 AND scope = ?2 AND key = ?3";
    NEW_KEY = "INSERT INTO idempotency (tenant, scope, key, shard, digest, result, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    FORGET_KEYS = "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency WHERE at < ?1 ORDER BY at LIMIT ?2)";

    NEWEST_VERSION = "SELECT version, archived_at FROM agents WHERE tenant = ?1 AND id = ?2 ORDER BY version DESC LIMIT 1";
    NEW_AGENT = "INSERT INTO agents (tenant, id, version, shard, archived_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    AGENT = "SELECT body, archived_at FROM agents WHERE tenant = ?1 AND id = ?2 AND version = ?3";
    NEWEST_AGENT = "SELECT body, archived_at FROM agents WHERE tenant = ?1 AND id = ?2 ORDER BY version DESC LIMIT 1";
    AGENTS = "SELECT body, archived_at FROM agents AS this WHERE tenant = ?1 AND (?2 OR archived_at IS NULL) \
              AND version = (SELECT max(version) FROM agents WHERE tenant = ?1 AND id = this.id) \
              AND (?4 IS NULL OR id < ?4) ORDER BY id DESC LIMIT ?3";
    AGENT_VERSIONS = "SELECT body, archived_at FROM agents WHERE tenant = ?1 AND id = ?2 AND (?4 IS NULL OR version < ?4) ORDER BY version DESC LIMIT ?3";
    ARCHIVE_AGENT = "UPDATE agents SET archived_at = coalesce(archived_at, ?3) WHERE tenant = ?1 AND id = ?2";
    PUT_ENVIRONMENT = "INSERT INTO environments (tenant, id, shard, archived_at, body) VALUES (?1, ?2, ?3, ?4, ?5) \
                       ON CONFLICT (tenant, id) DO UPDATE SET archived_at = ?4, body = ?5";
    ENVIRONMENT = "SELECT body, archived_at FROM environments WHERE tenant = ?1 AND id = ?2";
    ENVIRONMENTS = "SELECT body, archived_at FROM environments WHERE tenant = ?1 AND (?2 OR archived_at IS NULL) \
                    AND (?4 IS NULL OR id < ?4) ORDER BY id DESC LIMIT ?3";
    IS_ENVIRONMENT_USED = "SELECT 1 FROM heads WHERE environment = ?1 AND tenant = ?2 AND state < 3 LIMIT 1";
    REMOVE_ENVIRONMENT = "DELETE FROM environments WHERE tenant = ?1 AND id = ?2";
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().expect("memory is a database");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema is valid");
        connection
    }

    #[test]
    fn every_statement_can_be_prepared() {
        let connection = database();
        for (name, statement) in ALL {
            // Releasing needs a savepoint only when it runs, not when it is prepared.
            if let Err(error) = connection.prepare(statement) {
                panic!("{name}: {error}");
            }
        }
    }

    fn plan(statement: &str) -> String {
        let connection = database();
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).expect("it can be prepared");
        for parameter in 1..=explain.parameter_count() {
            explain.raw_bind_parameter(parameter, 1).expect("it exists");
        }
        let mut rows = explain.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().expect("it can be explained") {
            plan.push_str(&row.get::<_, String>(3).expect("the plan is text"));
            plan.push('\n');
        }
        plan
    }

    #[test]
    fn hot_statements_never_scan_a_table() {
        let hot = [
            CHECKPOINT,
            PARK,
            YIELD,
            CONSUME,
            INBOX,
            HEAD_FOR_INPUT,
            TAKE_INPUTS,
            QUEUE_PARKED,
            NEXT_TENANT,
            FIRST_TENANT,
            QUEUE_OF_TENANT,
            HAS_SUSPECT,
            LEASE,
            LEASES_OF_CLAIM,
            NOTE_LEASE,
            QUEUE_OF_LOOPS,
            SET_UNTIL,
            RENEW,
            EXPIRED,
            DEPTH,
            DEPTH_LEASED,
            QUEUED_BEFORE_OF_LOOPS,
            FORGET_LEASES,
            LEASES,
            LEASE_NOW,
            OWNED,
            OWNERS,
            CONTROLS,
            DUE,
            NEXT_DUE,
            VIEW,
            EVENTS_ASCENDING,
            EVENTS_DESCENDING,
            EVENT_THAT_ANSWERS,
            VIEWS_OF_PHASE_ASCENDING,
            COUNT_QUEUED,
            COUNT_LEASED,
            QUEUED_BEFORE,
            REMOVE_EVENTS,
            IS_ENVIRONMENT_USED,
            GET_KEY,
            FORGET_KEYS,
            CONDITION,
            CONDITION_OF_KEY,
            COUNT_WAITING,
            COUNT_WAITING_OF_TENANT,
            SOME_WAITING,
            NEXT_WAITING_TENANT,
            FIRST_WAITING_TENANT,
            LONGEST_WAITING,
            LET_GO,
            GRANT_OF_LEASE,
        ];
        for statement in hot {
            let plan = plan(statement);
            let scans = plan
                .lines()
                .filter(|line| line.starts_with("SCAN") && !line.contains("USING") && !line.contains("(subquery"));
            assert_eq!(scans.count(), 0, "{statement}\n{plan}");
        }
    }

    #[test]
    fn a_commit_inside_a_lease_sets_no_indexed_column() {
        let set =
            CHECKPOINT.split(" SET ").nth(1).and_then(|rest| rest.split(" WHERE ").next()).expect("it is an update");
        let columns: Vec<&str> =
            set.split(", ").filter_map(|part| part.trim().split_once(" = ")).map(|(column, _)| column).collect();
        assert!(columns.contains(&"body") && columns.contains(&"last_seq"), "{columns:?}");
        for indexed in ["tenant", "id", "environment", "state", "queued_at", "node", "wake_at", "phase"] {
            assert!(!columns.contains(&indexed), "{indexed}");
        }
        assert!(plan(CHECKPOINT).contains("sqlite_autoindex_heads_1"), "by its id: {}", plan(CHECKPOINT));
    }
}
