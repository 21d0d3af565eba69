//! Text of any kind.

use super::Harness;
use super::fixture::{agent, bits, create_for, hold, message, new_session, node};
use crate::{Delivery, EventQuery, NewSession, Order};
use std::collections::BTreeMap;
use tenure_core::{AgentId, Block, Body, InputBody, Json, Origin, Outcome, TenantId};

/// NUL, other controls, all planes of Unicode, and what looks like SQL or JSON.
const TEXTS: [&str; 6] =
    ["a\0b", "\0", "x\u{1}\u{7f}\u{fffd}\r\n\t", "\u{10ffff}😀é", "'; DROP TABLE heads; --", "\\u0000 \"{}\""];

/// Bytes in, the same bytes out: inputs, events, notes, names.
pub async fn o_030_any_text_comes_back_as_it_was(harness: &dyn Harness) {
    let store = harness.store();
    let node = node(&*store).await;
    for text in TEXTS {
        let tenant = TenantId(format!("tenant {text}"));
        let metadata = BTreeMap::from([(text.to_owned(), text.to_owned())]);
        let mut new = NewSession { metadata: metadata.clone(), ..new_session(&tenant, vec![message(text)]) };
        new.session.title = text.to_owned();
        let created = store.create(new.clone()).await.expect("it is new");
        assert_eq!((&created.view.metadata, &created.view.session), (&metadata, &new.session));
        let id = new.session.id;
        let inputs = vec![(tenure_core::EventId::from_bits(bits()), InputBody::Title(text.to_owned()))];
        store
            .deliver(Delivery { tenant: tenant.clone(), session: id, inputs, notes: None, idempotency: None })
            .await
            .expect("it is taken");
        let mut holder = hold(&*store, node).await;
        let bodies: Vec<InputBody> = holder.take_all().into_iter().map(|input| input.body).collect();
        assert_eq!(bodies, [message(text), InputBody::Title(text.to_owned())]);
        let origin = Origin {
            dialect: text.to_owned(),
            model: text.to_owned(),
            blocks: vec![Json::parse(r#"{"a":"\u0000"}"#).expect("it is JSON")],
        };
        holder.push(Body::AgentMessage { text: text.to_owned(), origin });
        let call = holder.ask();
        holder.push(Body::AgentToolResult {
            tool_use_id: call,
            content: vec![Block::Text(text.to_owned())],
            outcome: Outcome::Done,
        });
        let checkpoint = holder.checkpoint(crate::Then::Park);
        store.commit(checkpoint.clone()).await.expect("the lease is held");
        let query = EventQuery { tenant: tenant.clone(), session: id, after: None, order: Order::Ascending, limit: 10 };
        assert_eq!(store.events(query).await.expect("it can be read"), checkpoint.events);
        let mut definition = agent(&tenant, AgentId::from_bits(bits()), 1);
        definition.system = Some(text.to_owned());
        store.put_agent(definition.clone(), None).await.expect("it is new");
        assert_eq!(store.agent(&tenant, definition.id, None).await.expect("it can be read"), Some(definition));
        create_for(&*store, &tenant, Vec::new()).await;
    }
}
