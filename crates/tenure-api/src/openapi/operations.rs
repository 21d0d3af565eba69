//! All operations of the API; a test of the server holds its routes against this table.

use super::reference;
use crate::scope::Scope;
use serde_json::{Value, json};

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// In lower case.
    pub method: &'static str,
    /// With `{names}` in braces.
    pub path: &'static str,
    /// Name for generated clients.
    pub id: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Query parameters.
    pub query: &'static [&'static str],
    /// Content type and schema of the body; an empty schema is any bytes.
    pub request: Option<(&'static str, &'static str)>,
    /// Content type of the reply.
    pub reply_type: &'static str,
    /// Schema of the reply.
    pub reply: Reply,
    /// Whether it needs no key.
    pub is_open: bool,
    /// What a key must be allowed to, if it needs one.
    pub scope: Scope,
}

/// Shape of a reply.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// One object.
    One(&'static str),
    /// A page of objects.
    Page(&'static str),
    /// Anything.
    Bytes,
}

impl Operation {
    pub(super) fn reply_schema(&self) -> Value {
        match self.reply {
            Reply::One(name) => reference(name),
            Reply::Page(name) => json!({
                "type": "object",
                "required": ["data"],
                "properties": {
                    "data": {"type": "array", "items": reference(name)},
                    "next_page": {"type": ["string", "null"]},
                },
            }),
            Reply::Bytes => json!({}),
        }
    }
}

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const TAR: &str = "application/x-tar";

const LIST: &[&str] =
    &["limit", "page", "include_archived", "created_at[gt]", "created_at[gte]", "created_at[lt]", "created_at[lte]"];

const fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    reply: Reply,
) -> Operation {
    // Whoever reads needs the least; writing is for clients unless the table says `person`.
    let scope = match method.as_bytes() {
        b"get" => Scope::Read,
        _ => Scope::Client,
    };
    Operation { method, path, id, summary, query: &[], request: None, reply_type: JSON, reply, is_open: false, scope }
}

impl Operation {
    const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    const fn body(mut self, schema: &'static str) -> Self {
        self.request = Some((JSON, schema));
        self
    }

    const fn takes(mut self, kind: &'static str) -> Self {
        self.request = Some((kind, ""));
        self
    }

    const fn gives(mut self, kind: &'static str) -> Self {
        self.reply_type = kind;
        self
    }

    const fn person(mut self) -> Self {
        self.scope = Scope::Person;
        self
    }

    const fn open(mut self) -> Self {
        self.is_open = true;
        self
    }
}

/// All operations.
pub const OPERATIONS: &[Operation] = &[
    operation("post", "/v1/agents", "createAgent", "Makes an agent.", Reply::One("Agent")).body("AgentChange"),
    operation(
        "get",
        "/v1/agents",
        "listAgents",
        "Lists the newest versions of agents, newest first.",
        Reply::Page("Agent"),
    )
    .query(LIST),
    operation("get", "/v1/agents/{agent_id}", "getAgent", "Gives one version of an agent.", Reply::One("Agent"))
        .query(&["version"]),
    operation("post", "/v1/agents/{agent_id}", "updateAgent", "Makes a new version of an agent.", Reply::One("Agent"))
        .body("AgentChange"),
    operation(
        "post",
        "/v1/agents/{agent_id}/archive",
        "archiveAgent",
        "Archives an agent; its sessions go on.",
        Reply::One("Agent"),
    ),
    operation(
        "get",
        "/v1/agents/{agent_id}/versions",
        "listAgentVersions",
        "Lists all versions of an agent, newest first.",
        Reply::Page("Agent"),
    )
    .query(LIST),
    operation("post", "/v1/environments", "createEnvironment", "Makes an environment.", Reply::One("Environment"))
        .body("EnvironmentChange"),
    operation(
        "get",
        "/v1/environments",
        "listEnvironments",
        "Lists environments, newest first.",
        Reply::Page("Environment"),
    )
    .query(LIST),
    operation(
        "get",
        "/v1/environments/{environment_id}",
        "getEnvironment",
        "Gives an environment.",
        Reply::One("Environment"),
    ),
    operation(
        "post",
        "/v1/environments/{environment_id}",
        "updateEnvironment",
        "Changes an environment.",
        Reply::One("Environment"),
    )
    .body("EnvironmentChange"),
    operation(
        "delete",
        "/v1/environments/{environment_id}",
        "deleteEnvironment",
        "Removes an environment that no live session uses.",
        Reply::One("Deleted"),
    ),
    operation(
        "post",
        "/v1/environments/{environment_id}/archive",
        "archiveEnvironment",
        "Archives an environment.",
        Reply::One("Environment"),
    ),
    operation("post", "/v1/sessions", "createSession", "Makes a session; it starts idle.", Reply::One("Session"))
        .body("SessionCreate"),
    operation(
        "get",
        "/v1/sessions",
        "listSessions",
        "Lists sessions, newest first; tail finds those whose id ends so.",
        Reply::Page("Session"),
    )
    .query(&[
        "limit",
        "page",
        "order",
        "agent_id",
        "agent_version",
        "statuses[]",
        "phases[]",
        "created_at[gt]",
        "created_at[gte]",
        "created_at[lt]",
        "created_at[lte]",
        "include_archived",
        "tail",
        "q",
    ]),
    operation("get", "/v1/sessions/{session_id}", "getSession", "Gives a session.", Reply::One("Session")),
    operation(
        "post",
        "/v1/sessions/{session_id}",
        "updateSession",
        "Changes title, metadata or limits of a session.",
        Reply::One("Session"),
    )
    .body("SessionUpdate"),
    operation(
        "delete",
        "/v1/sessions/{session_id}",
        "deleteSession",
        "Removes a session that is not worked on, with its files.",
        Reply::One("Deleted"),
    ),
    operation(
        "post",
        "/v1/sessions/{session_id}/archive",
        "archiveSession",
        "Ends a session in good order.",
        Reply::One("Session"),
    ),
    operation(
        "get",
        "/v1/sessions/{session_id}/events",
        "listEvents",
        "Lists events, oldest first; inputs that wait come last, with seq null.",
        Reply::Page("Event"),
    )
    .query(&[
        "limit",
        "page",
        "order",
        "types[]",
        "created_at[gt]",
        "created_at[gte]",
        "created_at[lt]",
        "created_at[lte]",
    ]),
    operation(
        "post",
        "/v1/sessions/{session_id}/events",
        "sendEvents",
        "Sends events, all or none; answered when they are durable. Confirmations of tools need the scope person.",
        Reply::Page("Event"),
    )
    .body("SendEvents"),
    operation(
        "get",
        "/v1/sessions/{session_id}/events/stream",
        "streamEvents",
        "Streams events; resumes after Last-Event-ID or ?after=, else live only.",
        Reply::One("Event"),
    )
    .query(&["after", "event_deltas[]"])
    .gives("text/event-stream"),
    operation(
        "get",
        "/v1/sessions/{session_id}/explain",
        "explainSession",
        "Says why a session does not run now, and what would make it go on.",
        Reply::One("Explanation"),
    ),
    operation(
        "get",
        "/v1/sessions/{session_id}/context",
        "getContext",
        "Gives the request of the model call that began at seq or last before it, built again from the log.",
        Reply::One("SeenContext"),
    )
    .query(&["seq"]),
    operation(
        "get",
        "/v1/sessions/{session_id}/timeline",
        "getTimeline",
        "Lists turns, model calls, tool calls, waits and leases in the order of their begin, very many of them in bins.",
        Reply::Page("Span"),
    )
    .query(&["limit", "page", "from_seq", "to_seq", "view"]),
    operation(
        "post",
        "/v1/sessions/{session_id}/pause",
        "pauseSession",
        "Holds a session at the next step boundary.",
        Reply::One("Session"),
    ),
    operation(
        "post",
        "/v1/sessions/{session_id}/resume",
        "resumeSession",
        "Lets a session go on, and tries now what it backs off from.",
        Reply::One("Session"),
    ),
    operation(
        "post",
        "/v1/sessions/{session_id}/cancel",
        "cancelSession",
        "Ends a session for good; the last event comes when its processes are gone.",
        Reply::One("Session"),
    ),
    operation(
        "post",
        "/v1/sessions/{session_id}/budget",
        "changeBudget",
        "Changes the limits of a session.",
        Reply::One("Session"),
    )
    .body("Limits"),
    operation(
        "post",
        "/v1/sessions/{session_id}/fork",
        "forkSession",
        "Makes a new session from a part of another one's log, and from files of some moment; nothing is copied.",
        Reply::One("Session"),
    )
    .body("Fork"),
    operation(
        "get",
        "/v1/sessions/{session_id}/snapshots",
        "listSnapshots",
        "Lists the snapshots of the files, newest first.",
        Reply::Page("Snapshot"),
    ),
    operation(
        "post",
        "/v1/sessions/{session_id}/snapshots",
        "takeSnapshot",
        "Stores the files as they are, and answers when that is done.",
        Reply::One("Snapshot"),
    ),
    operation(
        "get",
        "/v1/sessions/{session_id}/diff",
        "diffFiles",
        "Says what is different between two states of the files.",
        Reply::One("Diff"),
    )
    .query(&["from", "to", "path", "limit"]),
    operation(
        "get",
        "/v1/sessions/{session_id}/files",
        "listFiles",
        "Lists a folder of the workspace, as it is now or as a snapshot has it.",
        Reply::One("Folder"),
    )
    .query(&["path", "at", "limit", "after"]),
    operation(
        "get",
        "/v1/sessions/{session_id}/files/content",
        "readFile",
        "Gives a file as a download; takes Range and If-None-Match.",
        Reply::Bytes,
    )
    .query(&["path", "at"])
    .gives(BYTES),
    operation(
        "put",
        "/v1/sessions/{session_id}/files/content",
        "writeFile",
        "Writes a file of the workspace.",
        Reply::One("File"),
    )
    .query(&["path", "mode"])
    .takes(BYTES)
    .person(),
    operation(
        "get",
        "/v1/sessions/{session_id}/files/archive",
        "readArchive",
        "Gives a folder of the workspace as tar.",
        Reply::Bytes,
    )
    .query(&["path", "at"])
    .gives(TAR),
    operation(
        "put",
        "/v1/sessions/{session_id}/files/archive",
        "writeArchive",
        "Unpacks a tar into a folder of the workspace.",
        Reply::One("Unpacked"),
    )
    .query(&["path"])
    .takes(TAR)
    .person(),
    operation(
        "get",
        "/v1/sessions/{session_id}/outputs/{tool_use_id}",
        "readOutput",
        "Gives the full output of a command; takes Range.",
        Reply::Bytes,
    )
    .gives(BYTES),
    operation(
        "post",
        "/v1/callbacks/{token}",
        "answerCallback",
        "Takes the answer of an outside job; a repeat gets the same reply.",
        Reply::One("CallbackReceipt"),
    )
    .takes(BYTES)
    .open(),
    operation(
        "get",
        "/v1/approvals",
        "listApprovals",
        "Lists calls that need a person, across sessions.",
        Reply::Page("Approval"),
    )
    .query(&["limit", "page"]),
    operation(
        "get",
        "/v1/conditions",
        "listConditions",
        "Lists what upstreams refuse just now, and how many sessions wait on it.",
        Reply::Page("Condition"),
    ),
    operation(
        "post",
        "/v1/conditions/{condition_id}/probe",
        "probeCondition",
        "Has one waiting session try at once.",
        Reply::One("Condition"),
    )
    .person(),
    operation(
        "post",
        "/v1/conditions/{condition_id}/clear",
        "clearCondition",
        "Lets go of all who wait, slowly at first.",
        Reply::One("Condition"),
    )
    .person(),
    operation("get", "/v1/queues/{queue}", "getQueue", "Says how much waits in a queue of external loops.", Reply::One("Queue")),
    operation(
        "post",
        "/v1/queues/{queue}/leases",
        "takeLeases",
        "Takes leases of sessions for an external loop, waiting for one if asked to.",
        Reply::One("Leases"),
    )
    .body("TakeLeases"),
    operation(
        "post",
        "/v1/leases/{lease_id}/checkpoint",
        "checkpointLease",
        "Commits what an external loop did, all or nothing.",
        Reply::One("Lease"),
    )
    .body("Checkpoint"),
    operation("post", "/v1/leases/{lease_id}/renew", "renewLease", "Keeps a lease.", Reply::One("RenewedLease"))
        .body("RenewLease"),
    operation(
        "post",
        "/v1/leases/{lease_id}/preview",
        "previewLease",
        "Shows text to readers of the stream before it is committed.",
        Reply::One("Status"),
    )
    .body("Preview"),
    operation("post", "/v1/leases/{lease_id}/release", "releaseLease", "Gives a lease back.", Reply::One("Status")),
    operation("get", "/v1/nodes", "listNodes", "Lists the nodes of the installation.", Reply::Page("Node")),
    operation("get", "/v1/fleet", "getFleet", "Says how many sessions are in which phase, and who works.", Reply::One("Fleet")),
    operation(
        "get",
        "/v1/stream",
        "streamTopics",
        "Streams several topics on one connection: session:ID[:CURSOR] and fleet.",
        Reply::One("TopicFrame"),
    )
    .query(&["topics[]"])
    .gives("text/event-stream"),
    operation(
        "post",
        "/v1/logins",
        "createLoginLink",
        "Gives a link that opens the workbench once, with the rights of the key that asks.",
        Reply::One("LoginLink"),
    ),
    operation("get", "/v1/whoami", "whoami", "Says who calls and what the caller may do.", Reply::One("Caller")),
    operation("get", "/metrics", "getMetrics", "Gives what was counted, as text for a scraper.", Reply::Bytes)
        .query(&["nodes"])
        .gives("text/plain"),
    operation("get", "/healthz", "healthz", "Says that the process answers.", Reply::One("Status")).open(),
    operation("get", "/readyz", "readyz", "Says that the store answers too.", Reply::One("Status")).open(),
    operation("get", "/openapi.json", "openapi", "Gives this document.", Reply::Bytes).gives(JSON).open(),
];
