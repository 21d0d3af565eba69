use super::*;
use crate::error::Code;
use crate::fields::Fields;
use serde_json::json;
use tenure_core::{AgentId, TenantId, Timestamp};

fn create(body: Value) -> Result<Value, (Code, String)> {
    let problem = |problem: crate::fields::Problem| (problem.code, problem.message);
    let change = AgentChange::read(&Fields::root(&body).map_err(problem)?).map_err(problem)?;
    let agent = change.create(AgentId::from_bits(1), TenantId::default_tenant(), Timestamp(0)).map_err(problem)?;
    Ok(serde_json::to_value(WireAgent::of(&agent)).expect("plain"))
}

fn with_tools(tools: Value) -> Result<Value, (Code, String)> {
    create(json!({"name": "a", "model": "p/m", "tools": tools}))
}

#[test]
fn the_default_toolset_is_accepted_and_what_is_in_force_is_said() {
    let agent = with_tools(json!([{"type": "agent_toolset_20260401"}])).expect("valid");
    let names: Vec<&str> =
        agent["effective"]["tools"].as_array().expect("list").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, WORKSPACE_TOOLS);
    assert_eq!(agent["warnings"].as_array().map(Vec::len), Some(1));
    assert_eq!(agent["model"]["id"], "p/m");
    assert_eq!(
        agent["tools"],
        json!([{"type": "agent_toolset_20260401", "configs": [], "default_config": {"enabled": true, "permission_policy": {"type": "always_allow"}}}])
    );
}

#[test]
fn configs_inherit_the_default_and_are_shown_in_full() {
    let agent = with_tools(json!([
        {"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}, "configs": [
            {"name": "bash", "effect": "idempotent"}, {"name": "web_fetch", "enabled": false}, {"name": "edit", "enabled": false},
        ]},
        {"type": "tenure_toolset"},
        {"type": "custom", "name": "look_up", "description": "d", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}},
    ]))
    .expect("valid");
    let tools = agent["effective"]["tools"].as_array().expect("list");
    assert_eq!(tools[0], json!({"name": "bash", "permission": "always_ask", "effect": "idempotent"}));
    assert!(!tools.iter().any(|tool| tool["name"] == "edit"));
    assert_eq!(tools.last(), Some(&json!({"name": "look_up", "permission": "client"})));
    assert_eq!(
        agent["tools"][0]["configs"][0],
        json!({"enabled": true, "permission_policy": {"type": "always_ask"}, "effect": "idempotent", "name": "bash", "type": "bash"})
    );
}

#[test]
fn what_is_not_served_is_refused_with_a_code() {
    for (tools, code) in [
        (json!([{"type": "agent_toolset_20260401", "configs": [{"name": "web_search"}]}]), Code::UnsupportedTool),
        (
            json!([{"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "auto"}}}]),
            Code::UnsupportedPermission,
        ),
        (json!([{"type": "mcp_toolset", "mcp_server_name": "x"}]), Code::UnsupportedTool),
        (json!([{"type": "agent_toolset_20260401", "configs": [{"name": "fly"}]}]), Code::InvalidField),
        (
            json!([{"type": "custom", "name": "bash", "description": "d", "input_schema": {"type": "object"}}]),
            Code::InvalidField,
        ),
        (
            json!([{"type": "custom", "name": "a b", "description": "d", "input_schema": {"type": "object"}}]),
            Code::InvalidField,
        ),
        (json!([{"type": "custom", "name": "x", "description": "d"}]), Code::MissingField),
        (json!([{"type": "tenure_toolset"}, {"type": "tenure_toolset"}]), Code::InvalidField),
    ] {
        assert_eq!(with_tools(tools.clone()).map_err(|(code, _)| code), Err(code), "{tools}");
    }
    for (field, value) in
        [("skills", json!([{"type": "custom"}])), ("multiagent", json!({"type": "x"})), ("mcp_servers", json!([{}]))]
    {
        let mut body = json!({"name": "a", "model": "m"});
        body[field] = value;
        assert_eq!(create(body).map_err(|(code, _)| code), Err(Code::UnsupportedFeature), "{field}");
    }
    assert_eq!(
        create(json!({"name": "a", "model": {"id": "m", "effort": "low"}})).map_err(|(code, _)| code),
        Err(Code::UnsupportedFeature)
    );
    assert_eq!(create(json!({"model": "m"})).map_err(|(code, _)| code), Err(Code::MissingField));
    assert_eq!(create(json!({"name": "a"})).map_err(|(code, _)| code), Err(Code::MissingField));
}

#[test]
fn an_update_keeps_what_it_does_not_name() {
    let body = json!({"name": "a", "model": "m", "system": "s", "description": "d", "metadata": {"k": "v", "x": "y"}});
    let change = AgentChange::read(&Fields::root(&body).expect("object")).expect("valid");
    let mut agent = change.create(AgentId::from_bits(1), TenantId::default_tenant(), Timestamp(0)).expect("valid");
    let body = json!({"description": null, "metadata": {"k": null}, "policies": {"approval": {"timeout_seconds": 60}}, "limits": {"steps": 3}});
    AgentChange::read(&Fields::root(&body).expect("object")).expect("valid").apply(&mut agent).expect("valid");
    assert_eq!((agent.name.as_str(), agent.system.as_deref(), agent.description.as_deref()), ("a", Some("s"), None));
    assert_eq!(agent.metadata.into_iter().collect::<Vec<_>>(), [("x".to_owned(), "y".to_owned())]);
    assert_eq!(agent.policies.approval_timeout, Some(60_000));
    assert_eq!((agent.limits.steps, agent.limits.tokens), (Some(3), Some(5_000_000)));
}
