//! The query language of the list, and the numbers of a fleet.

use crate::hand::Hand;
use crate::house::House;
use serde_json::json;

async fn titles(house: &House, q: &str) -> Vec<String> {
    let q: String = q.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let page = house.get(&format!("/v1/sessions?q={q}")).await.ok();
    let rows = page["data"].as_array().unwrap();
    rows.iter().map(|row| row["title"].as_str().unwrap_or("").to_owned()).collect()
}

#[tokio::test]
async fn a_query_finds_sessions_by_all_that_it_names() {
    for house in [House::new(), House::sqlite()] {
        let (agent, environment) = (house.agent().await, house.environment().await);
        let mut ids = Vec::new();
        for (title, metadata) in
            [("Nightly Report", json!({"team": "pay"})), ("Bump deps", json!({})), ("nightly sweep", json!({}))]
        {
            let body = json!({"agent": agent, "environment_id": environment, "title": title, "metadata": metadata});
            ids.push(house.post("/v1/sessions", body).await.ok()["id"].as_str().unwrap().to_owned());
        }
        house.say(&ids[1], "go").await;
        assert_eq!(titles(&house, "nightly").await, ["nightly sweep", "Nightly Report"]);
        assert_eq!(titles(&house, "nightly -report").await, ["nightly sweep"]);
        assert_eq!(titles(&house, "phase:queued").await, ["Bump deps"]);
        assert_eq!(titles(&house, "-phase:queued").await, ["nightly sweep", "Nightly Report"]);
        assert_eq!(titles(&house, "phase:idle metadata.team:pay").await, ["Nightly Report"]);
        assert_eq!(titles(&house, "agent:TESTER age:<1h cost:<1 steps:0").await.len(), 3);
        assert_eq!(titles(&house, "agent:nobody").await, [""; 0]);
        assert_eq!(titles(&house, "age:>1h").await, [""; 0]);
        assert_eq!(titles(&house, &format!("id:{}", &ids[0][20..])).await, ["Nightly Report"]);
        assert_eq!(house.get("/v1/sessions?q=colour:red").await.code(), "invalid_query");
        // Together with the phases of the older parameter, both hold.
        let page = house.get("/v1/sessions?phases[]=queued&q=phase:idle").await.ok();
        assert_eq!(page["data"], json!([]));
        assert_eq!(page["next_page"], json!(null));
    }
}

#[tokio::test]
async fn a_fleet_is_counted_by_phase() {
    let house = House::sqlite();
    let session = house.session().await;
    house.session().await;
    house.say(&session, "hi").await;
    let fleet = house.get("/v1/fleet").await.ok();
    assert_eq!((&fleet["phases"]["queued"], &fleet["phases"]["idle"]), (&json!(1), &json!(1)));
    assert!(fleet["queued_since"].is_string(), "{fleet}");
    Hand::claim(&house).await.turn("done").await;
    let fleet = house.get("/v1/fleet").await.ok();
    assert_eq!(fleet["phases"]["idle"], json!(2));
    assert_eq!(fleet["queued_since"], json!(null));
}
