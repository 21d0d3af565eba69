//! Nodes: registered, alive, dead for ever.

use crate::operations::leases::{self, Reason};
use crate::rows::{self, key, number};
use crate::statements as sql;
use crate::writer::Work;
use rusqlite::Connection;
use std::collections::BTreeMap;
use tenure_core::{NodeId, SessionId, Timestamp};
use tenure_store::{Beat, BeatReply, EXTERNAL, Error, Kind, NewNode, Node};

/// How long a dead node is shown, in milliseconds.
const SHOWN_DEAD: i64 = 24 * 3_600 * 1_000;

/// Adds a node.
pub(crate) fn register(work: &mut Work<'_>, node: &NewNode) -> Result<(), Error> {
    if rows::first(work.connection, sql::IS_NODE_DEAD, [key(node.id.bits())], |_| Ok(()))?.is_some() {
        return Err(Error::new(Kind::Conflict, format!("node {} exists already; a restart is a new node", node.id)));
    }
    rows::run(work.connection, sql::FORGET_NODES, [work.now.0.saturating_sub(SHOWN_DEAD)])?;
    rows::run(work.connection, sql::NEW_NODE, (key(node.id.bits()), &node.address, &node.label, work.now.0))?;
    Ok(())
}

/// One lease as its owner's row shows it.
struct Owned {
    epoch: u64,
    leased_at: Timestamp,
    is_urgent: bool,
}

/// Counts a heartbeat, and compares what the node owns with what it holds (hazard Z-03).
pub(crate) fn heartbeat(work: &mut Work<'_>, beat: &Beat) -> Result<BeatReply, Error> {
    if rows::run(work.connection, sql::BEAT, (key(beat.node.bits()), work.now.0))? == 0 {
        return Err(unknown(work.connection, beat.node)?);
    }
    let owned = rows::all(work.connection, sql::OWNED, [key(beat.node.bits())], |row| {
        let owned = Owned { epoch: rows::count(row, 1)?, leased_at: rows::time(row, 2)?, is_urgent: row.get(3)? };
        Ok((SessionId::from_bits(rows::bits(row, 0)?), owned))
    })?;
    let owned: BTreeMap<SessionId, Owned> = owned.into_iter().collect();
    let held: BTreeMap<SessionId, u64> = beat.held.iter().copied().collect();
    let is_owned = |(session, epoch): &(SessionId, u64)| owned.get(session).is_some_and(|owned| owned.epoch == *epoch);
    let lost = beat.held.iter().filter(|held| !is_owned(held)).map(|(session, _)| *session).collect();
    let urgent = owned.iter().filter(|(session, owned)| owned.is_urgent && held.contains_key(session));
    let urgent = urgent.map(|(session, _)| *session).collect();
    let unheld =
        owned.iter().filter(|(session, owned)| !held.contains_key(session) && owned.leased_at < beat.claimed_before);
    let unheld: Vec<SessionId> = unheld.map(|(session, _)| *session).collect();
    // The node lives: whatever went wrong, the sessions did not end it.
    leases::take_back(work, &unheld, Reason::Forgotten)?;
    Ok(BeatReply { lost, urgent })
}

fn unknown(connection: &Connection, node: NodeId) -> Result<Error, Error> {
    let row = rows::first(connection, sql::IS_NODE_DEAD, [key(node.bits())], |_| Ok(()))?;
    Ok(match row {
        Some(()) => Error::new(Kind::Fenced, format!("node {node} is dead")),
        None => Error::new(Kind::NotFound, format!("node {node} is not registered")),
    })
}

/// Declares nodes dead, and takes back the leases of all that are dead or unknown (hazard Z-04).
pub(crate) fn sweep(work: &mut Work<'_>, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Error> {
    for (node, beats) in seen {
        rows::run(work.connection, sql::BURY, (key(node.bits()), number(*beats)))?;
    }
    let owners = rows::all(work.connection, sql::OWNERS, [], |row| rows::bits(row, 0).map(NodeId::from_bits))?;
    let mut sessions = Vec::new();
    for node in owners {
        if node == EXTERNAL {
            sessions.extend(expired(work.connection, work.now)?);
            continue;
        }
        let is_dead = rows::first(work.connection, sql::IS_NODE_DEAD, [key(node.bits())], |row| row.get::<_, bool>(0))?;
        if is_dead.unwrap_or(true) {
            sessions.extend(owned(work.connection, node)?);
        }
    }
    leases::take_back(work, &sessions, Reason::Died)?;
    Ok(sessions)
}

/// Whether a sweep would do anything; without it an idle store would be locked for writing twice a second.
pub(crate) fn has_orphans(connection: &Connection, now: Timestamp) -> Result<bool, Error> {
    let owners = rows::all(connection, sql::OWNERS, [], |row| rows::bits(row, 0))?;
    for node in owners {
        if node == EXTERNAL.bits() {
            if !expired(connection, now)?.is_empty() {
                return Ok(true);
            }
            continue;
        }
        let is_dead = rows::first(connection, sql::IS_NODE_DEAD, [key(node)], |row| row.get::<_, bool>(0))?;
        if is_dead.unwrap_or(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sessions whose external loop did not renew its lease in time.
fn expired(connection: &Connection, now: Timestamp) -> Result<Vec<SessionId>, Error> {
    let params = (key(EXTERNAL.bits()), now.0);
    rows::all(connection, sql::EXPIRED, params, |row| rows::bits(row, 0).map(SessionId::from_bits))
}

/// Ends a node in good order.
pub(crate) fn retire(work: &mut Work<'_>, node: NodeId) -> Result<(), Error> {
    if rows::run(work.connection, sql::RETIRE, [key(node.bits())])? == 0 {
        return Err(Error::new(Kind::NotFound, format!("node {node} is not registered")));
    }
    let sessions = owned(work.connection, node)?;
    leases::take_back(work, &sessions, Reason::Left)
}

fn owned(connection: &Connection, node: NodeId) -> Result<Vec<SessionId>, Error> {
    rows::all(connection, sql::OWNED, [key(node.bits())], |row| rows::bits(row, 0).map(SessionId::from_bits))
}

/// Sessions of a node whose inbox holds something urgent.
pub(crate) fn controls(connection: &Connection, node: NodeId) -> Result<Vec<SessionId>, Error> {
    rows::all(connection, sql::CONTROLS, [key(node.bits())], |row| rows::bits(row, 0).map(SessionId::from_bits))
}

/// All nodes.
pub(crate) fn nodes(connection: &Connection) -> Result<Vec<Node>, Error> {
    rows::all(connection, sql::NODES, [], |row| {
        Ok(Node {
            id: NodeId::from_bits(rows::bits(row, 0)?),
            address: row.get(1)?,
            label: row.get(2)?,
            beats: rows::count(row, 3)?,
            beat_at: rows::time(row, 4)?,
            is_dead: row.get(5)?,
            leases: rows::count(row, 6)?,
        })
    })
}
