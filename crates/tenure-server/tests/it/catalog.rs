//! Agents, environments and sessions.

use crate::hand::Hand;
use crate::house::{House, KEY, message};
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tenure_store::Then;

#[tokio::test]
async fn an_agent_is_made_changed_listed_and_archived() {
    let house = House::new();
    let id = house.agent().await;
    let path = format!("/v1/agents/{id}");
    let changed = house.post(&path, json!({"version": 1, "system": "be brief"})).await.ok();
    assert_eq!(
        (changed["version"].as_u64(), changed["system"].as_str(), changed["name"].as_str()),
        (Some(2), Some("be brief"), Some("tester"))
    );
    let late = house.post(&path, json!({"version": 1, "system": "late"})).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "version_conflict"));
    let versions = house.get(&format!("{path}/versions")).await.ok();
    let numbers: Vec<_> =
        versions["data"].as_array().unwrap().iter().map(|agent| agent["version"].as_u64().unwrap()).collect();
    assert_eq!((numbers, &versions["next_page"]), (vec![2, 1], &json!(null)));
    assert_eq!(house.get(&format!("{path}?version=1")).await.ok()["system"], json!(null));
    assert!(house.post(&format!("{path}/archive"), json!({})).await.ok()["archived_at"].is_string());
    assert_eq!(house.get("/v1/agents").await.ok()["data"], json!([]));
    assert_eq!(house.get("/v1/agents?include_archived=true").await.ok()["data"].as_array().unwrap().len(), 1);
    let body = json!({"agent": id, "environment_id": house.environment().await});
    assert_eq!(house.post("/v1/sessions", body).await.code(), "agent_archived");
}

#[tokio::test]
async fn lists_are_walked_page_by_page() {
    let house = House::new();
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(house.agent().await);
    }
    made.reverse();
    let (mut seen, mut page) = (Vec::new(), String::new());
    loop {
        let reply = house.get(&format!("/v1/agents?limit=2{page}")).await.ok();
        seen.extend(reply["data"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()));
        match reply["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    assert_eq!(house.get("/v1/agents?page=7").await.code(), "invalid_cursor");
    assert_eq!(house.get("/v1/agents?limit=0").await.code(), "invalid_query");
}

#[tokio::test]
async fn models_are_checked_and_money_binds_only_with_prices() {
    let house = House::new();
    let make = |body| house.post("/v1/agents", body);
    assert_eq!(make(json!({"name": "a", "model": "nobody/knows"})).await.code(), "unknown_model");
    assert_eq!(
        make(json!({"name": "a", "model": "p/free", "limits": {"cost_usd": 1}})).await.code(),
        "model_without_price"
    );
    let free = make(json!({"name": "a", "model": {"id": "p/free"}})).await.ok();
    assert_eq!((&free["limits"]["cost_usd"], free["limits"]["steps"].as_u64()), (&json!(null), Some(500)));
    assert_eq!(make(json!({"name": "a", "model": "priced"})).await.ok()["limits"]["cost_usd"], json!(20.0));
    let budget = json!({"type": "limit", "max_list_cost": {"amount": "100", "currency": "USD"}});
    let body = json!({"agent": free["id"], "environment_id": house.environment().await, "budget": budget});
    assert_eq!(house.post("/v1/sessions", body).await.code(), "model_without_price");
}

#[tokio::test]
async fn an_environment_is_made_changed_and_removed_when_nothing_uses_it() {
    let house = House::new();
    let id = house.environment().await;
    let path = format!("/v1/environments/{id}");
    assert_eq!(
        house.post(&path, json!({"description": "d", "config": {"type": "cloud", "network": "host"}})).await.ok()["effective"]
            ["network"],
        "host"
    );
    let body = json!({"agent": house.agent().await, "environment_id": id});
    let session = house.post("/v1/sessions", body.clone()).await.ok();
    assert_eq!(house.delete(&path).await.code(), "environment_in_use");
    house.delete(&format!("/v1/sessions/{}", session["id"].as_str().unwrap())).await.ok();
    assert_eq!(house.delete(&path).await.ok(), json!({"id": id, "type": "environment_deleted"}));
    assert_eq!(house.get(&path).await.code(), "environment_not_found");
    assert_eq!(house.post("/v1/sessions", body).await.code(), "environment_not_found");
}

#[tokio::test]
async fn a_session_starts_idle_with_all_that_clients_read() {
    let house = House::new();
    let budget = json!({"type": "limit", "max_list_cost": {"amount": "250", "currency": "USD"}});
    let body = json!({
        "agent": {"type": "agent", "id": house.agent().await}, "environment_id": house.environment().await, "title": "t",
        "metadata": {"k": "v"}, "budget": budget, "limits": {"steps": 9}, "resources": [], "vault_ids": [],
    });
    let session = house.post("/v1/sessions", body).await.ok();
    for (field, expected) in [
        ("type", json!("session")),
        ("status", json!("idle")),
        ("phase", json!("idle")),
        ("title", json!("t")),
        ("metadata", json!({"k": "v"})),
        ("budget", budget),
        (
            "limits",
            json!({"steps": 9, "tokens": 5_000_000, "cost_usd": 2.5, "wall_seconds": null, "failures": 50, "identical_calls": 20}),
        ),
        ("resources", json!([])),
        ("vault_ids", json!([])),
        ("outcome_evaluations", json!([])),
        ("last_seq", json!(0)),
        ("archived_at", json!(null)),
    ] {
        assert_eq!(session[field], expected, "{field}");
    }
    assert_eq!(session["agent"]["version"], 1);
    assert_eq!(house.get(&format!("/v1/sessions/{}", session["id"].as_str().unwrap())).await.ok(), session);
}

#[tokio::test]
async fn what_a_session_does_not_serve_yet_is_refused_with_a_code() {
    let house = House::new();
    let (agent, environment) = (house.agent().await, house.environment().await);
    for (field, value, code) in [
        ("resources", json!([{"type": "file", "file_id": "f"}]), "unsupported_feature"),
        ("vault_ids", json!(["v"]), "unsupported_feature"),
        ("agent", json!({"type": "agent_with_overrides", "id": agent}), "unsupported_feature"),
        ("agent", json!("agent_nonsense"), "agent_not_found"),
        ("agent", json!({"type": "agent", "id": agent, "version": 7}), "agent_not_found"),
        ("environment_id", json!("env_x"), "environment_not_found"),
        ("initial_events", json!([{"type": "user.define_outcome"}]), "unsupported_event"),
        ("metadata", json!({"k": 1}), "invalid_field"),
        ("title", json!(7), "invalid_field"),
    ] {
        let mut body = json!({"agent": agent, "environment_id": environment});
        body[field] = value;
        assert_eq!(house.post("/v1/sessions", body).await.code(), code, "{field}");
    }
}

#[tokio::test]
async fn sessions_are_listed_filtered_and_found_by_their_tail() {
    let house = House::new();
    let (first, second) = (house.session().await, house.session().await);
    house.say(&first, "hi").await;
    let mut hand = Hand::claim(&house).await;
    hand.take_inputs().await;
    let ids = |reply: Value| -> Vec<String> {
        reply["data"].as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(house.get("/v1/sessions").await.ok()), [second.clone(), first.clone()]);
    assert_eq!(ids(house.get("/v1/sessions?order=asc").await.ok()), [first.clone(), second.clone()]);
    assert_eq!(ids(house.get("/v1/sessions?statuses[]=running").await.ok()), std::slice::from_ref(&first));
    assert_eq!(ids(house.get("/v1/sessions?phases[]=working").await.ok()), std::slice::from_ref(&first));
    assert_eq!(ids(house.get("/v1/sessions?statuses[]=idle&limit=1").await.ok()), std::slice::from_ref(&second));
    assert_eq!(
        ids(house.get(&format!("/v1/sessions?tail={}", &second[second.len() - 8..])).await.ok()),
        std::slice::from_ref(&second)
    );
    assert_eq!(house.get("/v1/sessions?statuses[]=asleep").await.code(), "invalid_query");
    assert_eq!(house.get(&format!("/v1/sessions/{}", &second[second.len() - 8..])).await.code(), "session_not_found");
    hand.commit(vec![], Then::Yield).await;
}

#[tokio::test]
async fn another_model_is_read_back_at_once_checked_and_taken_back_with_null() {
    let house = House::new();
    let path = format!("/v1/sessions/{}", house.session().await);
    let own = house.get(&path).await.ok()["agent"].clone();
    let change = async |body| house.post(&path, body).await;
    assert_eq!(change(json!({"agent": {"model": "nobody/knows"}})).await.code(), "unknown_model");
    assert_eq!(change(json!({"agent": {"fallback_models": ["nobody/knows"]}})).await.code(), "unknown_model");
    assert_eq!(change(json!({"agent": {"model": "  "}})).await.code(), "invalid_field");
    assert_eq!(change(json!({"agent": {"tools": [{"type": "tenure_toolset"}]}})).await.code(), "unsupported_feature");
    let free = json!({"agent": {"model": {"id": "p/free"}, "fallback_models": ["priced"]}});
    assert_eq!(change(free.clone()).await.code(), "model_without_price", "the limit of money could not bind");
    assert_eq!(house.get(&path).await.ok()["agent"], own, "nothing of it is taken");
    let mut both = free;
    both["limits"] = json!({"cost_usd": null});
    let changed = change(both).await.ok();
    assert_eq!((&changed["agent"]["model"]["id"], &changed["limits"]["cost_usd"]), (&json!("p/free"), &json!(null)));
    assert_eq!(changed["agent"]["fallback_models"], json!(["priced"]));
    assert_eq!(house.post(&format!("{path}/budget"), json!({"cost_usd": 1})).await.code(), "model_without_price");
    let one = change(json!({"agent": {"model": "p/priced"}})).await.ok();
    assert_eq!(one["agent"]["fallback_models"], json!(["priced"]), "what is left out stays");
    let back = change(json!({"agent": {"model": null, "fallback_models": null}})).await.ok();
    assert_eq!(back["agent"]["model"], own["model"]);
    assert_eq!(back["agent"]["fallback_models"], own["fallback_models"]);
}

#[tokio::test]
async fn an_update_is_read_back_at_once_although_no_worker_has_taken_it() {
    let house = House::new();
    let path = format!("/v1/sessions/{}", house.session().await);
    let changed = house.post(&path, json!({"title": "new", "metadata": {"a": "b"}, "limits": {"steps": 3}})).await.ok();
    assert_eq!(
        (&changed["title"], &changed["metadata"], &changed["limits"]["steps"]),
        (&json!("new"), &json!({"a": "b"}), &json!(3))
    );
    assert_eq!(house.get(&path).await.ok()["title"], "new");
    assert_eq!(
        house.post(&format!("{path}/budget"), json!({"cost_usd": 1.5})).await.ok()["limits"],
        json!({"steps": 3, "tokens": 5_000_000, "cost_usd": 1.5, "wall_seconds": null, "failures": 50, "identical_calls": 20})
    );
    assert_eq!(house.post(&format!("{path}/budget"), json!({})).await.code(), "missing_field");
    assert_eq!(house.post(&format!("{path}/pause"), json!({})).await.ok()["is_paused"], true);
    assert_eq!(house.post(&format!("{path}/resume"), json!({})).await.ok()["is_paused"], false);
}

#[tokio::test]
async fn a_repeated_request_with_its_key_gets_the_first_reply() {
    let house = House::new();
    let headers = [("idempotency-key", "once")];
    let make = |body| house.call(Method::POST, "/v1/agents", Some(body), &headers);
    let first = make(json!({"name": "a", "model": "p/priced"})).await.ok();
    assert_eq!(make(json!({"name": "a", "model": "p/priced"})).await.ok(), first);
    let other = make(json!({"name": "b", "model": "p/priced"})).await;
    assert_eq!((other.status, other.code().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch"));
    let body = json!({"agent": first["id"], "environment_id": house.environment().await});
    let session = house.call(Method::POST, "/v1/sessions", Some(body.clone()), &headers).await.ok();
    assert_eq!(house.call(Method::POST, "/v1/sessions", Some(body), &headers).await.ok(), session);
    let update = json!({"version": 1, "system": "s"});
    let path = format!("/v1/agents/{}", first["id"].as_str().unwrap());
    let updated = house.call(Method::POST, &path, Some(update.clone()), &headers).await.ok();
    assert_eq!(house.call(Method::POST, &path, Some(update), &headers).await.ok(), updated);
    assert_eq!(updated["version"], 2);
    assert_eq!(
        house.call(Method::POST, &path, Some(json!({})), &[("idempotency-key", "")]).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn z_18_an_idempotency_key_means_nothing_for_another_caller_and_a_stranger_gets_nothing() {
    let house = House::new();
    let body = json!({"name": "a", "model": "p/priced"});
    let make = async |key: &str| {
        let headers = [("x-api-key", key), ("idempotency-key", "k")];
        house.call(Method::POST, "/v1/agents", Some(body.clone()), &headers).await
    };
    let mine = make(KEY).await.ok();
    let theirs = make(crate::house::OTHER_KEY).await.ok();
    assert_ne!(mine["id"], theirs["id"]);
    let stranger = make("no-key").await;
    assert_eq!((stranger.status, stranger.code().as_str()), (StatusCode::UNAUTHORIZED, "invalid_api_key"));
}

#[tokio::test]
async fn every_list_is_filtered_by_the_time_of_creation() {
    let house = House::new();
    let memory = house.memory.clone().unwrap();
    let mut times = Vec::new();
    for _ in 0..4 {
        memory.advance(60_000);
        let agent = house.post("/v1/agents", json!({"name": "a", "model": "p/priced"})).await.ok();
        let environment = house.post("/v1/environments", json!({"name": "e", "config": {"type": "cloud"}})).await.ok();
        let session = json!({"agent": agent["id"], "environment_id": environment["id"]});
        let session = house.post("/v1/sessions", session).await.ok();
        assert_eq!(agent["created_at"], session["created_at"]);
        times.push(agent["created_at"].as_str().unwrap().to_owned());
    }
    let shown = async |path: &str, query: String| -> Vec<String> {
        let (mut shown, mut page) = (Vec::new(), String::new());
        loop {
            let list = house.get(&format!("{path}?limit=1&{query}{page}")).await.ok();
            shown.extend(
                list["data"].as_array().unwrap().iter().map(|row| row["created_at"].as_str().unwrap().to_owned()),
            );
            match list["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return shown,
            }
        }
    };
    for path in ["/v1/agents", "/v1/environments", "/v1/sessions"] {
        for (query, expected) in [
            (String::new(), vec![3, 2, 1, 0]),
            (format!("created_at[gte]={}", times[1]), vec![3, 2, 1]),
            (format!("created_at[gt]={}", times[1]), vec![3, 2]),
            (format!("created_at[lte]={}", times[1]), vec![1, 0]),
            (format!("created_at[lt]={}", times[1]), vec![0]),
            (format!("created_at[gt]={}&created_at[lt]={}", times[0], times[3]), vec![2, 1]),
            (format!("created_at%5Bgte%5D={}&created_at%5Blte%5D={}", times[2], times[2]), vec![2]),
            (format!("created_at[gt]={}", times[3]), vec![]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(|place: usize| times[place].clone()).collect();
            assert_eq!(shown(path, query.clone()).await, expected, "{path} {query}");
        }
        assert_eq!(house.get(&format!("{path}?created_at[gte]=soon")).await.code(), "invalid_query");
    }
}

#[tokio::test]
async fn an_empty_text_takes_a_description_away() {
    let house = House::new();
    let agent = json!({"name": "a", "model": "p/priced", "system": "s", "description": "d"});
    let agent = house.post("/v1/agents", agent).await.ok();
    let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
    let changed = house.post(&path, json!({"system": "", "description": ""})).await.ok();
    assert_eq!((&changed["system"], &changed["description"]), (&json!(null), &json!(null)));
    let path = format!("/v1/environments/{}", house.environment().await);
    house.post(&path, json!({"description": "d"})).await.ok();
    assert_eq!(house.post(&path, json!({"description": ""})).await.ok()["description"], json!(null));
}

#[tokio::test]
async fn every_post_of_a_session_remembers_its_key() {
    for house in [House::new(), House::sqlite()] {
        let path = format!("/v1/sessions/{}", house.session().await);
        for (path, one, other) in [
            (path.clone(), json!({"metadata": {"k": "1"}}), json!({"metadata": {"k": "2"}})),
            (format!("{path}/events"), message("one"), message("other")),
            (format!("{path}/budget"), json!({"steps": 5}), json!({"steps": 6})),
            (format!("{path}/pause"), json!({}), json!({"why": "other"})),
            (format!("{path}/resume"), json!({}), json!({"why": "other"})),
            (format!("{path}/cancel"), json!({}), json!({"why": "other"})),
        ] {
            let send = async |body: &Value| {
                house.call(Method::POST, &path, Some(body.clone()), &[("idempotency-key", "k")]).await
            };
            let first = send(&one).await.ok();
            let again = send(&one).await.ok();
            assert_eq!(again, first, "{path}");
            let mismatch = send(&other).await;
            let expected = (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch".to_owned());
            assert_eq!((mismatch.status, mismatch.code()), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn z_18_requests_with_one_key_at_the_same_time_happen_once() {
    let house = House::sqlite();
    let (agent, environment) = (house.agent().await, house.environment().await);
    let body = json!({"agent": agent, "environment_id": environment, "initial_events": message("hi")["events"]});
    let send = || house.call(Method::POST, "/v1/sessions", Some(body.clone()), &[("idempotency-key", "once")]);
    let replies = futures_util::future::join_all((0..20).map(|_| send())).await;
    let ids: std::collections::BTreeSet<String> =
        replies.iter().map(|reply| reply.ok()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(house.get("/v1/sessions").await.ok()["data"].as_array().unwrap().len(), 1);
    let events = house.get(&format!("/v1/sessions/{}/events", ids.first().unwrap())).await.ok();
    assert_eq!(events["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_was_acknowledged_holds_in_the_list_although_no_worker_has_taken_it() {
    let house = House::new();
    let (stays, goes) = (house.session().await, house.session().await);
    house.post(&format!("/v1/sessions/{stays}"), json!({"title": "new"})).await.ok();
    assert!(house.post(&format!("/v1/sessions/{goes}/archive"), json!({})).await.ok()["archived_at"].is_string());
    let list = house.get("/v1/sessions").await.ok();
    let shown: Vec<_> = list["data"].as_array().unwrap().iter().map(|row| (&row["id"], &row["title"])).collect();
    assert_eq!(shown, [(&json!(stays), &json!("new"))]);
    let all = house.get("/v1/sessions?include_archived=true").await.ok();
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    assert!(all["data"][0]["archived_at"].is_string());
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_reply_although_the_world_has_changed_since() {
    for house in [House::new(), House::sqlite()] {
        let send = async |path: &str, body: &Value| {
            house.call(Method::POST, path, Some(body.clone()), &[("idempotency-key", "once")]).await.ok()
        };
        let id = |reply: &Value| reply["id"].as_str().unwrap().to_owned();
        let agent_body = json!({"name": "a", "model": "p/priced"});
        let agent = id(&send("/v1/agents", &agent_body).await);
        let change = json!({"system": "be brief"});
        let version = send(&format!("/v1/agents/{agent}"), &change).await["version"].clone();
        let environment_body = json!({"name": "here", "config": {"type": "cloud"}});
        let environment = id(&send("/v1/environments", &environment_body).await);
        let rename = json!({"name": "there"});
        send(&format!("/v1/environments/{environment}"), &rename).await;
        let session_body =
            json!({"agent": agent, "environment_id": environment, "initial_events": message("hi")["events"]});
        let session = id(&send("/v1/sessions", &session_body).await);
        let update = json!({"title": "first", "metadata": {"k": "1"}});
        send(&format!("/v1/sessions/{session}"), &update).await;
        let budget = json!({"cost_usd": 5});
        send(&format!("/v1/sessions/{session}/budget"), &budget).await;
        // Everything that the requests were checked against is different now.
        house.post(&format!("/v1/sessions/{session}"), json!({"title": "second", "metadata": {"k": "2"}})).await.ok();
        for path in [format!("/v1/agents/{agent}/archive"), format!("/v1/environments/{environment}/archive")] {
            house.post(&path, json!({})).await.ok();
        }
        assert_eq!(house.post("/v1/sessions", session_body.clone()).await.code(), "agent_archived", "without the key");
        assert_eq!(id(&send("/v1/agents", &agent_body).await), agent);
        assert_eq!(send(&format!("/v1/agents/{agent}"), &change).await["version"], version);
        assert_eq!(id(&send("/v1/environments", &environment_body).await), environment);
        assert_eq!(id(&send(&format!("/v1/environments/{environment}"), &rename).await), environment);
        assert_eq!(id(&send("/v1/sessions", &session_body).await), session);
        let again = send(&format!("/v1/sessions/{session}"), &update).await;
        assert_eq!((&again["title"], &again["metadata"]["k"]), (&json!("second"), &json!("2")), "it is not done again");
        house.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.ok();
        send(&format!("/v1/sessions/{session}/budget"), &budget).await;
        let all = house.get("/v1/sessions?include_archived=true").await.ok();
        assert_eq!(all["data"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn what_takes_no_key_may_be_repeated() {
    let house = House::new();
    let (agent, environment, session) = (house.agent().await, house.environment().await, house.session().await);
    for path in
        [format!("/v1/agents/{agent}"), format!("/v1/environments/{environment}"), format!("/v1/sessions/{session}")]
    {
        let path = format!("{path}/archive");
        let first = house.post(&path, json!({})).await.ok();
        house.memory.as_ref().unwrap().advance(60_000);
        let again = house.post(&path, json!({})).await.ok();
        assert!(first["archived_at"].is_string());
        assert_eq!(again["archived_at"], first["archived_at"], "{path}");
    }
    let inbox = house.store.inbox(session.parse().unwrap()).await.unwrap();
    assert_eq!(inbox.len(), 1, "one end is enough");
}
