//! Instruments whose series are bounded.
//!
//! A label value may come from a client or a model, such as the name of a model. So each instrument
//! keeps at most [`MAX_SERIES`] series; what comes beyond them is added up in one more, whose labels
//! all say [`OVERFLOW`]: sums stay true, and no input can fill the memory of a server or a scraper.

pub(crate) mod snapshot;
pub(crate) mod text;

use snapshot::{Family, Sample, Sampled};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Most series of one instrument, beside the one for the rest.
pub const MAX_SERIES: usize = 256;

/// Longest label value in bytes; a longer one is cut.
pub const MAX_LABEL_BYTES: usize = 128;

/// Label value of the series that holds what is beyond [`MAX_SERIES`].
pub const OVERFLOW: &str = "(other)";

/// Bounds of histograms.
pub mod buckets {
    /// Seconds, from a fast commit to a slow model.
    pub const SECONDS: &[f64] = &[
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1800.0,
    ];
    /// Tokens; the bounds that the GenAI conventions advise.
    pub const TOKENS: &[f64] = &[
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1_024.0,
        4_096.0,
        16_384.0,
        65_536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
        67_108_864.0,
    ];
}

/// What an instrument counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows; its sample ends with `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often values up to each bound came.
    Histogram(&'static [f64]),
}

/// Describes an instrument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its name, without `_total`; ends with its unit if it has one.
    pub name: &'static str,
    /// What it counts.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// All instruments of a process.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    instruments: Arc<Mutex<BTreeMap<&'static str, Instrument>>>,
}

#[derive(Clone, Debug)]
struct Instrument {
    spec: &'static Spec,
    series: Arc<Mutex<BTreeMap<Vec<String>, Number>>>,
}

#[derive(Clone, Debug)]
enum Number {
    Plain(f64),
    Buckets { counts: Vec<u64>, sum: f64 },
}

/// Only grows.
#[derive(Clone, Debug)]
pub struct Counter(Instrument);

/// Goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(Instrument);

/// Counts values by size.
#[derive(Clone, Debug)]
pub struct Histogram(Instrument);

impl Registry {
    /// The counter that `spec` describes; the same one for the same name.
    pub fn counter(&self, spec: &'static Spec) -> Counter {
        debug_assert_eq!(spec.kind, Kind::Counter);
        Counter(self.instrument(spec))
    }

    /// The gauge that `spec` describes.
    pub fn gauge(&self, spec: &'static Spec) -> Gauge {
        debug_assert_eq!(spec.kind, Kind::Gauge);
        Gauge(self.instrument(spec))
    }

    /// The histogram that `spec` describes.
    pub fn histogram(&self, spec: &'static Spec) -> Histogram {
        debug_assert!(matches!(spec.kind, Kind::Histogram(_)));
        Histogram(self.instrument(spec))
    }

    /// What all instruments say now, by name.
    pub fn snapshot(&self) -> Vec<Family> {
        let instruments: Vec<Instrument> = lock(&self.instruments).values().cloned().collect();
        instruments.iter().map(Instrument::snapshot).collect()
    }

    fn instrument(&self, spec: &'static Spec) -> Instrument {
        let mut instruments = lock(&self.instruments);
        let made = instruments.entry(spec.name).or_insert_with(|| {
            let series = Arc::default();
            let made = Instrument { spec, series };
            if spec.labels.is_empty() {
                // A series without labels is there from the start: zero is an answer too.
                made.change(&[], |_| {});
            }
            made
        });
        debug_assert_eq!(made.spec, spec, "two instruments of one name");
        made.clone()
    }
}

impl Counter {
    /// Adds to the series with these label values, which are in the order of the labels' names.
    pub fn add(&self, labels: &[&str], count: u64) {
        self.0.change(labels, |number| number.add(count as f64));
    }
}

impl Gauge {
    /// Changes the series with these label values by `change`.
    pub fn add(&self, labels: &[&str], change: f64) {
        self.0.change(labels, |number| number.add(change));
    }

    /// Sets the series with these label values.
    pub fn set(&self, labels: &[&str], value: f64) {
        self.0.change(labels, |number| *number = Number::Plain(value));
    }

    /// Forgets all series, before those that are left are set.
    pub fn clear(&self) {
        lock(&self.0.series).clear();
    }

    /// Raises by one for as long as the guard lives.
    pub fn hold(&self) -> Held {
        self.add(&[], 1.0);
        Held(self.clone())
    }
}

/// Counts in a gauge until it is dropped.
#[derive(Debug)]
pub struct Held(Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add(&[], -1.0);
    }
}

impl Histogram {
    /// Counts a value in the series with these label values.
    pub fn observe(&self, labels: &[&str], value: f64) {
        let Kind::Histogram(bounds) = self.0.spec.kind else { return };
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.0.change(labels, |number| {
            if let Number::Buckets { counts, sum } = number {
                counts[place] += 1;
                *sum += value;
            }
        });
    }
}

impl Number {
    fn add(&mut self, change: f64) {
        if let Self::Plain(value) = self {
            *value += change;
        }
    }
}

impl Instrument {
    fn change(&self, labels: &[&str], change: impl FnOnce(&mut Number)) {
        debug_assert_eq!(labels.len(), self.spec.labels.len(), "{}", self.spec.name);
        let mut key: Vec<String> = labels.iter().map(|value| cut(value).to_owned()).collect();
        let mut series = lock(&self.series);
        if !series.contains_key(&key) && series.len() >= MAX_SERIES {
            key = vec![OVERFLOW.to_owned(); labels.len()];
        }
        change(series.entry(key).or_insert_with(|| self.zero()));
    }

    fn zero(&self) -> Number {
        match self.spec.kind {
            Kind::Counter | Kind::Gauge => Number::Plain(0.0),
            Kind::Histogram(bounds) => Number::Buckets { counts: vec![0; bounds.len() + 1], sum: 0.0 },
        }
    }

    fn snapshot(&self) -> Family {
        let spec = self.spec;
        let (kind, bounds) = match spec.kind {
            Kind::Counter => ("counter", &[][..]),
            Kind::Gauge => ("gauge", &[][..]),
            Kind::Histogram(bounds) => ("histogram", bounds),
        };
        let label = |(name, value): (&&str, &String)| ((*name).to_owned(), value.clone());
        let sample = |(key, number): (&Vec<String>, &Number)| Sample {
            labels: spec.labels.iter().zip(key).filter(|(_, value)| !value.is_empty()).map(label).collect(),
            value: match number {
                Number::Plain(value) => Sampled::Number(*value),
                Number::Buckets { counts, sum } => {
                    Sampled::Buckets { bounds: bounds.to_vec(), counts: counts.clone(), sum: *sum }
                }
            },
        };
        let samples = lock(&self.series).iter().map(sample).collect();
        Family { name: spec.name.to_owned(), kind: kind.to_owned(), help: spec.help.to_owned(), samples }
    }
}

/// A label value of at most [`MAX_LABEL_BYTES`].
fn cut(value: &str) -> &str {
    let end = (0..=value.len().min(MAX_LABEL_BYTES)).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
    &value[..end]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Spec = Spec { name: "calls", kind: Kind::Counter, labels: &["model"], help: "Calls." };

    #[test]
    fn series_beyond_the_bound_are_added_up_in_one() {
        let registry = Registry::default();
        let counter = registry.counter(&CALLS);
        for number in 0..MAX_SERIES + 50 {
            counter.add(&[&format!("model-{number}")], 2);
        }
        let family = registry.snapshot().remove(0);
        assert_eq!(family.samples.len(), MAX_SERIES + 1);
        let value = |sample: &Sample| match sample.value {
            Sampled::Number(value) => value,
            Sampled::Buckets { .. } => panic!("a counter"),
        };
        let rest = family.samples.iter().find(|sample| sample.labels[0].1 == OVERFLOW).map(value);
        assert_eq!(rest, Some(100.0), "nothing is lost");
        assert_eq!(family.samples.iter().map(value).sum::<f64>(), 2.0 * (MAX_SERIES + 50) as f64);
    }

    #[test]
    fn a_long_label_is_cut_between_characters() {
        let long = "ä".repeat(MAX_LABEL_BYTES);
        assert_eq!(cut(&long).len(), MAX_LABEL_BYTES);
        assert_eq!(cut(&format!("a{long}")).len(), MAX_LABEL_BYTES - 1);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        const OPEN: Spec = Spec { name: "open", kind: Kind::Gauge, labels: &[], help: "Open." };
        let registry = Registry::default();
        let gauge = registry.gauge(&OPEN);
        let held = (gauge.hold(), gauge.hold());
        let now = || registry.snapshot()[0].samples[0].value.clone();
        assert_eq!(now(), Sampled::Number(2.0));
        drop(held);
        assert_eq!(now(), Sampled::Number(0.0));
    }
}
