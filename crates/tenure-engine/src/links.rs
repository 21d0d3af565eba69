//! Callback links for the model: rendered when a request is built, never stored (design 7.9).

use tenure_core::{Block, Message, SessionId, UserPart};

/// Renders the callback placeholders of one session.
pub(crate) struct CallbackLinks<'a> {
    pub(crate) session: SessionId,
    pub(crate) public_url: &'a str,
    pub(crate) key: &'a [u8; 32],
}

impl CallbackLinks<'_> {
    /// Replaces the placeholders in the results of a message.
    pub(crate) fn render(&self, message: &mut Message) {
        let Message::User(parts) = message else { return };
        for part in parts {
            let UserPart::Result { content, .. } = part else { continue };
            for block in content {
                if let Block::Text(text) = block {
                    *text = tenure_api::callback::render(text, self.session, self.public_url, self.key).into_owned();
                }
            }
        }
    }
}
