//! The workbench: its files, which are part of the binary, and the login of browsers.
//!
//! A page of it is the same for everybody and knows nothing; what it shows comes from the API, with
//! the key of a login. See [`login`] for why a cookie alone opens nothing.

mod files;
mod login;

pub use files::has_workbench;
pub(crate) use login::{Logins, caller_of, link, whoami};

use crate::state::ServerState;
use axum::Router;
use axum::routing::{any, post};
use std::sync::Arc;

/// First parts of the addresses of pages. Others have no page, so that a typing error is one.
const PAGES: [&str; 6] = ["sessions", "approvals", "conditions", "workers", "health", "login"];

/// Pages, their files, and the login; none of it needs a key.
pub(crate) fn routes() -> Router<Arc<ServerState>> {
    let login = Router::new()
        .route("/workbench/login", post(login::enter))
        .route("/workbench/logout", post(login::leave))
        .route("/", any(files::respond));
    let pages = PAGES.iter().flat_map(|page| [format!("/{page}"), format!("/{page}/{{id}}")]);
    let files = files::paths().map(str::to_owned);
    pages.chain(files).fold(login, |router, path| router.route(&path, any(files::respond)))
}
