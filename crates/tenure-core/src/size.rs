//! How large a request is before it is sent: bytes and tokens, counted apart (case O-020).
//!
//! Bytes are known. Tokens are an estimate, which the usage of the newest answer of the same model
//! corrects: what that request was counted as, plus what was added since.

use crate::event::Block;
use crate::json::Json;
use crate::transcript::{AssistantPart, Message, Prompt, UserPart};
use crate::usage::Usage;
use alloc::string::String;

/// Tokens of a thousand bytes of text, as long as no answer says better; four bytes a token.
const DEFAULT_TOKENS_PER_1000_BYTES: u64 = 250;

/// Fewest and most tokens of a thousand bytes that a usage is believed to mean.
const TOKENS_PER_1000_BYTES: core::ops::RangeInclusive<u64> = 50..=1_000;

/// Tokens of one image or document, whatever its bytes; what large images are counted as.
const TOKENS_PER_MEDIA: u64 = 1_600;

/// Bytes of one request in which the provider's words around a part come on top of it.
const BYTES_AROUND_A_PART: u64 = 64;

/// Size of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of text, of inputs of tools and of the words around them.
    pub text_bytes: u64,
    /// Bytes of images and documents, as they are sent.
    pub media_bytes: u64,
    /// Number of images and documents.
    pub media: u64,
}

impl Size {
    /// All bytes.
    pub fn bytes(self) -> u64 {
        self.text_bytes.saturating_add(self.media_bytes)
    }

    /// Both added up; never overflows.
    pub fn plus(self, other: Self) -> Self {
        Self {
            text_bytes: self.text_bytes.saturating_add(other.text_bytes),
            media_bytes: self.media_bytes.saturating_add(other.media_bytes),
            media: self.media.saturating_add(other.media),
        }
    }

    fn of_text(bytes: usize) -> Self {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self { text_bytes: bytes.saturating_add(BYTES_AROUND_A_PART), ..Self::default() }
    }

    fn of_json(json: &Json) -> Self {
        Self::of_text(json.as_str().len())
    }

    fn of_block(block: &Block) -> Self {
        match block {
            Block::Text(text) => Self::of_text(text.len()),
            Block::Media { json, .. } => {
                let bytes = u64::try_from(json.as_str().len()).unwrap_or(u64::MAX);
                Self { text_bytes: 0, media_bytes: bytes, media: 1 }
            }
        }
    }

    /// The size of a part of a user's message.
    pub fn of_user_part(part: &UserPart) -> Self {
        match part {
            UserPart::Block(block) => Self::of_block(block),
            UserPart::Result { content, .. } => {
                content.iter().fold(Self::of_text(0), |sum, block| sum.plus(Self::of_block(block)))
            }
        }
    }

    /// The size of a part of a model's message.
    pub fn of_assistant_part(part: &AssistantPart) -> Self {
        let verbatim = |blocks: &[Json]| blocks.iter().map(|block| block.as_str().len()).sum::<usize>();
        match part {
            AssistantPart::Text { text, origin } | AssistantPart::Thinking { text, origin } => {
                Self::of_text(text.len().max(verbatim(&origin.blocks)))
            }
            AssistantPart::ToolUse { name, input, origin, .. } => {
                Self::of_text((name.len() + input.as_str().len()).max(verbatim(&origin.blocks)))
            }
        }
    }

    /// The size of a message.
    pub fn of_message(message: &Message) -> Self {
        match message {
            Message::User(parts) => parts.iter().map(Self::of_user_part).fold(Self::default(), Self::plus),
            Message::Assistant(parts) => parts.iter().map(Self::of_assistant_part).fold(Self::default(), Self::plus),
        }
    }

    /// The size of what no compaction can make smaller: instructions and tools.
    pub fn of_fixed_part(prompt: &Prompt) -> Self {
        let system = Self::of_text(prompt.system.as_ref().map_or(0, String::len));
        prompt.tools.iter().fold(system, |sum, tool| {
            sum.plus(Self::of_text(tool.name.len() + tool.description.len())).plus(Self::of_json(&tool.input_schema))
        })
    }

    /// The size of a whole request.
    pub fn of_prompt(prompt: &Prompt) -> Self {
        prompt.messages.iter().map(Self::of_message).fold(Self::of_fixed_part(prompt), Self::plus)
    }

    /// Its tokens at this many per thousand bytes of text.
    fn tokens(self, tokens_per_1000_bytes: u64) -> u64 {
        let text = u128::from(self.text_bytes) * u128::from(tokens_per_1000_bytes) / 1_000;
        let text = u64::try_from(text).unwrap_or(u64::MAX);
        text.saturating_add(self.media.saturating_mul(TOKENS_PER_MEDIA))
    }
}

/// What is known about a model from its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Tokens of input and output together that it takes; `None` is learnt from its refusal.
    pub context_window: Option<u64>,
    /// Most bytes of a request.
    pub max_request_bytes: u64,
    /// Whether its server cuts what is too long at the front and answers the rest, without a word.
    pub cuts_silently: bool,
}

/// What a session learnt about the sizes of its requests from the newest model that answered it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// `provider/model`; what follows is about no other one.
    pub model: String,
    /// What the newest whole answer used.
    pub usage: Usage,
    /// The size of the request that it answered.
    pub size: Size,
    /// Tokens that were refused as too many, or the limit that the refusal named.
    pub max_tokens: Option<u64>,
    /// Bytes of the smallest request that was refused as too large.
    pub refused_bytes: Option<u64>,
}

impl Learnt {
    /// What holds for `model`: everything, or nothing.
    pub fn of(&self, model: &str) -> Self {
        if self.model == model { self.clone() } else { Self { model: model.into(), ..Self::default() } }
    }

    /// Takes over a whole answer.
    pub(crate) fn answered(&mut self, usage: Usage, size: Size) {
        // Servers without counts teach nothing.
        if usage.all_input() > 0 && size.text_bytes > 0 {
            self.usage = usage;
            self.size = size;
        }
    }

    /// Estimates the input tokens of a request of this size.
    ///
    /// `counted` is what the model itself says before it is asked, if it can.
    pub fn input_tokens(&self, size: Size, counted: Option<u64>) -> u64 {
        let rate = self.tokens_per_1000_bytes();
        if self.size == Size::default() {
            return counted.unwrap_or_else(|| size.tokens(rate));
        }
        let is_longer = size.text_bytes >= self.size.text_bytes && size.media >= self.size.media;
        if !is_longer {
            return size.tokens(rate);
        }
        let added = Size {
            text_bytes: size.text_bytes - self.size.text_bytes,
            media_bytes: 0,
            media: size.media - self.size.media,
        };
        self.usage.all_input().saturating_add(added.tokens(rate))
    }

    /// Estimates tokens by the rate alone, for sizes that are compared with each other.
    pub fn tokens(&self, size: Size) -> u64 {
        size.tokens(self.tokens_per_1000_bytes())
    }

    /// Most input and output tokens that are worth sending, if anything says so.
    pub fn window(&self, facts: ModelFacts) -> Option<u64> {
        match (facts.context_window, self.max_tokens) {
            (Some(known), Some(learnt)) => Some(known.min(learnt)),
            (known, learnt) => known.or(learnt),
        }
    }

    /// Most bytes that are worth sending.
    pub fn max_bytes(&self, facts: ModelFacts) -> u64 {
        self.refused_bytes
            .map_or(facts.max_request_bytes, |refused| facts.max_request_bytes.min(refused.saturating_sub(1)))
    }

    fn tokens_per_1000_bytes(&self) -> u64 {
        let text = self.usage.all_input().saturating_sub(self.size.media.saturating_mul(TOKENS_PER_MEDIA));
        match text.saturating_mul(1_000).checked_div(self.size.text_bytes) {
            None | Some(0) => DEFAULT_TOKENS_PER_1000_BYTES,
            Some(rate) => rate.clamp(*TOKENS_PER_1000_BYTES.start(), *TOKENS_PER_1000_BYTES.end()),
        }
    }
}

/// The limit that a refusal names in words, such as `210000 tokens > 200000 maximum`.
pub(crate) fn limit_in_words(message: &str) -> Option<u64> {
    /// What stands right before the limit, in the words of the providers that are known.
    const BEFORE: &[&str] = &[
        "tokens > ",
        "maximum context length is ",
        "maximum context length of ",
        "context length is only ",
        "context length of ",
        "context window of ",
        "context window is ",
        "maximum number of tokens allowed (",
        "maximum number of tokens allowed is ",
        "maximum allowed length of ",
        "maximum input length of ",
        "maximum prompt length is ",
        "exceeds the limit of ",
        "exceed the limit of ",
        "context size (",
        "available context size (",
        "context size of ",
        "max_model_len=",
        "max_model_len of ",
        "n_ctx=",
        "n_ctx = ",
    ];
    let message = message.to_ascii_lowercase();
    BEFORE.iter().find_map(|words| {
        let (_, rest) = message.split_once(words)?;
        let digits: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|limit| *limit > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: ModelFacts = ModelFacts { context_window: None, max_request_bytes: 1_000, cuts_silently: false };

    fn text(bytes: u64) -> Size {
        Size { text_bytes: bytes, ..Size::default() }
    }

    #[test]
    fn the_first_estimate_is_a_guess_and_the_next_one_grows_from_what_was_counted() {
        let mut learnt = Learnt::default();
        assert_eq!(learnt.input_tokens(text(4_000), None), 1_000);
        assert_eq!(learnt.input_tokens(text(4_000), Some(17)), 17);
        learnt.answered(Usage { input: 100, cache_read: 1_800, cache_write: 100, output: 7 }, text(4_000));
        assert_eq!(learnt.input_tokens(text(4_000), Some(17)), 2_000, "cached tokens are input too");
        assert_eq!(learnt.input_tokens(text(5_000), None), 2_500);
        assert_eq!(learnt.input_tokens(text(1_000), None), 500, "after a compaction");
    }

    #[test]
    fn images_have_tokens_of_their_own_and_bytes_apart() {
        let size = Size { text_bytes: 400, media_bytes: 5_000_000, media: 2 };
        assert_eq!(Learnt::default().input_tokens(size, None), 100 + 2 * TOKENS_PER_MEDIA);
        assert_eq!(size.bytes(), 5_000_400);
    }

    #[test]
    fn what_one_model_taught_is_not_believed_of_another() {
        let learnt = Learnt { model: "a/m".into(), max_tokens: Some(9), refused_bytes: Some(500), ..Learnt::default() };
        assert_eq!(learnt.of("a/m").window(FACTS), Some(9));
        assert_eq!(learnt.of("b/m").window(FACTS), None);
        assert_eq!(learnt.of("a/m").max_bytes(FACTS), 499);
        assert_eq!(learnt.of("b/m").max_bytes(FACTS), 1_000);
        let known = ModelFacts { context_window: Some(5), ..FACTS };
        assert_eq!(learnt.window(known), Some(5), "the smaller one binds");
    }

    #[test]
    fn absurd_counts_do_not_overflow() {
        let huge = Usage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
        let size = Size { text_bytes: u64::MAX, media_bytes: u64::MAX, media: u64::MAX };
        let mut learnt = Learnt::default();
        learnt.answered(huge, text(1));
        assert_eq!(learnt.input_tokens(size, None), u64::MAX);
        assert_eq!(size.plus(size), size);
    }

    #[test]
    fn the_limit_is_found_in_the_words_of_each_provider() {
        for (message, limit) in [
            ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000",
                Some(8_192),
            ),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            ("the request exceeds the available context size (4,096 tokens)", Some(4_096)),
            ("input is too long for requested model", None),
            ("maximum context length is unknown", None),
        ] {
            assert_eq!(limit_in_words(message), limit, "{message}");
        }
    }
}
