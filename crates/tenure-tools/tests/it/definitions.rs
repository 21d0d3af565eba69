//! What the model is told of the tools.

use serde_json::{Value, json};
use tenure_tools::{Definition, sandbox_definitions, wait_definitions};

fn shape(definition: &Definition) -> Value {
    let schema: Value = serde_json::from_str(definition.input_schema).unwrap();
    assert_eq!(schema["type"], "object");
    let types: serde_json::Map<String, Value> = schema["properties"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value["type"].clone()))
        .collect();
    json!({ "types": types, "required": schema.get("required").cloned().unwrap_or(json!([])) })
}

#[test]
fn the_input_shapes_are_those_of_the_toolset_of_the_official_clients() {
    let shapes: Vec<(&str, Value)> =
        sandbox_definitions().iter().map(|definition| (definition.name, shape(definition))).collect();
    let text = "string";
    assert_eq!(
        shapes,
        [
            (
                "bash",
                json!({"types": {"command": text, "restart": "boolean", "timeout_ms": "integer"}, "required": []})
            ),
            ("read", json!({"types": {"file_path": text, "view_range": "array"}, "required": ["file_path"]})),
            ("write", json!({"types": {"content": text, "file_path": text}, "required": ["file_path", "content"]})),
            (
                "edit",
                json!({
                    "types": {"file_path": text, "new_string": text, "old_string": text, "replace_all": "boolean"},
                    "required": ["file_path", "old_string", "new_string"]
                })
            ),
            ("glob", json!({"types": {"path": text, "pattern": text}, "required": ["pattern"]})),
            ("grep", json!({"types": {"path": text, "pattern": text}, "required": ["pattern"]})),
        ]
    );
}

#[test]
fn the_tools_that_wait_have_schemas_and_descriptions() {
    let names: Vec<&str> = wait_definitions().iter().map(|definition| definition.name).collect();
    assert_eq!(names, ["sleep", "create_callback", "wait_for_callback", "ask_user"]);
    for definition in wait_definitions().iter().chain(&sandbox_definitions()) {
        shape(definition);
        assert!(!definition.description.contains("  ") && definition.description.ends_with('.'), "{}", definition.name);
    }
}
