//! The part of the port that is about upstreams.

use crate::operations::conditions;
use crate::postgres::Postgres;
use crate::transact::{read, transact};
use async_trait::async_trait;
use tenure_core::condition::{Admission, Condition, Report, Settlement};
use tenure_core::{ConditionId, TenantId};
use tenure_store::{Admit, ConditionView, Conditions, Error, Released, Store};

#[async_trait]
impl Conditions for Postgres {
    async fn report_condition(&self, report: Report) -> Result<Condition, Error> {
        transact!(self, tx => conditions::report(&mut tx, &report).await)
    }

    async fn admit(&self, admit: Admit) -> Result<Admission, Error> {
        transact!(self, tx => conditions::admit(&mut tx, &admit).await)
    }

    async fn settle_probe(&self, id: ConditionId, number: u64, settlement: Settlement) -> Result<bool, Error> {
        transact!(self, tx => conditions::settle(&mut tx, id, number, settlement).await)
    }

    async fn release_waiting(&self) -> Result<Released, Error> {
        let now = self.now().await?;
        if !read!(self, link => conditions::wants_look(&link, now).await)? {
            let conditions = read!(self, link => conditions::views(&link, None).await)?;
            return Ok(Released { conditions, woken: 0, now });
        }
        transact!(self, tx => conditions::release(&mut tx).await)
    }

    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error> {
        read!(self, link => conditions::views(&link, tenant.as_ref()).await)
    }

    async fn clear_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        transact!(self, tx => conditions::change(&mut tx, id, Condition::clear).await)
    }

    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        transact!(self, tx => conditions::change(&mut tx, id, Condition::hasten).await)
    }
}
