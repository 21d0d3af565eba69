//! The OpenAPI document: one table of operations, and the schemas of what they carry.

mod operations;
mod schemas;

pub use operations::{OPERATIONS, Operation};

use serde_json::{Map, Value, json};

/// The document as JSON.
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tenure",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Self-hosted runtime for long-running AI agents. Agents, environments, sessions and events are compatible with the managed-agents API; the rest is ours.",
        },
        "security": [{"api_key": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": schemas::all(),
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let in_path = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path =
        in_path.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let in_query =
        operation.query.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}));
    let mut parameters: Vec<Value> = in_path.chain(in_query).collect();
    if operation.method == "post" && !operation.is_open {
        parameters
            .push(json!({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255}}));
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {operation.reply_type: {"schema": operation.reply_schema()}}},
            "default": {"description": "An error.", "content": {"application/json": {"schema": reference("Error")}}},
        },
    });
    if let Some((kind, schema)) = operation.request {
        let schema = if schema.is_empty() { json!({}) } else { reference(schema) };
        described["requestBody"] = json!({"content": {kind: {"schema": schema}}});
    }
    if operation.is_open {
        described["security"] = json!([]);
    } else {
        described["x-tenure-scope"] = json!(operation.scope.name());
    }
    described
}

/// A reference to a schema.
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workbench's types, and those of other generated clients, are made from the file.
    #[test]
    fn the_document_in_the_reference_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        let written = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
        if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
            std::fs::write(path, &written).expect("write the reference");
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == written,
            "docs/reference/openapi.json is old; TENURE_UPDATE_DOCS=1 cargo test -p tenure-api writes it"
        );
    }

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_ids_are_unique() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        for target in found {
            let name = target.trim_start_matches("#/components/schemas/");
            assert!(document["components"]["schemas"][name].is_object(), "{target}");
        }
        let ids: std::collections::BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), OPERATIONS.len());
    }

    #[test]
    fn the_schema_of_events_names_every_type_that_is_written() {
        let document = document();
        let types = &document["components"]["schemas"]["Event"]["properties"]["type"]["enum"];
        let names: Vec<&str> = types.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        for name in
            ["user.message", "agent.tool_use", "session.status_idle", "span.model_request_end", "environment.reset"]
        {
            assert!(names.contains(&name), "{name}");
        }
    }
}
