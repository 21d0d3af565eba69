//! The operations of the port.

use crate::blobs::{Blobs, Kept};
use crate::errors::{corrupt, sqlite as sqlite_error};
use crate::open::{self, Options};
use crate::reader::{Readers, sql};
use crate::rows::{self, EVENT, Head, VIEW, blob};
use crate::wake::Wake;
use crate::writer::{Work, Writer};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Accepted, Agent, AgentId, Environment, EnvironmentId, Event, EventId, Input, InputBody, LeaseId, NodeId, Phase,
    Session, SessionId, TenantId, Timestamp, accept, stored,
};
use tenure_store::*;
use tokio::sync::broadcast;

/// The embedded store.
#[derive(Debug)]
pub struct Sqlite {
    options: Options,
    writer: Writer,
    readers: Arc<Readers>,
    wake: Arc<Wake>,
    blobs: Blobs,
}

impl Sqlite {
    /// Opens the store of a data folder, making it if there is none.
    ///
    /// # Errors
    /// When the folder or the file cannot be used, lies on a network file system, or was written by
    /// a newer release.
    pub fn open(options: Options) -> Result<Arc<Self>, Error> {
        open::prepare(&options.data)?;
        let connection = open::writer(&options)?;
        let wake = Wake::start(&options.data, open::reader(&options)?)
            .map_err(|error| crate::errors::file("start to listen for other processes", error))?;
        let writer = Writer::start(connection, wake.clone())?;
        let blobs = Blobs::new(&options.data);
        Ok(Arc::new(Self { readers: Readers::new(options.clone()), options, writer, wake, blobs }))
    }

    /// Copies the store into one new file while it is in use.
    ///
    /// # Errors
    /// When the copy cannot be written. Large payloads in the blob folder are not part of it.
    pub fn backup(&self, to: &Path) -> Result<(), Error> {
        let failed = |error| sqlite_error("back up the store", error);
        let source = open::reader(&self.options)?;
        let mut target = Connection::open(to).map_err(failed)?;
        let backup = rusqlite::backup::Backup::new(&source, &mut target).map_err(failed)?;
        backup.run_to_completion(1_024, Duration::ZERO, None).map_err(failed)
    }

    async fn keep(&self, tenant: &TenantId, bodies: Vec<String>) -> Result<Vec<Kept>, Error> {
        if bodies.iter().all(|body| body.len() <= MAX_INLINE_BYTES) {
            return bodies.into_iter().map(|body| self.blobs.keep("", body)).collect();
        }
        let (blobs, tenant) = (self.blobs.clone(), tenant.0.clone());
        tokio::task::spawn_blocking(move || bodies.into_iter().map(|body| blobs.keep(&tenant, body)).collect())
            .await
            .map_err(|error| Error::caused(Kind::Broken, "keeping a payload was aborted", error))?
    }

    async fn keep_inputs(&self, tenant: &TenantId, inputs: &[(EventId, InputBody)]) -> Result<Vec<Kept>, Error> {
        let encode = |(id, body): &(EventId, InputBody)| {
            stored::encode_input(&Input { id: *id, at: Timestamp(0), body: body.clone() })
        };
        self.keep(tenant, inputs.iter().map(encode).collect()).await
    }
}

fn execute(work: &Work<'_>, statement: &str, values: impl rusqlite::Params) -> Result<usize, Error> {
    let run = |statement: &str| work.connection.prepare_cached(statement)?.execute(values);
    run(statement).map_err(|error| sqlite_error("write the store", error))
}

/// What an earlier request with the same key gave; an error if its body was another one.
fn recall(work: &Work<'_>, tenant: &TenantId, idempotency: Option<&Idempotency>) -> Result<Option<String>, Error> {
    let Some(key) = idempotency else { return Ok(None) };
    let find = "SELECT digest, result FROM idempotency WHERE tenant = ?1 AND scope = ?2 AND key = ?3";
    let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
    let found = statement
        .query_row((&tenant.0, &key.scope, &key.key), |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?)))
        .optional()
        .map_err(sql)?;
    match found {
        Some((digest, _)) if digest != key.body_digest => {
            let message = format!("idempotency key {:?} was used with another body", key.key);
            Err(Error::new(Kind::IdempotencyMismatch, message))
        }
        found => Ok(found.map(|(_, result)| result)),
    }
}

fn remember(work: &Work<'_>, tenant: &TenantId, idempotency: Option<&Idempotency>, result: &str) -> Result<(), Error> {
    let Some(key) = idempotency else { return Ok(()) };
    let insert = "INSERT INTO idempotency (tenant, scope, key, shard, digest, result, at) VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6)";
    execute(work, insert, (&tenant.0, &key.scope, &key.key, &key.body_digest[..], result, work.now.0))?;
    Ok(())
}

fn view_of(connection: &Connection, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
    let find = format!("SELECT {VIEW} FROM heads WHERE id = ?1 AND tenant = ?2");
    let mut statement = connection.prepare_cached(&find).map_err(sql)?;
    let raw = statement.query_row((blob(id.bits()), &tenant.0), rows::raw_view).optional().map_err(sql)?;
    let Some(raw) = raw else { return Ok(None) };
    let queued_at = raw.queued_at;
    let mut view = rows::view(raw, None)?;
    if view.state == State::Queued {
        let count = "SELECT count(*) FROM heads WHERE state = 0 AND queued_at < ?1";
        let mut statement = connection.prepare_cached(count).map_err(sql)?;
        view.queue_position = Some(statement.query_row([queued_at], |row| row.get(0)).map_err(sql)?);
    }
    Ok(Some(view))
}

/// Puts accepted inputs into the inbox and makes the session runnable.
fn take(
    work: &mut Work<'_>,
    blobs: &Blobs,
    tenant: &TenantId,
    head: &Head,
    inputs: Vec<((EventId, InputBody), Kept)>,
) -> Result<Vec<Receipt>, Error> {
    let id = head.session.id;
    let mut queued: Vec<Input> = rows::inbox(work.connection, blobs, id, head.consumed)?.into_iter().map(|(_, input)| input).collect();
    let (mut tail, mut urgent, mut archive, mut receipts) = (head.inbox_tail, false, false, Vec::new());
    for ((event, body), kept) in inputs {
        let accepted = accept(&head.session, &queued, &body, work.now).map_err(|refused| {
            let kind = match refused {
                tenure_core::Refused::Full => Kind::Full,
                tenure_core::Refused::UnknownCallback => Kind::NotFound,
                tenure_core::Refused::Ended => Kind::Conflict,
                tenure_core::Refused::NotAnswerable => Kind::Invalid,
            };
            Error::new(kind, format!("{refused} ({id})"))
        })?;
        match accepted {
            Accepted::Append => {
                let input = Input { id: event, at: work.now, body };
                tail += 1;
                let insert = "INSERT INTO inbox (session, position, shard, tenant, id, at, body, blob) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let values = (blob(id.bits()), tail, id.shard().0, &tenant.0, blob(event.bits()), work.now.0, kept.inline, kept.blob);
                execute(work, insert, values)?;
                urgent |= input.body.is_urgent();
                archive |= matches!(input.body, InputBody::Archive);
                queued.push(input.clone());
                receipts.push(Receipt::Queued(input));
            }
            Accepted::Repeats(earlier) => {
                let earlier = queued.iter().find(|input| input.id == earlier).cloned();
                receipts.push(earlier.map_or(Receipt::Nothing, Receipt::Queued));
            }
            Accepted::Answered => receipts.push(Receipt::Logged(answered_by(work, blobs, id, body.answers())?)),
            Accepted::Nothing => receipts.push(Receipt::Nothing),
        }
    }
    if tail == head.inbox_tail {
        return Ok(receipts);
    }
    // Always an update of the head, whatever its state: the parking commit compares inbox_tail
    // under the same row (hazard Z-01).
    let update = "UPDATE heads SET inbox_tail = ?2, urgent = max(urgent, ?3), updated_at = ?4,
        archived_at = CASE WHEN ?5 THEN ?4 ELSE archived_at END WHERE id = ?1";
    execute(work, update, (blob(id.bits()), tail, urgent, work.now.0, archive))?;
    queue_parked(work, id)?;
    work.hints.push(if urgent { Hint::Control(id) } else { Hint::Session(id) });
    if urgent {
        work.hints.push(Hint::Session(id));
    }
    Ok(receipts)
}

/// Queues a session if it is parked.
fn queue_parked(work: &mut Work<'_>, id: SessionId) -> Result<(), Error> {
    let queue = "UPDATE heads SET state = 0, queued_at = ?2, state_since = ?2 WHERE id = ?1 AND state = 2";
    if execute(work, queue, (blob(id.bits()), work.now.0))? > 0 {
        work.hints.push(Hint::Runnable);
    }
    Ok(())
}

/// The event that answered a call earlier.
fn answered_by(work: &Work<'_>, blobs: &Blobs, session: SessionId, call: Option<EventId>) -> Result<Event, Error> {
    let Some(call) = call else { return Err(Error::new(Kind::Invalid, "an answer without a call")) };
    let find = format!("SELECT {EVENT} FROM events WHERE session = ?1 AND answers = ?2 ORDER BY seq LIMIT 1");
    let mut statement = work.connection.prepare_cached(&find).map_err(sql)?;
    let raw = statement.query_row((blob(session.bits()), blob(call.bits())), rows::raw_event).optional().map_err(sql)?;
    match raw {
        Some(raw) => rows::event(blobs, raw),
        None => Err(Error::new(Kind::NotFound, format!("session {session} has no call {call} that waits for an answer"))),
    }
}

/// Takes leases away: queued again with a raised epoch.
fn take_back(work: &mut Work<'_>, condition: &str, value: rusqlite::types::Value) -> Result<Vec<SessionId>, Error> {
    let find = format!("SELECT id FROM heads WHERE state = 1 AND {condition}");
    let mut statement = work.connection.prepare_cached(&find).map_err(sql)?;
    let ids: Vec<u128> = statement
        .query_map([value], |row| rows::bits(row.get(0)?))
        .map_err(sql)?
        .collect::<Result<_, _>>()
        .map_err(sql)?;
    drop(statement);
    let back = "UPDATE heads SET state = 0, epoch = epoch + 1, nonce = NULL, node = NULL, queued_at = ?2, state_since = ?2
        WHERE id = ?1 AND state = 1";
    for id in &ids {
        execute(work, back, (blob(*id), work.now.0))?;
        work.hints.push(Hint::Runnable);
    }
    Ok(ids.into_iter().map(SessionId::from_bits).collect())
}

fn is_alive(work: &Work<'_>, node: NodeId) -> Result<bool, Error> {
    let find = "SELECT count(*) FROM nodes WHERE id = ?1 AND dead = 0";
    let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
    statement.query_row([blob(node.bits())], |row| row.get::<_, i64>(0)).map(|count| count == 1).map_err(sql)
}

fn dead_node(node: NodeId) -> Error {
    Error::new(Kind::Fenced, format!("node {node} is not alive; start a new one"))
}

/// The nonce of the lease at `place` of a claim: recognised again by its upper bits.
fn nonce(claim: LeaseId, place: usize) -> LeaseId {
    LeaseId::from_bits(claim.bits() & !0xff | place as u128 & 0xff)
}

fn lease_again(work: &Work<'_>, claim: &Claim) -> Result<Vec<(u128, u64, u128)>, Error> {
    let find = "SELECT id, epoch, nonce FROM heads WHERE state = 1 AND node = ?1 AND nonce BETWEEN ?2 AND ?3 ORDER BY nonce";
    let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
    let (first, last) = (nonce(claim.id, 0), nonce(claim.id, 0xff));
    let rows = statement
        .query_map((blob(claim.node.bits()), blob(first.bits()), blob(last.bits())), |row| {
            Ok((rows::bits(row.get(0)?)?, row.get(1)?, rows::bits(row.get(2)?)?))
        })
        .map_err(sql)?;
    rows.collect::<Result<_, _>>().map_err(sql)
}

fn phase_name(session: &Session) -> &'static str {
    session.phase().name()
}

#[async_trait]
impl Store for Sqlite {
    async fn create(&self, new: NewSession) -> Result<Created, Error> {
        let tenant = new.session.tenant.clone();
        let kept = self.keep_inputs(&tenant, &new.inputs).await?;
        let blobs = self.blobs.clone();
        self.writer
            .write(move |work| {
                if let Some(earlier) = recall(work, &tenant, new.idempotency.as_ref())? {
                    let id: SessionId = earlier.parse().map_err(|_| Error::new(Kind::Corrupt, "remembered session id"))?;
                    let view = view_of(work.connection, &tenant, id)?.ok_or_else(|| rows::no_session(id))?;
                    return Ok(Created { view, is_repeat: true });
                }
                let mut session = new.session;
                session.created_at = work.now;
                let (id, now) = (session.id, work.now.0);
                let metadata = serde_json::to_string(&new.metadata).unwrap_or_default();
                let insert = "INSERT INTO heads (id, shard, tenant, agent, environment, state, phase, last_seq, queued_at,
                    state_since, updated_at, metadata, body) VALUES (?1, ?2, ?3, ?4, ?5, 2, ?6, 0, ?7, ?7, ?7, ?8, ?9)";
                let values = (
                    blob(id.bits()),
                    id.shard().0,
                    &tenant.0,
                    blob(session.agent.id.bits()),
                    blob(session.environment.bits()),
                    phase_name(&session),
                    now,
                    metadata,
                    stored::encode_session(&session),
                );
                execute(work, insert, values)?;
                let head = Head { session, state: State::Parked, inbox_tail: 0, consumed: 0 };
                take(work, &blobs, &tenant, &head, new.inputs.into_iter().zip(kept).collect())?;
                remember(work, &tenant, new.idempotency.as_ref(), &id.to_string())?;
                let view = view_of(work.connection, &tenant, id)?.ok_or_else(|| rows::no_session(id))?;
                Ok(Created { view, is_repeat: false })
            })
            .await
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error> {
        let kept = self.keep_inputs(&delivery.tenant, &delivery.inputs).await?;
        let blobs = self.blobs.clone();
        self.writer
            .write(move |work| {
                let Delivery { tenant, session, inputs, idempotency } = delivery;
                let head = rows::head(work.connection, &tenant, session)?;
                if let Some(earlier) = recall(work, &tenant, idempotency.as_ref())? {
                    let receipts = again(work, &blobs, &head, &earlier)?;
                    return Ok(Delivered { receipts, is_repeat: true });
                }
                let receipts = take(work, &blobs, &tenant, &head, inputs.into_iter().zip(kept).collect())?;
                let ids: Vec<String> = receipts.iter().map(receipt_id).collect();
                remember(work, &tenant, idempotency.as_ref(), &ids.join(" "))?;
                Ok(Delivered { receipts, is_repeat: false })
            })
            .await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error> {
        let blobs = self.blobs.clone();
        self.writer
            .write(move |work| {
                if !is_alive(work, claim.node)? {
                    return Err(dead_node(claim.node));
                }
                let mut given = lease_again(work, &claim)?;
                if given.is_empty() {
                    given = lease(work, &claim)?;
                }
                let mut leased = Vec::with_capacity(given.len());
                for (id, epoch, nonce) in given {
                    match leased_row(work, &blobs, claim.node, id, epoch, nonce) {
                        Ok(row) => leased.push(row),
                        // A damaged session must not hold up the others (case O-038).
                        Err(error) if error.kind == Kind::Corrupt => {
                            tracing::error!(session = %SessionId::from_bits(id), %error, "session set aside");
                            let aside = "UPDATE heads SET state = 2, wake_at = NULL, node = NULL, nonce = NULL, phase = 'failed' WHERE id = ?1";
                            execute(work, aside, [blob(id)])?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(leased)
            })
            .await
    }

    async fn commit(&self, checkpoint: Checkpoint) -> Result<Committed, Error> {
        if checkpoint.events.len() > MAX_COMMIT_EVENTS {
            return Err(Error::new(Kind::Invalid, format!("a commit of more than {MAX_COMMIT_EVENTS} events")));
        }
        let bodies = checkpoint.events.iter().map(stored::encode_event).collect();
        let kept = self.keep(&checkpoint.lease.tenant, bodies).await?;
        let body = stored::encode_session(&checkpoint.session);
        let blobs = self.blobs.clone();
        self.writer.write(move |work| commit(work, &blobs, checkpoint, kept, &body)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let lease = lease.clone();
        self.writer
            .write(move |work| {
                let release = "UPDATE heads SET state = 0, epoch = epoch + 1, nonce = NULL, node = NULL, claims = max(claims - 1, 0),
                    queued_at = ?4, state_since = ?4 WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1";
                let values = (blob(lease.session.bits()), lease.epoch, blob(lease.nonce.bits()), work.now.0);
                if execute(work, release, values)? > 0 {
                    work.hints.push(Hint::Runnable);
                    work.hints.push(Hint::Session(lease.session));
                }
                Ok(())
            })
            .await
    }

    async fn register(&self, node: NewNode) -> Result<(), Error> {
        self.writer
            .write(move |work| {
                let insert = "INSERT INTO nodes (id, address, label, beats, beat_at, dead) VALUES (?1, ?2, ?3, 0, ?4, 0)
                    ON CONFLICT (id) DO NOTHING";
                if execute(work, insert, (blob(node.id.bits()), &node.address, &node.label, work.now.0))? == 0 {
                    return Err(Error::new(Kind::Conflict, format!("node {} is registered already", node.id)));
                }
                // Dead nodes are remembered for a day, for people who ask what happened.
                let forget = work.now.0 - 24 * 3_600 * 1_000;
                execute(work, "DELETE FROM nodes WHERE dead = 1 AND beat_at < ?1", [forget]).map(drop)
            })
            .await
    }

    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error> {
        self.writer
            .write(move |work| {
                let alive = "UPDATE nodes SET beats = beats + 1, beat_at = ?2 WHERE id = ?1 AND dead = 0";
                if execute(work, alive, (blob(beat.node.bits()), work.now.0))? == 0 {
                    return Err(dead_node(beat.node));
                }
                let find = "SELECT id, epoch, urgent, leased_at FROM heads WHERE state = 1 AND node = ?1";
                let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
                let owned: BTreeMap<u128, (u64, bool, i64)> = statement
                    .query_map([blob(beat.node.bits())], |row| {
                        Ok((rows::bits(row.get(0)?)?, (row.get(1)?, row.get(2)?, row.get(3)?)))
                    })
                    .map_err(sql)?
                    .collect::<Result<_, _>>()
                    .map_err(sql)?;
                drop(statement);
                let mut reply = BeatReply::default();
                for (session, epoch) in &beat.held {
                    match owned.get(&session.bits()) {
                        Some((owned_epoch, urgent, _)) if owned_epoch == epoch => {
                            if *urgent {
                                reply.urgent.push(*session);
                            }
                        }
                        Some(_) | None => reply.lost.push(*session),
                    }
                }
                for (id, (_, _, leased_at)) in owned {
                    let session = SessionId::from_bits(id);
                    let is_held = beat.held.iter().any(|(held, _)| *held == session);
                    if !is_held && Timestamp(leased_at) < beat.claimed_before {
                        take_back(work, "id = ?1", blob(id))?;
                    }
                }
                Ok(reply)
            })
            .await
    }

    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error> {
        self.readers
            .read(move |connection| {
                let find = "SELECT id FROM heads WHERE state = 1 AND node = ?1 AND urgent = 1";
                let mut statement = connection.prepare_cached(find).map_err(sql)?;
                let rows = statement.query_map([blob(node.bits())], |row| rows::bits(row.get(0)?)).map_err(sql)?;
                rows.map(|row| row.map(SessionId::from_bits).map_err(sql)).collect()
            })
            .await
    }

    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
        let seen = seen.to_vec();
        if seen.is_empty() {
            let orphans = "SELECT count(*) FROM heads WHERE state = 1 AND node NOT IN (SELECT id FROM nodes WHERE dead = 0)";
            let count = self
                .readers
                .read(move |connection| connection.prepare_cached(orphans).and_then(|mut find| find.query_row([], |row| row.get::<_, i64>(0))).map_err(sql))
                .await?;
            if count == 0 {
                return Ok(Vec::new());
            }
        }
        self.writer
            .write(move |work| {
                let mut sessions = Vec::new();
                for (node, beats) in seen {
                    let kill = "UPDATE nodes SET dead = 1 WHERE id = ?1 AND beats = ?2 AND dead = 0";
                    if execute(work, kill, (blob(node.bits()), beats))? > 0 {
                        sessions.extend(take_back(work, "node = ?1", blob(node.bits()))?);
                    }
                }
                let orphans = "node NOT IN (SELECT id FROM nodes WHERE dead = 0) AND ?1 IS NULL";
                sessions.extend(take_back(work, orphans, rusqlite::types::Value::Null)?);
                Ok(sessions)
            })
            .await
    }

    async fn retire(&self, node: NodeId) -> Result<(), Error> {
        self.writer
            .write(move |work| {
                execute(work, "UPDATE nodes SET dead = 1 WHERE id = ?1", [blob(node.bits())])?;
                take_back(work, "node = ?1", blob(node.bits())).map(drop)
            })
            .await
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let next = |connection: &Connection| {
            let find = "SELECT min(wake_at) FROM heads WHERE state = 2 AND wake_at IS NOT NULL";
            let mut statement = connection.prepare_cached(find).map_err(sql)?;
            statement.query_row([], |row| row.get::<_, Option<i64>>(0)).map_err(sql)
        };
        // Nothing is written unless something is due.
        let earliest = self.readers.read(move |connection| next(connection)).await?;
        let now = crate::writer::wall();
        if earliest.is_none_or(|at| at > now) {
            return Ok(Due { woken: 0, next: earliest.map(Timestamp), now: Timestamp(now) });
        }
        self.writer
            .write(move |work| {
                let wake = "UPDATE heads SET state = 0, queued_at = ?1, state_since = ?1 WHERE rowid IN
                    (SELECT rowid FROM heads WHERE state = 2 AND wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2)";
                let woken = execute(work, wake, (work.now.0, limit as i64))?;
                if woken > 0 {
                    work.hints.push(Hint::Runnable);
                }
                Ok(Due { woken, next: next(work.connection)?.map(Timestamp), now: work.now })
            })
            .await
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.readers
            .read(|connection| {
                let find = "SELECT n.id, n.address, n.label, n.beats, n.beat_at, n.dead,
                    (SELECT count(*) FROM heads h WHERE h.state = 1 AND h.node = n.id) FROM nodes n ORDER BY n.id";
                let mut statement = connection.prepare_cached(find).map_err(sql)?;
                let rows = statement.query_map([], |row| {
                    Ok(Node {
                        id: NodeId::from_bits(rows::bits(row.get(0)?)?),
                        address: row.get(1)?,
                        label: row.get(2)?,
                        beats: row.get(3)?,
                        beat_at: Timestamp(row.get(4)?),
                        is_dead: row.get(5)?,
                        leases: row.get(6)?,
                    })
                });
                rows.map_err(sql)?.collect::<Result<_, _>>().map_err(sql)
            })
            .await
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |connection| view_of(connection, &tenant, id)).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error> {
        self.readers.read(move |connection| sessions(connection, &query)).await
    }

    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        let (tenant, tail) = (tenant.clone(), tail.to_owned());
        self.readers
            .read(move |connection| {
                let find = "SELECT id FROM heads WHERE tenant = ?1 ORDER BY id DESC";
                let mut statement = connection.prepare_cached(find).map_err(sql)?;
                let rows = statement.query_map([&tenant.0], |row| rows::bits(row.get(0)?)).map_err(sql)?;
                let ids = rows.map(|row| row.map(SessionId::from_bits).map_err(sql));
                let matching = ids.filter(|id| id.as_ref().map_or(true, |id| id.to_string().ends_with(&tail)));
                matching.take(limit).collect()
            })
            .await
    }

    async fn counts(&self) -> Result<Counts, Error> {
        self.readers
            .read(|connection| {
                let count = |state: &str| {
                    let find = format!("SELECT count(*) FROM heads WHERE {state}");
                    connection.prepare_cached(&find).and_then(|mut find| find.query_row([], |row| row.get(0))).map_err(sql)
                };
                Ok(Counts {
                    queued: count("state = 0")?,
                    leased: count("state = 1")?,
                    parked: count("state = 2")?,
                    ended: count("state = 3")?,
                })
            })
            .await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error> {
        let blobs = self.blobs.clone();
        self.readers
            .read(move |connection| {
                let (beyond, start, order) = match query.order {
                    Order::Ascending => (">", 0, "ASC"),
                    Order::Descending => ("<", i64::MAX, "DESC"),
                };
                let find = format!(
                    "SELECT {EVENT} FROM events WHERE session = ?1 AND seq {beyond} ?2 AND tenant = ?3 ORDER BY seq {order} LIMIT ?4"
                );
                let after = query.after.map_or(start, |after| i64::try_from(after).unwrap_or(i64::MAX));
                let limit = query.limit.min(MAX_PAGE) as i64;
                let mut statement = connection.prepare_cached(&find).map_err(sql)?;
                let rows = statement
                    .query_map((blob(query.session.bits()), after, &query.tenant.0, limit), rows::raw_event)
                    .map_err(sql)?;
                rows.map(|row| row.map_err(sql).and_then(|row| rows::event(&blobs, row))).collect()
            })
            .await
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
        let blobs = self.blobs.clone();
        self.readers.read(move |connection| rows::inbox(connection, &blobs, session, 0)).await
    }

    async fn annotate(&self, tenant: &TenantId, id: SessionId, changes: BTreeMap<String, Option<String>>) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.writer
            .write(move |work| {
                let find = "SELECT metadata FROM heads WHERE id = ?1 AND tenant = ?2";
                let text: Option<String> = work
                    .connection
                    .prepare_cached(find)
                    .and_then(|mut find| find.query_row((blob(id.bits()), &tenant.0), |row| row.get(0)).optional())
                    .map_err(sql)?;
                let mut metadata = rows::metadata(&text.ok_or_else(|| rows::no_session(id))?);
                for (key, value) in changes {
                    match value {
                        Some(value) => metadata.insert(key, value),
                        None => metadata.remove(&key),
                    };
                }
                let text = serde_json::to_string(&metadata).unwrap_or_default();
                execute(work, "UPDATE heads SET metadata = ?2, updated_at = ?3 WHERE id = ?1", (blob(id.bits()), text, work.now.0)).map(drop)
            })
            .await
    }

    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.writer
            .write(move |work| {
                let head = rows::head(work.connection, &tenant, id)?;
                if head.state == State::Leased {
                    return Err(Error::new(Kind::Conflict, format!("session {id} is being worked on; cancel it first")));
                }
                for delete in ["DELETE FROM events WHERE session = ?1", "DELETE FROM inbox WHERE session = ?1", "DELETE FROM heads WHERE id = ?1"] {
                    execute(work, delete, [blob(id.bits())])?;
                }
                work.hints.push(Hint::Session(id));
                Ok(())
            })
            .await
    }

    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error> {
        self.writer
            .write(move |work| {
                if let Some(earlier) = recall(work, &agent.tenant, idempotency.as_ref())? {
                    let id = earlier.parse().map_err(|_| Error::new(Kind::Corrupt, "remembered agent id"))?;
                    let found = find_agent(work.connection, &agent.tenant, id, None)?;
                    return found.ok_or_else(|| Error::new(Kind::NotFound, format!("there is no agent {id}")));
                }
                let newest = find_agent(work.connection, &agent.tenant, agent.id, None)?;
                let next = newest.as_ref().map_or(1, |newest| newest.version + 1);
                if agent.version != next {
                    let message = format!("agent {} has version {} meanwhile; read it again", agent.id, next - 1);
                    return Err(Error::new(Kind::Conflict, message));
                }
                let mut agent = agent;
                agent.updated_at = work.now;
                agent.created_at = newest.map_or(work.now, |newest| newest.created_at);
                let insert = "INSERT INTO agents (tenant, id, version, shard, archived, body) VALUES (?1, ?2, ?3, 0, 0, ?4)";
                execute(work, insert, (&agent.tenant.0, blob(agent.id.bits()), agent.version, stored::encode_agent(&agent)))?;
                remember(work, &agent.tenant, idempotency.as_ref(), &agent.id.to_string())?;
                Ok(agent)
            })
            .await
    }

    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |connection| find_agent(connection, &tenant, id, version)).await
    }

    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        self.readers
            .read(move |connection| {
                let find = "SELECT body FROM agents a WHERE tenant = ?1 AND (?2 OR archived = 0) AND version =
                    (SELECT max(version) FROM agents b WHERE b.tenant = a.tenant AND b.id = a.id) ORDER BY id DESC LIMIT ?3 OFFSET ?4";
                let bodies = texts(connection, find, (&query.tenant.0, query.with_archived, query.limit as i64, query.offset as i64))?;
                bodies.iter().map(|body| stored::decode_agent(body).map_err(corrupt)).collect()
            })
            .await
    }

    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        let tenant = tenant.clone();
        self.readers
            .read(move |connection| {
                let find = "SELECT body FROM agents WHERE tenant = ?1 AND id = ?2 ORDER BY version DESC LIMIT ?3 OFFSET ?4";
                let bodies = texts(connection, find, (&tenant.0, blob(id.bits()), query.limit as i64, query.offset as i64))?;
                bodies.iter().map(|body| stored::decode_agent(body).map_err(corrupt)).collect()
            })
            .await
    }

    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
        let tenant = tenant.clone();
        self.writer
            .write(move |work| {
                let find = "SELECT body FROM agents WHERE tenant = ?1 AND id = ?2 ORDER BY version";
                let bodies = texts(work.connection, find, (&tenant.0, blob(id.bits())))?;
                let mut newest = None;
                for body in bodies {
                    let mut agent = stored::decode_agent(&body).map_err(corrupt)?;
                    agent.archived_at.get_or_insert(work.now);
                    let update = "UPDATE agents SET archived = 1, body = ?4 WHERE tenant = ?1 AND id = ?2 AND version = ?3";
                    execute(work, update, (&tenant.0, blob(id.bits()), agent.version, stored::encode_agent(&agent)))?;
                    newest = Some(agent);
                }
                newest.ok_or_else(|| Error::new(Kind::NotFound, format!("there is no agent {id}")))
            })
            .await
    }

    async fn put_environment(&self, environment: Environment, idempotency: Option<Idempotency>) -> Result<Environment, Error> {
        self.writer
            .write(move |work| {
                let tenant = environment.tenant.clone();
                if let Some(earlier) = recall(work, &tenant, idempotency.as_ref())? {
                    let id = earlier.parse().map_err(|_| Error::new(Kind::Corrupt, "remembered environment id"))?;
                    let found = find_environment(work.connection, &tenant, id)?;
                    return found.ok_or_else(|| Error::new(Kind::NotFound, format!("there is no environment {id}")));
                }
                let mut environment = environment;
                environment.updated_at = work.now;
                let earlier = find_environment(work.connection, &tenant, environment.id)?;
                environment.created_at = earlier.map_or(work.now, |earlier| earlier.created_at);
                if let Some(at) = &mut environment.archived_at
                    && at.0 == 0
                {
                    *at = work.now;
                }
                let put = "INSERT INTO environments (tenant, id, shard, archived, body) VALUES (?1, ?2, 0, ?3, ?4)
                    ON CONFLICT (tenant, id) DO UPDATE SET archived = ?3, body = ?4";
                let values = (&tenant.0, blob(environment.id.bits()), environment.archived_at.is_some(), stored::encode_environment(&environment));
                execute(work, put, values)?;
                remember(work, &tenant, idempotency.as_ref(), &environment.id.to_string())?;
                Ok(environment)
            })
            .await
    }

    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |connection| find_environment(connection, &tenant, id)).await
    }

    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error> {
        self.readers
            .read(move |connection| {
                let find = "SELECT body FROM environments WHERE tenant = ?1 AND (?2 OR archived = 0) ORDER BY id DESC LIMIT ?3 OFFSET ?4";
                let bodies = texts(connection, find, (&query.tenant.0, query.with_archived, query.limit as i64, query.offset as i64))?;
                bodies.iter().map(|body| stored::decode_environment(body).map_err(corrupt)).collect()
            })
            .await
    }

    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.writer
            .write(move |work| {
                let used = "SELECT count(*) FROM heads WHERE tenant = ?1 AND environment = ?2 AND state <> 3";
                let count: i64 = work
                    .connection
                    .prepare_cached(used)
                    .and_then(|mut find| find.query_row((&tenant.0, blob(id.bits())), |row| row.get(0)))
                    .map_err(sql)?;
                if count > 0 {
                    return Err(Error::new(Kind::Conflict, format!("{count} sessions use environment {id}; end them or archive it")));
                }
                let deleted = execute(work, "DELETE FROM environments WHERE tenant = ?1 AND id = ?2", (&tenant.0, blob(id.bits())))?;
                if deleted == 0 {
                    return Err(Error::new(Kind::NotFound, format!("there is no environment {id}")));
                }
                Ok(())
            })
            .await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.writer.write(|work| Ok(work.now)).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.wake.subscribe()
    }

    async fn close(&self) {
        self.writer.close().await;
        self.wake.close();
    }
}

/// Leases queued rows, oldest first, taking turns between tenants (promise P16).
fn lease(work: &Work<'_>, claim: &Claim) -> Result<Vec<(u128, u64, u128)>, Error> {
    let find = "SELECT id, tenant FROM heads WHERE state = 0 ORDER BY queued_at LIMIT ?1";
    let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
    // Looks further than it leases, so that one tenant's burst does not hide the others.
    let window = claim.limit.saturating_mul(8).max(64) as i64;
    let queued: Vec<(u128, String)> = statement
        .query_map([window], |row| Ok((rows::bits(row.get(0)?)?, row.get(1)?)))
        .map_err(sql)?
        .collect::<Result<_, _>>()
        .map_err(sql)?;
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ordered: Vec<(usize, u128)> = Vec::with_capacity(queued.len());
    for (id, tenant) in &queued {
        let turn = turns.entry(tenant).or_default();
        ordered.push((*turn, *id));
        *turn += 1;
    }
    ordered.sort_by_key(|(turn, _)| *turn);
    let take = "UPDATE heads SET state = 1, epoch = epoch + 1, nonce = ?2, node = ?3, leased_at = ?4, state_since = ?4,
        claims = claims + 1 WHERE id = ?1 AND state = 0 RETURNING epoch";
    let mut given = Vec::new();
    for (place, (_, id)) in ordered.into_iter().take(claim.limit.min(0x100)).enumerate() {
        let nonce = nonce(claim.id, place).bits();
        let mut statement = work.connection.prepare_cached(take).map_err(sql)?;
        let epoch = statement
            .query_row((blob(id), blob(nonce), blob(claim.node.bits()), work.now.0), |row| row.get(0))
            .optional()
            .map_err(|error| sqlite_error("lease a session", error))?;
        given.extend(epoch.map(|epoch| (id, epoch, nonce)));
    }
    Ok(given)
}

fn leased_row(work: &Work<'_>, blobs: &Blobs, node: NodeId, id: u128, epoch: u64, nonce: u128) -> Result<Leased, Error> {
    let find = "SELECT tenant, body, consumed, claims, queued_at FROM heads WHERE id = ?1";
    let mut statement = work.connection.prepare_cached(find).map_err(sql)?;
    let (tenant, body, consumed, claims, queued_at): (String, String, u64, u32, i64) = statement
        .query_row([blob(id)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .map_err(sql)?;
    let session = SessionId::from_bits(id);
    let lease = Lease { tenant: TenantId(tenant), session, epoch, nonce: LeaseId::from_bits(nonce), node };
    Ok(Leased {
        lease,
        session: stored::decode_session(&body).map_err(corrupt)?,
        inbox: rows::inbox(work.connection, blobs, session, consumed)?,
        claims,
        queued_at: Timestamp(queued_at),
        now: work.now,
    })
}

/// The checkpoint. The guarded update of the head comes first; everything else hangs on it.
fn commit(work: &mut Work<'_>, blobs: &Blobs, checkpoint: Checkpoint, kept: Vec<Kept>, body: &str) -> Result<Committed, Error> {
    let Checkpoint { lease, commit_id, events, session, consumed, then } = checkpoint;
    let id = lease.session;
    let base = session.last_seq - events.len() as u64;
    let update = "UPDATE heads SET body = ?4, last_seq = ?5, phase = ?6, commit_id = ?7, updated_at = ?8,
        consumed = max(consumed, ?9), claims = CASE WHEN ?10 THEN 0 ELSE claims END, wake_at = ?11
        WHERE id = ?1 AND epoch = ?2 AND nonce = ?3 AND state = 1 AND last_seq = ?12
        RETURNING inbox_tail, consumed";
    let values = (
        blob(id.bits()),
        lease.epoch,
        blob(lease.nonce.bits()),
        body,
        session.last_seq,
        phase_name(&session),
        blob(commit_id.bits()),
        work.now.0,
        consumed,
        !events.is_empty(),
        session.wakes_at().map(|at| at.0),
        base,
    );
    let row: Option<(u64, u64)> = work
        .connection
        .prepare_cached(update)
        .and_then(|mut update| update.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional())
        .map_err(|error| sqlite_error("commit a checkpoint", error))?;
    let Some((inbox_tail, consumed)) = row else { return commit_again(work, blobs, &lease, commit_id) };
    let insert = "INSERT INTO events (session, seq, shard, tenant, id, at, step, answers, body, blob)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    for (event, kept) in events.iter().zip(kept) {
        let answers = rows::answers(&event.body).map(|call| blob(call.bits()));
        let values = (
            blob(id.bits()),
            event.seq,
            id.shard().0,
            &lease.tenant.0,
            blob(event.id.bits()),
            event.at.0,
            event.step,
            answers,
            kept.inline,
            kept.blob,
        );
        execute(work, insert, values)?;
    }
    if consumed > 0 {
        execute(work, "DELETE FROM inbox WHERE session = ?1 AND position <= ?2", (blob(id.bits()), consumed))?;
    }
    let inbox = if inbox_tail > consumed { rows::inbox(work.connection, blobs, id, consumed)? } else { Vec::new() };
    if !inbox.iter().any(|(_, input)| input.body.is_urgent()) {
        execute(work, "UPDATE heads SET urgent = 0 WHERE id = ?1 AND urgent = 1", [blob(id.bits())])?;
    }
    let state = if session.has_ended() {
        State::Ended
    } else {
        match then {
            Then::Keep => State::Leased,
            Then::Park if inbox.is_empty() => State::Parked,
            Then::Park => State::Leased,
            Then::Yield => State::Queued,
        }
    };
    if state != State::Leased {
        let leave = "UPDATE heads SET state = ?2, state_since = ?3, queued_at = ?3, node = NULL, nonce = NULL WHERE id = ?1";
        execute(work, leave, (blob(id.bits()), rows::state_number(state), work.now.0))?;
    }
    if state == State::Queued {
        work.hints.push(Hint::Runnable);
    }
    work.hints.push(Hint::Session(id));
    Ok(Committed { is_held: state == State::Leased, inbox, now: work.now })
}

/// A commit that found no row: either it was applied before and its reply was lost (hazard Z-20),
/// or the lease is gone.
fn commit_again(work: &Work<'_>, blobs: &Blobs, lease: &Lease, commit_id: LeaseId) -> Result<Committed, Error> {
    let find = "SELECT state, epoch, consumed FROM heads WHERE id = ?1 AND commit_id = ?2";
    let row: Option<(i64, u64, u64)> = work
        .connection
        .prepare_cached(find)
        .and_then(|mut find| {
            find.query_row((blob(lease.session.bits()), blob(commit_id.bits())), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .map_err(sql)?;
    match row {
        Some((state, epoch, consumed)) => {
            let is_held = state == rows::state_number(State::Leased) && epoch == lease.epoch;
            Ok(Committed { is_held, inbox: rows::inbox(work.connection, blobs, lease.session, consumed)?, now: work.now })
        }
        None => Err(Error::new(Kind::Fenced, format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch))),
    }
}

/// The receipts of a delivery that is repeated with its idempotency key.
fn again(work: &Work<'_>, blobs: &Blobs, head: &Head, ids: &str) -> Result<Vec<Receipt>, Error> {
    let queued = rows::inbox(work.connection, blobs, head.session.id, head.consumed)?;
    let find = format!("SELECT {EVENT} FROM events WHERE session = ?1 AND id = ?2");
    ids.split(' ')
        .filter(|id| !id.is_empty())
        .map(|id| {
            let Ok(id) = id.parse::<EventId>() else { return Ok(Receipt::Nothing) };
            if let Some((_, input)) = queued.iter().find(|(_, input)| input.id == id) {
                return Ok(Receipt::Queued(input.clone()));
            }
            let raw = work
                .connection
                .prepare_cached(&find)
                .and_then(|mut find| find.query_row((blob(head.session.id.bits()), blob(id.bits())), rows::raw_event).optional())
                .map_err(sql)?;
            raw.map_or(Ok(Receipt::Nothing), |raw| rows::event(blobs, raw).map(Receipt::Logged))
        })
        .collect()
}

fn receipt_id(receipt: &Receipt) -> String {
    match receipt {
        Receipt::Queued(input) => input.id.to_string(),
        Receipt::Logged(event) => event.id.to_string(),
        Receipt::Nothing => "-".to_owned(),
    }
}

fn texts(connection: &Connection, find: &str, values: impl rusqlite::Params) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare_cached(find).map_err(sql)?;
    let rows = statement.query_map(values, |row| row.get(0)).map_err(sql)?;
    rows.collect::<Result<_, _>>().map_err(sql)
}

fn find_agent(connection: &Connection, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
    let find = "SELECT body FROM agents WHERE tenant = ?1 AND id = ?2 AND (?3 IS NULL OR version = ?3) ORDER BY version DESC LIMIT 1";
    let bodies = texts(connection, find, (&tenant.0, blob(id.bits()), version))?;
    bodies.first().map(|body| stored::decode_agent(body).map_err(corrupt)).transpose()
}

fn find_environment(connection: &Connection, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
    let bodies = texts(connection, "SELECT body FROM environments WHERE tenant = ?1 AND id = ?2", (&tenant.0, blob(id.bits())))?;
    bodies.first().map(|body| stored::decode_environment(body).map_err(corrupt)).transpose()
}

fn sessions(connection: &Connection, query: &SessionQuery) -> Result<Vec<SessionView>, Error> {
    let (beyond, order) = match query.order {
        Order::Ascending => (">", "ASC"),
        Order::Descending => ("<", "DESC"),
    };
    let mut find = format!("SELECT {VIEW} FROM heads WHERE tenant = ?1");
    let mut values: Vec<rusqlite::types::Value> = vec![query.tenant.0.clone().into()];
    let mut and = |condition: String, value: rusqlite::types::Value| {
        values.push(value);
        find.push_str(&format!(" AND {condition} ?{}", values.len()));
    };
    if let Some(agent) = query.agent {
        and("agent =".to_owned(), blob(agent.bits()));
    }
    if let Some(after) = query.after {
        and(format!("id {beyond}"), blob(after.bits()));
    }
    if let Some(from) = query.created_from {
        and("id >=".to_owned(), blob(first_id(from)));
    }
    if let Some(before) = query.created_before {
        and("id <".to_owned(), blob(first_id(before)));
    }
    if !query.with_archived {
        find.push_str(" AND archived_at IS NULL");
    }
    if !query.phases.is_empty() {
        let wanted: Vec<String> = query.phases.iter().map(|phase| phase_condition(*phase)).collect();
        find.push_str(&format!(" AND ({})", wanted.join(" OR ")));
    }
    find.push_str(&format!(" ORDER BY id {order} LIMIT {}", query.limit.min(MAX_PAGE)));
    let mut statement = connection.prepare_cached(&find).map_err(sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), rows::raw_view).map_err(sql)?;
    let views = rows.map(|row| row.map_err(sql).and_then(|raw| rows::view(raw, None)));
    // One damaged record must not hide the others (case O-038).
    views.filter(|view| view.as_ref().map_or_else(|error| error.kind != Kind::Corrupt, |_| true)).collect()
}

fn phase_condition(phase: Phase) -> String {
    match phase {
        Phase::Working => "state = 1".to_owned(),
        other => format!("(phase = '{}' AND state <> 1)", other.name()),
    }
}

/// The smallest id of a time: ids begin with their milliseconds.
fn first_id(at: Timestamp) -> u128 {
    u128::from(u64::try_from(at.0).unwrap_or(0)) << 80
}
