//! The life of a condition, and the shape of what leaves it.

use tenure_core::condition::*;
use tenure_core::failure::{Class, plain};
use tenure_core::retry::Policy;
use tenure_core::*;

const START: Timestamp = Timestamp(1_000_000);

fn session(number: u64) -> SessionId {
    SessionId::from_bits(u128::from(number))
}

fn key() -> ConditionKey {
    ConditionKey { credential: "p".into(), model: Some("p/m".into()) }
}

fn report(class: Class, sent_at: Timestamp) -> Report {
    Report {
        id: ConditionId::from_bits(1),
        key: key(),
        class,
        message: "no".into(),
        hint: None,
        policy: Policy::default(),
        random: u64::MAX,
        sent_at,
        probe: None,
    }
}

fn open(class: Class) -> Condition {
    Condition::after(None, &report(class, START), START)
}

#[test]
fn p10_one_session_probes_and_the_others_wait() {
    let mut condition = open(Class::RateLimit);
    assert_eq!(condition.probe_at, START.after(1_000), "the whole first wait, since the random number is the largest");
    assert_eq!(condition.admit(session(1), None, true, false, START), Admission::Wait);
    assert_eq!(condition.look(2, START), Turn::Nothing);
    let due = START.after(1_000);
    assert_eq!(condition.look(2, due), Turn::Probe);
    let number = condition.give_probe(session(1), due);
    assert_eq!(condition.look(2, due), Turn::Nothing, "one is enough");
    assert_eq!(condition.admit(session(2), None, true, false, due), Admission::Wait);
    assert_eq!(condition.admit(session(1), None, true, false, due), Admission::Probe(number));
    let refused = Report { probe: Some(number), ..report(Class::RateLimit, due) };
    condition = Condition::after(Some(condition), &refused, due);
    assert_eq!((condition.refusals, condition.probe_at), (2, due.after(2_000)), "the next one comes later");
}

#[test]
fn z_55_a_prober_that_dies_blocks_nobody_and_a_late_word_of_it_changes_nothing() {
    let mut condition = open(Class::RateLimit);
    let due = START.after(1_000);
    let dead = condition.give_probe(session(1), due);
    let later = due.after(PROBE_EXPIRY);
    assert_eq!(condition.look(1, later), Turn::Probe);
    // Whoever asks before anybody looks gets it too, and the one that was dead has no right left of its own.
    let mut asked = condition.clone();
    assert_eq!(asked.admit(session(3), None, true, false, later), Admission::Probe(dead + 1));
    let mut back = condition.clone();
    assert_eq!(
        back.admit(session(1), None, true, false, later),
        Admission::Probe(dead + 1),
        "a new one, with a new number"
    );
    let number = condition.give_probe(session(2), later);
    assert_eq!(condition.admit(session(1), None, true, false, later), Admission::Wait);
    assert!(!condition.settle(dead, Settlement::Mended, later));
    assert_eq!(condition.stage, Stage::Open);
    assert!(condition.settle(number, Settlement::Mended, later));
    assert_eq!(condition.stage, Stage::Releasing);
    assert!(!condition.settle(number, Settlement::GivenUp, later), "once");
}

#[test]
fn a_probe_that_was_given_up_is_made_by_another_at_once() {
    let mut condition = open(Class::Credential);
    assert_eq!(condition.probe_at, START.after(OPERATOR_PROBE));
    assert_eq!(condition.admit(session(1), None, true, true, START), Admission::Probe(1), "an operator said so");
    assert_eq!(condition.admit(session(2), None, true, true, START), Admission::Wait, "one at a time");
    assert!(condition.settle(1, Settlement::GivenUp, START));
    assert_eq!(condition.look(1, START), Turn::Probe);
}

#[test]
fn an_operator_hastens_the_probe_or_clears_the_condition() {
    let mut condition = open(Class::Quota);
    assert_eq!(condition.look(5, START), Turn::Nothing);
    condition.hasten(START);
    assert_eq!(condition.look(5, START), Turn::Probe);
    condition.clear(START);
    assert_eq!(condition.look(5, START), Turn::Release(1), "one first, not all five");
}

#[test]
fn z_19_a_session_that_parks_too_late_is_let_go() {
    let mut condition = open(Class::RateLimit);
    condition.clear(START);
    let calm = START.after(CALM);
    assert!(condition.wants_look(0, calm));
    assert_eq!(condition.look(0, calm), Turn::Nothing);
    assert_eq!(condition.stage, Stage::Over);
    assert_eq!(condition.admit(session(1), None, false, false, calm), Admission::Free);
    assert!(condition.wants_look(1, calm));
    condition.look(1, calm);
    assert_eq!(condition.look(1, calm), Turn::Release(1));
    condition.look(0, calm.after(CALM));
    assert_eq!(condition.look(0, calm.after(CALM + KEPT_OVER)), Turn::Remove);
}

#[test]
fn a_hint_of_another_attempt_moves_the_probe_and_never_forward() {
    let condition = open(Class::RateLimit);
    let hinted = Report { hint: Some(20_000), random: 0, ..report(Class::RateLimit, START) };
    let condition = Condition::after(Some(condition), &hinted, START);
    assert_eq!((condition.probe_at, condition.refusals), (START.after(20_000), 1));
    let shorter = Report { hint: Some(2_000), random: 0, ..report(Class::RateLimit, START) };
    let condition = Condition::after(Some(condition), &shorter, START);
    assert_eq!(condition.probe_at, START.after(20_000));
}

#[test]
fn a_failure_is_about_the_credential_the_model_or_only_the_session() {
    let of = |class, status| {
        let failure = failure::Failure { status, ..plain(class, "") };
        ConditionKey::of(&failure, "p", "p/m").map(|key| key.model)
    };
    let model = Some(Some("p/m".to_owned()));
    assert_eq!(of(Class::Credential, Some(401)), Some(None));
    assert_eq!(of(Class::Credential, Some(403)), model, "the key may use other models");
    assert_eq!(of(Class::Quota, Some(429)), Some(None));
    assert_eq!(of(Class::RateLimit, Some(429)), model);
    assert_eq!(of(Class::Config, Some(404)), model);
    assert_eq!(of(Class::Transient, Some(529)), model);
    assert_eq!(of(Class::Transient, None), Some(None), "nobody answers there");
    assert_eq!(of(Class::Overflow, Some(400)), None);
}

#[test]
fn an_answer_of_another_kind_ends_a_condition_and_an_outage_ends_none() {
    for condition in [Class::RateLimit, Class::Quota, Class::Credential, Class::Config] {
        assert!(!disproves(condition, Class::Transient));
        assert!(!disproves(condition, condition));
        assert!(disproves(condition, Class::Overflow));
    }
    assert!(disproves(Class::Transient, Class::RateLimit));
    assert!(disproves(Class::Credential, Class::RateLimit));
    assert!(!disproves(Class::Quota, Class::RateLimit));
}

/// A provider that takes `rate` requests a second, with a bucket of one second, and answers later.
struct Provider {
    rate: u64,
    tokens: u64,
}

impl Provider {
    fn tick(&mut self, millis: u64) {
        self.tokens = (self.tokens + self.rate * millis).min(self.rate * 1_000);
    }

    fn takes(&mut self) -> bool {
        let takes = self.tokens >= 1_000;
        self.tokens -= if takes { 1_000 } else { 0 };
        takes
    }
}

#[derive(Debug, Default)]
struct Drained {
    millis: u64,
    refused: u64,
    most_in_a_second: u64,
}

/// Lets `waiting` sessions leave a condition; `latency` is how long the provider takes to say no.
fn drain(waiting: u64, rate: u64, latency: u64, hint: Option<u64>) -> Drained {
    const TICK: u64 = 100;
    let mut provider = Provider { rate, tokens: rate * 1_000 };
    let mut condition = open(Class::RateLimit);
    condition.clear(START);
    let (mut waiting, mut done, mut drained) = (waiting, 0, Drained::default());
    let all = waiting;
    let mut refusals: std::collections::VecDeque<(Timestamp, Timestamp)> = Default::default();
    let mut second = std::collections::VecDeque::new();
    let mut now = START;
    while done < all {
        now = now.after(TICK);
        provider.tick(TICK);
        while refusals.front().is_some_and(|(at, _)| *at <= now) {
            let (_, sent_at) = refusals.pop_front().unwrap();
            let refused = Report { hint, ..report(Class::RateLimit, sent_at) };
            condition = Condition::after(Some(condition), &refused, now);
            assert_eq!(condition.stage, Stage::Releasing);
            waiting += 1;
        }
        let mut left = 0;
        if waiting > 0
            && let Turn::Release(count) = condition.look(waiting, now)
        {
            condition.released(count, now);
            waiting -= count;
            left = count;
            for _ in 0..count {
                if provider.takes() {
                    done += 1;
                } else {
                    drained.refused += 1;
                    refusals.push_back((now.after(latency), now));
                }
            }
        }
        second.push_back(left);
        if second.len() > 10 {
            second.pop_front();
        }
        drained.most_in_a_second = drained.most_in_a_second.max(second.iter().sum());
        assert!(now.since(START) < 3_600_000, "it ends: {drained:?}, {condition:?}");
    }
    drained.millis = now.since(START);
    drained
}

#[test]
fn p10_a_look_that_comes_late_leads_to_no_rush() {
    let mut condition = open(Class::RateLimit);
    condition.clear(START);
    let Turn::Release(one) = condition.look(10_000, START) else { panic!("the first one leaves at once") };
    condition.released(one, START);
    // Nobody looked for a minute: that was no time in which sessions left, and is not made up for.
    let late = START.after(60_000);
    assert_eq!(condition.look(10_000, late), Turn::Nothing);
    assert_eq!(condition.look(10_000, late.after(250)), Turn::Release(1));
}

#[test]
fn p10_ten_thousand_leave_within_a_fifth_of_the_ideal_time_and_one_in_a_hundred_is_refused() {
    for (waiting, rate, latency, hint) in [
        (10_000, 50, 100, None),
        (10_000, 50, 1_000, None),
        (10_000, 50, 500, Some(1_000)),
        (10_000, 20, 300, None),
        (40_000, 200, 300, None),
    ] {
        let drained = drain(waiting, rate, latency, hint);
        let ideal = waiting * 1_000 / rate;
        let (ratio, share) = (drained.millis as f64 / ideal as f64, drained.refused as f64 / waiting as f64);
        println!(
            "{rate}/s latency {latency} hint {hint:?}: {ratio:.3} of ideal, {:.2} % refused, {drained:?}",
            share * 100.0
        );
        assert!(ratio <= 1.2, "{rate}/s, {latency} ms: {ratio}");
        assert!(share < 0.01, "{rate}/s, {latency} ms: {share}");
        assert!(drained.most_in_a_second < 2 * rate + 50);
    }
}
