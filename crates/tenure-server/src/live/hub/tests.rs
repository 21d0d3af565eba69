use super::*;
use futures_util::FutureExt;

const SESSION: SessionId = SessionId::from_bits(1);
const BLOCK: EventId = EventId::from_bits(2);

fn frame(epoch: u64, attempt: u32, n: u64, kind: PreviewKind) -> PreviewFrame {
    PreviewFrame { session: SESSION, epoch, after_seq: 3, attempt, n, kind }
}

fn start() -> PreviewKind {
    PreviewKind::Start { event_id: BLOCK, event_type: "agent.message".into() }
}

fn delta(text: &str) -> PreviewKind {
    PreviewKind::Delta { event_id: BLOCK, text: text.into() }
}

/// All text that a reader gets now, cut by positions as streams do it.
fn text(reader: &mut PreviewReader) -> String {
    let (mut text, mut have) = (String::new(), 0);
    while let Some(frame) = reader.next().now_or_never() {
        if let PreviewKind::Delta { text: part, .. } = &frame.kind {
            text.push_str(new_part(part, frame.n, have));
        }
        have = have.max(frame.n);
    }
    text
}

#[test]
fn a_late_reader_gets_the_open_message_and_what_follows() {
    let hub = PreviewHub::default();
    hub.take(1, frame(1, 1, 1, start()));
    hub.take(1, frame(1, 1, 4, delta("Hel")));
    let mut reader = hub.read(SESSION);
    hub.take(1, frame(1, 1, 6, delta("lo")));
    assert_eq!(text(&mut reader), "Hello");
}

#[test]
fn a_node_that_tells_everything_again_repeats_nothing() {
    let hub = PreviewHub::default();
    let mut reader = hub.read(SESSION);
    hub.take(1, frame(1, 1, 1, start()));
    hub.take(1, frame(1, 1, 4, delta("Hel")));
    hub.forget(1);
    hub.take(2, frame(1, 1, 1, start()));
    hub.take(2, frame(1, 1, 6, delta("Hello")));
    assert_eq!(text(&mut reader), "Hello");
    assert_eq!(text(&mut hub.read(SESSION)), "Hello");
}

#[test]
fn z_26_a_node_that_lost_its_lease_is_not_heard() {
    let hub = PreviewHub::default();
    hub.take(2, frame(8, 1, 1, start()));
    hub.take(1, frame(7, 1, 1, start()));
    hub.take(1, frame(7, 1, 4, delta("old")));
    hub.take(2, frame(8, 1, 4, delta("new")));
    assert_eq!(text(&mut hub.read(SESSION)), "new");
}

#[test]
fn z_48_a_message_with_a_hole_in_it_is_not_given_to_late_readers_as_if_it_were_whole() {
    let hub = PreviewHub::default();
    hub.take(1, frame(1, 1, 1, start()));
    hub.take(1, frame(1, 1, 4, delta("Hel")));
    hub.take(1, frame(1, 1, 9, delta("rld")));
    assert_eq!(text(&mut hub.read(SESSION)), "");
    // The node tells everything again: it is whole.
    hub.forget(1);
    hub.take(2, frame(1, 1, 1, start()));
    hub.take(2, frame(1, 1, 12, delta("Hello world")));
    assert_eq!(text(&mut hub.read(SESSION)), "Hello world");
}

#[test]
fn o_059_a_reader_that_is_behind_starts_again_and_misses_nothing() {
    let hub = PreviewHub::default();
    let mut reader = hub.read(SESSION);
    hub.take(1, frame(1, 1, 1, start()));
    let count = BACKLOG * 3;
    for place in 0..count {
        hub.take(1, frame(1, 1, 2 + place as u64, delta("x")));
    }
    assert_eq!(text(&mut reader), "x".repeat(count));
}

#[test]
fn o_059_what_nobody_reads_any_more_is_forgotten() {
    let hub = PreviewHub::default();
    let reader = hub.read(SESSION);
    drop(reader);
    assert!(hub.lock().is_empty());
    hub.take(1, frame(1, 1, 1, start()));
    hub.take(1, frame(1, 1, 1, PreviewKind::End));
    assert!(hub.lock().is_empty());
    for place in 0..10u64 {
        hub.take(1, frame(1, 1, 1 + place * 1_000_000, delta(&"y".repeat(1_000_000))));
    }
    assert_eq!(hub.read(SESSION).caught_up.len(), 0, "a message that is larger than what is kept is not shown in part");
}

#[test]
fn positions_inside_a_character_send_it_again() {
    assert_eq!(new_part("aü", 3, 2), "ü");
    assert_eq!(new_part("aü", 3, 1), "ü");
    assert_eq!(new_part("aü", 3, 3), "");
    assert_eq!(new_part("aü", 3, 99), "");
    assert_eq!(new_part("aü", 9, 0), "aü");
}
