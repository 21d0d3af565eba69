//! What happens when a conversation becomes too long: whether the next request is sent as it is, what
//! it may use, and which part of the log is summarised first.
//!
//! ```text
//!            fits ──▶ Send
//! plan ──┬── too many bytes ──▶ Record (images and documents are named instead of shown) ──▶ plan
//!        ├── too many tokens ─▶ Summarise ─▶ compaction ─▶ smaller? ─ yes ─▶ Record ─▶ plan
//!        │                                                        └─ no ──▶ futile: park, or send if it fits
//!        └── no room in the budget ──▶ Record (the session waits)
//! ```
//! The log keeps everything; a compaction is a row that says which part of it the model sees. No
//! request is sent again unchanged after the provider refused it as too large, and at most
//! [`MAX_COMPACTIONS`] are begun before an answer comes (case O-019).

use crate::agent::{CompactionMode, Policies};
use crate::answer::{Answer, BlockKind};
use crate::budget::{Estimate, Price};
use crate::event::{Block, Body, Compacted, Draft, Event, Measured, Purpose, Sent, Stop, Summary};
use crate::failure::Class;
use crate::id::EventId;
use crate::next::budget_wait;
use crate::session::{Session, TooLarge};
use crate::size::{Learnt, ModelFacts, Size, limit_in_words};
use crate::time::Timestamp;
use crate::transcript::{Message, Prompt, UserPart, transcript};
use crate::usage::Usage;
use crate::wait::{Wait, WaitKind};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Compactions that may be begun before an answer comes; the second one keeps no row as it is.
pub const MAX_COMPACTIONS: u32 = 2;

/// A compaction that leaves more than this share of the tokens, in percent, did not help.
const MOST_LEFT_PERCENT: u64 = 90;

/// Growth, in percent, after which a compaction that did not help is tried again.
const GROWTH_PERCENT: u64 = 110;

/// Share of the room at which a conversation is summarised before the provider refuses it, in percent.
const TRIGGER_PERCENT: u64 = 80;

/// Share of the room that stays as it is, in percent.
const KEEP_PERCENT: u64 = 20;

/// Share of the room that a request for a summary may fill, in percent; the estimate may be wrong.
const SUMMARY_ROOM_PERCENT: u64 = 90;

/// Most output tokens of a summary.
const MAX_SUMMARY_TOKENS: u32 = 8_192;

/// Most bytes of a summary that are kept.
const MAX_SUMMARY_BYTES: usize = 128 * 1_024;

/// Most bytes of the operator's instructions that stay word for word; the newest ones.
const MAX_INSTRUCTION_BYTES: usize = 32 * 1_024;

/// Most bytes of the user's newest message that stay word for word.
const MAX_REQUEST_BYTES: usize = 16 * 1_024;

/// Bytes to which the parts of a request for a summary are cut, one after the other until it fits.
const PART_BYTES: [usize; 4] = [16 * 1_024, 4 * 1_024, 1_024, 256];

/// What asks for the summary.
const ASK: &str = "Stop here for a moment. This conversation has become long, so everything above will be replaced by the \
summary that you write now, and you go on with your work from it. Write down what you need for that: what the user wants, \
with every condition; what was decided and why; what was done and what came of it, with exact names of files, commands, ids, \
numbers and addresses; what failed; what is open; and the next step. Copy texts in double braces such as {{callback:...}} \
exactly. Do not go on with the work and do not call tools: answer with the summary alone.";

/// Stands where an earlier part of a request for a summary was left out to make it fit.
const EARLIER: &str = "[the earliest part of the conversation does not fit and is left out]";

/// A request that could be sent now.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What would be sent.
    pub prompt: &'a Prompt,
    /// Its input tokens as the model itself counts them, if it can.
    pub counted: Option<u64>,
    /// What is known about the model.
    pub facts: ModelFacts,
    /// What it costs, if that is known.
    pub price: Option<&'a Price>,
}

/// What to do instead of, or before, sending a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Send it.
    Send(Sent),
    /// Ask for a summary of the rows before `keep_from` first.
    Summarise {
        /// The first row that stays as it is.
        keep_from: u64,
        /// Most input tokens of the request for the summary.
        room: u64,
        /// Estimated input tokens of the whole context.
        before: u64,
    },
    /// Append these, then ask again.
    Record(Vec<Draft>),
}

/// Whether a request that is too large is followed by a smaller one.
pub(crate) fn may_compact(session: &Session, policies: &Policies) -> bool {
    policies.compaction.mode == CompactionMode::Auto && session.compaction.tries < MAX_COMPACTIONS
}

/// What a refusal says about how much fits, in tokens as we estimate them.
pub(crate) fn learnt_window(message: &str, input_tokens: u64) -> u64 {
    // Without a number in it: less than was sent.
    let less = input_tokens.saturating_sub(1);
    match limit_in_words(message) {
        Some(limit) if limit < less || less == 0 => limit,
        // We counted fewer tokens than the provider did.
        Some(_) | None => less,
    }
}

/// Says what to do about the request that is due. `rows` are those that the model sees, in order.
pub fn plan(session: &Session, policies: &Policies, request: &Request<'_>, rows: &[&Event], now: Timestamp) -> Plan {
    let learnt = session.learnt.of(&request.prompt.model);
    let size = Size::of_prompt(request.prompt);
    let input_tokens = learnt.input_tokens(size, request.counted);
    let state = State { session, policies, request, rows, learnt, size, input_tokens, now };
    state.shrink().unwrap_or_else(|| match state.reserve(Purpose::Answer) {
        Ok(sent) => Plan::Send(sent),
        Err(drafts) => Plan::Record(drafts),
    })
}

/// What a request for a summary will use.
///
/// # Errors
/// The events by which the session waits, if its budget has no room for that.
pub fn reserve_summary(
    session: &Session,
    request: &Request<'_>,
    purpose: Purpose,
    now: Timestamp,
) -> Result<Sent, Vec<Draft>> {
    let learnt = session.learnt.of(&request.prompt.model);
    let size = Size::of_prompt(request.prompt);
    let input_tokens = learnt.input_tokens(size, request.counted);
    let policies = &Policies::default();
    State { session, policies, request, rows: &[], learnt, size, input_tokens, now }.reserve(purpose)
}

struct State<'a> {
    session: &'a Session,
    policies: &'a Policies,
    request: &'a Request<'a>,
    rows: &'a [&'a Event],
    learnt: Learnt,
    size: Size,
    input_tokens: u64,
    now: Timestamp,
}

impl State<'_> {
    /// The request as it is, if the budget has room for what it will probably use.
    fn reserve(&self, purpose: Purpose) -> Result<Sent, Vec<Draft>> {
        let last = self.learnt.usage;
        let more = self.input_tokens.saturating_sub(last.all_input());
        // What was cached stays cached; what is new is not.
        let input = if self.input_tokens >= last.all_input() {
            Usage { input: last.input.saturating_add(more), ..last }
        } else {
            Usage { input: self.input_tokens, output: last.output, ..Usage::default() }
        };
        let usage = Usage { output: last.output.min(u64::from(self.request.prompt.max_output_tokens)), ..input };
        let reserved = Estimate {
            tokens: usage.total(),
            cost_usd_micros: self.request.price.map(|price| price.cost_usd_micros(usage)),
        };
        match self.session.budget.short_of(reserved) {
            Some(which) => Err(budget_wait(which, self.now)),
            None => Ok(Sent { size: self.size, input_tokens: self.input_tokens, reserved, purpose }),
        }
    }

    /// Input tokens that fit beside the longest answer.
    fn room(&self) -> Option<u64> {
        let output = u64::from(self.request.prompt.max_output_tokens);
        self.learnt.window(self.request.facts).map(|window| window.saturating_sub(output).max(window / 2))
    }

    fn shrink(&self) -> Option<Plan> {
        let due = self.session.compaction.due;
        let is_on = self.policies.compaction.mode == CompactionMode::Auto;
        if !is_on {
            return None;
        }
        let max_bytes = self.learnt.max_bytes(self.request.facts);
        let is_too_large = due == Some(TooLarge::Bytes) || self.size.bytes() > max_bytes;
        if is_too_large && let Some(draft) = self.without_media(max_bytes) {
            return Some(Plan::Record(alloc::vec![draft]));
        }
        let room = self.room();
        let is_too_long = due == Some(TooLarge::Tokens) || room.is_some_and(|room| self.input_tokens > room);
        let must = is_too_large || is_too_long;
        if !must && !self.is_triggered(room) {
            return None;
        }
        let class = if is_too_large { Class::TooBig } else { Class::Overflow };
        let refused = due.is_some();
        if self.session.compaction.tries >= MAX_COMPACTIONS {
            // Not refused yet: the provider may judge otherwise than our estimate.
            let why = "it is still too large after it was summarised";
            return refused.then(|| Plan::Record(parked(class, why, self.now)));
        }
        let fixed = self.learnt.tokens(Size::of_fixed_part(self.request.prompt));
        if let Some(room) = room.filter(|room| must && fixed > *room) {
            let why = alloc::format!(
                "the instructions and tools of the agent alone need about {fixed} of {room} tokens, so no summary can help"
            );
            return Some(Plan::Record(parked(class, &why, self.now)));
        }
        let mut room = room.unwrap_or(self.input_tokens).min(self.input_tokens.max(1));
        if is_too_large {
            room = room.min(self.learnt.tokens(Size { text_bytes: max_bytes / 2, ..Size::default() }));
        }
        match self.cut(room) {
            Some(keep_from) => {
                let room = percent(room, SUMMARY_ROOM_PERCENT) >> self.session.compaction.tries;
                Some(Plan::Summarise { keep_from, room, before: self.input_tokens })
            }
            None => {
                let why = "there is nothing in it that could be summarised";
                refused.then(|| Plan::Record(parked(class, why, self.now)))
            }
        }
    }

    /// Whether it is worth to summarise before the provider refuses.
    fn is_triggered(&self, room: Option<u64>) -> bool {
        let trigger = match (self.policies.compaction.trigger_tokens, room) {
            (Some(trigger), Some(room)) => Some(trigger.min(room)),
            (trigger, room) => trigger.or(room.map(|room| percent(room, TRIGGER_PERCENT))),
        };
        let futile = self.session.compaction.futile_tokens;
        let has_grown = futile == 0 || self.input_tokens >= percent(futile, GROWTH_PERCENT);
        trigger.is_some_and(|trigger| self.input_tokens >= trigger) && has_grown
    }

    /// Leaves out the oldest images and documents, at least one.
    fn without_media(&self, max_bytes: u64) -> Option<Draft> {
        let shown = transcript(self.rows.iter().copied());
        let media: u64 = shown.iter().map(|message| Size::of_message(message).media).sum();
        if media == 0 {
            return None;
        }
        let room = (max_bytes / 2).saturating_sub(self.size.text_bytes);
        let (mut kept, mut media_from) = (0_u64, self.rows.last()?.seq.saturating_add(1));
        for row in self.rows.iter().rev() {
            let bytes = media_bytes(row);
            if bytes > 0 && kept.saturating_add(bytes) > room {
                break;
            }
            kept = kept.saturating_add(bytes);
            media_from = row.seq;
        }
        // Everything that is shown would fit by this count, and yet it is too large: leave out the oldest one.
        let shown_from = media_shown_from(self.rows).max(self.session.context_from_seq);
        let oldest = self.rows.iter().find(|row| media_bytes(row) > 0 && row.seq >= shown_from)?;
        let media_from = media_from.max(oldest.seq.saturating_add(1));
        let compacted = Compacted {
            from: self.session.context_from_seq,
            keep_from: self.session.context_from_seq,
            media_from,
            summary: None,
            before: Measured { tokens: self.input_tokens, bytes: self.size.bytes() },
            after: Measured::default(),
        };
        let after = self.measured(&compacted);
        Some(Draft::new(Body::ContextCompacted { compacted: Compacted { after, ..compacted } }))
    }

    fn measured(&self, compacted: &Compacted) -> Measured {
        let messages = after(self.rows, compacted);
        let size = messages.iter().map(Size::of_message).fold(Size::of_fixed_part(self.request.prompt), Size::plus);
        Measured { tokens: self.learnt.input_tokens(size, None), bytes: size.bytes() }
    }

    /// The first row that stays as it is.
    fn cut(&self, room: u64) -> Option<u64> {
        let keep = if self.session.compaction.tries > 0 {
            0
        } else {
            self.policies.compaction.keep_tokens.unwrap_or(percent(room, KEEP_PERCENT))
        };
        cut(self.rows, &|size| self.learnt.tokens(size), keep)
    }
}

/// The events of a summary that came: the compaction, if it helped.
///
/// # Errors
/// The compaction as it was measured, if it did not help.
pub fn compaction(
    session: &Session,
    prompt: &Prompt,
    rows: &[&Event],
    keep_from: u64,
    summary: Summary,
    before: u64,
) -> Result<Draft, Measured> {
    let learnt = session.learnt.of(&prompt.model);
    let compacted = Compacted {
        from: session.context_from_seq,
        keep_from,
        media_from: 0,
        summary: Some(summary),
        before: Measured { tokens: before, bytes: Size::of_prompt(prompt).bytes() },
        after: Measured::default(),
    };
    let messages = after(rows, &compacted);
    let size = messages.iter().map(Size::of_message).fold(Size::of_fixed_part(prompt), Size::plus);
    // By rate on both sides: a sum that grew from what the provider counted is no measure for this one.
    let after = Measured { tokens: learnt.tokens(size), bytes: size.bytes() };
    let was = learnt.tokens(Size::of_prompt(prompt));
    if after.tokens > percent(was, MOST_LEFT_PERCENT) {
        return Err(Measured { tokens: after.tokens, bytes: size.bytes() });
    }
    Ok(Draft::of_step(session.last_step, Body::ContextCompacted { compacted: Compacted { after, ..compacted } }))
}

/// The events of a summary that made nothing smaller: the session parks if the provider refused the
/// context or cannot hold it, and goes on with all of it otherwise.
pub fn futile(session: &Session, before: u64, after: Measured, now: Timestamp) -> Vec<Draft> {
    let why = alloc::format!("a summary did not help: about {before} tokens before it, {} after it", after.tokens);
    let class = match session.compaction.due {
        Some(TooLarge::Bytes) => Class::TooBig,
        Some(TooLarge::Tokens) | None => Class::Overflow,
    };
    match session.compaction.due {
        Some(_) => parked(class, &why, now),
        None => alloc::vec![told(class, &why)],
    }
}

fn told(class: Class, why: &str) -> Draft {
    let message = alloc::format!("the conversation cannot be made smaller: {why}");
    Draft::new(Body::Error { class, message, retrying: false, request_id: None, limit: None })
}

fn parked(class: Class, why: &str, now: Timestamp) -> Vec<Draft> {
    let wait = Wait { kind: WaitKind::Upstream { class }, since: now, until: None, calls: Vec::new() };
    alloc::vec![
        told(class, why),
        Draft::new(Body::WaitStarted { wait }),
        Draft::new(Body::StatusIdle { stop: Stop::RetriesExhausted }),
    ]
}

/// What the model would see after a compaction.
fn after(rows: &[&Event], compacted: &Compacted) -> Vec<Message> {
    let seq = rows.last().map_or(1, |row| row.seq.saturating_add(1));
    let body = Body::ContextCompacted { compacted: compacted.clone() };
    let row = Event { id: EventId::from_bits(0), seq, at: Timestamp(0), step: 0, body };
    transcript(rows.iter().copied().chain(core::iter::once(&row)))
}

/// The rows that a summary stands for: what it keeps word for word, and the text.
pub fn summary_of(rows: &[&Event], keep_from: u64, answer: &Answer) -> Option<Summary> {
    let texts: Vec<&str> = answer
        .blocks
        .iter()
        .filter_map(|block| match &block.kind {
            BlockKind::Text { text } => Some(text.trim()),
            BlockKind::Thinking { .. } | BlockKind::ToolUse { .. } => None,
        })
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        return None;
    }
    let earlier = rows.iter().rev().find_map(|row| match &row.body {
        Body::ContextCompacted { compacted } => compacted.summary.as_ref(),
        _ => None,
    });
    let (mut instructions, mut request) = match earlier {
        Some(earlier) => (earlier.instructions.clone(), earlier.request.clone()),
        None => (Vec::new(), Vec::new()),
    };
    for row in rows {
        match &row.body {
            Body::SystemMessage { content } if row.seq < keep_from => instructions.extend(content.iter().map(as_text)),
            Body::UserMessage { content } if row.seq < keep_from => request = content.iter().map(as_text).collect(),
            // The newest message is among the rows that are kept.
            Body::UserMessage { .. } => request = Vec::new(),
            _ => {}
        }
    }
    let text = shortened(&texts.join("\n\n"), MAX_SUMMARY_BYTES);
    Some(Summary {
        text,
        instructions: newest(instructions, MAX_INSTRUCTION_BYTES),
        request: newest(request, MAX_REQUEST_BYTES),
    })
}

/// Media are in the log; the summary says what was in them.
fn as_text(block: &Block) -> Block {
    match block {
        Block::Text(text) => Block::Text(text.clone()),
        Block::Media { .. } => Block::Text(String::from("[an attachment, kept in the log]")),
    }
}

/// The newest texts that fit, the first of them shortened.
fn newest(blocks: Vec<Block>, max_bytes: usize) -> Vec<Block> {
    let mut room = max_bytes;
    let mut kept: Vec<Block> = Vec::new();
    for block in blocks.into_iter().rev() {
        let Block::Text(text) = block else { continue };
        if room == 0 {
            break;
        }
        let text = shortened(&text, room);
        room = room.saturating_sub(text.len());
        kept.push(Block::Text(text));
    }
    kept.reverse();
    kept
}

/// The request for a summary of the rows before `keep_from`: the conversation up to there, as it is
/// sent otherwise, so that the provider's cache knows it; then what asks for the summary. Long parts
/// are shortened, and the oldest messages left out, as far as it does not fit into `room` tokens.
pub fn summary_prompt(session: &Session, base: &Prompt, rows: &[&Event], keep_from: u64, room: u64) -> Prompt {
    let learnt = session.learnt.of(&base.model);
    let shown: Vec<Event> = rows.iter().filter(|row| row.seq < keep_from).map(|row| (*row).clone()).collect();
    let mut messages = transcript(&shown);
    let ask = UserPart::Block(Block::Text(String::from(ASK)));
    let fits = |messages: &[Message]| {
        let fixed = Size::of_fixed_part(base).plus(Size::of_user_part(&ask));
        learnt.tokens(messages.iter().map(Size::of_message).fold(fixed, Size::plus)) <= room
    };
    for max_bytes in PART_BYTES {
        if fits(&messages) {
            break;
        }
        messages.iter_mut().for_each(|message| shorten_parts(message, max_bytes));
    }
    while messages.len() > 1 && !fits(&messages) {
        leave_out_first(&mut messages);
    }
    match messages.last_mut() {
        Some(Message::User(parts)) => parts.push(ask),
        Some(Message::Assistant(_)) | None => messages.push(Message::User(alloc::vec![ask])),
    }
    let max_output_tokens = base.max_output_tokens.min(MAX_SUMMARY_TOKENS);
    Prompt { messages, max_output_tokens, ..base.clone() }
}

/// Drops the first exchange. What answers it in the next message goes too.
fn leave_out_first(messages: &mut Vec<Message>) {
    let exchange = messages.len().min(2);
    messages.drain(..exchange);
    if let Some(Message::User(parts)) = messages.first_mut() {
        parts.retain(|part| !matches!(part, UserPart::Result { .. }));
        let is_told = matches!(parts.first(), Some(UserPart::Block(Block::Text(text))) if text == EARLIER);
        if !is_told {
            parts.insert(0, UserPart::Block(Block::Text(String::from(EARLIER))));
        }
    }
}

fn shorten_parts(message: &mut Message, max_bytes: usize) {
    let Message::User(parts) = message else { return };
    let shorten = |block: &mut Block| match block {
        Block::Text(text) if text.len() > max_bytes => *text = shortened(text, max_bytes),
        Block::Text(_) => {}
        Block::Media { .. } => *block = as_text(block),
    };
    for part in parts {
        match part {
            UserPart::Block(block) => shorten(block),
            UserPart::Result { content, .. } => content.iter_mut().for_each(shorten),
        }
    }
}

/// The head and the tail of a text, with what is missing said between them.
fn shortened(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_string();
    }
    let half = max_bytes / 2;
    let head = (0..=half).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let tail = (text.len() - half..=text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(text.len());
    alloc::format!("{}\n[{} bytes left out]\n{}", &text[..head], tail - head, &text[tail..])
}

/// The `seq` from which rows stay as they are: the earliest place that keeps no more than `keep`
/// tokens and splits neither an answer nor a call from its result (case O-026). `None` if nothing
/// worth it would be left out.
fn cut(rows: &[&Event], tokens: &dyn Fn(Size) -> u64, keep: u64) -> Option<u64> {
    // An earlier summary is replaced in any case.
    let shown = |row: &&Event| match row.body {
        Body::ContextCompacted { .. } => Size::default(),
        _ => size_of_row(row),
    };
    let sizes: Vec<Size> = rows.iter().map(shown).collect();
    let whole = sizes.iter().copied().fold(Size::default(), Size::plus);
    let mut rest: Vec<Size> = alloc::vec![Size::default(); rows.len() + 1];
    for place in (0..rows.len()).rev() {
        rest[place] = rest[place + 1].plus(sizes[place]);
    }
    let (mut open, mut step): (Vec<EventId>, Option<u64>) = (Vec::new(), None);
    let mut found = None;
    for place in 0..=rows.len() {
        let row = rows.get(place);
        let splits_answer = row.is_some_and(|row| is_answer(&row.body) && step == Some(row.step));
        let is_safe = open.is_empty() && !splits_answer;
        if is_safe && found.is_none() && tokens(rest[place]) <= keep {
            found = Some(place);
        }
        let Some(row) = row else { break };
        match &row.body {
            Body::AgentToolUse { .. } | Body::AgentCustomToolUse { .. } => open.push(row.id),
            _ => open.retain(|call| row.body.answers() != Some(*call) || is_confirmation(&row.body)),
        }
        step = if is_answer(&row.body) {
            Some(row.step)
        } else if sizes[place] == Size::default() {
            step
        } else {
            None
        };
    }
    let place = found?;
    let left_out = tokens(whole).saturating_sub(tokens(rest[place]));
    // A message that stands alone is no conversation: its summary would be a summary of itself.
    let has_answer = rows[..place].iter().any(|row| is_answer(&row.body));
    if !has_answer || left_out < tokens(whole) - percent(tokens(whole), MOST_LEFT_PERCENT) {
        return None;
    }
    Some(rows.get(place).map_or_else(|| rows.last().map_or(1, |row| row.seq.saturating_add(1)), |row| row.seq))
}

fn is_answer(body: &Body) -> bool {
    matches!(
        body,
        Body::AgentMessage { .. }
            | Body::AgentThinking { .. }
            | Body::AgentToolUse { .. }
            | Body::AgentCustomToolUse { .. }
    )
}

fn is_confirmation(body: &Body) -> bool {
    matches!(body, Body::UserToolConfirmation { .. })
}

/// What a row adds to the request; nothing for rows that the model does not see.
fn size_of_row(row: &Event) -> Size {
    transcript(core::iter::once(row)).iter().map(Size::of_message).fold(result_size(row), Size::plus)
}

/// A result alone is part of no conversation, so [`transcript`] leaves it out.
fn result_size(row: &Event) -> Size {
    let content = match &row.body {
        Body::AgentToolResult { content, .. } | Body::UserCustomToolResult { content, .. } => content,
        _ => return Size::default(),
    };
    let part = UserPart::Result { call: row.id, content: content.clone(), is_error: false };
    Size::of_user_part(&part)
}

fn media_bytes(row: &Event) -> u64 {
    let content = match &row.body {
        Body::UserMessage { content }
        | Body::SystemMessage { content }
        | Body::AgentToolResult { content, .. }
        | Body::UserCustomToolResult { content, .. } => content,
        _ => return 0,
    };
    let bytes = |block: &Block| match block {
        Block::Text(_) => 0,
        Block::Media { json, .. } => u64::try_from(json.as_str().len()).unwrap_or(u64::MAX),
    };
    content.iter().map(bytes).fold(0, u64::saturating_add)
}

/// The first row whose media are shown.
fn media_shown_from(rows: &[&Event]) -> u64 {
    let from = rows.iter().filter_map(|row| match &row.body {
        Body::ContextCompacted { compacted } => Some(compacted.media_from),
        _ => None,
    });
    from.max().unwrap_or(0)
}

fn percent(number: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}
