//! The table of routes.

use crate::error::ApiError;
use crate::layers;
use crate::routes::{
    agents, approvals, callbacks, conditions, context, control, environments, events, explain, feed, files, fleet,
    fork, health, leases, metrics, nodes, outputs, queues, sessions, snapshots, stream, timeline,
};
use crate::state::ServerState;
use crate::workbench;
use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};
use std::sync::Arc;
use tenure_api::error::Code;

type Routes = Vec<(&'static str, MethodRouter<Arc<ServerState>>)>;

/// All routes, with the checks that each request passes.
pub fn router(state: Arc<ServerState>) -> Router {
    let check_place = || from_fn_with_state(state.clone(), layers::check_place);
    let check_key = from_fn_with_state(state.clone(), layers::check_key);
    // From the inside out: the key is the last check before a route, also of routes that do not
    // exist, so that strangers learn nothing about paths.
    let keyed = build(keyed_routes())
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .layer(check_key)
        .layer(check_place());
    let open = build(open_routes()).method_not_allowed_fallback(wrong_method);
    let answered = build(callback_routes()).method_not_allowed_fallback(wrong_method);
    // Pages and logins need no key, and are asked for under a name of this server only.
    let pages = workbench::routes().layer(check_place());
    Router::new()
        .merge(pages)
        .merge(open)
        .merge(answered)
        .fallback_service(keyed.with_state(state.clone()))
        .layer(from_fn_with_state(state.clone(), layers::finish))
        .with_state(state)
}

fn build(routes: Routes) -> Router<Arc<ServerState>> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
}

/// Routes that need a key.
fn keyed_routes() -> Routes {
    vec![
        ("/v1/agents", get(agents::list).post(agents::create)),
        ("/v1/agents/{agent_id}", get(agents::get).post(agents::update)),
        ("/v1/agents/{agent_id}/archive", post(agents::archive)),
        ("/v1/agents/{agent_id}/versions", get(agents::versions)),
        ("/v1/environments", get(environments::list).post(environments::create)),
        (
            "/v1/environments/{environment_id}",
            get(environments::get).post(environments::update).delete(environments::delete),
        ),
        ("/v1/environments/{environment_id}/archive", post(environments::archive)),
        ("/v1/sessions", get(sessions::list).post(sessions::create)),
        ("/v1/sessions/{session_id}", delete(sessions::delete).get(sessions::get).post(sessions::update)),
        ("/v1/sessions/{session_id}/archive", post(sessions::archive)),
        ("/v1/sessions/{session_id}/events", get(events::list).post(events::send)),
        ("/v1/sessions/{session_id}/events/stream", get(stream::get)),
        ("/v1/sessions/{session_id}/context", get(context::get)),
        ("/v1/sessions/{session_id}/explain", get(explain::get)),
        ("/v1/sessions/{session_id}/timeline", get(timeline::get)),
        ("/v1/sessions/{session_id}/pause", post(control::pause)),
        ("/v1/sessions/{session_id}/resume", post(control::resume)),
        ("/v1/sessions/{session_id}/cancel", post(control::cancel)),
        ("/v1/sessions/{session_id}/budget", post(control::budget)),
        ("/v1/sessions/{session_id}/fork", post(fork::create)),
        ("/v1/sessions/{session_id}/snapshots", get(snapshots::list).post(snapshots::take)),
        ("/v1/sessions/{session_id}/diff", get(snapshots::diff)),
        ("/v1/sessions/{session_id}/files", get(files::list)),
        ("/v1/sessions/{session_id}/files/content", get(files::read).put(files::write)),
        ("/v1/sessions/{session_id}/files/archive", get(files::export).put(files::import)),
        ("/v1/sessions/{session_id}/outputs/{tool_use_id}", get(outputs::get)),
        ("/v1/queues/{queue}", get(queues::depth)),
        ("/v1/queues/{queue}/leases", post(queues::take)),
        ("/v1/leases/{lease_id}/checkpoint", post(leases::checkpoint)),
        ("/v1/leases/{lease_id}/renew", post(leases::renew)),
        ("/v1/leases/{lease_id}/preview", post(leases::preview)),
        ("/v1/leases/{lease_id}/release", post(leases::release)),
        ("/v1/approvals", get(approvals::list)),
        ("/v1/conditions", get(conditions::list)),
        ("/v1/conditions/{condition_id}/probe", post(conditions::probe)),
        ("/v1/conditions/{condition_id}/clear", post(conditions::clear)),
        ("/v1/nodes", get(nodes::list)),
        ("/metrics", get(metrics::get)),
        ("/v1/fleet", get(fleet::get)),
        ("/v1/stream", get(feed::get)),
        ("/v1/logins", post(workbench::link)),
        ("/v1/whoami", get(workbench::whoami)),
    ]
}

/// Routes that say nothing about anybody.
fn open_routes() -> Routes {
    vec![("/healthz", get(health::healthz)), ("/readyz", get(health::readyz)), ("/openapi.json", get(health::openapi))]
}

/// Routes whose path is their secret.
fn callback_routes() -> Routes {
    vec![("/v1/callbacks/{token}", post(callbacks::answer))]
}

async fn missing(request: Request) -> ApiError {
    ApiError::new(Code::RouteNotFound, format!("there is no path {}", request.uri().path()))
}

async fn wrong_method(request: Request) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("{} does not take {}", request.uri().path(), request.method()))
}
