//! The pages of the workbench, and the login of browsers.

use crate::house::{House, KEY, READ_KEY, Reply};
use axum::http::{Method, StatusCode};
use serde_json::json;

/// Both halves of a login.
struct Login {
    cookie: String,
    page_key: String,
}

/// No key: what a browser sends.
fn browser(login: &Login, cookie: bool, page_key: bool) -> Vec<(&'static str, &str)> {
    let mut headers = vec![("x-api-key", "")];
    headers.extend(cookie.then_some(("cookie", login.cookie.as_str())));
    headers.extend(page_key.then_some(("x-tenure-page", login.page_key.as_str())));
    headers
}

async fn exchange(house: &House, body: serde_json::Value) -> Reply {
    house.call(Method::POST, "/workbench/login", Some(body), &[("x-api-key", "")]).await
}

fn halves(reply: &Reply) -> Login {
    let cookie = reply.header("set-cookie").unwrap();
    Login {
        cookie: cookie.split(';').next().unwrap().to_owned(),
        page_key: reply.ok()["page_key"].as_str().unwrap().to_owned(),
    }
}

async fn sign_in(house: &House) -> Login {
    let link = house.state.login_link(KEY).unwrap();
    let code = link.split_once("#login=").unwrap().1;
    halves(&exchange(house, json!({"code": code})).await)
}

#[tokio::test]
async fn a_link_opens_the_workbench_once() {
    let house = House::new();
    let link = house.post("/v1/logins", json!({})).await.ok()["url"].as_str().unwrap().to_owned();
    assert!(link.starts_with("https://tenure.example/#login="), "{link}");
    let code = link.split_once("#login=").unwrap().1;
    let first = exchange(&house, json!({"code": code})).await;
    let cookie = first.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/v1"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let login = halves(&first);
    let me = house.call(Method::GET, "/v1/whoami", None, &browser(&login, true, true)).await.ok();
    assert_eq!((me["tenant"].as_str(), me["scope"].as_str()), (Some("alice"), Some("person")));
    assert_eq!(exchange(&house, json!({"code": code})).await.code(), "login_link_used");
    assert_eq!(exchange(&house, json!({"code": "0123"})).await.code(), "login_link_used");
    assert_eq!(exchange(&house, json!({})).await.code(), "missing_field");
}

#[tokio::test]
async fn a_key_opens_it_too_with_its_own_scope() {
    let house = House::new();
    let login = halves(&exchange(&house, json!({"key": format!(" {READ_KEY}\n")})).await);
    let me = house.call(Method::GET, "/v1/whoami", None, &browser(&login, true, true)).await.ok();
    assert_eq!(me["scope"], "read");
    let refused = house.call(Method::POST, "/v1/agents", Some(json!({})), &browser(&login, true, true)).await;
    assert_eq!(refused.code(), "scope_required");
    assert_eq!(exchange(&house, json!({"key": "nobody-has-this-key"})).await.code(), "invalid_api_key");
}

/// Cookies ignore ports: the agent's own server on the same host gets the cookie, and must not be
/// able to use it; a script that got the page's half alone must not either.
#[tokio::test]
async fn z_09_half_a_login_opens_nothing() {
    let house = House::new();
    let login = sign_in(&house).await;
    let asked = async |cookie, page_key| {
        house.call(Method::GET, "/v1/sessions", None, &browser(&login, cookie, page_key)).await
    };
    assert_eq!(asked(true, false).await.code(), "authentication_required");
    assert_eq!(asked(false, true).await.code(), "login_expired");
    asked(true, true).await.ok();
    // The halves of two logins do not fit together.
    let other = sign_in(&house).await;
    let mixed = Login { cookie: other.cookie, page_key: login.page_key.clone() };
    let reply = house.call(Method::GET, "/v1/sessions", None, &browser(&mixed, true, true)).await;
    assert_eq!(reply.code(), "login_expired");
}

#[tokio::test]
async fn a_forged_or_old_login_is_refused() {
    let house = House::new();
    let login = sign_in(&house).await;
    let (name, value) = login.cookie.split_once('=').unwrap();
    let parts: Vec<&str> = value.split('.').collect();
    let later = format!("{}.{}.{}.{}", parts[0], "99999999999", parts[2], parts[3]);
    for forged in [later, "x".into(), "a.b.c.d".into(), String::new()] {
        let forged = Login { cookie: format!("{name}={forged}"), page_key: login.page_key.clone() };
        let reply = house.call(Method::GET, "/v1/sessions", None, &browser(&forged, true, true)).await;
        assert_eq!(reply.code(), "login_expired", "{}", forged.cookie);
    }
    house.memory.as_ref().unwrap().advance(31 * 24 * 3_600_000);
    let reply = house.call(Method::GET, "/v1/sessions", None, &browser(&login, true, true)).await;
    assert_eq!(reply.code(), "login_expired");
}

#[tokio::test]
async fn a_login_outlives_a_restart_and_ends_with_its_key() {
    let house = House::new();
    let login = sign_in(&house).await;
    let store = house.store.clone();
    let again = House::over(store.clone(), |_| {});
    again.call(Method::GET, "/v1/sessions", None, &browser(&login, true, true)).await.ok();
    let without = House::over(store.clone(), |config| config.keys = tenure_server::Keys::new());
    let reply = without.call(Method::GET, "/v1/sessions", None, &browser(&login, true, true)).await;
    assert_eq!(reply.code(), "login_expired");
    let elsewhere = House::over(store, |config| config.installation_key = [4; 32]);
    let reply = elsewhere.call(Method::GET, "/v1/sessions", None, &browser(&login, true, true)).await;
    assert_eq!(reply.code(), "login_expired");
}

#[tokio::test]
async fn pages_are_shut_to_other_hosts_and_frames() {
    let house = House::new();
    for path in ["/", "/sessions", "/sessions/sesn_x", "/approvals", "/login"] {
        let page = house.call(Method::GET, path, None, &[("x-api-key", "")]).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        let policy = page.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        let rebound = house.call(Method::GET, path, None, &[("x-api-key", ""), ("host", "evil.example")]).await;
        assert_eq!(rebound.code(), "host_not_allowed", "{path}");
    }
    let foreign = [("x-api-key", ""), ("origin", "http://127.0.0.1:9999")];
    let reply = house.call(Method::POST, "/workbench/login", Some(json!({"code": "0"})), &foreign).await;
    assert_eq!(reply.code(), "origin_not_allowed");
    assert_eq!(house.call(Method::POST, "/", None, &[("x-api-key", "")]).await.code(), "method_not_allowed");
}

#[tokio::test]
async fn a_build_without_node_says_what_is_missing() {
    let house = House::new();
    let page = house.call(Method::GET, "/", None, &[("x-api-key", "")]).await;
    let text = String::from_utf8(page.bytes).unwrap();
    if tenure_server::has_workbench() {
        assert!(text.contains("<div id=\"root\"></div>"), "{text}");
        let packed = house.call(Method::GET, "/", None, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!(packed.header("content-encoding"), Some("br"));
        let plain = house.call(Method::GET, "/", None, &[("accept-encoding", "br;q=0")]).await;
        assert_eq!(plain.header("content-encoding"), None);
        let tag = plain.header("etag").unwrap().to_owned();
        let known = house.call(Method::GET, "/", None, &[("if-none-match", &tag)]).await;
        assert_eq!((known.status, known.bytes.len()), (StatusCode::NOT_MODIFIED, 0));
    } else {
        assert!(text.contains("cargo xtask web"), "{text}");
    }
}

#[tokio::test]
async fn signing_out_forgets_the_cookie() {
    let house = House::new();
    let reply = house.call(Method::POST, "/workbench/logout", None, &[("x-api-key", "")]).await;
    assert!(reply.header("set-cookie").unwrap().contains("Max-Age=0"));
}
