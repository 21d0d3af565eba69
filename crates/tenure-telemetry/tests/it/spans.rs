//! Reads the wire format of OTLP by itself: only field numbers and layouts of the published messages,
//! nothing of the code under test.

use std::collections::BTreeMap;

/// A field of a message as it stands on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// Fields by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message(BTreeMap<u64, Vec<Field>>);

impl Message {
    pub(crate) fn read(mut bytes: &[u8]) -> Self {
        let mut message = Self::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Number(u64::from_le_bytes(split(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let length = varint(&mut bytes);
                    Field::Bytes(split(&mut bytes, length as usize).to_vec())
                }
                5 => Field::Number(u64::from(u32::from_le_bytes(split(&mut bytes, 4).try_into().unwrap()))),
                other => panic!("wire type {other}"),
            };
            message.0.entry(key >> 3).or_default().push(field);
        }
        message
    }

    pub(crate) fn all(&self, field: u64) -> Vec<Message> {
        self.bytes_of(field).iter().map(|bytes| Message::read(bytes)).collect()
    }

    pub(crate) fn one(&self, field: u64) -> Message {
        let mut all = self.all(field);
        assert_eq!(all.len(), 1, "field {field} of {self:?}");
        all.remove(0)
    }

    pub(crate) fn bytes_of(&self, field: u64) -> Vec<Vec<u8>> {
        let bytes = |field: &Field| match field {
            Field::Bytes(bytes) => bytes.clone(),
            Field::Number(_) => panic!("a number"),
        };
        self.0.get(&field).into_iter().flatten().map(bytes).collect()
    }

    pub(crate) fn bytes(&self, field: u64) -> Vec<u8> {
        self.bytes_of(field).into_iter().next().unwrap_or_default()
    }

    pub(crate) fn text(&self, field: u64) -> String {
        String::from_utf8(self.bytes(field)).unwrap()
    }

    pub(crate) fn number(&self, field: u64) -> u64 {
        match self.0.get(&field).and_then(|fields| fields.first()) {
            Some(Field::Number(number)) => *number,
            Some(Field::Bytes(_)) => panic!("bytes"),
            None => 0,
        }
    }

    /// Attributes that stand in `field`, as texts.
    pub(crate) fn attributes(&self, field: u64) -> BTreeMap<String, String> {
        self.all(field).iter().map(|pair| (pair.text(1), any(&pair.one(2)))).collect()
    }
}

fn any(value: &Message) -> String {
    match value.0.keys().next() {
        Some(1) => value.text(1),
        Some(2) => (value.number(2) == 1).to_string(),
        Some(3) => value.number(3).cast_signed().to_string(),
        Some(5) => value.one(5).all(1).iter().map(any).collect::<Vec<_>>().join("|"),
        other => panic!("value {other:?}"),
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0..10 {
        let byte = split(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(length);
    *bytes = rest;
    head
}

/// A span as a reader of traces sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) trace: Vec<u8>,
    pub(crate) id: Vec<u8>,
    pub(crate) parent: Vec<u8>,
    pub(crate) kind: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) left_out: u64,
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) error: Option<String>,
    pub(crate) resource: BTreeMap<String, String>,
}

/// The spans of one request.
pub(crate) fn spans(request: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for resource_spans in Message::read(request).all(1) {
        let resource = resource_spans.one(1).attributes(1);
        for scope_spans in resource_spans.all(2) {
            assert_eq!(scope_spans.one(1).text(1), "tenure");
            for span in scope_spans.all(2) {
                let status = span.all(15);
                seen.push(Seen {
                    name: span.text(5),
                    trace: span.bytes(1),
                    id: span.bytes(2),
                    parent: span.bytes(4),
                    kind: span.number(6),
                    start: span.number(7),
                    end: span.number(8),
                    attributes: span.attributes(9),
                    left_out: span.number(10),
                    links: span.all(13).iter().map(|link| (link.bytes(1), link.bytes(2))).collect(),
                    error: status.first().filter(|status| status.number(3) == 2).map(|status| status.text(2)),
                    resource: resource.clone(),
                });
            }
        }
    }
    seen
}
