//! Engine overhead per model step, with a scripted model that answers at once, at concurrency 1.

use super::{Figure, fresh, millis};
use crate::compose::drivers;
use anyhow::{Context, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{
    Agent, AgentId, AgentRef, Block, EnvironmentId, EventId, InputBody, Limits, Loop, Phase, Policies, Session,
    SessionId, TenantId, Timestamp,
};
use tenure_engine::{EventMasker, Folders, Options, Sandboxes, Worker};
use tenure_model::Providers;
use tenure_store::{Delivery, NewSession, State, Store};
use tenure_store_sqlite::Sqlite;
use tokio_util::sync::CancellationToken;

/// Turns that are measured; each is one model step.
const TURNS: usize = 200;

/// Commits that one turn of one model step costs: the begin of the span with the message, and the
/// answer with the end of the turn. The delivery of the message is a third transaction.
const COMMITS_PER_STEP: u32 = 2;

pub(crate) async fn run(folder: &Path) -> Result<Vec<Figure>> {
    let data = fresh(folder, "steps");
    let store: Arc<dyn Store> = Sqlite::open(tenure_store_sqlite::Options::new(&data))?;
    let tenant = TenantId::default_tenant();
    let agent = Agent {
        id: AgentId::from_bits(1),
        version: 1,
        tenant: tenant.clone(),
        name: "bench".to_owned(),
        description: None,
        model: "script/instant".to_owned(),
        fallback_models: Vec::new(),
        system: None,
        tools: Vec::new(),
        limits: Limits::NONE,
        policies: Policies::default(),
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        archived_at: None,
    };
    let agent = store.put_agent(agent, None).await?;
    let id = SessionId::from_bits(1 << 100);
    let mut session = Session::new(
        id,
        tenant.clone(),
        AgentRef { id: agent.id, version: 1 },
        EnvironmentId::from_bits(1),
        Timestamp(0),
    );
    session.budget.limits = Limits::NONE;
    store
        .create(NewSession {
            session,
            events: Vec::new(),
            metadata: BTreeMap::new(),
            inputs: Vec::new(),
            idempotency: None,
        })
        .await?;
    let options = Options {
        slots: 4,
        quantum: Duration::from_secs(45),
        short_wait: Duration::from_secs(5),
        grace: Duration::from_secs(1),
        heartbeat: Duration::from_secs(5),
        dead_after: Duration::from_secs(15),
        sandbox_idle: Duration::from_secs(300),
        data: data.clone(),
        public_url: "http://127.0.0.1".to_owned(),
        installation_key: [0; 32],
        node_key: "bench".to_owned(),
        internal_listen: ([127, 0, 0, 1], 0).into(),
        telemetry: tenure_telemetry::Telemetry::default(),
    };
    let sandboxes = Arc::new(Sandboxes::new(drivers(), Folders { data: data.clone() }, Vec::new()));
    let worker =
        Worker::start(store.clone(), Arc::new(Providers::scripted(None)), sandboxes, EventMasker::default(), options)
            .await?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let mut values = Vec::new();
    for turn in 0..TURNS {
        let started = Instant::now();
        turn_of(&*store, &tenant, id, turn).await?;
        values.push(millis(started.elapsed()));
    }
    stop.cancel();
    running.await.context("the worker panicked")??;
    let fsync = fsync_millis(&data)?;
    let overhead = values.iter().map(|value| (value - fsync * f64::from(COMMITS_PER_STEP + 1)).max(0.0)).collect();
    let params = json!({ "commits_per_step": COMMITS_PER_STEP, "fsync_ms": fsync });
    Ok(vec![
        Figure::new("steps", "message to idle, one model step", "ms", values).with(params.clone()),
        Figure::new("steps", "the same less its commits' fsyncs", "ms", overhead).with(params),
    ])
}

async fn turn_of(store: &dyn Store, tenant: &TenantId, id: SessionId, turn: usize) -> Result<()> {
    let mut hints = store.hints();
    let input = (
        EventId::from_bits((turn as u128 + 1) << 64),
        InputBody::Message { content: vec![Block::Text("hi".to_owned())] },
    );
    store
        .deliver(Delivery { tenant: tenant.clone(), session: id, inputs: vec![input], notes: None, idempotency: None })
        .await?;
    loop {
        let view = store.session(tenant, id).await?.context("the session is there")?;
        if view.state == State::Parked && view.inbox_len == 0 && view.session.phase() == Phase::Idle {
            return Ok(());
        }
        let _ = tokio::time::timeout(Duration::from_millis(50), hints.recv()).await;
    }
}

/// Median time of a small append with its fsync on this disk, now.
fn fsync_millis(folder: &Path) -> Result<f64> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(folder.join("fsync"))?;
    let mut values = Vec::new();
    for _ in 0..100 {
        let started = Instant::now();
        file.write_all(&[0; 4_096])?;
        file.sync_data()?;
        values.push(millis(started.elapsed()));
    }
    values.sort_by(f64::total_cmp);
    Ok(super::quantile(&values, 0.5))
}
