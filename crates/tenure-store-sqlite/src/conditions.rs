//! The part of the port that is about upstreams.

use crate::operations::conditions;
use crate::sqlite::Sqlite;
use async_trait::async_trait;
use tenure_core::condition::{Admission, Condition, Report, Settlement};
use tenure_core::{ConditionId, TenantId};
use tenure_store::{Admit, ConditionView, Conditions, Error, Released};

#[async_trait]
impl Conditions for Sqlite {
    async fn report_condition(&self, report: Report) -> Result<Condition, Error> {
        self.save(move |work| conditions::report(work, &report)).await
    }

    async fn admit(&self, admit: Admit) -> Result<Admission, Error> {
        self.save(move |work| conditions::admit(work, &admit)).await
    }

    async fn settle_probe(&self, id: ConditionId, number: u64, settlement: Settlement) -> Result<bool, Error> {
        self.save(move |work| conditions::settle(work, id, number, settlement)).await
    }

    async fn release_waiting(&self) -> Result<Released, Error> {
        let now = self.clock_now();
        let idle = self.read(move |connection| {
            if conditions::wants_look(connection, now)? {
                return Ok(None);
            }
            Ok(Some(Released { conditions: conditions::views(connection, None)?, woken: 0, now }))
        });
        match idle.await? {
            Some(nothing) => Ok(nothing),
            None => self.save(conditions::release).await,
        }
    }

    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error> {
        self.read(move |connection| conditions::views(connection, tenant.as_ref())).await
    }

    async fn clear_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        self.save(move |work| conditions::change(work, id, Condition::clear)).await
    }

    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        self.save(move |work| conditions::change(work, id, Condition::hasten)).await
    }
}
