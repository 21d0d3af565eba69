//! Limits of a session on the wire: ours, and the money part that the SDKs know as `budget`.

use crate::error::Code;
use crate::fields::{Fields, Problem};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_core::Limits;

/// Millionths of a dollar in a cent.
const MICROS_PER_CENT: u64 = 10_000;

/// Millionths of a dollar in a dollar.
const MICROS_PER_DOLLAR: f64 = 1_000_000.0;

/// Limits of a session; null is no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireLimits {
    /// Model and tool calls.
    pub steps: Option<u64>,
    /// Tokens of all kinds.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Seconds since the session was made.
    pub wall_seconds: Option<u64>,
    /// Tool calls that failed in a row.
    #[serde(default)]
    pub failures: Option<u64>,
    /// The same call in a row.
    #[serde(default)]
    pub identical_calls: Option<u64>,
}

/// The money part of the limits, as the SDKs know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireBudget {
    /// Always `limit`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The amount.
    pub max_list_cost: Money,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// Cents, as a text of digits.
    pub amount: String,
    /// Always `USD`.
    pub currency: String,
}

impl Money {
    /// Millionths of a dollar, rounded up to cents.
    pub fn of_micros(micros: u64) -> Self {
        Self { amount: micros.div_ceil(MICROS_PER_CENT).to_string(), currency: "USD".into() }
    }
}

/// Dollars of millionths.
pub fn dollars(micros: u64) -> f64 {
    micros as f64 / MICROS_PER_DOLLAR
}

impl WireLimits {
    /// The limits as the API shows them.
    pub fn of(limits: Limits) -> Self {
        Self {
            steps: limits.steps,
            tokens: limits.tokens,
            cost_usd: limits.cost_usd_micros.map(dollars),
            wall_seconds: limits.wall.map(|millis| millis / 1_000),
            failures: limits.failures,
            identical_calls: limits.identical_calls,
        }
    }
}

impl WireBudget {
    /// The money part, if there is one.
    pub fn of(limits: Limits) -> Option<Self> {
        limits.cost_usd_micros.map(|micros| Self { kind: "limit".into(), max_list_cost: Money::of_micros(micros) })
    }
}

/// Changes of limits; a field that is left out stays as it is, null takes the limit away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsChange {
    steps: Option<Option<u64>>,
    tokens: Option<Option<u64>>,
    cost_usd_micros: Option<Option<u64>>,
    wall: Option<Option<u64>>,
    failures: Option<Option<u64>>,
    identical_calls: Option<Option<u64>>,
}

impl LimitsChange {
    /// Reads `limits` and the SDK's `budget`, which is the money part of them.
    ///
    /// # Errors
    /// When a limit is no number that can be kept, or when both name different amounts.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        let mut change = match fields.inner("limits")? {
            Some(limits) => Self::read_fields(&limits)?,
            None => Self::default(),
        };
        let money = match fields.change("budget") {
            None => None,
            Some(None) => Some(None),
            Some(Some(value)) => Some(Some(read_budget(value, &fields.path("budget"))?)),
        };
        if let (Some(ours), Some(theirs)) = (change.cost_usd_micros, money)
            && ours != theirs
        {
            return Err(Problem::invalid(
                &fields.path("budget"),
                "names another amount than limits.cost_usd; send one of them",
            ));
        }
        change.cost_usd_micros = change.cost_usd_micros.or(money);
        Ok(change)
    }

    /// Reads the fields of `limits` themselves.
    ///
    /// # Errors
    /// When a limit is no number that can be kept.
    pub fn read_fields(limits: &Fields<'_>) -> Result<Self, Problem> {
        let whole = |name: &str| -> Result<Option<Option<u64>>, Problem> {
            limits.change(name).map(|_| limits.number(name)).transpose()
        };
        let cost_usd_micros = match limits.change("cost_usd") {
            None => None,
            Some(None) => Some(None),
            Some(Some(value)) => Some(Some(micros(value, &limits.path("cost_usd"))?)),
        };
        let wall = whole("wall_seconds")?.map(|seconds| seconds.map(|seconds| seconds.saturating_mul(1_000)));
        Ok(Self {
            steps: whole("steps")?,
            tokens: whole("tokens")?,
            cost_usd_micros,
            wall,
            failures: whole("failures")?,
            identical_calls: whole("identical_calls")?,
        })
    }

    /// Whether a limit of money is asked for.
    pub fn limits_money(&self) -> bool {
        matches!(self.cost_usd_micros, Some(Some(_)))
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limits after the change.
    pub fn apply(&self, limits: Limits) -> Limits {
        Limits {
            steps: self.steps.unwrap_or(limits.steps),
            tokens: self.tokens.unwrap_or(limits.tokens),
            cost_usd_micros: self.cost_usd_micros.unwrap_or(limits.cost_usd_micros),
            wall: self.wall.unwrap_or(limits.wall),
            failures: self.failures.unwrap_or(limits.failures),
            identical_calls: self.identical_calls.unwrap_or(limits.identical_calls),
        }
    }
}

pub(crate) fn micros(value: &Value, path: &str) -> Result<u64, Problem> {
    let dollars = value.as_f64().filter(|dollars| dollars.is_finite() && *dollars >= 0.0);
    // The cast saturates: nobody has that much.
    dollars
        .map(|dollars| (dollars * MICROS_PER_DOLLAR).round() as u64)
        .ok_or_else(|| Problem::invalid(path, "expected dollars as a number that is not negative"))
}

fn read_budget(value: &Value, path: &str) -> Result<u64, Problem> {
    let budget = Fields::at(value, path)?;
    if budget.kind()? != "limit" {
        return Err(Problem::new(Code::UnsupportedFeature, format!("{path}.type: only limit is known")));
    }
    let money = budget.required("max_list_cost")?;
    let money = Fields::at(money, &budget.path("max_list_cost"))?;
    if money.required_text("currency", 8)? != "USD" {
        return Err(Problem::invalid(&money.path("currency"), "only USD is known"));
    }
    let cents: Option<u64> = money.required_text("amount", 20)?.parse().ok();
    let cents = cents.ok_or_else(|| Problem::invalid(&money.path("amount"), "expected cents as a text of digits"))?;
    Ok(cents.saturating_mul(MICROS_PER_CENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Limits, String> {
        let fields = Fields::root(&value).map_err(|problem| problem.message)?;
        LimitsChange::read(&fields).map(|change| change.apply(Limits::default())).map_err(|problem| problem.message)
    }

    #[test]
    fn the_budget_of_the_sdks_is_the_money_part_of_the_limits() {
        let budget = json!({"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}});
        let limits = read(json!({"budget": budget, "limits": {"steps": 7, "tokens": null}})).expect("valid");
        let expected = Limits { steps: Some(7), cost_usd_micros: Some(25_000_000), ..Limits::default() };
        assert_eq!(limits, Limits { tokens: None, ..expected });
        let wire = serde_json::to_value(WireBudget::of(limits)).expect("plain");
        assert_eq!(wire, budget_of("2500"));
    }

    fn budget_of(cents: &str) -> Value {
        json!({"type": "limit", "max_list_cost": {"amount": cents, "currency": "USD"}})
    }

    #[test]
    fn limits_that_contradict_each_other_or_are_no_numbers_are_refused() {
        for body in [
            json!({"budget": budget_of("100"), "limits": {"cost_usd": 2}}),
            json!({"limits": {"steps": -1}}),
            json!({"limits": {"cost_usd": "much"}}),
            json!({"limits": {"cost_usd": -0.5}}),
            json!({"budget": {"type": "limit", "max_list_cost": {"amount": "1.5", "currency": "USD"}}}),
            json!({"limits": [1]}),
        ] {
            assert!(read(body.clone()).is_err(), "{body}");
        }
    }
}
