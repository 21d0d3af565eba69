//! The conformance suite: what every adapter of the port must do, split by topic.
//!
//! An adapter's tests implement [`Harness`] and name it once; the macro makes one test of each case:
//! ```text
//! tenure_store::conformance!(MyHarness::new());
//! ```

pub mod catalog;
pub mod claim;
pub mod commit;
pub mod conditions;
pub mod create;
pub mod deliver;
pub mod fence;
pub mod fixture;
pub mod forks;
pub mod heartbeat;
pub mod idempotency;
pub mod lanes;
pub mod large;
pub mod leases;
pub mod nodes;
pub mod park;
pub mod reads;
pub mod sweep;
pub mod tenants;
pub mod text;
pub mod timers;

use crate::Store;
use async_trait::async_trait;
use std::future::Future;
use std::sync::Arc;
use tenure_core::Millis;

/// What the suite needs of an adapter besides the port.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store under test; empty at first.
    fn store(&self) -> Arc<dyn Store>;

    /// Moves the store's clock on.
    fn advance(&self, span: Millis);

    /// Closes the store and opens it again, as a restart does. A store that lives as long as its
    /// process may do nothing.
    async fn reopen(&self);
}

/// Runs one case to its end, on several threads.
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(case);
}

/// Makes a test of each case; `$harness` is evaluated for each.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        $crate::conformance_cases! { $harness,
            create: a_session_begins_parked_with_an_empty_log, a_session_with_inputs_begins_queued, an_id_is_taken_once,
                a_refused_input_refuses_the_session;
            deliver: inputs_keep_their_order_and_wake_the_session, a_batch_is_taken_whole_or_not_at_all,
                o_028_two_messages_at_once_are_kept_and_lead_to_one_lease, o_050_each_answer_makes_the_session_runnable,
                o_051_a_callback_before_its_wait_is_kept_once, z_25_an_answer_after_the_deadline_gets_what_counts,
                the_first_of_two_answers_counts, an_answer_to_an_unknown_call_names_it, an_ended_session_takes_nothing_new,
                z_54_a_full_inbox_refuses_messages_and_keeps_room_for_cancel, urgent_inputs_are_reported_until_they_are_consumed,
                hints_tell_what_changed;
            claim: the_oldest_is_leased_first, a_leased_session_is_not_leased_again, z_03_a_lost_reply_is_asked_for_again,
                z_04_a_dead_or_unknown_node_gets_no_lease, p_13_claims_are_counted_until_progress,
                p_13_yielding_and_parking_are_not_counted, z_34_a_node_gets_one_suspect_at_a_time, p_16_tenants_take_turns,
                a_claim_brings_head_and_inbox, a_claim_names_the_one_before;
            commit: events_head_and_inbox_change_together, z_20_a_repeated_commit_does_nothing, a_gap_in_the_log_is_refused,
                inputs_that_never_came_cannot_be_consumed, z_21_a_stale_commit_does_not_hurt_its_neighbours,
                the_last_event_ends_the_session, an_archived_session_says_when, a_yield_goes_to_the_end_of_the_queue;
            park: a_session_parks_on_an_empty_inbox, o_029_z_01_a_message_before_the_park_keeps_the_lease,
                o_052_no_wake_up_is_lost_between_check_and_park;
            fence: z_02_a_zombie_changes_nothing, z_05_the_nonce_is_part_of_the_fence, release_takes_the_claim_back,
                a_second_release_does_nothing;
            forks: a_fork_shares_the_rows_up_to_where_it_left, a_fork_of_a_fork_is_read_in_pages_both_ways,
                z_13_shared_rows_stay_until_the_last_fork_is_removed, z_10_open_calls_stay_with_the_parent,
                a_fork_is_checked_and_made_once;
            heartbeat: a_heartbeat_counts, z_03_leases_that_nobody_holds_are_queued_again, lost_leases_are_reported,
                urgent_inputs_reach_the_holder, a_dead_node_is_told;
            lanes: each_lane_gets_its_own, the_depth_of_a_queue_is_known, a_lease_that_is_not_renewed_is_taken_back,
                only_time_ends_the_lease_of_a_loop, something_urgent_goes_to_the_workers,
                a_yield_does_not_take_something_urgent_along;
            leases: a_lease_is_told_from_its_claim_to_its_end, each_lease_says_how_it_ended, an_end_is_told_once,
                leases_are_read_in_pages, old_leases_are_forgotten, the_leases_of_a_deleted_session_are_gone;
            sweep: a_silent_node_dies_and_its_sessions_are_queued, z_24_a_node_that_beat_meanwhile_lives,
                a_death_counts_against_the_session;
            nodes: z_04_an_id_is_used_once_and_death_is_final, a_retired_node_leaves_nothing_behind;
            timers: o_042_timers_fire_once_and_not_early_over_restarts, due_takes_the_earliest_first, a_paused_session_has_no_timer,
                z_24_time_does_not_go_back;
            idempotency: a_repeated_create_gives_the_first_session, a_repeated_delivery_gives_the_first_receipts,
                another_body_with_the_same_key_is_refused, z_18_a_key_means_nothing_to_others, repeated_definitions_give_the_first,
                a_refused_request_leaves_no_key, a_key_is_known_before_its_request_is_repeated;
            tenants: sessions_of_others_are_not_found, definitions_of_others_are_not_found;
            reads: a_log_is_read_in_pages_both_ways, sessions_are_listed_in_pages_both_ways, sessions_are_found_by_phase,
                sessions_are_found_by_agent_and_time, sessions_are_found_by_their_tail, counts_follow_every_state, phases_are_counted_by_tenant,
                counts_say_since_when_the_oldest_waits,
                the_place_in_the_queue_is_known, notes_change_key_by_key, notes_of_an_ended_session_change_silently,
                a_deleted_session_is_gone;
            catalog: versions_of_an_agent_follow_each_other, an_archived_agent_leaves_the_list, environments_are_replaced_and_removed;
            conditions: p10_one_session_probes_and_the_others_wait, a_mended_condition_lets_go_one_after_the_other,
                p_16_tenants_take_turns_when_they_leave, z_19_a_session_that_parks_too_late_is_let_go,
                z_55_a_dead_prober_blocks_nobody, a_condition_outlives_a_restart, a_stale_holder_takes_no_probe,
                an_input_wakes_a_waiting_session, a_paused_session_is_not_let_go, an_operator_hastens_or_clears;
            text: o_030_any_text_comes_back_as_it_was;
            large: z_15_large_payloads_come_back_whole, a_large_answer_counts_once, an_event_beyond_the_limit_is_refused;
        }
    };
}

/// Used by [`crate::conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($harness:expr, $($topic:ident: $($case:ident),+;)+) => {
        $(mod $topic {
            #[allow(unused_imports, reason = "the harness is whatever the caller names")]
            use super::*;
            $(#[test]
            fn $case() {
                $crate::conformance::run(async {
                    let harness = $harness;
                    $crate::conformance::$topic::$case(&harness).await;
                });
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_run() {
        let list = include_str!("conformance.rs");
        let topics = [
            include_str!("conformance/catalog.rs"),
            include_str!("conformance/claim.rs"),
            include_str!("conformance/commit.rs"),
            include_str!("conformance/conditions.rs"),
            include_str!("conformance/create.rs"),
            include_str!("conformance/deliver.rs"),
            include_str!("conformance/fence.rs"),
            include_str!("conformance/forks.rs"),
            include_str!("conformance/heartbeat.rs"),
            include_str!("conformance/idempotency.rs"),
            include_str!("conformance/lanes.rs"),
            include_str!("conformance/large.rs"),
            include_str!("conformance/leases.rs"),
            include_str!("conformance/nodes.rs"),
            include_str!("conformance/park.rs"),
            include_str!("conformance/reads.rs"),
            include_str!("conformance/sweep.rs"),
            include_str!("conformance/tenants.rs"),
            include_str!("conformance/text.rs"),
            include_str!("conformance/timers.rs"),
        ];
        assert_eq!(list.matches("\npub mod ").count(), topics.len() + 1, "a topic is missing above, or here");
        for line in topics.iter().flat_map(|topic| topic.lines()) {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split('(').next().expect("a function has arguments");
                assert!(
                    list.contains(&format!("{name},")) || list.contains(&format!("{name};")),
                    "{name} is not in the list"
                );
            }
        }
    }
}
