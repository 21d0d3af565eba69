//! The document and the routes are the same.

use crate::house::House;
use axum::http::{Method, StatusCode};
use std::collections::BTreeSet;
use tenure_api::openapi::OPERATIONS;

#[tokio::test]
async fn every_operation_of_the_document_is_a_route() {
    let house = House::new();
    for operation in OPERATIONS {
        let path = operation.path.replace('{', "x").replace('}', "");
        let method = Method::from_bytes(operation.method.to_uppercase().as_bytes()).unwrap();
        let reply = house.call(method, &path, None, &[]).await;
        let is_missing = reply.status == StatusCode::METHOD_NOT_ALLOWED
            || reply.status == StatusCode::NOT_FOUND && reply.code() == "route_not_found";
        assert!(!is_missing, "{} {}", operation.method, operation.path);
    }
}

#[tokio::test]
async fn every_route_is_in_the_document() {
    let document = House::new().get("/openapi.json").await.ok();
    let described: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}")))
        .collect();
    let source = include_str!("../../src/router.rs");
    let (mut routes, mut rest) = (BTreeSet::new(), source);
    // Each route is a pair of a path and its methods, up to the next path.
    while let Some(start) = rest.find("\"/") {
        let end = start + 1 + rest[start + 1..].find('"').unwrap();
        let path = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let methods = &rest[..rest.find("\"/").unwrap_or(rest.len())];
        for method in ["get", "post", "put", "delete"] {
            if methods.contains(&format!("{method}(")) {
                routes.insert(format!("{method} {path}"));
            }
        }
    }
    assert_eq!(routes, described);
    assert_eq!(document["openapi"], "3.1.0");
}
