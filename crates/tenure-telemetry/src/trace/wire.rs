//! The few rules of the protobuf wire format that OTLP needs.
//!
//! Written by hand: the official crates would add ten packages for what is forty lines here, and the
//! messages of OTLP 1.x are stable.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

/// How a field is laid out.
#[derive(Clone, Copy)]
enum Layout {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

impl Message {
    pub(super) fn varint(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Layout::Varint);
        self.number(value);
        self
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Layout::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) -> &mut Self {
        self.key(field, Layout::Fixed32);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.key(field, Layout::Bytes);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn message(&mut self, field: u32, build: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        build(&mut inner);
        self.bytes(field, &inner.0)
    }

    fn key(&mut self, field: u32, layout: Layout) {
        self.number(u64::from(field) << 3 | layout as u64);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
