//! Errors on the wire, and the one table of their codes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The body of every reply that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// Always `error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What went wrong.
    pub error: ErrorBody,
    /// Also in the header `request-id`.
    pub request_id: String,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One of the few types that the SDKs know.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is wrong, and where.
    pub message: String,
    /// Stable; has a page in `docs/errors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Path of the page about the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
    /// Values that matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

macro_rules! codes {
    ($($variant:ident = $name:literal, $status:literal, $kind:literal, $hint:literal;)*) => {
        /// A stable code of an error. Codes are never renamed and never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each code has a page in docs/errors")]
        pub enum Code { $($variant),* }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// The error type that the SDKs know.
            pub fn kind(self) -> &'static str {
                match self { $(Self::$variant => $kind),* }
            }

            /// What to do about it, unless the place of the error knows better.
            pub fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint),* }
            }
        }
    };
}

codes! {
    // Who asks
    AuthenticationRequired = "authentication_required", 401, "authentication_error", "send the header x-api-key; a local server keeps its key in the file api.key of its data folder";
    InvalidApiKey = "invalid_api_key", 401, "authentication_error", "check the key; a local server keeps its key in the file api.key of its data folder";
    LoginExpired = "login_expired", 401, "authentication_error", "open a new link: `tenure workbench` prints one";
    LoginLinkUsed = "login_link_used", 401, "authentication_error", "open a new link: `tenure workbench` prints one";
    HostNotAllowed = "host_not_allowed", 403, "permission_error", "use the address of the server, or set public_url in its configuration";
    OriginNotAllowed = "origin_not_allowed", 403, "permission_error", "call the server from its own pages, or set public_url in its configuration";
    DestinationNotAllowed = "destination_not_allowed", 403, "permission_error", "files of a session are downloads; they are not loaded as pages, scripts or workers";
    ScopeRequired = "scope_required", 403, "permission_error", "use a key with the scope that the message names; the key in api.key of a local server has all scopes";
    InvalidSignature = "invalid_signature", 401, "authentication_error", "sign the raw body as Standard Webhooks says, with a clock that is right to five minutes";

    // What there is
    RouteNotFound = "route_not_found", 404, "not_found_error", "see /openapi.json for the routes";
    MethodNotAllowed = "method_not_allowed", 405, "invalid_request_error", "see /openapi.json for the methods of this path";
    AgentNotFound = "agent_not_found", 404, "not_found_error", "list agents with GET /v1/agents";
    EnvironmentNotFound = "environment_not_found", 404, "not_found_error", "list environments with GET /v1/environments";
    SessionNotFound = "session_not_found", 404, "not_found_error", "list sessions with GET /v1/sessions";
    CallbackNotFound = "callback_not_found", 404, "not_found_error", "callbacks expire, and end with their session; ask for a new one";
    QueueNotFound = "queue_not_found", 404, "not_found_error", "name a queue with 1 to 64 letters, digits, dots, dashes and underscores";
    LeaseNotFound = "lease_not_found", 404, "not_found_error", "use the id of a lease as it was given, with the key that took it";
    ConditionNotFound = "condition_not_found", 404, "not_found_error", "list conditions with GET /v1/conditions";
    FileNotFound = "file_not_found", 404, "not_found_error", "list the folder with GET /v1/sessions/{id}/files?path=";
    ContextNotFound = "context_not_found", 404, "not_found_error", "name the seq of a row at or after the first model call";
    OutputNotFound = "output_not_found", 404, "not_found_error", "full outputs are kept for commands whose output was cut";

    // What was sent
    InvalidJson = "invalid_json", 400, "invalid_request_error", "send one JSON object in UTF-8";
    JsonTooDeep = "json_too_deep", 400, "invalid_request_error", "nest at most 64 levels";
    MissingField = "missing_field", 400, "invalid_request_error", "add the field";
    InvalidField = "invalid_field", 400, "invalid_request_error", "correct the field";
    InvalidQuery = "invalid_query", 400, "invalid_request_error", "correct the query parameter";
    InvalidHeader = "invalid_header", 400, "invalid_request_error", "correct the header";
    InvalidCursor = "invalid_cursor", 400, "invalid_request_error", "use a cursor of this list or stream as it was given, or leave it out";
    RequestTooLarge = "request_too_large", 413, "request_too_large", "send less in one request";
    BodyTimeout = "body_timeout", 408, "invalid_request_error", "send the body without long pauses, then try again";
    RangeNotSatisfiable = "range_not_satisfiable", 416, "invalid_request_error", "ask for bytes within the file's size";

    // What fits together
    UnknownModel = "unknown_model", 400, "invalid_request_error", "use provider/model, with a provider of the server's configuration";
    ModelWithoutPrice = "model_without_price", 400, "invalid_request_error", "set prices of the model in the configuration, or leave the money limit out";
    UnknownToolUse = "unknown_tool_use", 400, "invalid_request_error", "answer a call with the id of its event";
    NotAnswerable = "not_answerable", 400, "invalid_request_error", "answer agent.tool_use with user.tool_confirmation and agent.custom_tool_use with user.custom_tool_result";
    VersionConflict = "version_conflict", 409, "invalid_request_error", "read the agent again, and send its version";
    AgentArchived = "agent_archived", 409, "invalid_request_error", "use another agent";
    EnvironmentArchived = "environment_archived", 409, "invalid_request_error", "use another environment";
    EnvironmentInUse = "environment_in_use", 409, "invalid_request_error", "archive or delete its sessions first";
    LeaseLost = "lease_lost", 409, "invalid_request_error", "drop what was not committed, and take a lease again";
    SeqConflict = "seq_conflict", 409, "invalid_request_error", "name the seq of the newest reply, and read what came after it";
    CheckpointRefused = "checkpoint_refused", 409, "invalid_request_error", "look at calls and due of the newest reply, and commit what fits them";
    SessionEnded = "session_ended", 409, "invalid_request_error", "start a new session";
    SessionBusy = "session_busy", 409, "invalid_request_error", "cancel the session first, and wait until it has ended";
    Conflict = "conflict", 409, "invalid_request_error", "read the current state, then decide again";
    IdempotencyMismatch = "idempotency_mismatch", 422, "invalid_request_error", "use a new Idempotency-Key for a new request";
    InboxFull = "inbox_full", 429, "rate_limit_error", "wait until the session has taken what is queued";
    RateLimited = "rate_limited", 429, "rate_limit_error", "wait as long as retry-after says";

    // What is not served yet
    UnsupportedTool = "unsupported_tool", 400, "invalid_request_error", "leave the tool out";
    UnsupportedPermission = "unsupported_permission", 400, "invalid_request_error", "use always_allow or always_ask";
    UnsupportedEvent = "unsupported_event", 400, "invalid_request_error", "send user.message, user.interrupt, user.tool_confirmation, user.custom_tool_result or system.message";
    UnsupportedContent = "unsupported_content", 400, "invalid_request_error", "send text, image, document or search_result blocks with their data in them";
    UnsupportedNetworking = "unsupported_networking", 400, "invalid_request_error", "use networking unrestricted, or limited without hosts; commands reach the network with our field network set to host";
    UnsupportedPackages = "unsupported_packages", 400, "invalid_request_error", "leave packages out; install what is needed on the host";
    UnsupportedEnvironment = "unsupported_environment", 400, "invalid_request_error", "use an environment of type cloud";
    UnsupportedFeature = "unsupported_feature", 400, "invalid_request_error", "leave the field out";

    // Files
    PathRefused = "path_refused", 400, "invalid_request_error", "use a path inside the workspace, without .. and links that lead out of it";
    NotAFile = "not_a_file", 400, "invalid_request_error", "read a regular file; folders are listed or taken as an archive";
    ArchiveRefused = "archive_refused", 400, "invalid_request_error", "send a plain tar with files and folders inside the limits";

    // What broke here
    StoreBusy = "store_busy", 503, "overloaded_error", "try again";
    StorageFull = "storage_full", 503, "overloaded_error", "free space on the disk of the data folder";
    CorruptRecord = "corrupt_record", 500, "api_error", "run tenure doctor; the stored bytes are kept";
    StoreBroken = "store_broken", 500, "api_error", "see the log of the server, and run tenure doctor";
    Internal = "internal_error", 500, "api_error", "see the log of the server for this request id";
}

impl Code {
    /// Path of the page about it, below the repository or the site of the docs.
    pub fn docs(self) -> String {
        format!("docs/errors/{}.md", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_page_that_names_it_and_its_status() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for code in Code::ALL {
            let page = std::fs::read_to_string(folder.join(format!("{}.md", code.name())));
            let page = page.unwrap_or_else(|error| panic!("{}: {error}", code.docs()));
            assert!(page.starts_with(&format!("# {}\n", code.name())), "{}", code.docs());
            assert!(page.contains(&format!("HTTP {}", code.status())), "{}", code.docs());
        }
    }

    #[test]
    fn codes_are_unique() {
        let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
