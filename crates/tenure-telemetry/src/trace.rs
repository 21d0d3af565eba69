//! Spans: what was done, from when to when, and as a part of what.

pub(crate) mod export;
mod otlp;
mod wire;

use crate::clock;
use crate::settings::Content;
use aws_lc_rs::digest::{SHA256, digest};
use export::Queue;
use std::fmt;
use std::time::Instant;

/// Most attributes of one span; more are left out and counted in the span.
pub const MAX_ATTRIBUTES: usize = 64;

/// Longest text of one attribute in bytes; a longer one is cut.
pub const MAX_ATTRIBUTE_BYTES: usize = 32 * 1024;

/// Names a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Names a span in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// Names a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Its trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

impl SpanContext {
    /// The root of the trace of something that has an identity of its own.
    ///
    /// Whoever knows the identity knows the trace, so that another process can link to it although
    /// nobody stored its id.
    pub fn of(identity: &[&[u8]]) -> Self {
        let mut named = b"tenure trace".to_vec();
        for part in identity {
            named.extend_from_slice(&(part.len() as u64).to_be_bytes());
            named.extend_from_slice(part);
        }
        let hash = digest(&SHA256, &named);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash.as_ref()[..16]);
        span.copy_from_slice(&hash.as_ref()[16..24]);
        Self { trace: TraceId(trace), span: SpanId(span) }
    }

    fn child(self) -> Self {
        // Zero means "no span".
        let bits = rand::random::<u64>().max(1);
        Self { span: SpanId(bits.to_be_bytes()), ..self }
    }
}

/// Which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the process.
    Internal,
    /// A call to somebody else.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A yes or no.
    Bool(bool),
    /// Several texts.
    Texts(Vec<String>),
}

impl Value {
    fn map(self, change: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Text(text) => Self::Text(change(text)),
            Self::Texts(texts) => Self::Texts(texts.into_iter().map(change).collect()),
            plain @ (Self::Int(_) | Self::Bool(_)) => plain,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Texts(texts) => texts.iter().map(String::len).sum(),
            Self::Int(_) | Self::Bool(_) => 8,
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Bool(is_so)
    }
}

/// A span that is over.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) context: SpanContext,
    pub(crate) parent: Option<SpanId>,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) start_nanos: u64,
    pub(crate) end_nanos: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) dropped_attributes: u32,
    pub(crate) links: Vec<SpanContext>,
    pub(crate) error: Option<String>,
}

impl Ended {
    /// Roughly what it holds in memory.
    pub(crate) fn size(&self) -> usize {
        /// What a span holds beside its texts.
        const PLAIN: usize = 256;
        let attributes: usize = self.attributes.iter().map(|(key, value)| key.len() + value.size() + 32).sum();
        PLAIN + self.name.len() + attributes + self.error.as_ref().map_or(0, String::len)
    }

    pub(crate) fn mask(mut self, mask: &dyn Fn(String) -> String) -> Self {
        self.name = mask(self.name);
        self.attributes = self.attributes.into_iter().map(|(key, value)| (key, value.map(mask))).collect();
        self.error = self.error.map(mask);
        self
    }
}

/// Makes spans; the default makes spans that nobody sees.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    queue: Option<Queue>,
    content: Content,
}

impl Tracer {
    pub(crate) fn new(queue: Queue, content: Content) -> Self {
        Self { queue: Some(queue), content }
    }

    /// Whether what people and models say may stand in attributes.
    pub fn with_content(&self) -> bool {
        self.queue.is_some() && self.content == Content::Captured
    }

    /// Begins the first span of a trace.
    pub fn root(&self, name: impl Into<String>, context: SpanContext) -> Span {
        self.begin(name.into(), SpanKind::Internal, context, None)
    }

    /// Begins a part of another span.
    pub fn child(&self, name: impl Into<String>, kind: SpanKind, of: SpanContext) -> Span {
        self.begin(name.into(), kind, of.child(), Some(of.span))
    }

    fn begin(&self, name: String, kind: SpanKind, context: SpanContext, parent: Option<SpanId>) -> Span {
        let open = self.queue.clone().map(|queue| {
            let span = Ended {
                context,
                parent,
                name,
                kind,
                start_nanos: clock::unix_nanos(),
                end_nanos: 0,
                attributes: Vec::new(),
                dropped_attributes: 0,
                links: Vec::new(),
                error: None,
            };
            Box::new(Open { span, started: Instant::now(), queue })
        });
        Span { context, open }
    }
}

#[derive(Debug)]
struct Open {
    span: Ended,
    /// Measures the length: the wall clock may jump.
    started: Instant,
    queue: Queue,
}

/// A span that is under way; it ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    context: SpanContext,
    open: Option<Box<Open>>,
}

impl Span {
    /// Its name among spans, for parts of it.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Gives it another name, once it is known.
    pub fn rename(&mut self, name: impl Into<String>) {
        if let Some(open) = &mut self.open {
            open.span.name = name.into();
        }
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open {
            open.span.set(key, value.into());
        }
    }

    /// Adds several texts as one attribute.
    pub fn set_all(&mut self, key: &'static str, texts: impl IntoIterator<Item = String>) {
        if let Some(open) = &mut self.open {
            open.span.set(key, Value::Texts(texts.into_iter().collect()));
        }
    }

    /// Points to a span of another trace.
    pub fn link(&mut self, to: SpanContext) {
        if let Some(open) = &mut self.open {
            open.span.links.push(to);
        }
    }

    /// Says that it failed: a class of few values, and words for people.
    pub fn fail(&mut self, error_type: &str, message: impl Into<String>) {
        if let Some(open) = &mut self.open {
            open.span.set("error.type", error_type.into());
            open.span.error = Some(cut(message.into()));
        }
    }
}

impl Ended {
    fn set(&mut self, key: &'static str, value: Value) {
        if self.attributes.len() >= MAX_ATTRIBUTES {
            self.dropped_attributes += 1;
        } else {
            self.attributes.push((key, value.map(&cut)));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let Open { mut span, started, queue } = *open;
            let length = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            span.end_nanos = span.start_nanos.saturating_add(length);
            queue.offer(span);
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_ATTRIBUTE_BYTES {
        let end = (0..=MAX_ATTRIBUTE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}
