//! Conditions of upstreams, and sessions that wait on them.

use super::Harness;
use super::fixture::{Holder, claim, create_for, deliver, lease_id, message, node, tenant, view};
use crate::{Admit, Kind, State, Store, Then};
use tenure_core::condition::{Admission, CALM, Condition, ConditionKey, PROBE_EXPIRY, Report, Settlement, Stage};
use tenure_core::failure::Class;
use tenure_core::retry::Policy;
use tenure_core::{Body, ConditionId, NodeId, SessionId, TenantId, Timestamp, Update, WaitKind};

const MODEL: &str = "p/m";

fn rate_limit(hint: u64) -> Report {
    Report {
        id: ConditionId::from_bits(super::fixture::bits()),
        key: ConditionKey { credential: "p".to_owned(), model: Some(MODEL.to_owned()) },
        class: Class::RateLimit,
        message: "slow down".to_owned(),
        hint: Some(hint),
        policy: Policy::default(),
        random: 0,
        sent_at: Timestamp(0),
        probe: None,
    }
}

/// Opens a condition that is probed after `hint`.
async fn open(store: &dyn Store, hint: u64) -> Condition {
    store.report_condition(rate_limit(hint)).await.expect("a report is taken")
}

/// Parks a new session on a condition.
async fn park(store: &dyn Store, node: NodeId, tenant: &TenantId, condition: &Condition) -> SessionId {
    let id = create_for(store, tenant, vec![message("go")]).await;
    let mut leased = claim(store, node, 100).await;
    assert_eq!(leased.len(), 1, "one session is runnable");
    let mut holder = Holder::new(leased.remove(0));
    holder.take_all();
    wait(&mut holder, condition);
    holder.park(store).await;
    id
}

fn wait(holder: &mut Holder, condition: &Condition) {
    let kind = WaitKind::Condition { class: condition.class, model: MODEL.into(), condition: Some(condition.id) };
    holder.wait(kind, Some(Timestamp(i64::MAX)));
}

async fn look(store: &dyn Store) -> u64 {
    store.release_waiting().await.expect("it can be asked").woken
}

async fn only(store: &dyn Store) -> (Condition, u64) {
    let mut views = store.conditions(None).await.expect("they can be read");
    assert_eq!(views.len(), 1, "one condition");
    let view = views.remove(0);
    (view.condition, view.waiting)
}

async fn admit(store: &dyn Store, holder: &Holder, condition: &Condition) -> Admission {
    let admit = Admit { lease: holder.lease.clone(), condition: condition.id, insists: false };
    store.admit(admit).await.expect("the lease is held")
}

/// Leases what is runnable.
async fn hold_all(store: &dyn Store, node: NodeId) -> Vec<Holder> {
    claim(store, node, 1_000).await.into_iter().map(Holder::new).collect()
}

/// Of those who wait one is sent ahead, and nobody else may send meanwhile.
pub async fn p10_one_session_probes_and_the_others_wait(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    let mut parked = Vec::new();
    for _ in 0..3 {
        parked.push(park(&*store, node, &tenant(), &condition).await);
    }
    assert_eq!(only(&*store).await.1, 3);
    assert_eq!(look(&*store).await, 0, "not before its time");
    harness.advance(2_000);
    assert_eq!(look(&*store).await, 1);
    assert_eq!(look(&*store).await, 0, "one is enough");
    let prober = hold_all(&*store, node).await.remove(0);
    assert_eq!(prober.session.id, parked[0], "who waited longest");
    assert_eq!(admit(&*store, &prober, &condition).await, Admission::Probe(1));
    assert_eq!(admit(&*store, &prober, &condition).await, Admission::Probe(1), "asked again");
    let refused = Report { probe: Some(1), ..rate_limit(60_000) };
    let condition = store.report_condition(refused).await.expect("a report is taken");
    assert_eq!((condition.stage, condition.refusals, condition.probe), (Stage::Open, 2, None));
    assert_eq!(look(&*store).await, 0, "the next one comes later");
    assert!(!store.settle_probe(condition.id, 1, Settlement::Mended).await.expect("it can be told"), "it is settled");
}

/// Slowly at first.
pub async fn a_mended_condition_lets_go_one_after_the_other(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    for _ in 0..30 {
        park(&*store, node, &tenant(), &condition).await;
    }
    harness.advance(2_000);
    assert_eq!(look(&*store).await, 1);
    let mut prober = hold_all(&*store, node).await.remove(0);
    assert_eq!(admit(&*store, &prober, &condition).await, Admission::Probe(1));
    assert!(store.settle_probe(condition.id, 1, Settlement::Mended).await.expect("it can be told"));
    prober.push(Body::WaitResolved { resolution: tenure_core::Resolution::Due });
    prober.park(&*store).await;
    let mut left = Vec::new();
    for _ in 0..10 {
        let woken = look(&*store).await;
        left.push(woken);
        for mut holder in hold_all(&*store, node).await {
            assert_eq!(admit(&*store, &holder, &condition).await, Admission::Granted, "it is its turn");
            assert_eq!(admit(&*store, &holder, &condition).await, Admission::Wait, "once");
            holder.push(Body::WaitResolved { resolution: tenure_core::Resolution::Due });
            holder.park(&*store).await;
        }
        harness.advance(200);
    }
    let sum: u64 = left.iter().sum();
    // Two seconds from two a second on; a real clock adds a little to what the test adds.
    assert!(left[0] == 1 && (2..=14).contains(&sum), "{left:?}");
    assert_eq!(only(&*store).await.1, 29 - sum);
}

/// However many of another tenant are in front.
pub async fn p_16_tenants_take_turns_when_they_leave(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    let (large, small) = (TenantId("a-large".to_owned()), TenantId("b-small".to_owned()));
    for _ in 0..8 {
        park(&*store, node, &large, &condition).await;
    }
    let late = park(&*store, node, &small, &condition).await;
    let views = store.conditions(Some(small.clone())).await.expect("they can be read");
    assert_eq!(views[0].waiting, 1, "of this tenant");
    store.clear_condition(condition.id).await.expect("it can be told").expect("it exists");
    let mut order = Vec::new();
    while order.len() < 2 {
        look(&*store).await;
        order.extend(hold_all(&*store, node).await.into_iter().map(|holder| holder.session.id));
        harness.advance(500);
    }
    assert!(order[..2].contains(&late), "second at the latest");
}

/// After it was over already.
pub async fn z_19_a_session_that_parks_too_late_is_let_go(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    store.clear_condition(condition.id).await.expect("it can be told").expect("it exists");
    harness.advance(CALM + 1);
    assert_eq!(look(&*store).await, 0);
    assert_eq!(only(&*store).await.0.stage, Stage::Over);
    let id = park(&*store, node, &tenant(), &condition).await;
    look(&*store).await;
    assert_eq!(look(&*store).await, 1);
    assert_eq!(view(&*store, id).await.state, State::Queued);
}

/// Its right expires.
pub async fn z_55_a_dead_prober_blocks_nobody(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    for _ in 0..2 {
        park(&*store, node, &tenant(), &condition).await;
    }
    harness.advance(2_000);
    assert_eq!(look(&*store).await, 1);
    harness.advance(PROBE_EXPIRY + 1_000);
    assert_eq!(look(&*store).await, 1, "the next one tries");
    let holders = hold_all(&*store, node).await;
    assert_eq!(holders.len(), 2);
    let mut admissions = Vec::new();
    for holder in &holders {
        admissions.push(admit(&*store, holder, &condition).await);
    }
    assert!(admissions.contains(&Admission::Probe(2)) && admissions.contains(&Admission::Wait), "{admissions:?}");
}

/// So does who waits on it.
pub async fn a_condition_outlives_a_restart(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 30_000).await;
    park(&*store, node, &tenant(), &condition).await;
    harness.reopen().await;
    let store = harness.store();
    assert_eq!(only(&*store).await, (condition, 1));
    harness.advance(40_000);
    assert_eq!(look(&*store).await, 1);
}

/// Nor does it use up a grant.
pub async fn a_stale_holder_takes_no_probe(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    create_for(&*store, &tenant(), vec![message("go")]).await;
    let holder = hold_all(&*store, node).await.remove(0);
    store.release(&holder.lease).await.expect("it is given back");
    harness.advance(2_000);
    let admit = Admit { lease: holder.lease.clone(), condition: condition.id, insists: true };
    assert_eq!(store.admit(admit).await.expect_err("the lease is gone").kind, Kind::Fenced);
    assert_eq!(only(&*store).await.0.probe, None);
}

/// As with every other wait (promise P6).
pub async fn an_input_wakes_a_waiting_session(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 60_000).await;
    let id = park(&*store, node, &tenant(), &condition).await;
    deliver(&*store, id, message("hello?")).await.expect("it is taken");
    assert_eq!(view(&*store, id).await.state, State::Queued);
    assert_eq!(only(&*store).await.1, 0);
    let mut holder = hold_all(&*store, node).await.remove(0);
    assert_eq!(admit(&*store, &holder, &condition).await, Admission::Wait, "it still cannot send");
    holder.park(&*store).await;
    assert_eq!(only(&*store).await.1, 1, "in line again");
}

/// It leaves when it is resumed.
pub async fn a_paused_session_is_not_let_go(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 1_000).await;
    let id = create_for(&*store, &tenant(), vec![message("go")]).await;
    let mut holder = hold_all(&*store, node).await.remove(0);
    wait(&mut holder, &condition);
    holder.push(Body::Updated { update: Update::Paused });
    holder.park(&*store).await;
    harness.advance(2_000);
    assert_eq!(look(&*store).await, 0);
    assert_eq!(view(&*store, id).await.state, State::Parked);
}

/// And a condition that nobody knows is nobody's.
pub async fn an_operator_hastens_or_clears(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    let condition = open(&*store, 3_600_000).await;
    park(&*store, node, &tenant(), &condition).await;
    assert_eq!(look(&*store).await, 0);
    store.hasten_condition(condition.id).await.expect("it can be told").expect("it exists");
    assert_eq!(look(&*store).await, 1);
    let mut prober = hold_all(&*store, node).await.remove(0);
    assert_eq!(admit(&*store, &prober, &condition).await, Admission::Probe(1));
    let commit = prober.commit(&*store, Then::Keep).await.expect("the lease is held");
    assert!(commit.is_held);
    store.clear_condition(condition.id).await.expect("it can be told").expect("it exists");
    assert_eq!(only(&*store).await.0.stage, Stage::Releasing);
    let unknown = ConditionId::from_bits(lease_id().bits());
    assert_eq!(store.clear_condition(unknown).await.expect("it can be told"), None);
    assert_eq!(store.hasten_condition(unknown).await.expect("it can be told"), None);
    let admit = Admit { lease: prober.lease.clone(), condition: unknown, insists: false };
    assert_eq!(store.admit(admit).await.expect("the lease is held"), Admission::Free);
}
