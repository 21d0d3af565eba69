//! Tools of an agent: from the wire, to the wire, and what of them is in force.

use super::{EffectiveTool, effect_text};
use crate::error::Code;
use crate::fields::{Fields, Problem};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Agent, CustomTool, Effect, Json, Permission, Tool, ToolConfig};

/// The tools of `agent_toolset_20260401` that exist here.
pub const WORKSPACE_TOOLS: [&str; 6] = ["bash", "read", "write", "edit", "glob", "grep"];

/// The tools of `tenure_toolset`.
pub const WAIT_TOOLS: [&str; 4] = ["sleep", "create_callback", "wait_for_callback", "ask_user"];

/// Tools of the toolset that do not exist here: may be switched off, not on.
const ABSENT_TOOLS: [&str; 2] = ["web_fetch", "web_search"];

/// Name of the toolset of the SDKs.
const TOOLSET: &str = "agent_toolset_20260401";

/// Most tools of an agent.
const MAX_TOOLS: usize = 256;

/// Longest name of a custom tool.
const MAX_NAME: usize = 64;

/// Longest description of a custom tool, in characters.
const MAX_DESCRIPTION: usize = 16_384;

/// Reads the list of tools.
///
/// # Errors
/// The first tool that is wrong or not served.
pub(super) fn read_all(fields: &Fields<'_>) -> Result<Vec<Tool>, Problem> {
    let list = fields.list("tools", MAX_TOOLS)?.unwrap_or_default();
    let (mut tools, mut names) = (Vec::new(), BTreeSet::new());
    for (path, value) in list {
        let tool = read(&Fields::at(value, &path)?)?;
        let name = match &tool {
            Tool::Sandbox { .. } => TOOLSET.to_owned(),
            Tool::Waits { .. } => "tenure_toolset".to_owned(),
            Tool::Custom(custom) => custom.name.clone(),
        };
        if !names.insert(name.clone()) {
            return Err(Problem::invalid(&path, format_args!("{name} is listed twice")));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn read(tool: &Fields<'_>) -> Result<Tool, Problem> {
    match tool.kind()? {
        TOOLSET => {
            let (default, configs) = read_set(tool, &WORKSPACE_TOOLS, &ABSENT_TOOLS)?;
            Ok(Tool::Sandbox { default, configs })
        }
        "tenure_toolset" => {
            let (default, configs) = read_set(tool, &WAIT_TOOLS, &[])?;
            Ok(Tool::Waits { default, configs })
        }
        "custom" => read_custom(tool).map(Tool::Custom),
        kind => Err(Problem::new(Code::UnsupportedTool, format!("{}: {kind:?} is not served", tool.path("type")))),
    }
}

fn read_set(
    set: &Fields<'_>,
    known: &[&str],
    absent: &[&str],
) -> Result<(ToolConfig, BTreeMap<String, ToolConfig>), Problem> {
    let default = match set.inner("default_config")? {
        Some(config) => read_config(&config, ToolConfig::default())?,
        None => ToolConfig::default(),
    };
    let mut configs = BTreeMap::new();
    for (path, value) in set.list("configs", MAX_TOOLS)?.unwrap_or_default() {
        let config = Fields::at(value, &path)?;
        let name = match config.text("name", MAX_NAME)? {
            Some(name) => name,
            None => config.required_text("type", MAX_NAME)?,
        };
        let is_on = config.flag("enabled")?.unwrap_or(default.enabled);
        if absent.contains(&name.as_str()) {
            if is_on {
                return Err(Problem::new(
                    Code::UnsupportedTool,
                    format!("{}: {name} is not served yet; switch it off with enabled false", config.path("name")),
                ));
            }
            continue;
        }
        if !known.contains(&name.as_str()) {
            return Err(Problem::invalid(
                &config.path("name"),
                format_args!("there is no tool {name:?} in this set; there are {}", known.join(", ")),
            ));
        }
        let read = read_config(&config, default)?;
        if configs.insert(name.clone(), read).is_some() {
            return Err(Problem::invalid(&path, format_args!("{name} is listed twice")));
        }
    }
    Ok((default, configs))
}

fn read_config(config: &Fields<'_>, default: ToolConfig) -> Result<ToolConfig, Problem> {
    let permission = match config.inner("permission_policy")? {
        None => default.permission,
        Some(policy) => match policy.kind()? {
            "always_allow" => Permission::Allow,
            "always_ask" => Permission::Ask,
            "always_deny" => Permission::Deny,
            kind => {
                return Err(Problem::new(
                    Code::UnsupportedPermission,
                    format!("{}: {kind:?} is not served", policy.path("type")),
                ));
            }
        },
    };
    let effect = match config.change("effect") {
        None => default.effect,
        Some(None) => None,
        Some(Some(_)) => Some(match config.required_text("effect", 32)?.as_str() {
            "pure" => Effect::Pure,
            "idempotent" => Effect::Idempotent,
            "files_only" => Effect::FilesOnly,
            "once" => Effect::Once,
            other => {
                return Err(Problem::invalid(
                    &config.path("effect"),
                    format_args!("{other:?} is not one of pure, idempotent, files_only, once"),
                ));
            }
        }),
    };
    Ok(ToolConfig { enabled: config.flag("enabled")?.unwrap_or(default.enabled), permission, effect })
}

fn read_custom(tool: &Fields<'_>) -> Result<CustomTool, Problem> {
    let name = tool.required_text("name", MAX_NAME)?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        return Err(Problem::invalid(&tool.path("name"), "may hold letters, digits, _ and - only"));
    }
    if WORKSPACE_TOOLS.iter().chain(&WAIT_TOOLS).any(|known| *known == name) {
        return Err(Problem::invalid(&tool.path("name"), format_args!("{name} is the name of a built-in tool")));
    }
    let schema = tool.required("input_schema")?;
    let fields = Fields::at(schema, &tool.path("input_schema"))?;
    if fields.kind()? != "object" {
        return Err(Problem::invalid(&fields.path("type"), "the input of a tool is an object"));
    }
    let description = tool.text("description", MAX_DESCRIPTION)?.unwrap_or_default();
    Ok(CustomTool { name, description, input_schema: Json::from_value(schema) })
}

/// A tool as the API shows it.
pub(super) fn write(tool: &Tool) -> Value {
    match tool {
        Tool::Sandbox { default, configs } => write_set(TOOLSET, *default, configs),
        Tool::Waits { default, configs } => write_set("tenure_toolset", *default, configs),
        Tool::Custom(custom) => json!({
            "type": "custom",
            "name": custom.name,
            "description": custom.description,
            "input_schema": custom.input_schema.to_value(),
        }),
    }
}

fn write_set(kind: &str, default: ToolConfig, configs: &BTreeMap<String, ToolConfig>) -> Value {
    let configs: Vec<Value> = configs
        .iter()
        .map(|(name, config)| {
            let mut value = write_config(*config);
            value["name"] = json!(name);
            value["type"] = json!(name);
            value
        })
        .collect();
    json!({"type": kind, "default_config": write_config(default), "configs": configs})
}

fn write_config(config: ToolConfig) -> Value {
    let mut value = json!({"enabled": config.enabled, "permission_policy": {"type": permission(config.permission)}});
    if let Some(effect) = effect_text(config.effect) {
        value["effect"] = json!(effect);
    }
    value
}

fn permission(permission: Permission) -> &'static str {
    match permission {
        Permission::Allow => "always_allow",
        Permission::Ask => "always_ask",
        Permission::Deny => "always_deny",
    }
}

/// The tools that the model is offered, and what was asked for and is not in force.
pub fn effective_tools(agent: &Agent) -> (Vec<EffectiveTool>, Vec<String>) {
    let (mut tools, mut warnings) = (Vec::new(), Vec::new());
    for tool in &agent.tools {
        match tool {
            Tool::Sandbox { default, configs } => {
                tools.extend(offered(&WORKSPACE_TOOLS, *default, configs));
                if default.enabled {
                    warnings.push(format!(
                        "{} of {TOOLSET} are not served yet; the model is not offered them",
                        ABSENT_TOOLS.join(" and ")
                    ));
                }
            }
            Tool::Waits { default, configs } => tools.extend(offered(&WAIT_TOOLS, *default, configs)),
            Tool::Custom(custom) => {
                tools.push(EffectiveTool { name: custom.name.clone(), permission: "client".into(), effect: None })
            }
        }
    }
    (tools, warnings)
}

fn offered<'a>(
    names: &'a [&str],
    default: ToolConfig,
    configs: &'a BTreeMap<String, ToolConfig>,
) -> impl Iterator<Item = EffectiveTool> + 'a {
    names.iter().filter_map(move |name| {
        let config = configs.get(*name).copied().unwrap_or(default);
        config.enabled.then(|| EffectiveTool {
            name: (*name).to_owned(),
            permission: permission(config.permission).into(),
            effect: effect_text(config.effect),
        })
    })
}
