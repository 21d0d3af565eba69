//! What the model is told.

/// What repeating a call would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Pure,
    /// Repeating it leads to the same state.
    Idempotent,
    /// Changes only files.
    FilesOnly,
    /// Must not happen twice.
    Once,
}

/// A built-in tool.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// What the model calls it.
    pub name: &'static str,
    /// What the model is told about it.
    pub description: &'static str,
    /// JSON schema of its input.
    pub input_schema: &'static str,
    /// What repeating a call would do.
    pub effect: Effect,
}

/// Tools that work in the sandbox, with the input shapes of `agent_toolset_20260401`.
pub fn sandbox_definitions() -> Vec<Definition> {
    vec![
        Definition {
            name: "bash",
            description: "Runs a command in a bash shell of the sandbox and gives its output and exit code. The working directory \
                and exported variables stay for the next call. Standard input is empty, there is no terminal, and unless the \
                environment says otherwise no network. `command &` keeps running after the call and is listed. Long output is \
                shortened in the middle; the full output is kept. timeout_ms ends the command and everything it started (default \
                120000, at most 21600000). restart: true ends all processes and starts a fresh shell.",
            input_schema: r#"{"type":"object","properties":{"command":{"type":"string"},"timeout_ms":{"type":"integer","minimum":0},"restart":{"type":"boolean"}}}"#,
            // While there are no snapshots to roll back to (design 7.3).
            effect: Effect::Once,
        },
        Definition {
            name: "read",
            description: "Reads a text file. view_range [first, last] gives only these lines, counted from 1; last -1 is the end.",
            input_schema: r#"{"type":"object","properties":{"file_path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}},"required":["file_path"]}"#,
            effect: Effect::Pure,
        },
        Definition {
            name: "write",
            description: "Writes a file, replacing what is there and making missing folders.",
            input_schema: r#"{"type":"object","properties":{"file_path":{"type":"string"},"content":{"type":"string"}},"required":["file_path","content"]}"#,
            effect: Effect::Idempotent,
        },
        Definition {
            name: "edit",
            description: "Replaces old_string by new_string in a file. old_string must occur exactly once, unless replace_all is true.",
            input_schema: r#"{"type":"object","properties":{"file_path":{"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"},"replace_all":{"type":"boolean"}},"required":["file_path","old_string","new_string"]}"#,
            effect: Effect::FilesOnly,
        },
        Definition {
            name: "glob",
            description: "Lists files whose path matches a pattern such as src/**/*.rs, newest first.",
            input_schema: r#"{"type":"object","properties":{"pattern":{"type":"string"},"path":{"type":"string"}},"required":["pattern"]}"#,
            effect: Effect::Pure,
        },
        Definition {
            name: "grep",
            description: "Lists lines that match a regular expression, as path:line:text.",
            input_schema: r#"{"type":"object","properties":{"pattern":{"type":"string"},"path":{"type":"string"}},"required":["pattern"]}"#,
            effect: Effect::Pure,
        },
    ]
}

/// Tools by which a model waits (`tenure_toolset`).
pub fn wait_definitions() -> Vec<Definition> {
    vec![
        Definition {
            name: "sleep",
            description: "Waits, up to ten years. No compute is held meanwhile. A message of the user ends it early.",
            input_schema: r#"{"type":"object","properties":{"seconds":{"type":"number"}},"required":["seconds"]}"#,
            effect: Effect::Pure,
        },
        Definition {
            name: "create_callback",
            description: "Makes a URL that an outside job (CI, a webhook) can POST its result to, once. Gives callback_id and url. \
                Start the job with the url, then wait with wait_for_callback.",
            input_schema: r#"{"type":"object","properties":{"label":{"type":"string"},"expires_seconds":{"type":"number"}}}"#,
            effect: Effect::Idempotent,
        },
        Definition {
            name: "wait_for_callback",
            description: "Waits until the outside job has answered a callback, and gives its body. No compute is held meanwhile.",
            input_schema: r#"{"type":"object","properties":{"callback_id":{"type":"string"},"timeout_seconds":{"type":"number"}},"required":["callback_id"]}"#,
            effect: Effect::Pure,
        },
        Definition {
            name: "ask_user",
            description: "Asks the user a question and waits for the answer, however long that takes.",
            input_schema: r#"{"type":"object","properties":{"question":{"type":"string"}},"required":["question"]}"#,
            effect: Effect::Pure,
        },
    ]
}
