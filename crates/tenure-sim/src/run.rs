//! Runs a plan: starts the world, lets it go on until every session is at rest, and checks what is left.

use crate::bug::Bug;
use crate::client::{Client, tenant};
use crate::dice::Dice;
use crate::plan::{Fault, Plan, Trouble};
use crate::provider::{MAX_ANSWER_TOKENS, MODEL, Outside, Way};
use crate::referee::Violation;
use crate::store::Reached;
use crate::world::{Process, World};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Agent, AgentId, AgentRef, Body, Budget, CustomTool, Effect, EnvironmentId, Event, Json, Limits, Loop, Permission,
    Policies, Session, SessionId, TenantId, Timestamp, Tool, ToolConfig, UnknownOutcome, Which, apply, retry,
    transcript, validate,
};
use tenure_engine::{Options, Sandboxes, Worker};
use tenure_store::{EventQuery, MAX_PAGE, Order, SessionView, Store};
use tenure_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

/// Prefixes of each log that are tried as a model request.
const PREFIXES: usize = 10;

/// Times that a failing plan is run again to find one with fewer faults.
const MAX_SHRINKS: usize = 300;

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// Of all lines of its history.
    pub digest: u64,
    /// What happened, each line with its millisecond.
    pub history: Vec<String>,
    /// How long it took, on its own clock, in milliseconds.
    pub millis: u64,
}

/// Runs a plan, with a planted bug or without.
///
/// # Panics
/// When no runtime can be made.
pub fn run(plan: &Plan, bug: Option<Bug>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime with nothing but a clock can be made");
    runtime.block_on(play(plan.clone(), bug))
}

/// A plan that breaks the same promise with as few faults as could be found.
pub fn shrink(plan: &Plan, bug: Option<Bug>, promise: &str) -> Plan {
    let mut best = plan.clone();
    let mut size = best.faults.len().div_ceil(2);
    let mut runs = 0;
    while size > 0 {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < best.faults.len() && runs < MAX_SHRINKS {
            let mut fewer = best.clone();
            fewer.faults.drain(start..(start + size).min(best.faults.len()));
            runs += 1;
            if run(&fewer, bug).violation.is_some_and(|violation| violation.promise == promise) {
                best = fewer;
                has_shrunk = true;
            } else {
                start += size;
            }
        }
        if size == 1 && !has_shrunk || runs >= MAX_SHRINKS {
            break;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
    best
}

async fn play(plan: Plan, bug: Option<Bug>) -> Report {
    let world = Arc::new(World::new(plan, bug));
    let outside = Arc::new(Outside::new(world.plan.seed));
    for number in 0..2 {
        let put = world.memory.put_agent(agent(tenant(number), &world.plan), None).await;
        put.expect("a new store takes an agent");
    }
    for index in 0..world.plan.nodes {
        tokio::spawn(node(world.clone(), outside.clone(), index));
    }
    let clients: Vec<_> = (0..world.plan.sessions as u64)
        .map(|number| {
            let reached = Reached::new(world.clone(), Arc::default(), None, format!("client {number}"));
            tokio::spawn(Client::new(world.clone(), reached, number).run())
        })
        .collect();
    let all = async {
        for client in clients {
            if let Err(error) = client.await {
                world.judge(|referee| referee.broken("no part of the world panics", error.to_string()));
            }
        }
    };
    tokio::select! {
        biased;
        () = world.over.cancelled() => {}
        () = all => {}
    }
    if !world.over.is_cancelled() {
        check(&world).await;
    }
    let violation = world.judge(|referee| referee.violation.clone());
    let mut history = world.history();
    Report { violation, digest: history.digest(), millis: world.now(), history: history.take() }
}

/// One worker after the other, in one place.
async fn node(world: Arc<World>, outside: Arc<Outside>, index: usize) {
    let mut dice = Dice::of(world.plan.seed, 10 + index as u64);
    for start in 1_u64.. {
        let process = Arc::new(Process::default());
        let name = format!("node {index}.{start}");
        let store = Arc::new(Reached::new(world.clone(), process.clone(), Some(index), name.clone()));
        let way = Way { world: world.clone(), process: process.clone(), outside: outside.clone() };
        let stop = CancellationToken::new();
        let work = {
            let (store, stop, seed) = (store.clone(), stop.clone(), dice.next());
            let options = options(&world.plan);
            async move {
                let sandboxes = Arc::new(Sandboxes::played(Arc::new(way.clone())));
                match Worker::simulated(seed, store, Arc::new(way), sandboxes, options).await {
                    Ok(worker) => {
                        worker.run(stop).await.map_or_else(|error| error.to_string(), |ended| format!("{ended:?}"))
                    }
                    Err(error) => error.to_string(),
                }
            }
        };
        let mut work = tokio::spawn(work);
        let next = next_trouble(&world, index);
        let trouble = async {
            match next {
                Some((at, ..)) => world.until(at).await,
                None => std::future::pending().await,
            }
        };
        let mut down = dice.between(50, 6_000);
        let how = tokio::select! {
            biased;
            () = process.died() => "crashed".to_owned(),
            ended = &mut work => format!("{ended:?}"),
            () = trouble => match next {
                Some((_, span, Trouble::Stopped)) => {
                    down = span;
                    stop.cancel();
                    tokio::select! {
                        biased;
                        () = process.died() => "crashed while it stopped".to_owned(),
                        ended = &mut work => format!("stopped: {ended:?}"),
                    }
                }
                Some((_, span, _)) => {
                    down = span;
                    "killed".to_owned()
                }
                None => String::new(),
            },
        };
        process.die();
        work.abort();
        store.forget_timers();
        world.note(format!("{name}: {how}; down for {down} ms"));
        tokio::time::sleep(Duration::from_millis(down)).await;
    }
}

/// When this node is killed or stopped next, for how long, and which of both.
fn next_trouble(world: &World, index: usize) -> Option<(u64, u64, Trouble)> {
    let now = world.now();
    let troubles = world.plan.faults.iter().filter_map(|fault| match fault {
        Fault::Node { node, at, span, how: how @ (Trouble::Killed | Trouble::Stopped) }
            if *node == index && *at > now =>
        {
            Some((*at, *span, *how))
        }
        _ => None,
    });
    troubles.min_by_key(|(at, ..)| *at)
}

fn options(plan: &Plan) -> Options {
    Options {
        slots: plan.slots,
        quantum: Duration::from_millis(plan.quantum),
        short_wait: Duration::from_millis(plan.short_wait),
        grace: Duration::from_secs(2),
        heartbeat: Duration::from_secs(1),
        dead_after: Duration::from_secs(5),
        sandbox_idle: Duration::from_secs(60),
        data: PathBuf::new(),
        public_url: "http://sim.invalid".into(),
        installation_key: [7; 32],
        node_key: "sim".into(),
        internal_listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        telemetry: Telemetry::default(),
    }
}

fn agent(tenant: TenantId, plan: &Plan) -> Agent {
    let quick = ToolConfig::default();
    let with = |effect| ToolConfig { effect: Some(effect), ..quick };
    let form = CustomTool { name: "form".into(), description: "asks".into(), input_schema: Json::object() };
    Agent {
        id: AgentId::from_bits(1),
        version: 1,
        tenant,
        name: "agent of a simulated world".into(),
        description: None,
        model: MODEL.into(),
        fallback_models: Vec::new(),
        system: None,
        tools: vec![
            Tool::Waits { default: quick, configs: BTreeMap::new() },
            Tool::Sandbox {
                default: quick,
                configs: BTreeMap::from([
                    ("bash".into(), with(Effect::Once)),
                    ("write".into(), ToolConfig { permission: Permission::Ask, ..with(Effect::Idempotent) }),
                    ("read".into(), with(Effect::Pure)),
                ]),
            },
            Tool::Custom(form),
        ],
        limits: Limits::default(),
        policies: Policies {
            retry: retry::Policy { max_attempts: 8, base: 500, cap: 20_000 },
            unknown_outcome: if plan.asks_person { UnknownOutcome::AskPerson } else { UnknownOutcome::TellModel },
            ..Policies::default()
        },
        run_loop: Loop::BuiltIn,
        metadata: BTreeMap::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        archived_at: None,
    }
}

/// What holds at the end, for every session.
async fn check(world: &World) {
    for number in 0..world.plan.sessions as u64 {
        let (tenant, session) = (tenant(number), SessionId::from_bits(u128::from(number + 1) << 16));
        let Ok(Some(view)) = world.memory.session(&tenant, session).await else {
            world.judge(|referee| referee.broken("P1 an acknowledged session is kept", session.to_string()));
            continue;
        };
        let log = log(world, &tenant, session).await;
        world.judge(|referee| referee.check_log(session, &view, &log));
        check_fold(world, &view, &log);
        check_prefixes(world, session, &log);
    }
}

async fn log(world: &World, tenant: &TenantId, session: SessionId) -> Vec<Event> {
    let mut rows: Vec<Event> = Vec::new();
    loop {
        let (tenant, after) = (tenant.clone(), Some(rows.len() as u64));
        let query = EventQuery { tenant, session, after, order: Order::Ascending, limit: MAX_PAGE };
        match world.memory.events(query).await {
            Ok(page) if !page.is_empty() => rows.extend(page),
            Ok(_) | Err(_) => return rows,
        }
    }
}

/// The head is the fold of its log, and no step began beyond a limit.
fn check_fold(world: &World, view: &SessionView, log: &[Event]) {
    let head = &view.session;
    let agent = AgentRef { id: AgentId::from_bits(1), version: 1 };
    let mut folded = Session::new(head.id, head.tenant.clone(), agent, EnvironmentId::from_bits(1), head.created_at);
    let limits = Limits { steps: world.plan.steps, ..Limits::default() };
    folded.budget = Budget { limits, ..Budget::default() };
    let mut problem = None;
    for event in log {
        if let Body::SpanStart { .. } = event.body {
            let reached = folded.limit_reached(event.at).filter(|which| *which != Which::Wall);
            if let Some(which) = reached {
                problem = Some(("P11 budgets bind", format!("seq {} began although {which:?} was reached", event.seq)));
            }
        }
        if let Err(invalid) = apply(&mut folded, event) {
            problem = Some(("P12 the log can be read again", format!("seq {}: {invalid}", event.seq)));
            break;
        }
    }
    if problem.is_none() && folded != *head {
        problem = Some(("P7 the head is the fold of its log", format!("{folded:?}\nis not\n{head:?}")));
    }
    // An answer that came to a worker that died was charged by an estimate (hazard Z-46).
    let is_lost = |event: &&Event| matches!(&event.body, Body::SpanEnd { model, .. } if model.is_empty());
    let estimated = log.iter().filter(is_lost).count() as u64 * MAX_ANSWER_TOKENS;
    world.judge(|referee| {
        let used = referee.of(head.id).tokens;
        if problem.is_none() && head.budget.tokens() + estimated < used {
            let what = format!("{used} tokens were used and {} are charged", head.budget.tokens());
            problem = Some(("P11 what was used is charged", what));
        }
        if let Some((promise, what)) = problem {
            referee.broken(promise, format!("{}: {what}", head.id));
        }
    });
}

fn check_prefixes(world: &World, session: SessionId, log: &[Event]) {
    let step = (log.len() / PREFIXES).max(1);
    for cut in (0..=log.len()).step_by(step) {
        if let Err(problem) = validate::validate(&transcript(&log[..cut])) {
            let what = format!("{session}: prefix of {cut} rows: {problem:?}");
            world.judge(|referee| referee.broken("P4 every prefix is a valid request", what));
        }
    }
}
