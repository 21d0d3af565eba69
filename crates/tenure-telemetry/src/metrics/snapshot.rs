//! What instruments say at one moment, as nodes tell it to a server.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One instrument with its series. Its JSON form is what nodes of one version tell each other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Family {
    /// Without `_total`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// One sentence.
    pub help: String,
    /// Its series.
    pub samples: Vec<Sample>,
}

/// One series.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// What it says.
    pub value: Sampled,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampled {
    /// Of a counter or a gauge.
    Number(f64),
    /// Of a histogram: one count more than bounds, each for itself.
    #[allow(missing_docs, reason = "as in the instruments")]
    Buckets { bounds: Vec<f64>, counts: Vec<u64>, sum: f64 },
}

/// Puts what several nodes say together, sorted by name; each of the series gets the label `node`.
pub fn merge(own: Vec<Family>, others: Vec<(String, Vec<Family>)>) -> Vec<Family> {
    let mut merged: BTreeMap<String, Family> = own.into_iter().map(|family| (family.name.clone(), family)).collect();
    for (node, families) in others {
        for mut family in families {
            for sample in &mut family.samples {
                sample.labels.push(("node".to_owned(), node.clone()));
            }
            match merged.get_mut(&family.name) {
                // Of a node of another version, whose instrument is another one: leave it out.
                Some(known) if known.kind != family.kind => {}
                Some(known) => known.samples.append(&mut family.samples),
                None => drop(merged.insert(family.name.clone(), family)),
            }
        }
    }
    merged.into_values().collect()
}
