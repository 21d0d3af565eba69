//! The port in memory: a model that the conformance suite also runs on, and that tests use.
//!
//! One lock around plain maps, so that each operation is one transaction for free. Time stands still
//! until a test moves it. Nothing outlives the process.

mod conditions;
mod planted;

pub use planted::Planted;

use crate::lineage::{self, Ancestor};
use crate::{
    Beat, BeatReply, CatalogQuery, Checkpoint, Claim, Committed, Counts, Created, Delivered, Delivery, Due, EXTERNAL,
    Error, EventQuery, Hint, Idempotency, KEPT_EPOCHS, Kind, Lane, Lease, LeaseEnd, LeaseQuery, Leased,
    MAX_EVENT_BYTES, MAX_PAGE, NewNode, NewSession, Node, Notes, Order, PastEnd, PastLease, QueueDepth, Receipt,
    Removed, Renewed, SUSPECT_AFTER, SessionQuery, SessionView, State, Store,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tenure_core::condition::Condition;
use tenure_core::{
    Accepted, Agent, AgentId, ConditionId, End, Environment, EnvironmentId, Event, EventId, Input, InputBody, LeaseId,
    Millis, NodeId, Phase, Position, Refused, Session, SessionId, TenantId, Timestamp, accept, stored,
};
use tokio::sync::broadcast;

/// Hints that a receiver may be behind.
const BACKLOG: usize = 1_024;

/// When a new store's clock stands, unless a test says otherwise.
const START: Timestamp = Timestamp(1_800_000_000_000);

/// A store in memory.
#[derive(Debug)]
pub struct Memory {
    data: Mutex<Data>,
    hints: broadcast::Sender<Hint>,
}

#[derive(Debug, Default)]
struct Data {
    now: Timestamp,
    /// Orders sessions that were queued in the same millisecond.
    queued: u64,
    heads: BTreeMap<SessionId, Head>,
    nodes: BTreeMap<NodeId, Node>,
    agents: BTreeMap<(TenantId, AgentId), Vec<Agent>>,
    environments: BTreeMap<(TenantId, EnvironmentId), Environment>,
    conditions: BTreeMap<ConditionId, Condition>,
    keys: BTreeMap<(TenantId, String, String), ([u8; 32], Remembered)>,
    turn: Option<TenantId>,
    planted: planted::Bugs,
}

/// What a repeated request gets.
#[derive(Clone, Debug)]
enum Remembered {
    Session(SessionId),
    Receipts(Vec<Receipt>),
    Agent(AgentId, u32),
    Environment(EnvironmentId),
}

#[derive(Debug)]
struct Head {
    session: Session,
    metadata: BTreeMap<String, String>,
    state: State,
    epoch: u64,
    /// The lease, while one is out.
    lease: Option<(NodeId, LeaseId)>,
    claim: Option<LeaseId>,
    leased_at: Timestamp,
    leased_seq: u64,
    past: VecDeque<PastLease>,
    commit: Option<LeaseId>,
    claims: u32,
    /// The queue of external loops that may lease it; `None` for workers.
    queue: Option<String>,
    /// When the lease of an external loop ends.
    until: Timestamp,
    /// Let go in this generation of the condition that it waited on.
    granted: Option<u64>,
    inbox: VecDeque<(u64, Input)>,
    tail: u64,
    consumed: u64,
    urgent: u64,
    queued_at: Timestamp,
    place: u64,
    state_since: Timestamp,
    updated_at: Timestamp,
    archived_at: Option<Timestamp>,
    /// Whose rows the log begins with. Here they are copies, so that nothing has to be kept for them.
    lineage: Vec<Ancestor>,
    log: Vec<Event>,
}

impl Head {
    fn is_fenced_by(&self, lease: &Lease) -> bool {
        self.state == State::Leased
            && self.epoch == lease.epoch
            && self.lease.is_some_and(|(_, nonce)| nonce == lease.nonce)
    }

    fn is_urgent(&self) -> bool {
        self.urgent > self.consumed
    }

    /// The lease that is out.
    fn current(&self) -> Option<PastLease> {
        let (node, _) = self.lease?;
        Some(PastLease { epoch: self.epoch, node, from: self.leased_at, from_seq: self.leased_seq, end: None })
    }

    /// Writes down the lease that is about to end, and forgets those that are too old.
    fn note_end(&mut self, at: Timestamp, how: LeaseEnd) {
        let Some(lease) = self.current() else { return };
        let oldest = lease.epoch.saturating_sub(KEPT_EPOCHS);
        self.past.push_back(PastLease { end: Some(PastEnd { at, seq: self.session.last_seq, how }), ..lease });
        while self.past.front().is_some_and(|past| past.epoch <= oldest) {
            self.past.pop_front();
        }
    }

    fn waiting(&self) -> Vec<(u64, Input)> {
        self.inbox.iter().take(MAX_PAGE).cloned().collect()
    }

    fn answer(&self, call: EventId) -> Option<&Event> {
        self.log.iter().find(|event| event.body.answers() == Some(call))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store whose clock stands still.
    pub fn new() -> Self {
        let data = Data { now: START, ..Data::default() };
        Self { data: Mutex::new(data), hints: broadcast::channel(BACKLOG).0 }
    }

    /// Sets the clock; one that would go back stays (hazard Z-24).
    pub fn set_now(&self, now: Timestamp) {
        let mut data = self.lock();
        data.now = data.now.max(now);
        drop(data);
        self.hint(Hint::Anything);
    }

    /// Sets the clock without a hint: nobody is told that time goes by.
    pub fn pass_to(&self, now: Timestamp) {
        let mut data = self.lock();
        data.now = data.now.max(now);
    }

    /// Moves the clock on.
    pub fn advance(&self, span: Millis) {
        let now = self.lock().now.after(span);
        self.set_now(now);
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("nobody panics while holding it")
    }

    fn hint(&self, hint: Hint) {
        // Nobody listens: nobody is told.
        let _ = self.hints.send(hint);
    }
}

fn missing(id: SessionId) -> Error {
    Error::new(Kind::NotFound, format!("session {id} does not exist"))
}

impl Data {
    /// The lineage and the log with which a session begins.
    fn shared(&self, session: &Session, own: Vec<Event>) -> Result<(Vec<Ancestor>, Vec<Event>), Error> {
        let Some(forked) = session.forked else { return Ok((Vec::new(), own)) };
        let parent = self.head(&session.tenant, forked.session)?;
        if forked.seq > parent.session.last_seq {
            return Err(lineage::beyond(forked));
        }
        let lineage = lineage::of_fork(forked.session, &parent.lineage, forked.seq)?;
        let shared = parent.log.iter().take_while(|event| event.seq <= forked.seq);
        Ok((lineage, shared.cloned().chain(own).collect()))
    }

    /// Up to where forks share rows of a session.
    fn shared_of(&self, id: SessionId) -> impl Iterator<Item = u64> {
        let ancestors = self.heads.values().flat_map(|head| &head.lineage);
        ancestors.filter(move |ancestor| ancestor.session == id).map(|ancestor| ancestor.up_to)
    }

    fn head(&self, tenant: &TenantId, id: SessionId) -> Result<&Head, Error> {
        self.heads.get(&id).filter(|head| head.session.tenant == *tenant).ok_or_else(|| missing(id))
    }

    fn head_mut(&mut self, tenant: &TenantId, id: SessionId) -> Result<&mut Head, Error> {
        self.heads.get_mut(&id).filter(|head| head.session.tenant == *tenant).ok_or_else(|| missing(id))
    }

    fn earlier(&self, tenant: &TenantId, key: Option<&Idempotency>) -> Result<Option<Remembered>, Error> {
        let Some(key) = key else { return Ok(None) };
        match self.keys.get(&(tenant.clone(), key.scope.clone(), key.key.clone())) {
            None => Ok(None),
            Some((digest, result)) if *digest == key.body_digest => Ok(Some(result.clone())),
            Some(_) => {
                let message = format!("the idempotency key {:?} was used before with another request", key.key);
                Err(Error::new(Kind::IdempotencyMismatch, message))
            }
        }
    }

    fn remember(&mut self, tenant: &TenantId, key: Option<Idempotency>, result: Remembered) {
        if let Some(key) = key {
            self.keys.insert((tenant.clone(), key.scope, key.key), (key.body_digest, result));
        }
    }

    /// Makes a session runnable.
    fn queue(&mut self, id: SessionId) {
        self.queued += 1;
        let (now, place) = (self.now, self.queued);
        if let Some(head) = self.heads.get_mut(&id) {
            head.state = State::Queued;
            head.lease = None;
            head.queued_at = now;
            head.state_since = now;
            head.place = place;
        }
    }

    /// Takes a lease back, whoever holds it.
    fn take_back(&mut self, id: SessionId, how: LeaseEnd) {
        let now = self.now;
        if let Some(head) = self.heads.get_mut(&id) {
            head.note_end(now, how);
            head.epoch += 1;
        }
        self.queue(id);
    }

    fn owned(&self, node: NodeId) -> Vec<SessionId> {
        let owned = self.heads.iter().filter(|(_, head)| head.lease.is_some_and(|(owner, _)| owner == node));
        owned.map(|(id, _)| *id).collect()
    }

    fn is_alive(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| !node.is_dead)
    }

    fn view(&self, head: &Head) -> SessionView {
        let is_before = |other: &&Head| {
            other.state == State::Queued
                && other.queue == head.queue
                && other.session.tenant == head.session.tenant
                && (other.queued_at, other.place) < (head.queued_at, head.place)
        };
        SessionView {
            session: head.session.clone(),
            metadata: head.metadata.clone(),
            state: head.state,
            epoch: head.epoch,
            node: head.lease.map(|(node, _)| node),
            state_since: head.state_since,
            updated_at: head.updated_at,
            archived_at: head.archived_at,
            inbox_len: head.tail - head.consumed,
            queue_position: (head.state == State::Queued).then(|| self.heads.values().filter(is_before).count() as u64),
        }
    }

    /// Decides about all inputs, then appends what is taken. Returns the receipts and the hints.
    fn deliver(
        &mut self,
        tenant: &TenantId,
        id: SessionId,
        inputs: Vec<(EventId, InputBody)>,
    ) -> Result<(Vec<Receipt>, Vec<Hint>), Error> {
        let now = self.now;
        let head = self.head(tenant, id)?;
        let mut queued: Vec<Input> = head.inbox.iter().map(|(_, input)| input.clone()).collect();
        let taken = queued.len();
        let mut receipts = Vec::with_capacity(inputs.len());
        let mut archives = false;
        for (event, body) in inputs {
            check_size(stored::encode_input(&Input { id: event, at: now, body: body.clone() }).len())?;
            let accepted = accept(&head.session, &queued, &body, now).map_err(|refused| refuse(id, refused))?;
            receipts.push(match accepted {
                Accepted::Append => {
                    let input = Input { id: event, at: now, body };
                    queued.push(input.clone());
                    Receipt::Queued(input)
                }
                Accepted::Repeats(first) => {
                    let earlier = queued.iter().find(|input| input.id == first);
                    earlier.map_or(Receipt::Nothing, |input| Receipt::Queued(input.clone()))
                }
                Accepted::Answered => Receipt::Logged(answer(head, &body)?.clone()),
                Accepted::Nothing => {
                    archives |= head.session.has_ended() && body == InputBody::Archive;
                    Receipt::Nothing
                }
            });
        }
        let mut hints = Vec::new();
        let head = self.head_mut(tenant, id)?;
        if archives {
            head.archived_at.get_or_insert(now);
            hints.push(Hint::Session(id));
        }
        let new = queued.split_off(taken);
        if new.is_empty() {
            return Ok((receipts, hints));
        }
        for input in new {
            head.tail += 1;
            if input.body.is_urgent() {
                head.urgent = head.tail;
                head.queue = None;
                hints.push(Hint::Control(id));
            }
            head.inbox.push_back((head.tail, input));
        }
        hints.push(Hint::Session(id));
        if head.state == State::Parked {
            self.queue(id);
            hints.push(Hint::Runnable);
        }
        Ok((receipts, hints))
    }

    /// Delivers inputs and a change of the client's notes, all or nothing. An input tells of the notes,
    /// unless the session has ended, or is about to.
    fn deliver_with_notes(
        &mut self,
        tenant: &TenantId,
        id: SessionId,
        mut inputs: Vec<(EventId, InputBody)>,
        notes: Option<&Notes>,
    ) -> Result<(Vec<Receipt>, Vec<Hint>), Error> {
        let now = self.now;
        let head = self.head(tenant, id)?;
        let Some((notes, after)) = notes.and_then(|notes| Some((notes, notes.apply(&head.metadata)?))) else {
            return self.deliver(tenant, id, inputs);
        };
        let told = InputBody::Metadata(after.clone());
        let queued: Vec<Input> = head.inbox.iter().map(|(_, input)| input.clone()).collect();
        let count = inputs.len();
        if accept(&head.session, &queued, &told, now) != Err(Refused::Ended) {
            inputs.push((notes.id, told));
        }
        let (mut receipts, mut hints) = self.deliver(tenant, id, inputs)?;
        receipts.truncate(count);
        let head = self.head_mut(tenant, id)?;
        head.metadata = after;
        head.updated_at = now;
        hints.push(Hint::Session(id));
        Ok((receipts, hints))
    }

    /// Whom to lease: one session of each tenant after the other, oldest first; of suspects one.
    fn choose(&mut self, node: NodeId, lane: &Lane, limit: usize) -> Vec<SessionId> {
        let is_held = |head: &Head| head.lease.is_some_and(|(owner, _)| owner == node) && head.claims > SUSPECT_AFTER;
        let is_wanted = |head: &Head| match lane {
            Lane::Workers => head.queue.is_none(),
            Lane::Queue { tenant, name, .. } => head.queue.as_ref() == Some(name) && head.session.tenant == *tenant,
        };
        // Each lease of an external loop lives and dies alone.
        let mut may_take_suspect = *lane != Lane::Workers || !self.heads.values().any(is_held);
        let mut queues: BTreeMap<TenantId, Vec<(u64, SessionId)>> = BTreeMap::new();
        for (id, head) in self.heads.iter().filter(|(_, head)| head.state == State::Queued && is_wanted(head)) {
            queues.entry(head.session.tenant.clone()).or_default().push((head.place, *id));
        }
        let mut order: VecDeque<(TenantId, VecDeque<(u64, SessionId)>)> = VecDeque::new();
        for (tenant, mut queue) in queues {
            queue.sort_unstable();
            order.push_back((tenant, queue.into()));
        }
        let after = order.iter().position(|(tenant, _)| self.turn.as_ref().is_some_and(|turn| tenant > turn));
        order.rotate_left(after.unwrap_or(0));
        let mut chosen = Vec::new();
        while chosen.len() < limit
            && let Some((tenant, mut queue)) = order.pop_front()
        {
            let Some((_, id)) = queue.pop_front() else { continue };
            let is_suspect = self.heads.get(&id).is_some_and(|head| head.claims >= SUSPECT_AFTER);
            if !is_suspect || may_take_suspect {
                may_take_suspect &= !is_suspect || *lane != Lane::Workers;
                chosen.push(id);
                self.turn = Some(tenant.clone());
            }
            order.push_back((tenant, queue));
        }
        chosen
    }

    fn leased(&self, id: SessionId, previous: Option<LeaseId>) -> Option<Leased> {
        let head = self.heads.get(&id)?;
        let (node, nonce) = head.lease?;
        let lease = Lease { tenant: head.session.tenant.clone(), session: id, epoch: head.epoch, nonce, node };
        let (session, inbox) = (head.session.clone(), head.waiting());
        let (claims, queued_at) = (head.claims, head.queued_at);
        Some(Leased { lease, session, inbox, claims, previous, queued_at, now: self.now })
    }

    fn commit(&mut self, checkpoint: Checkpoint) -> Result<(Committed, Vec<Hint>), Error> {
        let Checkpoint { lease, commit_id, events, session, consumed, then } = checkpoint;
        let (now, id) = (self.now, lease.session);
        let fenced =
            || Error::new(Kind::Fenced, format!("the lease of session {id} with epoch {} is gone", lease.epoch));
        let planted = self.planted.of_commit(id);
        let head = self.heads.get_mut(&id).ok_or_else(fenced)?;
        let is_held = head.is_fenced_by(&lease) || planted.is_unfenced;
        if head.commit == Some(commit_id) {
            let inbox = if is_held { head.waiting() } else { Vec::new() };
            return Ok((Committed { is_held, inbox, now }, Vec::new()));
        }
        if !is_held {
            return Err(fenced());
        }
        let base = session.last_seq - events.len() as u64;
        if head.session.last_seq != base || consumed > head.tail {
            let message = format!(
                "session {id}: the commit continues from seq {base} and input {consumed}, the store has {} and {}",
                head.session.last_seq, head.tail
            );
            return Err(Error::new(Kind::Invalid, message));
        }
        head.commit = Some(commit_id);
        head.updated_at = now;
        if events.iter().any(|event| event.body.is_progress()) {
            head.claims = 1;
        }
        head.log.extend(events);
        head.session = session;
        head.consumed = head.consumed.max(consumed);
        let consumed = head.consumed;
        head.inbox.retain(|(position, _)| *position > consumed);
        let mut hints = vec![Hint::Session(id)];
        let is_held = if let Position::Ended(end) = &head.session.position {
            if *end == End::Done {
                head.archived_at.get_or_insert(now);
            }
            head.note_end(now, LeaseEnd::Ended);
            head.state = State::Ended;
            head.inbox.clear();
            head.consumed = head.tail;
            false
        } else {
            match then {
                crate::Then::Park if head.inbox.iter().all(|(position, _)| *position > planted.seen_tail) => {
                    head.note_end(now, LeaseEnd::Parked);
                    head.state = State::Parked;
                    head.granted = None;
                    head.claims = 0;
                    false
                }
                crate::Then::Keep | crate::Then::Park => true,
                crate::Then::Yield => {
                    hints.push(Hint::Runnable);
                    head.note_end(now, LeaseEnd::Yielded);
                    head.claims = head.claims.saturating_sub(1);
                    self.queue(id);
                    false
                }
            }
        };
        let head = self.heads.get_mut(&id).ok_or_else(|| missing(id))?;
        if !is_held {
            head.lease = None;
            head.state_since = now;
            head.queue = if head.is_urgent() { None } else { head.session.queue.clone() };
        }
        let inbox = if is_held { head.waiting() } else { Vec::new() };
        Ok((Committed { is_held, inbox, now }, hints))
    }
}

fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes > MAX_EVENT_BYTES {
        return Err(Error::new(Kind::Invalid, format!("an event of {bytes} bytes is larger than {MAX_EVENT_BYTES}")));
    }
    Ok(())
}

fn answer<'a>(head: &'a Head, body: &InputBody) -> Result<&'a Event, Error> {
    let Some(call) = body.answers() else {
        return Err(Error::new(Kind::Invalid, "the input answers no call"));
    };
    head.answer(call).ok_or_else(|| match head.session.call(call) {
        Some(_) => Error::new(Kind::Conflict, format!("call {call} runs already and waits for no answer")),
        None => Error::new(Kind::NotFound, format!("{call} is not a call of session {}", head.session.id)),
    })
}

fn refuse(session: SessionId, refused: Refused) -> Error {
    let kind = match refused {
        Refused::Ended | Refused::NotAnswerable => Kind::Conflict,
        Refused::Full => Kind::Full,
        Refused::UnknownCallback => Kind::NotFound,
    };
    Error::caused(kind, format!("session {session}: {refused}"), refused)
}

fn page<T>(rows: impl Iterator<Item = T>, offset: usize, limit: usize) -> Vec<T> {
    rows.skip(offset).take(limit.min(MAX_PAGE)).collect()
}

/// The phase by which a head is listed.
fn phase_of(head: &Head) -> Phase {
    match head.state {
        State::Queued => Phase::Queued,
        State::Leased => Phase::Working,
        State::Parked | State::Ended => head.session.phase(),
    }
}

/// The rows of a page, newest first.
fn catalog_page<T>(rows: impl Iterator<Item = T>, place: impl Fn(&T) -> u128, query: &CatalogQuery) -> Vec<T> {
    rows.filter(|row| query.below.is_none_or(|below| place(row) < below)).take(query.limit.min(MAX_PAGE)).collect()
}

#[async_trait]
impl Store for Memory {
    async fn create(&self, new: NewSession) -> Result<Created, Error> {
        new.check()?;
        let NewSession { session, events, metadata, inputs, idempotency } = new;
        let (id, tenant) = (session.id, session.tenant.clone());
        let mut data = self.lock();
        if let Some(Remembered::Session(id)) = data.earlier(&tenant, idempotency.as_ref())? {
            return Ok(Created { view: data.view(data.head(&tenant, id)?), is_repeat: true });
        }
        if data.heads.contains_key(&id) {
            return Err(Error::new(Kind::Conflict, format!("session {id} exists already")));
        }
        let (lineage, log) = data.shared(&session, events)?;
        let now = data.now;
        let head = Head {
            queue: session.queue.clone(),
            until: now,
            session,
            metadata,
            state: State::Parked,
            epoch: 0,
            lease: None,
            claim: None,
            leased_at: now,
            leased_seq: 0,
            past: VecDeque::new(),
            commit: None,
            claims: 0,
            granted: None,
            inbox: VecDeque::new(),
            tail: 0,
            consumed: 0,
            urgent: 0,
            queued_at: now,
            place: 0,
            state_since: now,
            updated_at: now,
            archived_at: None,
            lineage,
            log,
        };
        data.heads.insert(id, head);
        let hints = match data.deliver(&tenant, id, inputs) {
            Ok((_, hints)) => hints,
            Err(error) => {
                data.heads.remove(&id);
                return Err(error);
            }
        };
        data.remember(&tenant, idempotency, Remembered::Session(id));
        let view = data.view(data.head(&tenant, id)?);
        drop(data);
        self.hint(Hint::Session(id));
        hints.into_iter().for_each(|hint| self.hint(hint));
        Ok(Created { view, is_repeat: false })
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, Error> {
        let Delivery { tenant, session, inputs, notes, idempotency } = delivery;
        let mut data = self.lock();
        if let Some(Remembered::Receipts(mut receipts)) = data.earlier(&tenant, idempotency.as_ref())? {
            let head = data.head(&tenant, session)?;
            for receipt in &mut receipts {
                // An answer that waited then may be in the log by now.
                let logged = match receipt {
                    Receipt::Queued(input) if !head.inbox.iter().any(|(_, other)| other.id == input.id) => {
                        input.body.answers().and_then(|call| head.answer(call)).filter(|event| event.id != input.id)
                    }
                    Receipt::Queued(_) | Receipt::Logged(_) | Receipt::Nothing => None,
                };
                if let Some(event) = logged {
                    *receipt = Receipt::Logged(event.clone());
                }
            }
            return Ok(Delivered { receipts, is_repeat: true });
        }
        let (receipts, hints) = data.deliver_with_notes(&tenant, session, inputs, notes.as_ref())?;
        data.remember(&tenant, idempotency, Remembered::Receipts(receipts.clone()));
        drop(data);
        hints.into_iter().for_each(|hint| self.hint(hint));
        Ok(Delivered { receipts, is_repeat: false })
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Leased>, Error> {
        let mut data = self.lock();
        if claim.node != EXTERNAL && !data.is_alive(claim.node) {
            return Err(Error::new(Kind::Fenced, format!("node {} is dead or not registered", claim.node)));
        }
        let is_of_claim =
            |head: &&Head| head.claim == Some(claim.id) && head.lease.is_some_and(|(node, _)| node == claim.node);
        let mut given: Vec<(u64, SessionId)> =
            data.heads.values().filter(is_of_claim).map(|head| (head.place, head.session.id)).collect();
        given.sort_unstable();
        let mut ids: Vec<(SessionId, Option<LeaseId>)> = given.into_iter().map(|(_, id)| (id, None)).collect();
        if ids.is_empty() {
            let now = data.now;
            for (place, id) in (1u128..).zip(data.choose(claim.node, &claim.lane, claim.limit.min(MAX_PAGE))) {
                let head = data.heads.get_mut(&id).ok_or_else(|| missing(id))?;
                ids.push((id, head.claim));
                head.state = State::Leased;
                head.epoch += 1;
                head.claims += 1;
                // Different for each lease of a claim, and the same for a repeat: all that tests need.
                let nonce = LeaseId::from_bits(claim.id.bits() ^ (place << 64));
                head.lease = Some((claim.node, nonce));
                head.claim = Some(claim.id);
                head.leased_at = now;
                if let Lane::Queue { span, .. } = claim.lane {
                    head.until = now.after(span);
                }
                head.leased_seq = head.session.last_seq;
                head.state_since = now;
            }
        }
        let leased = ids.iter().filter_map(|(id, previous)| data.leased(*id, *previous)).collect();
        drop(data);
        ids.into_iter().for_each(|(id, _)| self.hint(Hint::Session(id)));
        Ok(leased)
    }

    async fn commit(&self, checkpoint: Checkpoint) -> Result<Committed, Error> {
        checkpoint.check()?;
        checkpoint.events.iter().try_for_each(|event| check_size(stored::encode_event(event).len()))?;
        let (committed, hints) = self.lock().commit(checkpoint)?;
        hints.into_iter().for_each(|hint| self.hint(hint));
        Ok(committed)
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let mut data = self.lock();
        let Some(head) = data.heads.get_mut(&lease.session).filter(|head| head.is_fenced_by(lease)) else {
            return Ok(());
        };
        head.claims = head.claims.saturating_sub(1);
        data.take_back(lease.session, LeaseEnd::Released);
        drop(data);
        self.hint(Hint::Session(lease.session));
        self.hint(Hint::Runnable);
        Ok(())
    }

    async fn renew(&self, lease: &Lease, span: Millis) -> Result<Renewed, Error> {
        let mut data = self.lock();
        let until = data.now.after(span);
        let head = data.heads.get_mut(&lease.session).filter(|head| head.is_fenced_by(lease));
        let Some(head) = head else {
            let message = format!("the lease of session {} with epoch {} is gone", lease.session, lease.epoch);
            return Err(Error::new(Kind::Fenced, message));
        };
        head.until = until;
        Ok(Renewed { until, is_urgent: head.is_urgent() })
    }

    async fn queue_depth(&self, tenant: &TenantId, queue: &str) -> Result<QueueDepth, Error> {
        let data = self.lock();
        let of_queue = |head: &&Head| head.session.tenant == *tenant && head.queue.as_deref() == Some(queue);
        let queued: Vec<&Head> =
            data.heads.values().filter(of_queue).filter(|head| head.state == State::Queued).collect();
        let is_leased = |head: &&Head| head.lease.is_some_and(|(node, _)| node == EXTERNAL);
        Ok(QueueDepth {
            queued: queued.len() as u64,
            oldest: queued.iter().map(|head| head.queued_at).min(),
            leased: data.heads.values().filter(of_queue).filter(is_leased).count() as u64,
        })
    }

    async fn register(&self, node: NewNode) -> Result<(), Error> {
        let mut data = self.lock();
        if data.nodes.contains_key(&node.id) {
            return Err(Error::new(
                Kind::Conflict,
                format!("node {} exists already; a restart is a new node", node.id),
            ));
        }
        let NewNode { id, address, label } = node;
        let beat_at = data.now;
        data.nodes.insert(id, Node { id, address, label, beats: 0, beat_at, is_dead: false, leases: 0 });
        Ok(())
    }

    async fn heartbeat(&self, beat: Beat) -> Result<BeatReply, Error> {
        let mut data = self.lock();
        let now = data.now;
        match data.nodes.get_mut(&beat.node) {
            None => {
                return Err(Error::new(Kind::NotFound, format!("node {} is not registered", beat.node)));
            }
            Some(node) if node.is_dead => {
                return Err(Error::new(Kind::Fenced, format!("node {} is dead", beat.node)));
            }
            Some(node) => {
                node.beats += 1;
                node.beat_at = now;
            }
        }
        let owned = data.owned(beat.node);
        let held: BTreeMap<SessionId, u64> = beat.held.iter().copied().collect();
        let is_owned = |(id, epoch): &(SessionId, u64)| {
            owned.contains(id) && data.heads.get(id).is_some_and(|head| head.epoch == *epoch)
        };
        let lost = beat.held.iter().filter(|held| !is_owned(held)).map(|(id, _)| *id).collect();
        let (kept, unheld): (Vec<SessionId>, Vec<SessionId>) = owned.into_iter().partition(|id| held.contains_key(id));
        let urgent = kept.into_iter().filter(|id| data.heads.get(id).is_some_and(Head::is_urgent)).collect();
        let is_settled = |id: &SessionId| data.heads.get(id).is_some_and(|head| head.leased_at < beat.claimed_before);
        let unheld: Vec<SessionId> = unheld.into_iter().filter(is_settled).collect();
        for id in &unheld {
            // The node lives: whatever went wrong, the sessions did not end it.
            if let Some(head) = data.heads.get_mut(id) {
                head.claims = head.claims.saturating_sub(1);
            }
            data.take_back(*id, LeaseEnd::Lost);
        }
        drop(data);
        if !unheld.is_empty() {
            self.hint(Hint::Runnable);
        }
        Ok(BeatReply { lost, urgent })
    }

    async fn controls(&self, node: NodeId) -> Result<Vec<SessionId>, Error> {
        let data = self.lock();
        Ok(data.owned(node).into_iter().filter(|id| data.heads.get(id).is_some_and(Head::is_urgent)).collect())
    }

    async fn sweep(&self, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
        let mut data = self.lock();
        for (id, beats) in seen {
            if let Some(node) = data.nodes.get_mut(id).filter(|node| node.beats == *beats) {
                node.is_dead = true;
            }
        }
        let is_orphan = |head: &&Head| {
            let has_ended = |node| if node == EXTERNAL { head.until <= data.now } else { !data.is_alive(node) };
            head.lease.is_some_and(|(node, _)| has_ended(node))
        };
        let orphans: Vec<SessionId> = data.heads.values().filter(is_orphan).map(|head| head.session.id).collect();
        orphans.iter().for_each(|id| data.take_back(*id, LeaseEnd::Lost));
        drop(data);
        if !orphans.is_empty() {
            self.hint(Hint::Runnable);
        }
        Ok(orphans)
    }

    async fn retire(&self, node: NodeId) -> Result<(), Error> {
        let mut data = self.lock();
        let Some(row) = data.nodes.get_mut(&node) else {
            return Err(Error::new(Kind::NotFound, format!("node {node} is not registered")));
        };
        row.is_dead = true;
        let owned = data.owned(node);
        for id in &owned {
            if let Some(head) = data.heads.get_mut(id) {
                head.claims = head.claims.saturating_sub(1);
            }
            data.take_back(*id, LeaseEnd::Released);
        }
        drop(data);
        if !owned.is_empty() {
            self.hint(Hint::Runnable);
        }
        Ok(())
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let mut data = self.lock();
        let parked = data.heads.values().filter(|head| head.state == State::Parked);
        let mut times: Vec<(Timestamp, SessionId)> =
            parked.filter_map(|head| Some((head.session.wakes_at()?, head.session.id))).collect();
        times.retain(|(_, id)| !data.planted.lost_timers.contains(id));
        times.sort_unstable();
        let now = data.now;
        let woken: Vec<SessionId> =
            times.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, id)| *id).collect();
        woken.iter().for_each(|id| data.queue(*id));
        let next = times.get(woken.len()).map(|(at, _)| *at);
        drop(data);
        woken.iter().for_each(|id| self.hint(Hint::Session(*id)));
        if !woken.is_empty() {
            self.hint(Hint::Runnable);
        }
        Ok(Due { woken: woken.len(), next, now })
    }

    async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let data = self.lock();
        let node = |node: &Node| Node { leases: data.owned(node.id).len() as u64, ..node.clone() };
        Ok(data.nodes.values().map(node).collect())
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Option<SessionView>, Error> {
        let data = self.lock();
        Ok(data.head(tenant, id).ok().map(|head| data.view(head)))
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionView>, Error> {
        let data = self.lock();
        let is_wanted = |head: &&Head| {
            let session = &head.session;
            let phase = phase_of(head);
            session.tenant == query.tenant
                && query.agent.is_none_or(|agent| session.agent.id == agent)
                && (query.phases.is_empty() || query.phases.contains(&phase))
                && (query.with_archived || head.archived_at.is_none())
                && query.created_from.is_none_or(|from| session.created_at >= from)
                && query.created_before.is_none_or(|before| session.created_at < before)
        };
        let is_after = |head: &&Head| match (query.after, query.order) {
            (None, _) => true,
            (Some(after), Order::Ascending) => head.session.id > after,
            (Some(after), Order::Descending) => head.session.id < after,
        };
        let rows = data.heads.values();
        let rows: Box<dyn Iterator<Item = &Head>> = match query.order {
            Order::Ascending => Box::new(rows),
            Order::Descending => Box::new(rows.rev()),
        };
        Ok(page(rows.filter(is_wanted).filter(is_after).map(|head| data.view(head)), 0, query.limit))
    }

    async fn sessions_by_tail(&self, tenant: &TenantId, tail: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        let data = self.lock();
        let is_wanted = |head: &&Head| {
            let text = head.session.id.to_string();
            head.session.tenant == *tenant && (text == tail || text["sesn_".len()..].ends_with(tail))
        };
        Ok(page(data.heads.values().rev().filter(is_wanted).map(|head| head.session.id), 0, limit))
    }

    async fn phases(&self, tenant: &TenantId) -> Result<BTreeMap<String, u64>, Error> {
        let data = self.lock();
        let mut phases = BTreeMap::new();
        for head in data.heads.values().filter(|head| head.session.tenant == *tenant) {
            *phases.entry(phase_of(head).name().to_owned()).or_default() += 1;
        }
        Ok(phases)
    }

    async fn counts(&self) -> Result<Counts, Error> {
        let data = self.lock();
        let count = |state| data.heads.values().filter(|head| head.state == state).count() as u64;
        Ok(Counts {
            queued: count(State::Queued),
            leased: count(State::Leased),
            parked: count(State::Parked),
            ended: count(State::Ended),
            queued_since: data
                .heads
                .values()
                .filter(|head| head.state == State::Queued)
                .map(|head| head.queued_at)
                .min(),
        })
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<Event>, Error> {
        let data = self.lock();
        let Ok(head) = data.head(&query.tenant, query.session) else {
            return Ok(Vec::new());
        };
        let rows = head.log.iter().cloned();
        Ok(match query.order {
            Order::Ascending => page(rows.filter(|event| event.seq > query.after.unwrap_or(0)), 0, query.limit),
            Order::Descending => {
                page(rows.rev().filter(|event| event.seq < query.after.unwrap_or(u64::MAX)), 0, query.limit)
            }
        })
    }

    async fn leases(&self, query: LeaseQuery) -> Result<Vec<PastLease>, Error> {
        let data = self.lock();
        let Ok(head) = data.head(&query.tenant, query.session) else {
            return Ok(Vec::new());
        };
        let all = head.past.iter().cloned().chain(head.current());
        Ok(page(all.filter(|lease| lease.epoch > query.after), 0, query.limit))
    }

    async fn remembered(&self, tenant: &TenantId, key: &Idempotency) -> Result<Option<crate::Remembered>, Error> {
        Ok(self.lock().earlier(tenant, Some(key))?.map(|result| match result {
            Remembered::Session(id) => crate::Remembered::Session(id),
            Remembered::Receipts(_) => crate::Remembered::Inputs,
            Remembered::Agent(id, version) => crate::Remembered::Agent(id, version),
            Remembered::Environment(id) => crate::Remembered::Environment(id),
        }))
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<(u64, Input)>, Error> {
        Ok(self.lock().heads.get(&session).map(Head::waiting).unwrap_or_default())
    }

    async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<Removed, Error> {
        let mut data = self.lock();
        if data.head(tenant, id)?.state == State::Leased {
            return Err(Error::new(Kind::Conflict, format!("session {id} is being worked on")));
        }
        data.heads.remove(&id);
        let kept_up_to = data.shared_of(id).max().unwrap_or(0);
        drop(data);
        self.hint(Hint::Session(id));
        Ok(Removed { kept_up_to })
    }

    async fn put_agent(&self, agent: Agent, idempotency: Option<Idempotency>) -> Result<Agent, Error> {
        let mut data = self.lock();
        let (tenant, id) = (agent.tenant.clone(), agent.id);
        if let Some(Remembered::Agent(id, version)) = data.earlier(&tenant, idempotency.as_ref())? {
            let versions = data.agents.get(&(tenant, id)).map(Vec::as_slice).unwrap_or_default();
            let first = versions.iter().find(|agent| agent.version == version).cloned();
            return first
                .ok_or_else(|| Error::new(Kind::NotFound, format!("agent {id} version {version} does not exist")));
        }
        let versions = data.agents.entry((tenant.clone(), id)).or_default();
        let newest = versions.last().map_or(0, |agent| agent.version);
        if versions.last().is_some_and(|agent| agent.archived_at.is_some()) {
            return Err(Error::new(Kind::Conflict, format!("agent {id} is archived")));
        }
        if newest.checked_add(1) != Some(agent.version) {
            let message = format!("agent {id} is at version {newest}, the new one says {}", agent.version);
            return Err(Error::new(Kind::Conflict, message));
        }
        versions.push(agent.clone());
        data.remember(&tenant, idempotency, Remembered::Agent(id, agent.version));
        Ok(agent)
    }

    async fn agent(&self, tenant: &TenantId, id: AgentId, version: Option<u32>) -> Result<Option<Agent>, Error> {
        let data = self.lock();
        let versions = data.agents.get(&(tenant.clone(), id)).map(Vec::as_slice).unwrap_or_default();
        Ok(match version {
            Some(version) => versions.iter().find(|agent| agent.version == version).cloned(),
            None => versions.last().cloned(),
        })
    }

    async fn agents(&self, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        let data = self.lock();
        let of_tenant = data.agents.iter().rev().filter(|((tenant, _), _)| *tenant == query.tenant);
        let newest = of_tenant.filter_map(|(_, versions)| versions.last());
        let wanted = newest.filter(|agent| query.with_archived || agent.archived_at.is_none());
        Ok(catalog_page(wanted.cloned(), |agent| agent.id.bits(), &query))
    }

    async fn agent_versions(&self, tenant: &TenantId, id: AgentId, query: CatalogQuery) -> Result<Vec<Agent>, Error> {
        let data = self.lock();
        let versions = data.agents.get(&(tenant.clone(), id)).map(Vec::as_slice).unwrap_or_default();
        Ok(catalog_page(versions.iter().rev().cloned(), |agent| u128::from(agent.version), &query))
    }

    async fn archive_agent(&self, tenant: &TenantId, id: AgentId) -> Result<Agent, Error> {
        let mut data = self.lock();
        let now = data.now;
        let versions = data.agents.get_mut(&(tenant.clone(), id)).map(Vec::as_mut_slice).unwrap_or_default();
        for agent in versions.iter_mut() {
            agent.archived_at.get_or_insert(now);
        }
        versions.last().cloned().ok_or_else(|| Error::new(Kind::NotFound, format!("agent {id} does not exist")))
    }

    async fn put_environment(
        &self,
        environment: Environment,
        idempotency: Option<Idempotency>,
    ) -> Result<Environment, Error> {
        let mut data = self.lock();
        let (tenant, id) = (environment.tenant.clone(), environment.id);
        if let Some(Remembered::Environment(id)) = data.earlier(&tenant, idempotency.as_ref())? {
            let first = data.environments.get(&(tenant, id)).cloned();
            return first.ok_or_else(|| Error::new(Kind::NotFound, format!("environment {id} was deleted")));
        }
        data.environments.insert((tenant.clone(), id), environment.clone());
        data.remember(&tenant, idempotency, Remembered::Environment(id));
        Ok(environment)
    }

    async fn environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<Option<Environment>, Error> {
        Ok(self.lock().environments.get(&(tenant.clone(), id)).cloned())
    }

    async fn environments(&self, query: CatalogQuery) -> Result<Vec<Environment>, Error> {
        let data = self.lock();
        let of_tenant = data.environments.values().rev().filter(|environment| environment.tenant == query.tenant);
        let wanted = of_tenant.filter(|environment| query.with_archived || environment.archived_at.is_none());
        Ok(catalog_page(wanted.cloned(), |environment| environment.id.bits(), &query))
    }

    async fn delete_environment(&self, tenant: &TenantId, id: EnvironmentId) -> Result<(), Error> {
        let mut data = self.lock();
        let is_used = |head: &Head| {
            head.session.tenant == *tenant && head.session.environment == id && head.state != State::Ended
        };
        if data.heads.values().any(is_used) {
            return Err(Error::new(
                Kind::Conflict,
                format!("environment {id} is used by a session that has not ended"),
            ));
        }
        let removed = data.environments.remove(&(tenant.clone(), id));
        removed.map(|_| ()).ok_or_else(|| Error::new(Kind::NotFound, format!("environment {id} does not exist")))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.lock().now)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    async fn close(&self) {}
}

/// A store in memory that is shared, as the engine and the server take it.
impl From<Memory> for Arc<dyn Store> {
    fn from(memory: Memory) -> Self {
        Arc::new(memory)
    }
}
