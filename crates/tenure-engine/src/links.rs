//! Callback links for the model: rendered when a request is built, never stored (design 7.9).

use tenure_core::{Block, Message, SessionId, UserPart};

/// Renders the callback placeholders of one session.
pub(crate) struct CallbackLinks<'a> {
    pub(crate) session: SessionId,
    pub(crate) public_url: &'a str,
    pub(crate) key: &'a [u8; 32],
}

impl CallbackLinks<'_> {
    /// Replaces the placeholders in all results, and in a summary, which stands at the beginning.
    pub(crate) fn render(&self, messages: &mut [Message], has_summary: bool) {
        for (place, message) in messages.iter_mut().enumerate() {
            let Message::User(parts) = message else { continue };
            for part in parts {
                match part {
                    UserPart::Result { content, .. } => content.iter_mut().for_each(|block| self.render_block(block)),
                    UserPart::Block(block) if has_summary && place == 0 => self.render_block(block),
                    UserPart::Block(_) => {}
                }
            }
        }
    }

    fn render_block(&self, block: &mut Block) {
        if let Block::Text(text) = block {
            *text = tenure_api::callback::render(text, self.session, self.public_url, self.key).into_owned();
        }
    }
}
