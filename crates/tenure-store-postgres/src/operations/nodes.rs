//! Nodes: registered, alive, dead for ever.

use crate::link::Link;
use crate::operations::leases::{self, Owned, Reason};
use crate::params::{key, number, params};
use crate::rows::{bits, count};
use crate::statements as sql;
use crate::transact::Tx;
use crate::trouble::Trouble;
use std::collections::BTreeMap;
use tenure_core::{NodeId, SessionId, Timestamp};
use tenure_store::{Beat, BeatReply, EXTERNAL, Error, Kind, NewNode, Node};

/// How long a dead node is shown, in milliseconds.
const SHOWN_DEAD: i64 = 24 * 3_600 * 1_000;

/// Adds a node.
pub(crate) async fn register(tx: &mut Tx, node: &NewNode) -> Result<(), Trouble> {
    tx.link.run(sql::FORGET_NODES, params![tx.now.0.saturating_sub(SHOWN_DEAD)]).await?;
    let row = params![key(node.id.bits()), node.address.as_str(), node.label.as_str(), tx.now.0];
    if tx.link.run(sql::NEW_NODE, row).await? > 0 {
        return Ok(());
    }
    let known = tx.link.first(sql::NODE, params![key(node.id.bits())]).await?;
    let is_own = |address: &str, label: &str| address == node.address && label == node.label;
    if tx.may_repeat && known.is_some_and(|row| !row.get::<_, bool>(0) && is_own(row.get(1), row.get(2))) {
        // The reply of an earlier try was lost.
        return Ok(());
    }
    Err(Error::new(Kind::Conflict, format!("node {} exists already; a restart is a new node", node.id)).into())
}

/// Counts a heartbeat, and compares what the node owns with what it holds (hazard Z-03).
pub(crate) async fn heartbeat(tx: &mut Tx, beat: &Beat) -> Result<BeatReply, Trouble> {
    let node = key(beat.node.bits());
    if tx.link.run(sql::BEAT, params![node, tx.now.0]).await? == 0 {
        return Err(unknown(&tx.link, beat.node).await?.into());
    }
    let (mut owned, mut urgent) = (BTreeMap::new(), Vec::new());
    for row in tx.link.rows(sql::OWNED, params![node]).await? {
        let (session, epoch) = (SessionId::from_bits(bits(&row, 1)), count(&row, 2));
        owned.insert(session, (epoch, Timestamp(row.get(3))));
        if row.get(4) {
            urgent.push(session);
        }
    }
    let held: BTreeMap<SessionId, u64> = beat.held.iter().copied().collect();
    let is_owned = |(session, epoch): &(SessionId, u64)| owned.get(session).is_some_and(|(owned, _)| owned == epoch);
    let lost = beat.held.iter().filter(|held| !is_owned(held)).map(|(session, _)| *session).collect();
    urgent.retain(|session| held.contains_key(session));
    let unheld = owned.iter().filter(|(session, (_, at))| !held.contains_key(session) && *at < beat.claimed_before);
    let unheld: Vec<Owned> =
        unheld.map(|(session, (epoch, _))| Owned { session: *session, epoch: *epoch, node: beat.node }).collect();
    // The node lives: whatever went wrong, the sessions did not end it.
    leases::take_back(tx, &sorted(unheld), Reason::Forgotten).await?;
    Ok(BeatReply { lost, urgent })
}

async fn unknown(link: &Link, node: NodeId) -> Result<Error, Trouble> {
    Ok(match link.first(sql::NODE, params![key(node.bits())]).await? {
        Some(_) => Error::new(Kind::Fenced, format!("node {node} is dead")),
        None => Error::new(Kind::NotFound, format!("node {node} is not registered")),
    })
}

/// Declares nodes dead, and takes back the leases of all that are dead or unknown (hazard Z-04).
pub(crate) async fn sweep(tx: &mut Tx, seen: &[(NodeId, u64)]) -> Result<Vec<SessionId>, Trouble> {
    for (node, beats) in seen {
        tx.link.run(sql::BURY, params![key(node.bits()), number(*beats)]).await?;
    }
    let orphans = orphans(&tx.link, tx.now).await?;
    leases::take_back(tx, &orphans, Reason::Died).await
}

/// Leases whose holders are dead or unknown, and those of external loops whose time is over.
pub(crate) async fn orphans(link: &Link, now: Timestamp) -> Result<Vec<Owned>, Trouble> {
    let owned = |row: &tokio_postgres::Row| Owned {
        session: SessionId::from_bits(bits(row, 1)),
        epoch: count(row, 2),
        node: NodeId::from_bits(bits(row, 3)),
    };
    Ok(link.rows(sql::ORPHANS, params![key(EXTERNAL.bits()), now.0]).await?.iter().map(owned).collect())
}

/// Ends a node in good order.
pub(crate) async fn retire(tx: &mut Tx, node: NodeId) -> Result<(), Trouble> {
    if tx.link.run(sql::RETIRE, params![key(node.bits())]).await? == 0 {
        return Err(Error::new(Kind::NotFound, format!("node {node} is not registered")).into());
    }
    let rows = tx.link.rows(sql::OWNED, params![key(node.bits())]).await?;
    let owned =
        |row: &tokio_postgres::Row| Owned { session: SessionId::from_bits(bits(row, 1)), epoch: count(row, 2), node };
    let owned: Vec<Owned> = rows.iter().map(owned).collect();
    leases::take_back(tx, &owned, Reason::Left).await?;
    Ok(())
}

/// In the order of the keys, in which everybody locks (hazard Z-21).
fn sorted(mut owned: Vec<Owned>) -> Vec<Owned> {
    owned.sort_by_key(|owned| (owned.session.shard().0, owned.session));
    owned
}

/// Sessions of a node whose inbox holds something urgent.
pub(crate) async fn controls(link: &Link, node: NodeId) -> Result<Vec<SessionId>, Trouble> {
    let rows = link.rows(sql::CONTROLS, params![key(node.bits())]).await?;
    Ok(rows.iter().map(|row| SessionId::from_bits(bits(row, 0))).collect())
}

/// All nodes.
pub(crate) async fn nodes(link: &Link) -> Result<Vec<Node>, Trouble> {
    let node = |row: &tokio_postgres::Row| Node {
        id: NodeId::from_bits(bits(row, 0)),
        address: row.get(1),
        label: row.get(2),
        beats: count(row, 3),
        beat_at: Timestamp(row.get(4)),
        is_dead: row.get(5),
        leases: count(row, 6),
    };
    Ok(link.rows(sql::NODES, params![]).await?.iter().map(node).collect())
}
