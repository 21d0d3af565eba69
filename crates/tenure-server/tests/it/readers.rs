//! Readers that are cut anywhere and come back (promise P19): no gap, no repeat, and never a text
//! that is glued together, whatever happens to workers and servers meanwhile.

use crate::hand::{self, Hand};
use crate::house::{Frame, Frames, House};
use crate::node::{Attempt, Node};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_api::node::PreviewFrame;
use tenure_core::*;
use tenure_store::memory::Memory;
use tenure_store::{Store, Then};

/// A repeatable run of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What each attempt would say in full, by the id of its message.
type Truth = BTreeMap<String, String>;

/// A client that keeps what it has seen, as clients do.
struct Reader {
    stream: Option<Frames>,
    last_id: Option<String>,
    rows: Vec<Value>,
    /// Texts on the screen that are not history yet.
    open: Truth,
}

impl Reader {
    fn new() -> Self {
        Self { stream: None, last_id: None, rows: Vec::new(), open: Truth::new() }
    }

    /// Another reader that has seen the same, and has no connection.
    fn screen(&self) -> Self {
        Self { stream: None, last_id: self.last_id.clone(), rows: self.rows.clone(), open: self.open.clone() }
    }

    fn cut(&mut self) {
        self.stream = None;
    }

    async fn next(&mut self, house: &House, session: &str, truth: &Truth) {
        if self.stream.is_none() {
            let header = self.last_id.clone().unwrap_or_else(|| "0".into());
            let query = "?event_deltas[]=agent.message";
            self.stream = Some(house.stream(session, query, &[("last-event-id", &header)]).await);
        }
        match self.stream.as_mut().expect("it was just opened").next().await {
            Some(frame) => self.take(frame, truth),
            // The server stopped.
            None => self.stream = None,
        }
    }

    fn take(&mut self, frame: Frame, truth: &Truth) {
        if frame.id.is_some() {
            self.last_id.clone_from(&frame.id);
        }
        match frame.event.as_str() {
            "event_start" => {
                let id = frame.data["event"]["id"].as_str().unwrap();
                assert_eq!(self.open.insert(id.to_owned(), String::new()), None, "begun twice without a reset");
                return;
            }
            "event_delta" => {
                let id = frame.data["event_id"].as_str().unwrap();
                let text = self.open.get_mut(id).expect("a delta of a message that is not on the screen");
                text.push_str(frame.data["delta"]["content"]["text"].as_str().unwrap());
                assert!(truth[id].starts_with(text.as_str()), "glued: {text:?}, and it is {:?}", truth[id]);
                return;
            }
            "session.preview_reset" => {
                assert!(!self.open.is_empty(), "nothing on the screen is taken back");
                return self.open.clear();
            }
            "agent.message" => drop(self.open.remove(frame.data["id"].as_str().unwrap())),
            "span.model_request_end" if frame.data["is_error"] == true => {
                self.open.clear();
                let usage = frame.data["model_usage"].as_object().unwrap();
                assert!(usage.values().all(|count| count == 0), "{usage:?}");
            }
            "session.status_idle" => assert_eq!(self.open, Truth::new(), "a text is left on the screen"),
            _ => {}
        }
        if let Some(seq) = frame.data["seq"].as_u64() {
            assert_eq!(seq, self.seq() + 1, "no gap and no repeat");
            assert_eq!(frame.id, Some(seq.to_string()));
            self.rows.push(frame.data);
        } else {
            assert_eq!(frame.id, None, "queued copies have no id (hazard Z-27)");
        }
    }

    fn seq(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Reads until it has a row, or for so many frames.
    async fn read_rows(&mut self, run: &Run, seq: u64, most: u64) {
        for _ in 0..most {
            if self.seq() >= seq {
                return;
            }
            self.next(&run.house, &run.session, &run.truth).await;
        }
    }

    /// Reads until it has all that was told of the open message, or for so many frames.
    async fn read_text(&mut self, run: &Run, most: u64) {
        let Some(attempt) = &run.attempt else { return };
        let id = attempt.block.to_string();
        for _ in 0..most {
            if self.open.get(&id) == Some(&run.said) {
                return;
            }
            self.next(&run.house, &run.session, &run.truth).await;
        }
    }
}

/// One session and those who work on it.
struct Run {
    store: Arc<dyn Store>,
    house: House,
    session: String,
    node: Option<Node>,
    hand: Hand,
    span: Option<Event>,
    attempt: Option<Attempt>,
    number: u32,
    /// What was told of the open message, and as which frames.
    said: String,
    told: Vec<PreviewFrame>,
    truth: Truth,
}

impl Run {
    async fn begin() -> Self {
        let memory: Arc<dyn Store> = Arc::new(Memory::new());
        let house = House::over(memory.clone(), |_| {});
        let session = house.session().await;
        let node = Node::start(&house).await;
        house.say(&session, "hi").await;
        let mut hand = Hand::claim_as(&house, node.id).await;
        hand.take_inputs().await;
        Self {
            store: memory,
            house,
            session,
            node: Some(node),
            hand,
            span: None,
            attempt: None,
            number: 0,
            said: String::new(),
            told: Vec::new(),
            truth: Truth::new(),
        }
    }

    fn tell(&mut self, frame: PreviewFrame) {
        self.node.as_ref().expect("a worker lives").tell(&frame);
        self.told.push(frame);
    }

    async fn open(&mut self) {
        if self.span.is_some() {
            return;
        }
        self.number += 1;
        self.span = Some(self.hand.begin(self.number).await);
        let mut attempt = Attempt::of(&self.hand, self.number);
        let id = attempt.block.to_string();
        self.truth.insert(id.clone(), format!("Ansätze, äußerst übel: attempt {} says {id} 🦀 and ends.", self.number));
        (self.said, self.told) = (String::new(), Vec::new());
        let start = attempt.start();
        self.attempt = Some(attempt);
        self.tell(start);
    }

    /// Tells the next piece of the open message.
    fn say(&mut self, dice: &mut Dice) {
        let Some(mut attempt) = self.attempt.take() else { return };
        let rest: String = self.truth[&attempt.block.to_string()].chars().skip(self.said.chars().count()).collect();
        let piece: String = rest.chars().take(dice.below(9) as usize).collect();
        if !piece.is_empty() {
            self.said.push_str(&piece);
            let delta = attempt.delta(&piece);
            self.tell(delta);
        }
        self.attempt = Some(attempt);
    }

    async fn fail(&mut self) {
        let (Some(span), Some(attempt)) = (self.span.take(), self.attempt.take()) else { return };
        let end = self.hand.end(&span, true);
        self.hand.commit(vec![end], Then::Keep).await;
        self.tell(attempt.end());
    }

    async fn answer(&mut self) {
        let (Some(span), Some(attempt)) = (self.span.take(), self.attempt.take()) else { return };
        let text = self.truth[&attempt.block.to_string()].clone();
        let message = Body::AgentMessage { text, origin: Origin::default() };
        let message = Draft { id: Some(attempt.block), step: span.step, body: message };
        let end = self.hand.end(&span, false);
        self.hand.commit(vec![message, end, Draft::new(Body::StatusIdle { stop: Stop::EndTurn })], Then::Keep).await;
        self.tell(attempt.end());
        self.number = 0;
        self.house.say(&self.session, "more").await;
        self.hand.commit(vec![], Then::Keep).await;
        self.hand.take_inputs().await;
    }

    /// The worker is killed; another one takes over and closes what it left open.
    async fn kill_worker(&mut self) {
        self.node.take().expect("a worker lives").kill(&self.house).await;
        self.attempt = None;
        let node = Node::start(&self.house).await;
        self.hand = Hand::claim_as(&self.house, node.id).await;
        self.node = Some(node);
        if let Some(span) = self.span.take() {
            let end = self.hand.end(&span, true);
            self.hand.commit(vec![end], Then::Keep).await;
        }
    }

    /// The server is replaced; the worker tells the new one everything again.
    async fn restart_server(&mut self) {
        self.house.stop.cancel();
        self.house = House::over(self.store.clone(), |_| {});
        let node = self.node.as_mut().expect("a worker lives");
        node.wait_for_link().await;
        if self.attempt.is_some() {
            self.told.iter().for_each(|frame| node.tell(frame));
        }
    }

    async fn list(&self) -> Vec<Value> {
        let list = self.house.get(&format!("/v1/sessions/{}/events?limit=1000", self.session)).await.ok();
        list["data"].as_array().unwrap().iter().filter(|event| !event["seq"].is_null()).cloned().collect()
    }
}

/// Plays a run with three readers that come and go.
async fn play(seed: u64, steps: usize) {
    let (mut dice, mut run) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), Run::begin().await);
    let mut readers: Vec<Reader> = (0..3).map(|_| Reader::new()).collect();
    for _ in 0..steps {
        match dice.below(24) {
            0..6 => run.open().await,
            6..18 => run.say(&mut dice),
            18..20 => run.fail().await,
            20..22 => run.answer().await,
            22 => run.kill_worker().await,
            _ => run.restart_server().await,
        }
        for reader in &mut readers {
            match dice.below(8) {
                0..2 => reader.cut(),
                2..4 => reader.read_rows(&run, run.hand.head.last_seq, dice.below(6)).await,
                4..6 => reader.read_text(&run, dice.below(6)).await,
                6 => {
                    reader.read_rows(&run, run.hand.head.last_seq, u64::MAX).await;
                    reader.read_text(&run, u64::MAX).await;
                }
                _ => {}
            }
        }
    }
    run.open().await;
    run.answer().await;
    let list = run.list().await;
    assert_eq!(list.len() as u64, run.hand.head.last_seq);
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.read_rows(&run, run.hand.head.last_seq, u64::MAX).await;
        assert_eq!(reader.rows, list, "reader {number} of seed {seed}");
        assert_eq!(reader.open, Truth::new(), "reader {number} of seed {seed}");
    }
}

#[tokio::test]
async fn p19_any_cut_of_any_reader_leaves_no_gap_no_repeat_and_nothing_glued() {
    for seed in 1..=12 {
        play(seed, 40).await;
    }
}

#[tokio::test]
async fn p19_every_single_cut_point_of_a_whole_stream_continues_to_the_same_log() {
    let mut run = Run::begin().await;
    let mut dice = Dice(7);
    let (mut whole, mut cuts) = (Reader::new(), vec![Reader::new()]);
    for round in 0..3 {
        run.open().await;
        for _ in 0..4 {
            run.say(&mut dice);
            // One frame at a time: each of them is a place to be cut at.
            while whole.seq() < run.hand.head.last_seq || whole.open.values().all(|text| *text != run.said) {
                whole.next(&run.house, &run.session, &run.truth).await;
                cuts.push(whole.screen());
            }
        }
        if round == 1 { run.fail().await } else { run.answer().await }
    }
    let (list, last) = (run.list().await, run.hand.head.last_seq);
    let is_inside = |cut: &&Reader| cut.last_id.as_ref().is_some_and(|id| id.contains('.'));
    assert!(cuts.iter().filter(is_inside).count() > 5, "some are inside of messages");
    for mut reader in cuts {
        let cut = reader.last_id.clone();
        reader.read_rows(&run, last, u64::MAX).await;
        assert_eq!(reader.rows, list, "after {cut:?}");
        assert_eq!(reader.open, Truth::new(), "after {cut:?}");
    }
}

#[tokio::test]
async fn z_48_the_text_of_a_killed_worker_is_visibly_taken_back() {
    let mut run = Run::begin().await;
    let mut dice = Dice(3);
    let (mut stays, mut comes_back) = (Reader::new(), Reader::new());
    run.open().await;
    while run.said.is_empty() {
        run.say(&mut dice);
    }
    for reader in [&mut stays, &mut comes_back] {
        reader.read_rows(&run, run.hand.head.last_seq, u64::MAX).await;
        reader.read_text(&run, u64::MAX).await;
        assert_eq!(reader.open.values().next(), Some(&run.said));
    }
    comes_back.cut();
    run.kill_worker().await;
    run.open().await;
    for reader in [&mut stays, &mut comes_back] {
        reader.read_rows(&run, run.hand.head.last_seq, u64::MAX).await;
        assert!(reader.open.values().all(String::is_empty), "{:?}", reader.open);
        let end = reader.rows.iter().rev().find(|row| row["type"] == "span.model_request_end").unwrap();
        assert_eq!(end["is_error"], true);
    }
    assert_eq!(run.truth.len(), 2, "the next attempt has an id of its own");
}

#[tokio::test]
async fn many_readers_of_one_message_see_the_same() {
    let mut run = Run::begin().await;
    let mut dice = Dice(11);
    let mut readers: Vec<Reader> = (0..200).map(|_| Reader::new()).collect();
    run.open().await;
    for _ in 0..10 {
        run.say(&mut dice);
    }
    for reader in &mut readers {
        reader.read_text(&run, 3).await;
    }
    for _ in 0..10 {
        run.say(&mut dice);
    }
    for reader in &mut readers {
        reader.read_text(&run, u64::MAX).await;
    }
    run.answer().await;
    let list = run.list().await;
    for reader in &mut readers {
        reader.read_rows(&run, run.hand.head.last_seq, u64::MAX).await;
        assert_eq!(reader.rows, list);
    }
}

#[tokio::test]
async fn a_reader_whose_worker_cannot_be_reached_gets_every_row_and_explain_says_so() {
    for house in [House::new(), House::sqlite()] {
        let session = house.session().await;
        house.say(&session, "hi").await;
        // Nobody listens there.
        let node = hand::node(&house, "127.0.0.1:1").await;
        let mut hand = Hand::claim_as(&house, node).await;
        let mut stream = house.stream(&session, "?after=0&event_deltas[]=agent.message", &[]).await;
        hand.take_inputs().await;
        let span = hand.begin(1).await;
        let explain = explained(&house, &session, |text| text.contains("127.0.0.1:1 cannot be reached")).await;
        assert_eq!(explain["holds_worker"], true);
        hand.answer(&span, EventId::from_bits(hand::next()), "hello").await;
        let frames = stream.until("session.status_idle").await;
        let ids: Vec<u64> = frames.iter().filter_map(|frame| frame.id.as_ref()?.parse().ok()).collect();
        assert_eq!(ids, (1..=6).collect::<Vec<_>>());
        let explain = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
        assert!(!explain["text"].as_str().unwrap().contains("previews"), "{explain}");
    }
}

/// Asks until the server has noticed what is wrong with its way to the worker.
async fn explained(house: &House, session: &str, is_there: impl Fn(&str) -> bool) -> Value {
    let asked = async {
        loop {
            let explain = house.get(&format!("/v1/sessions/{session}/explain")).await.ok();
            if is_there(explain["text"].as_str().unwrap()) {
                return explain;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::house::PATIENCE, asked).await.expect("explained in time")
}

#[tokio::test]
async fn a_node_that_does_not_know_the_server_tells_it_nothing_and_explain_says_so() {
    let memory = Arc::new(Memory::new());
    let house = House::over(memory, |config| config.node_key = "key-of-another-installation".into());
    let session = house.session().await;
    house.say(&session, "hi").await;
    let node = Node::start_unreached(&house).await;
    Hand::claim_as(&house, node.id).await.take_inputs().await;
    explained(&house, &session, |text| text.contains("does not take the node key")).await;
}

#[tokio::test]
async fn a_link_that_breaks_is_made_again_and_explain_forgets_it() {
    let mut run = Run::begin().await;
    run.open().await;
    run.node.as_mut().unwrap().break_link().await;
    explained(&run.house, &run.session, |text| !text.contains("previews")).await;
}
