//! What a seed means: how large its world is, how its nodes behave, and which faults happen when.
//!
//! Faults are a list, each of which says by itself when it happens, so that a failing seed can be tried
//! with fewer of them.

use crate::dice::Dice;
use std::fmt;

/// Most faults of one seed.
const MAX_FAULTS: u64 = 40;

/// Operations of each class among which those that fail are drawn.
const OPERATIONS: u64 = 150;

/// A world and what happens in it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where everything comes from.
    pub seed: u64,
    /// How many workers there are.
    pub nodes: usize,
    /// How many sessions there are.
    pub sessions: usize,
    /// Sessions that a node advances at the same time.
    pub slots: usize,
    /// Quantum of a lease, in milliseconds.
    pub quantum: u64,
    /// Waits up to this long stay in the lease, in milliseconds.
    pub short_wait: u64,
    /// Most steps of a session.
    pub steps: Option<u64>,
    /// Whether hints reach the workers at all.
    pub has_hints: bool,
    /// Whether a person is asked about calls with an unknown outcome.
    pub asks_person: bool,
    /// When faults stop, in milliseconds since the begin.
    pub quiet_at: u64,
    /// What goes wrong until then.
    pub faults: Vec<Fault>,
}

/// One thing that goes wrong. Times are in milliseconds since the begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Fault {
    /// The so-many-th operation of its class.
    Operation { class: Class, nth: u64, how: Mishap },
    /// A worker.
    Node { node: usize, at: u64, span: u64, how: Trouble },
    /// The store, for everybody.
    Store { at: u64, span: u64, slow: Option<u64> },
    /// The provider, for everybody.
    Upstream { at: u64, span: u64, how: Outage },
    /// The store's clock jumps.
    Clock { at: u64, by: i64 },
}

/// Classes of operations of the store, counted each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the operations")]
pub enum Class {
    Commit,
    Claim,
    Deliver,
    Heartbeat,
    /// Everything else that changes something.
    Other,
}

/// What happens to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The node dies before the store gets it.
    CrashBefore,
    /// The node dies after the store did it.
    CrashAfter,
    /// The store never gets it, and an error comes back.
    LoseRequest,
    /// The store did it, and an error comes back.
    LoseReply,
    /// It is so many milliseconds on the way, whatever becomes of the sender.
    Delay(u64),
    /// It arrives a second time so many milliseconds later.
    Repeat(u64),
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It dies, and another one starts after the span.
    Killed,
    /// It is asked to stop, and another one starts after the span.
    Stopped,
    /// What it sends to the store within the span arrives at its end: it goes on with leases that are
    /// not its own any more.
    Held,
    /// What it sends to the store within the span fails.
    CutOff,
}

/// What the provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Outage {
    Unreachable,
    Overloaded,
    Limited,
    BrokenStreams,
    Slow,
}

impl Plan {
    /// The world of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed, 1);
        let nodes = dice.between(1, 3) as usize;
        let quiet_at = dice.between(20_000, 90_000);
        let count = dice.between(0, MAX_FAULTS);
        Self {
            seed,
            nodes,
            sessions: dice.between(1, 5) as usize,
            slots: dice.pick(&[1, 2, 8]),
            quantum: dice.pick(&[1_000, 5_000, 45_000]),
            short_wait: dice.pick(&[100, 2_000]),
            steps: dice.pick(&[None, None, Some(8)]),
            has_hints: dice.percent(70),
            asks_person: dice.percent(25),
            quiet_at,
            faults: (0..count).map(|_| fault(&mut dice, nodes, quiet_at)).collect(),
        }
    }
}

fn fault(dice: &mut Dice, nodes: usize, quiet_at: u64) -> Fault {
    let at = dice.between(0, quiet_at);
    match dice.between(1, 100) {
        1..=60 => {
            let class = dice.pick(&[
                Class::Commit,
                Class::Commit,
                Class::Commit,
                Class::Claim,
                Class::Deliver,
                Class::Heartbeat,
                Class::Other,
            ]);
            let nth = dice.between(1, if class == Class::Claim { OPERATIONS / 5 } else { OPERATIONS });
            let late = dice.pick(&[10, 300, 4_000, 20_000]);
            let how = dice.pick(&[
                Mishap::CrashBefore,
                Mishap::CrashAfter,
                Mishap::LoseRequest,
                Mishap::LoseReply,
                Mishap::Delay(late),
                Mishap::Repeat(late),
            ]);
            Fault::Operation { class, nth, how }
        }
        61..=78 => {
            let how = dice.pick(&[Trouble::Killed, Trouble::Stopped, Trouble::Held, Trouble::CutOff]);
            let node = dice.between(0, nodes as u64 - 1) as usize;
            Fault::Node { node, at, span: dice.between(100, 25_000), how }
        }
        79..=85 => {
            let slow = dice.pick(&[None, Some(50), Some(900)]);
            Fault::Store { at, span: dice.between(100, 12_000), slow }
        }
        86..=95 => {
            let how = dice.pick(&[
                Outage::Unreachable,
                Outage::Overloaded,
                Outage::Limited,
                Outage::BrokenStreams,
                Outage::Slow,
            ]);
            Fault::Upstream { at, span: dice.between(1_000, 30_000), how }
        }
        _ => Fault::Clock { at, by: dice.pick(&[-120_000, -3_000, 3_000, 120_000]) },
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { class, nth, how } => write!(f, "{class:?} {nth}: {how:?}"),
            Self::Node { node, at, span, how } => write!(f, "{at} ms: node {node} {how:?} for {span} ms"),
            Self::Store { at, span, slow: None } => write!(f, "{at} ms: the store is away for {span} ms"),
            Self::Store { at, span, slow: Some(by) } => {
                write!(f, "{at} ms: the store takes {by} ms longer for {span} ms")
            }
            Self::Upstream { at, span, how } => write!(f, "{at} ms: the provider is {how:?} for {span} ms"),
            Self::Clock { at, by } => write!(f, "{at} ms: the store's clock jumps by {by} ms"),
        }
    }
}
