//! A store, an agent, and workers that can be started and stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::*;
use tenure_engine::{Ended, EventMasker, Folders, Options, Sandboxes, Worker};
use tenure_model::Providers;
use tenure_sandbox::{Driver, LAUNCHER_ARGUMENT, Launcher, ProcessDriver};
use tenure_store::*;
use tenure_store_sqlite::Sqlite;
use tenure_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct House {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) tenant: TenantId,
    data: tempfile::TempDir,
    scenarios: PathBuf,
    agent: Agent,
    next_id: u128,
}

pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<Ended, Error>>,
    /// Where other nodes reach it.
    pub(crate) address: std::net::SocketAddr,
}

impl Running {
    pub(crate) fn new(
        stop: CancellationToken,
        task: tokio::task::JoinHandle<Result<Ended, Error>>,
        address: std::net::SocketAddr,
    ) -> Self {
        Self { stop, task, address }
    }

    pub(crate) async fn stop(self) -> Ended {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap()
    }
}

/// How the workers of a house behave.
pub(crate) fn options(data: &Path) -> Options {
    Options {
        slots: 8,
        quantum: Duration::from_secs(45),
        short_wait: Duration::from_millis(200),
        grace: Duration::from_secs(1),
        heartbeat: Duration::from_millis(500),
        dead_after: Duration::from_secs(5),
        sandbox_idle: Duration::from_secs(60),
        data: data.to_owned(),
        public_url: "http://127.0.0.1:1".into(),
        installation_key: [7; 32],
        node_key: "node".into(),
        internal_listen: "127.0.0.1:0".parse().unwrap(),
        telemetry: Telemetry::default(),
    }
}

/// The driver that works on every machine; what it does not isolate does not matter here.
pub(crate) fn drivers() -> Vec<Arc<dyn Driver>> {
    let program = env!("CARGO_BIN_EXE_engine-launcher").into();
    vec![Arc::new(ProcessDriver::new(Launcher { program, arguments: vec![LAUNCHER_ARGUMENT.to_owned()] }))]
}

/// Starts a worker of the house in `data`.
pub(crate) async fn start(
    data: &Path,
    store: Arc<Sqlite>,
    drivers: Vec<Arc<dyn Driver>>,
    masker: EventMasker,
    options: Options,
) -> Worker {
    let models = Arc::new(Providers::scripted(Some(data.join("scenarios"))));
    let folders = Folders { data: data.to_owned() };
    let sandboxes = Arc::new(Sandboxes::new(drivers, folders, Vec::new()));
    Worker::start(store, models, sandboxes, masker, options).await.unwrap()
}

impl House {
    /// A house whose model plays `scenario`; `{f}` in it is the data folder.
    pub(crate) async fn new(scenario: &str) -> Self {
        Self::with(scenario, Effect::Once).await
    }

    /// A house in which commands of the bash tool have this effect class.
    pub(crate) async fn with(scenario: &str, effect: Effect) -> Self {
        let data = tempfile::tempdir().unwrap();
        let scenarios = data.path().join("scenarios");
        std::fs::create_dir_all(&scenarios).unwrap();
        let folder = data.path().to_str().unwrap();
        std::fs::write(scenarios.join("test.toml"), scenario.replace("{f}", folder)).unwrap();
        let store = Sqlite::open(tenure_store_sqlite::Options::new(data.path().join("store"))).unwrap();
        let tenant = TenantId::default_tenant();
        let quick = ToolConfig::default();
        let agent = Agent {
            id: AgentId::from_bits(1),
            version: 1,
            tenant: tenant.clone(),
            name: "tester".into(),
            description: None,
            model: "script/test".into(),
            fallback_models: vec![],
            system: None,
            tools: vec![
                Tool::Waits { default: quick, configs: BTreeMap::new() },
                Tool::Sandbox {
                    default: ToolConfig { permission: Permission::Ask, ..quick },
                    configs: BTreeMap::from([("bash".into(), ToolConfig { effect: Some(effect), ..quick })]),
                },
                Tool::Custom(CustomTool {
                    name: "form".into(),
                    description: "asks".into(),
                    input_schema: Json::object(),
                }),
            ],
            limits: Limits::default(),
            policies: Policies { retry: retry::Policy { max_attempts: 4, base: 1, cap: 5 }, ..Policies::default() },
            run_loop: Loop::BuiltIn,
            metadata: BTreeMap::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            archived_at: None,
        };
        let agent = store.put_agent(agent, None).await.unwrap();
        let environment = Environment {
            id: EnvironmentId::from_bits(1),
            tenant: tenant.clone(),
            name: "here".into(),
            description: None,
            driver: DriverName::Process,
            network: Network::Off,
            limits: SandboxLimits::default(),
            metadata: BTreeMap::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            archived_at: None,
        };
        store.put_environment(environment, None).await.unwrap();
        Self { store, tenant, data, scenarios, agent, next_id: 1_000 }
    }

    /// Changes the agent of the sessions that are made from now on.
    pub(crate) async fn change_agent(&mut self, change: impl FnOnce(&mut Agent)) {
        change(&mut self.agent);
        self.agent.version += 1;
        self.agent = self.store.put_agent(self.agent.clone(), None).await.unwrap();
    }

    fn id(&mut self) -> u128 {
        self.next_id += 1;
        self.next_id
    }

    /// A worker in this process, without sandboxes.
    pub(crate) async fn worker(&self) -> Running {
        self.worker_with(Vec::new(), EventMasker::default()).await
    }

    /// A worker in this process that runs commands in real sandboxes.
    pub(crate) async fn handy_worker(&self) -> Running {
        self.worker_with(drivers(), EventMasker::default()).await
    }

    pub(crate) async fn worker_with(&self, drivers: Vec<Arc<dyn Driver>>, masker: EventMasker) -> Running {
        self.worker_observed(drivers, masker, Telemetry::default()).await
    }

    /// A worker that counts and traces there.
    pub(crate) async fn worker_observed(
        &self,
        drivers: Vec<Arc<dyn Driver>>,
        masker: EventMasker,
        telemetry: Telemetry,
    ) -> Running {
        let options = Options { telemetry, ..options(self.path()) };
        let worker = start(self.path(), self.store.clone(), drivers, masker, options).await;
        let (stop, address) = (CancellationToken::new(), worker.address());
        let task = tokio::spawn(worker.run(stop.clone()));
        Running { stop, task, address }
    }

    /// The data folder.
    pub(crate) fn path(&self) -> &Path {
        self.data.path()
    }

    pub(crate) async fn session(&mut self) -> SessionId {
        self.session_in(None).await
    }

    /// A session of an external loop, if there is a queue.
    pub(crate) async fn session_in(&mut self, queue: Option<&str>) -> SessionId {
        let id = SessionId::from_bits(self.id() << 16);
        let agent = AgentRef { id: self.agent.id, version: self.agent.version };
        let mut session = Session::new(id, self.tenant.clone(), agent, EnvironmentId::from_bits(1), Timestamp(0));
        session.queue = queue.map(str::to_owned);
        let new = NewSession { session, events: vec![], metadata: BTreeMap::new(), inputs: vec![], idempotency: None };
        self.store.create(new).await.unwrap();
        id
    }

    pub(crate) async fn send(&mut self, session: SessionId, body: InputBody) -> Receipt {
        let id = EventId::from_bits(self.id());
        let delivery =
            Delivery { tenant: self.tenant.clone(), session, inputs: vec![(id, body)], notes: None, idempotency: None };
        self.store.deliver(delivery).await.unwrap().receipts.remove(0)
    }

    pub(crate) async fn say(&mut self, session: SessionId, text: &str) {
        self.send(session, InputBody::Message { content: vec![Block::Text(text.into())] }).await;
    }

    pub(crate) async fn log(&self, session: SessionId) -> Vec<Event> {
        let query =
            EventQuery { tenant: self.tenant.clone(), session, after: None, order: Order::Ascending, limit: 1_000 };
        self.store.events(query).await.unwrap()
    }

    /// Waits until the log is as `is_so` wants it; looks after each hint.
    pub(crate) async fn until_log(&self, session: SessionId, is_so: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let mut hints = self.store.hints();
        let wait = async {
            loop {
                let log = self.log(session).await;
                if is_so(&log) {
                    return log;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), hints.recv()).await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(log) => log,
            Err(_) => panic!("the log never was so: {:#?}", self.log(session).await),
        }
    }

    /// Waits until the session is parked or ended in this phase; looks after each hint.
    pub(crate) async fn until(&self, session: SessionId, phase: Phase) -> SessionView {
        let mut hints = self.store.hints();
        let wait = async {
            loop {
                let view = self.store.session(&self.tenant, session).await.unwrap().unwrap();
                if view.session.phase() == phase
                    && !matches!(view.state, State::Leased | State::Queued)
                    && view.inbox_len == 0
                {
                    return view;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), hints.recv()).await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(view) => view,
            Err(_) => panic!(
                "never came to {phase:?}: {:?}\n{:#?}",
                self.store.session(&self.tenant, session).await,
                self.log(session).await
            ),
        }
    }
}

/// Texts of the agent's messages.
pub(crate) fn said(log: &[Event]) -> Vec<String> {
    let text = |event: &Event| match &event.body {
        Body::AgentMessage { text, .. } => Some(text.clone()),
        _ => None,
    };
    log.iter().filter_map(text).collect()
}

/// Checks what holds for every log.
pub(crate) fn check(log: &[Event]) {
    for (place, event) in log.iter().enumerate() {
        assert_eq!(event.seq, place as u64 + 1, "seq without gaps");
    }
    for cut in 0..=log.len() {
        let messages = transcript(&log[..cut]);
        assert_eq!(validate::validate(&messages), Ok(()), "prefix of {cut} rows");
    }
}

impl House {
    /// The file of the scenario.
    pub(crate) fn scenario_file(&self) -> PathBuf {
        self.scenarios.join("test.toml")
    }
}
