//! Looks after conditions: has them probed, and lets go of those who wait, at the rate that the store
//! allows to all nodes together.

use crate::services::Services;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::condition::Stage;
use tenure_store::ConditionView;

/// Longest time between two looks: conditions that other nodes opened are found by looking.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The same while those who wait are let go.
const RELEASE_PAUSE: Duration = Duration::from_millis(100);

/// Looks until the worker stops.
pub(crate) async fn run(services: Arc<Services>) {
    hasten(&services).await;
    loop {
        let pause = match services.store.release_waiting().await {
            Ok(released) => {
                services.clock.observe(released.now);
                let pause = pause(&services, &released.conditions);
                services.upstreams.learn(released.conditions.into_iter().map(|view| view.condition));
                pause
            }
            Err(error) => {
                tracing::warn!(%error, "look after conditions");
                MAX_PAUSE
            }
        };
        tokio::select! {
            biased;
            () = services.stopping.cancelled() => return,
            () = services.upstreams.changed.notified() => {}
            // Drawn, so that nodes do not look together.
            () = tokio::time::sleep(services.chance.part_of(pause, 0.5..=1.0)) => {}
        }
    }
}

/// What only an operator can mend may be mended: this start reads a configuration that may be new.
async fn hasten(services: &Services) {
    match services.store.conditions(None).await {
        Ok(views) => {
            for view in views.iter().filter(|view| view.condition.needs_operator()) {
                if let Err(error) = services.store.hasten_condition(view.condition.id).await {
                    tracing::warn!(%error, "hasten the probe of a condition");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "read conditions"),
    }
}

fn pause(services: &Services, views: &[ConditionView]) -> Duration {
    let pause = |view: &ConditionView| match view.condition.stage {
        Stage::Open if view.waiting > 0 => services.clock.until(view.condition.probe_at),
        Stage::Releasing if view.waiting > 0 => RELEASE_PAUSE,
        Stage::Open | Stage::Releasing | Stage::Over => MAX_PAUSE,
    };
    // A probe that is due and under way keeps its time: look at the ordinary pace then.
    let shortest = views.iter().map(pause).min().unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
    if shortest.is_zero() { RELEASE_PAUSE } else { shortest }
}
