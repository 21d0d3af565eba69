//! How those who wait come back after an outage: ten thousand sessions on one condition, a provider
//! that takes so many requests a second, on a simulated clock (promise P10).
//!
//! The store in memory and the decisions of the core are the real ones; time stands still until this
//! bench moves it, so that the figures depend on no machine.

use super::Figure;
use anyhow::{Context, Result};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use tenure_core::condition::{Admission, ConditionKey, Report, Settlement, let_go, met};
use tenure_core::failure::Class;
use tenure_core::{
    AgentId, AgentRef, Block, Body, ConditionId, Draft, EnvironmentId, Event, EventId, InputBody, LeaseId, NodeId,
    Session, SessionId, Stop, TenantId, Timestamp, apply, retry,
};
use tenure_store::memory::Memory;
use tenure_store::{Admit, Checkpoint, Claim, Conditions, Lane, Leased, NewNode, NewSession, Store, Then};

/// Sessions that wait.
const SESSIONS: u64 = 10_000;
/// Requests a second that the provider takes after the outage.
const RATE: u64 = 50;
/// How long it takes to say no.
const LATENCY_MILLIS: u64 = 300;
/// How often the store is looked at.
const TICK_MILLIS: u64 = 100;
/// Of nodes that look: they must not let go of more than one would.
const NODES: u64 = 3;
/// Longest simulated time.
const PATIENCE_MILLIS: u64 = 3_600_000;

const MODEL: &str = "p/m";

pub(crate) async fn run(_: &Path) -> Result<Vec<Figure>> {
    let drained = simulate(SESSIONS, RATE, LATENCY_MILLIS).await?;
    let ideal = (SESSIONS * 1_000 / RATE) as f64;
    let params = json!({
        "sessions": SESSIONS, "requests_per_second": RATE, "latency_ms": LATENCY_MILLIS, "nodes": NODES,
        "clock": "simulated",
    });
    let share = drained.refused as f64 * 100.0 / drained.sent as f64;
    Ok(vec![
        Figure::new("outage", "time until all are through", "ms", vec![drained.millis as f64])
            .against(ideal)
            .with(params.clone()),
        Figure::new("outage", "requests answered 429", "%", vec![share]).with(params.clone()),
        Figure::new("outage", "most requests in one second", "requests", vec![drained.most_in_a_second as f64])
            .against(RATE as f64)
            .with(params),
    ])
}

/// What came of a simulation.
#[derive(Clone, Copy, Debug, Default)]
struct Drained {
    millis: u64,
    sent: u64,
    refused: u64,
    most_in_a_second: u64,
}

/// A provider with a bucket of one second.
struct Provider {
    rate: u64,
    tokens: u64,
}

impl Provider {
    fn tick(&mut self, millis: u64) {
        self.tokens = (self.tokens + self.rate * millis).min(self.rate * 1_000);
    }

    fn takes(&mut self) -> bool {
        let takes = self.tokens >= 1_000;
        if takes {
            self.tokens -= 1_000;
        }
        takes
    }
}

/// A session that is being advanced.
struct Holder {
    leased: Leased,
    events: Vec<Event>,
    consumed: u64,
}

struct Simulation {
    store: Memory,
    node: NodeId,
    next: u128,
}

impl Simulation {
    fn bits(&mut self) -> u128 {
        self.next += 1;
        self.next << 16
    }

    fn push(&mut self, holder: &mut Holder, draft: Draft) -> Result<()> {
        let event = Event {
            id: draft.id.unwrap_or(EventId::from_bits(self.bits())),
            seq: holder.leased.session.last_seq + 1,
            at: holder.leased.now,
            step: draft.step,
            body: draft.body,
        };
        apply(&mut holder.leased.session, &event)?;
        holder.events.push(event);
        Ok(())
    }

    async fn claim(&mut self) -> Result<Vec<Holder>> {
        let claim = Claim { node: self.node, lane: Lane::Workers, id: LeaseId::from_bits(self.bits()), limit: 1_000 };
        let leased = self.store.claim(claim).await?;
        Ok(leased.into_iter().map(|leased| Holder { leased, events: Vec::new(), consumed: 0 }).collect())
    }

    async fn park(&mut self, holder: Holder) -> Result<()> {
        let Holder { leased, events, consumed } = holder;
        let commit_id = LeaseId::from_bits(self.bits());
        let checkpoint =
            Checkpoint { lease: leased.lease, commit_id, events, session: leased.session, consumed, then: Then::Park };
        self.store.commit(checkpoint).await?;
        Ok(())
    }
}

fn report(sent_at: Timestamp) -> Report {
    Report {
        id: ConditionId::from_bits(1),
        key: ConditionKey { credential: "p".to_owned(), model: Some(MODEL.to_owned()) },
        class: Class::RateLimit,
        message: "too many requests".to_owned(),
        hint: None,
        policy: retry::Policy::default(),
        random: u64::MAX,
        sent_at,
        probe: None,
    }
}

/// Parks all sessions on one condition, ends the outage, and lets them go.
async fn simulate(sessions: u64, rate: u64, latency: u64) -> Result<Drained> {
    let mut simulation = Simulation { store: Memory::new(), node: NodeId::from_bits(1), next: 1 };
    let node = NewNode { id: simulation.node, address: String::new(), label: String::new() };
    simulation.store.register(node).await?;
    let start = simulation.store.now().await?;
    let condition = simulation.store.report_condition(report(start)).await?;
    for _ in 0..sessions {
        let id = SessionId::from_bits(simulation.bits());
        let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
        let session = Session::new(id, TenantId::default_tenant(), agent, EnvironmentId::from_bits(1), start);
        let input = InputBody::Message { content: vec![Block::Text("go".to_owned())] };
        let inputs = vec![(EventId::from_bits(simulation.bits()), input)];
        simulation
            .store
            .create(NewSession { session, events: Vec::new(), metadata: BTreeMap::new(), inputs, idempotency: None })
            .await?;
        for mut holder in simulation.claim().await? {
            holder.consumed = holder.leased.inbox.last().map_or(0, |(position, _)| *position);
            simulation.push(&mut holder, Draft::new(Body::UserMessage { content: Vec::new() }))?;
            for draft in met(&holder.leased.session, &condition, MODEL, 0, start) {
                simulation.push(&mut holder, draft)?;
            }
            simulation.park(holder).await?;
        }
    }
    drain(&mut simulation, sessions, Provider { rate, tokens: rate * 1_000 }, latency).await
}

async fn drain(simulation: &mut Simulation, sessions: u64, mut provider: Provider, latency: u64) -> Result<Drained> {
    let begun = simulation.store.now().await?;
    let (mut drained, mut done) = (Drained::default(), 0);
    let mut refusals: VecDeque<(Timestamp, Timestamp, Option<u64>, Holder)> = VecDeque::new();
    let mut second: VecDeque<u64> = VecDeque::new();
    while done < sessions {
        simulation.store.advance(TICK_MILLIS);
        provider.tick(TICK_MILLIS);
        let now = simulation.store.now().await?;
        anyhow::ensure!(now.since(begun) < PATIENCE_MILLIS, "not through after an hour: {drained:?}");
        while refusals.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, sent_at, probe, mut holder) = refusals.pop_front().context("it was there")?;
            let condition = simulation.store.report_condition(Report { probe, ..report(sent_at) }).await?;
            for draft in met(&holder.leased.session, &condition, MODEL, 0, now) {
                simulation.push(&mut holder, draft)?;
            }
            simulation.park(holder).await?;
        }
        for _ in 0..NODES {
            simulation.store.release_waiting().await?;
        }
        let mut sent = 0;
        for mut holder in simulation.claim().await? {
            let condition = holder.leased.session.waits_on().context("it waits")?;
            let lease = holder.leased.lease.clone();
            let admission = simulation.store.admit(Admit { lease, condition, insists: false }).await?;
            if admission == Admission::Wait {
                simulation.park(holder).await?;
                continue;
            }
            for draft in let_go(&holder.leased.session) {
                simulation.push(&mut holder, draft)?;
            }
            sent += 1;
            let probe = if let Admission::Probe(number) = admission { Some(number) } else { None };
            if provider.takes() {
                if let Some(number) = probe {
                    simulation.store.settle_probe(condition, number, Settlement::Mended).await?;
                }
                simulation.push(&mut holder, Draft::new(Body::StatusIdle { stop: Stop::EndTurn }))?;
                simulation.park(holder).await?;
                done += 1;
            } else {
                drained.refused += 1;
                refusals.push_back((now.after(latency), now, probe, holder));
            }
        }
        drained.sent += sent;
        second.push_back(sent);
        if second.len() as u64 > 1_000 / TICK_MILLIS {
            second.pop_front();
        }
        drained.most_in_a_second = drained.most_in_a_second.max(second.iter().sum());
        drained.millis = now.since(begun);
    }
    Ok(drained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn p10_five_hundred_come_back_without_a_rush() {
        let drained = simulate(500, 20, 300).await.expect("it can be simulated");
        assert!(drained.refused * 100 <= drained.sent, "{drained:?}");
        assert!(drained.millis <= 500 * 1_000 / 20 * 12 / 10 + 3_000, "{drained:?}");
        assert!(drained.most_in_a_second <= 40, "{drained:?}");
        assert!(drained.sent < 510, "one request each, and a few that were refused: {drained:?}");
    }
}
