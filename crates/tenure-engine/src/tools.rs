//! Which tools an agent has, and what the core needs to know about them.

use tenure_core::{Agent, CallKind, Effect, Json, Permission, Tool, ToolConfig, ToolFacts, ToolSpec};
use tenure_tools::Definition;

/// The built-in tools by set.
#[derive(Debug)]
pub(crate) struct Tools {
    sandbox: Vec<Definition>,
    waits: Vec<Definition>,
}

impl Default for Tools {
    fn default() -> Self {
        Self { sandbox: tenure_tools::sandbox_definitions(), waits: tenure_tools::wait_definitions() }
    }
}

impl Tools {
    /// What the model is told.
    pub(crate) fn specs(&self, agent: &Agent) -> Vec<ToolSpec> {
        let mut specs: Vec<ToolSpec> = self.built_in(agent).map(|(definition, _)| spec(definition)).collect();
        specs.extend(agent.tools.iter().filter_map(|tool| match tool {
            Tool::Custom(custom) => Some(ToolSpec {
                name: custom.name.clone(),
                description: custom.description.clone(),
                input_schema: custom.input_schema.clone(),
            }),
            Tool::Sandbox { .. } | Tool::Waits { .. } => None,
        }));
        specs
    }

    /// The names, for a model that called one that does not exist.
    pub(crate) fn names(&self, agent: &Agent) -> String {
        self.specs(agent).into_iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ")
    }

    /// What is known about a tool by name.
    pub(crate) fn facts(&self, agent: &Agent, name: &str) -> Option<ToolFacts> {
        if let Some((definition, config)) = self.built_in(agent).find(|(definition, _)| definition.name == name) {
            return Some(ToolFacts {
                kind: kind(definition.name),
                effect: config.effect.unwrap_or(effect(definition.effect)),
                permission: config.permission,
            });
        }
        let is_custom = agent.tools.iter().any(|tool| matches!(tool, Tool::Custom(custom) if custom.name == name));
        is_custom.then_some(ToolFacts { kind: CallKind::Custom, effect: Effect::Once, permission: Permission::Allow })
    }

    /// The built-in tools that an agent may use.
    fn built_in<'a>(&'a self, agent: &'a Agent) -> impl Iterator<Item = (&'a Definition, ToolConfig)> {
        let sets = agent.tools.iter().filter_map(|tool| match tool {
            Tool::Sandbox { default, configs } => Some((&self.sandbox, default, configs)),
            Tool::Waits { default, configs } => Some((&self.waits, default, configs)),
            Tool::Custom(_) => None,
        });
        sets.flat_map(|(set, default, configs)| {
            set.iter().map(move |definition| (definition, configs.get(definition.name).copied().unwrap_or(*default)))
        })
        .filter(|(_, config)| config.enabled)
    }
}

fn spec(definition: &Definition) -> ToolSpec {
    ToolSpec {
        name: definition.name.to_owned(),
        description: definition.description.to_owned(),
        input_schema: Json::parse(definition.input_schema).unwrap_or(Json::object()),
    }
}

fn kind(name: &str) -> CallKind {
    match name {
        "sleep" => CallKind::Sleep,
        "create_callback" => CallKind::CreateCallback,
        "wait_for_callback" => CallKind::WaitForCallback,
        "ask_user" => CallKind::AskUser,
        _ => CallKind::Sandbox,
    }
}

fn effect(effect: tenure_tools::Effect) -> Effect {
    match effect {
        tenure_tools::Effect::Pure => Effect::Pure,
        tenure_tools::Effect::Idempotent => Effect::Idempotent,
        tenure_tools::Effect::FilesOnly => Effect::FilesOnly,
        tenure_tools::Effect::Once => Effect::Once,
    }
}
