//! One connection to each live node, from which its previews are read.

use super::PreviewHub;
use futures_util::StreamExt;
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::node::{MAX_LINE_BYTES, NODE_KEY_HEADER, PREVIEWS_PATH, PreviewFrame};
use tenure_core::NodeId;
use tenure_store::{Hint, Store};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often new nodes are looked for, if nothing hints at one.
const LOOK: Duration = Duration::from_millis(500);

/// Shortest time between two looks.
const LEAST_LOOK: Duration = Duration::from_millis(50);

/// Longest wait before a node is called again.
const MAX_AGAIN: Duration = Duration::from_secs(5);

/// First wait before a node is called again.
const FIRST_AGAIN: Duration = Duration::from_millis(100);

/// How long a node may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A node says at least an empty line so often; silence for longer means that the connection is gone.
const SILENCE: Duration = Duration::from_secs(15);

/// Keeps one link to each live node until `stop`.
pub(super) async fn follow_nodes(hub: PreviewHub, store: Arc<dyn Store>, node_key: String, stop: CancellationToken) {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let client = match client.connect_timeout(CONNECT_WITHIN).read_timeout(SILENCE).tcp_nodelay(true).build() {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "make a client for other nodes; there are no previews");
            return;
        }
    };
    let (mut links, mut next): (BTreeMap<NodeId, (u64, JoinHandle<()>)>, u64) = (BTreeMap::new(), 0);
    let mut hints = store.hints();
    loop {
        match store.nodes().await {
            Ok(nodes) => {
                let live: BTreeMap<NodeId, String> =
                    nodes.into_iter().filter(|node| !node.is_dead).map(|node| (node.id, node.address)).collect();
                links.retain(|node, (number, link)| {
                    let is_live = live.contains_key(node);
                    if !is_live {
                        link.abort();
                        hub.forget(*number);
                        hub.set_silence(*node, None);
                    }
                    is_live
                });
                for (node, address) in live {
                    links.entry(node).or_insert_with(|| {
                        next += 1;
                        let link = Link {
                            hub: hub.clone(),
                            node,
                            client: client.clone(),
                            address,
                            key: node_key.clone(),
                            number: next,
                        };
                        (next, tokio::spawn(link.run()))
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "read nodes for previews"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = next_look(&mut hints) => {}
        }
    }
    links.into_values().for_each(|(_, link)| link.abort());
}

/// Returns when it is time to look again: a new node writes itself into the store.
async fn next_look(hints: &mut broadcast::Receiver<Hint>) {
    let look = tokio::time::Instant::now() + LOOK;
    tokio::time::sleep(LEAST_LOOK).await;
    loop {
        match tokio::time::timeout_at(look, hints.recv()).await {
            Ok(Ok(Hint::Session(_) | Hint::Control(_) | Hint::Runnable)) => {}
            Ok(Err(broadcast::error::RecvError::Closed)) => return tokio::time::sleep_until(look).await,
            Ok(Ok(Hint::Anything) | Err(broadcast::error::RecvError::Lagged(_))) | Err(_) => return,
        }
    }
}

struct Link {
    hub: PreviewHub,
    node: NodeId,
    client: reqwest::Client,
    address: String,
    key: String,
    number: u64,
}

impl Link {
    async fn run(self) {
        let mut again = FIRST_AGAIN;
        loop {
            match self.read().await {
                Ok(()) => {
                    again = FIRST_AGAIN;
                    self.hub.set_silence(self.node, Some(format!("{} ended the connection", self.address)));
                }
                Err(error) => {
                    tracing::debug!(address = self.address, %error, "read previews of a node");
                    self.hub.set_silence(self.node, Some(self.why(&*error)));
                }
            }
            self.hub.forget(self.number);
            // Full jitter: many servers may have lost the same node.
            let wait = again.mul_f64(rand::rng().random_range(0.0..=1.0));
            tokio::time::sleep(wait).await;
            again = (again * 2).min(MAX_AGAIN);
        }
    }

    async fn read(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let url = format!("http://{}{PREVIEWS_PATH}", self.address);
        let response = self.client.get(url).header(NODE_KEY_HEADER, &self.key).send().await?.error_for_status()?;
        self.hub.set_silence(self.node, None);
        let (mut chunks, mut rest) = (response.bytes_stream(), Vec::new());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            let mut lines = chunk.split_inclusive(|byte| *byte == b'\n');
            for part in &mut lines {
                if rest.len() + part.len() > MAX_LINE_BYTES {
                    return Err("a line is too long".into());
                }
                rest.extend_from_slice(part);
                if rest.ends_with(b"\n") {
                    self.take(&rest)?;
                    rest.clear();
                }
            }
        }
        Ok(())
    }

    /// An error in words for whoever waits for previews.
    fn why(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let address = &self.address;
        match error.downcast_ref::<reqwest::Error>() {
            Some(error) if error.is_connect() => format!("{address} cannot be reached"),
            Some(error) if error.status().is_some_and(|status| status.is_client_error()) => {
                format!("{address} does not take the node key of this server")
            }
            Some(_) => format!("the connection to {address} broke"),
            None => format!("{address} does not say previews that can be read"),
        }
    }

    fn take(&self, line: &[u8]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let line = std::str::from_utf8(line)?.trim_end();
        if !line.is_empty() {
            self.hub.take(self.number, PreviewFrame::parse(line)?);
        }
        Ok(())
    }
}
