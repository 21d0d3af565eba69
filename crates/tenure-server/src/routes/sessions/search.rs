//! The query language of the list: `phase:waiting agent:coder age:>1h cost:>2 metadata.team:payments
//! words of the title`. Terms are joined by and; a minus before a term turns it round.

use crate::error::{ApiError, Result};
use crate::keys::Caller;
use crate::state::ServerState;
use std::collections::BTreeSet;
use tenure_api::error::Code;
use tenure_api::session;
use tenure_core::{AgentId, Phase, Timestamp};
use tenure_store::{CatalogQuery, SessionView, State};

/// Longest query.
const MAX_QUERY_BYTES: usize = 2_048;
/// Most terms of a query.
const MAX_TERMS: usize = 32;
/// Most agents among which a name is looked for.
const MAX_AGENTS: usize = 10_000;

/// Names of fields, as the error about another one lists them.
const FIELDS: &str = "phase, status, wait, agent, id, age, idle, cost, tokens, steps, metadata.KEY";

/// A query that was understood.
#[derive(Clone, Debug)]
pub(super) struct Search {
    terms: Vec<Term>,
    now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    is_negated: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Phase(Vec<Phase>),
    Status(Vec<String>),
    Wait(Vec<String>),
    /// Names or ids, until `resolve` knows whose they are.
    AgentNamed(Vec<String>),
    Agent(BTreeSet<AgentId>),
    IdEnds(String),
    /// Since its creation, in milliseconds.
    Age(Bound),
    /// Since its last change, in milliseconds.
    Idle(Bound),
    /// In millionths of a dollar.
    Cost(Bound),
    Tokens(Bound),
    Steps(Bound),
    Metadata(String, String),
    /// Part of the title, in lower case.
    Title(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Above(f64),
    Below(f64),
    Is(f64),
}

impl Bound {
    fn takes(self, value: f64) -> bool {
        match self {
            Self::Above(bound) => value > bound,
            Self::Below(bound) => value < bound,
            Self::Is(bound) => (value - bound).abs() < f64::EPSILON * bound.abs().max(1.0),
        }
    }
}

impl Search {
    /// Understands a query.
    ///
    /// # Errors
    /// Which term is wrong, and what would be right.
    pub(super) async fn read(state: &ServerState, caller: &Caller, text: &str) -> Result<Self> {
        let now = state.store().now().await?;
        let mut search = Self { terms: parse(text)?, now };
        search.resolve(state, caller).await?;
        Ok(search)
    }

    /// The phases that the store can look for by itself; empty for all.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let mut terms = self.terms.iter().filter_map(|term| match &term.what {
            What::Phase(phases) if !term.is_negated => Some(phases.clone()),
            _ => None,
        });
        terms.next().unwrap_or_default()
    }

    /// Whether it takes every session.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it asks for phases alone, which the store can look for by itself.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.terms.as_slice(), [Term { is_negated: false, what: What::Phase(_) }])
    }

    /// Whether a session is meant.
    pub(super) fn takes(&self, view: &SessionView) -> bool {
        self.terms.iter().all(|term| self.is(&term.what, view) != term.is_negated)
    }

    fn is(&self, what: &What, view: &SessionView) -> bool {
        let session = &view.session;
        match what {
            What::Phase(phases) => phases.contains(&listed_phase(view)),
            What::Status(words) => words.iter().any(|word| word == session.status.name()),
            What::Wait(words) => {
                session.wait.as_ref().is_some_and(|wait| words.iter().any(|word| word == wait.kind.name()))
            }
            // Resolved before any row is looked at.
            What::AgentNamed(_) => false,
            What::Agent(ids) => ids.contains(&session.agent.id),
            What::IdEnds(tail) => session.id.to_string().ends_with(tail.as_str()),
            What::Age(bound) => bound.takes(self.now.since(session.created_at) as f64),
            What::Idle(bound) => bound.takes(self.now.since(view.updated_at) as f64),
            What::Cost(bound) => bound.takes(session.budget.cost_usd_micros() as f64),
            What::Tokens(bound) => bound.takes(session.budget.tokens() as f64),
            What::Steps(bound) => bound.takes(session.budget.steps as f64),
            What::Metadata(key, value) => view.metadata.get(key).is_some_and(|found| found == value),
            What::Title(word) => session.title.to_lowercase().contains(word.as_str()),
        }
    }

    /// Puts ids in the place of names of agents; a name that nobody has takes nothing.
    async fn resolve(&mut self, state: &ServerState, caller: &Caller) -> Result<()> {
        for term in &mut self.terms {
            let What::AgentNamed(names) = &term.what else { continue };
            let mut ids: BTreeSet<AgentId> = names.iter().filter_map(|name| name.parse().ok()).collect();
            let (mut below, mut seen) = (None, 0);
            loop {
                let query = CatalogQuery {
                    tenant: caller.tenant.clone(),
                    with_archived: true,
                    below,
                    limit: tenure_store::MAX_PAGE,
                };
                let page = state.store().agents(query).await?;
                seen += page.len();
                below = page.last().map(|agent| agent.id.bits());
                let is_named = |name: &str| names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
                ids.extend(page.iter().filter(|agent| is_named(&agent.name)).map(|agent| agent.id));
                if page.len() < tenure_store::MAX_PAGE || seen >= MAX_AGENTS {
                    break;
                }
            }
            term.what = What::Agent(ids);
        }
        Ok(())
    }
}

/// The phase by which the store lists a session.
fn listed_phase(view: &SessionView) -> Phase {
    match view.state {
        State::Queued => Phase::Queued,
        State::Leased => Phase::Working,
        State::Parked | State::Ended => session::phase(&view.session, false, 0),
    }
}

fn parse(text: &str) -> Result<Vec<Term>> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(wrong(format!("it is longer than {MAX_QUERY_BYTES} bytes")));
    }
    let words = split(text)?;
    if words.len() > MAX_TERMS {
        return Err(wrong(format!("it has more than {MAX_TERMS} terms")));
    }
    words.into_iter().map(term).collect()
}

/// Words, each with the place of its first colon outside of quotes.
fn split(text: &str) -> Result<Vec<(String, Option<usize>)>> {
    let (mut words, mut word, mut colon, mut is_quoted, mut has_word) = (Vec::new(), String::new(), None, false, false);
    for letter in text.chars() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                has_word = true;
            }
            letter if letter.is_whitespace() && !is_quoted => {
                if has_word {
                    words.push((std::mem::take(&mut word), colon.take()));
                }
                has_word = false;
            }
            letter => {
                if letter == ':' && !is_quoted && colon.is_none() {
                    colon = Some(word.len());
                }
                word.push(letter);
                has_word = true;
            }
        }
    }
    if is_quoted {
        return Err(wrong("a quotation mark is not closed"));
    }
    if has_word {
        words.push((word, colon));
    }
    Ok(words)
}

fn term((word, colon): (String, Option<usize>)) -> Result<Term> {
    let Some(colon) = colon else {
        let (is_negated, word) = negated(&word);
        return Ok(Term { is_negated, what: What::Title(word.to_lowercase()) });
    };
    let (is_negated, field) = negated(&word[..colon]);
    let value = &word[colon + 1..];
    if value.is_empty() {
        return Err(wrong(format!("{field}: has no value")));
    }
    let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
    let what = match field {
        "phase" => What::Phase(value.split(',').map(super::phase).collect::<Result<_>>()?),
        "status" => What::Status(list()),
        "wait" => What::Wait(list()),
        "agent" => What::AgentNamed(list()),
        "id" => What::IdEnds(value.to_owned()),
        "age" => What::Age(bound(field, value, duration)?),
        "idle" => What::Idle(bound(field, value, duration)?),
        "cost" => What::Cost(bound(field, value, |text| number(text.trim_start_matches('$')).map(|usd| usd * 1e6))?),
        "tokens" => What::Tokens(bound(field, value, number)?),
        "steps" => What::Steps(bound(field, value, number)?),
        other => match other.strip_prefix("metadata.") {
            Some(key) if !key.is_empty() => What::Metadata(key.to_owned(), value.to_owned()),
            _ => return Err(wrong(format!("there is no field {other:?}; there are {FIELDS}"))),
        },
    };
    Ok(Term { is_negated, what })
}

fn negated(word: &str) -> (bool, &str) {
    match word.strip_prefix('-') {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, word),
    }
}

fn bound(field: &str, text: &str, read: impl Fn(&str) -> Option<f64>) -> Result<Bound> {
    let made = match (text.strip_prefix('>'), text.strip_prefix('<')) {
        (Some(rest), _) => read(rest).map(Bound::Above),
        (None, Some(rest)) => read(rest).map(Bound::Below),
        (None, None) => read(text).map(Bound::Is),
    };
    made.ok_or_else(|| wrong(format!("{field}: expected a number such as >2, or a time such as <90m, found {text:?}")))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Milliseconds of `90s`, `15m`, `2h` or `7d`.
fn duration(text: &str) -> Option<f64> {
    let unit = text.chars().last()?;
    let millis = match unit {
        's' => 1e3,
        'm' => 60e3,
        'h' => 3_600e3,
        'd' => 86_400e3,
        _ => return None,
    };
    number(&text[..text.len() - unit.len_utf8()]).map(|count| count * millis)
}

fn wrong(what: impl std::fmt::Display) -> ApiError {
    ApiError::new(Code::InvalidQuery, format!("q: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Term {
        let mut terms = parse(text).expect("valid");
        assert_eq!(terms.len(), 1, "{terms:?}");
        terms.remove(0)
    }

    #[test]
    fn terms_are_fields_or_words_of_the_title() {
        assert_eq!(one("phase:waiting,needs_you").what, What::Phase(vec![Phase::Waiting, Phase::NeedsYou]));
        assert_eq!(one("age:>1.5h").what, What::Age(Bound::Above(5_400e3)));
        assert_eq!(one("cost:<$0.5").what, What::Cost(Bound::Below(500_000.0)));
        assert_eq!(one("steps:3").what, What::Steps(Bound::Is(3.0)));
        assert_eq!(one("metadata.team:pay:ments").what, What::Metadata("team".into(), "pay:ments".into()));
        assert_eq!(one("-Nightly"), Term { is_negated: true, what: What::Title("nightly".into()) });
        assert_eq!(one("\"two: words\"").what, What::Title("two: words".into()));
        assert_eq!(one("agent:\"my coder\"").what, What::AgentNamed(vec!["my coder".into()]));
        assert_eq!(parse(" a  b ").expect("valid").len(), 2);
        assert_eq!(parse("").expect("valid"), []);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("colour:red", "there is no field"),
            ("phase:asleep", "is none of"),
            ("age:>soon", "expected a number"),
            ("age:>5µ", "expected a number"),
            ("cost:", "has no value"),
            ("\"open", "not closed"),
        ] {
            let error = format!("{:?}", parse(text).expect_err("wrong"));
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(parse(&"a ".repeat(40)).is_err() && parse(&"a".repeat(3_000)).is_err());
    }
}
