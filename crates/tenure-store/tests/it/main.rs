//! The conformance suite on the model in memory.

use async_trait::async_trait;
use std::sync::Arc;
use tenure_core::Millis;
use tenure_store::Store;
use tenure_store::conformance::Harness;
use tenure_store::memory::Memory;

struct InMemory(Arc<Memory>);

impl InMemory {
    fn new() -> Self {
        Self(Arc::new(Memory::new()))
    }
}

#[async_trait]
impl Harness for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn advance(&self, span: Millis) {
        self.0.advance(span);
    }

    async fn reopen(&self) {}
}

tenure_store::conformance!(InMemory::new());
