//! Spans as an `ExportTraceServiceRequest` of OTLP 1.x; the numbers are those of its fields.

use super::wire::Message;
use super::{Ended, SpanContext, SpanKind, Value};

/// Flags of a span and of a link: sampled.
const SAMPLED: u32 = 1;

/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// One request with all these spans.
pub(super) fn request(resource: &[(String, String)], spans: &[Ended]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |message| {
            for (key, value) in resource {
                attribute(message, 1, key, &Value::Text(value.clone()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, "tenure").text(2, env!("CARGO_PKG_VERSION"));
            });
            for span in spans {
                scope_spans.message(2, |message| write_span(message, span));
            }
        });
    });
    request.0
}

fn write_span(message: &mut Message, span: &Ended) {
    message.bytes(1, &span.context.trace.0).bytes(2, &span.context.span.0);
    if let Some(parent) = span.parent {
        message.bytes(4, &parent.0);
    }
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    message.text(5, &span.name).varint(6, kind).fixed64(7, span.start_nanos).fixed64(8, span.end_nanos);
    for (key, value) in &span.attributes {
        attribute(message, 9, key, value);
    }
    if span.dropped_attributes > 0 {
        message.varint(10, u64::from(span.dropped_attributes));
    }
    for SpanContext { trace, span } in &span.links {
        message.message(13, |link| {
            link.bytes(1, &trace.0).bytes(2, &span.0).fixed32(6, SAMPLED);
        });
    }
    if let Some(error) = &span.error {
        message.message(15, |status| {
            status.text(2, error).varint(3, ERROR);
        });
    }
    message.fixed32(16, SAMPLED);
}

fn attribute(message: &mut Message, field: u32, key: &str, value: &Value) {
    message.message(field, |pair| {
        pair.text(1, key).message(2, |any| any_value(any, value));
    });
}

fn any_value(any: &mut Message, value: &Value) {
    match value {
        Value::Text(text) => any.text(1, text),
        Value::Bool(is_so) => any.varint(2, u64::from(*is_so)),
        // Two's complement: a negative number is ten bytes.
        Value::Int(number) => any.varint(3, number.cast_unsigned()),
        Value::Texts(texts) => any.message(5, |array| {
            for text in texts {
                array.message(1, |any| {
                    any.text(1, text);
                });
            }
        }),
    };
}
