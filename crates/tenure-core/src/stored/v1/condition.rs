//! Stored conditions.

use super::Form;
use super::event::condition_id;
use super::words::Word;
use crate::condition::{Condition, ConditionKey, Flow, Probe};
use crate::id::TenantId;
use crate::time::Timestamp;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct ProbeForm {
    s: String,
    n: u64,
    x: i64,
}

#[derive(Serialize, Deserialize)]
struct FlowForm {
    r: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<u64>,
    t: u64,
    n: i64,
    g: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    k: Option<i64>,
    l: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ConditionForm {
    id: String,
    cred: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    class: String,
    text: String,
    stage: String,
    since: i64,
    at: i64,
    generation: u64,
    refusals: u32,
    next: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<ProbeForm>,
    probes: u64,
    flow: FlowForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<String>,
}

impl Form<Condition> for ConditionForm {
    fn of(value: &Condition) -> Self {
        let Flow { rate, ceiling, tokens, counted_to, grown_at, cut_at, left } = value.flow;
        Self {
            id: value.id.to_string(),
            cred: value.key.credential.clone(),
            model: value.key.model.clone(),
            class: value.class.word().to_string(),
            text: value.message.clone(),
            stage: value.stage.word().to_string(),
            since: value.stage_since.0,
            at: value.opened_at.0,
            generation: value.generation,
            refusals: value.refusals,
            next: value.probe_at.0,
            probe: value.probe.map(|probe| ProbeForm {
                s: probe.session.to_string(),
                n: probe.number,
                x: probe.expires_at.0,
            }),
            probes: value.probes,
            flow: FlowForm {
                r: rate,
                c: ceiling,
                t: tokens,
                n: counted_to.0,
                g: grown_at.0,
                k: cut_at.map(|at| at.0),
                l: left,
            },
            turn: value.turn.as_ref().map(|tenant| tenant.0.clone()),
        }
    }

    fn to(self) -> Result<Condition, String> {
        let probe = |form: ProbeForm| {
            let session = form.s.parse().map_err(|error: crate::IdError| error.to_string())?;
            Ok::<_, String>(Probe { session, number: form.n, expires_at: Timestamp(form.x) })
        };
        Ok(Condition {
            id: condition_id(&self.id)?,
            key: ConditionKey { credential: self.cred, model: self.model },
            class: Word::of_word(&self.class)?,
            message: self.text,
            stage: Word::of_word(&self.stage)?,
            stage_since: Timestamp(self.since),
            opened_at: Timestamp(self.at),
            generation: self.generation,
            refusals: self.refusals,
            probe_at: Timestamp(self.next),
            probe: self.probe.map(probe).transpose()?,
            probes: self.probes,
            flow: Flow {
                rate: self.flow.r,
                ceiling: self.flow.c,
                tokens: self.flow.t,
                counted_to: Timestamp(self.flow.n),
                grown_at: Timestamp(self.flow.g),
                cut_at: self.flow.k.map(Timestamp),
                left: self.flow.l,
            },
            turn: self.turn.map(TenantId),
        })
    }
}
