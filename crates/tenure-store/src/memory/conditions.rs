//! Conditions in memory.

use super::{Data, Head, Memory};
use crate::{Admit, ConditionView, Conditions, Error, Hint, Kind, Released, State};
use async_trait::async_trait;
use tenure_core::condition::{Admission, Condition, Report, Settlement, Turn};
use tenure_core::{ConditionId, SessionId, TenantId};

impl Data {
    fn waits(head: &Head, id: ConditionId) -> bool {
        head.state == State::Parked && head.session.waits_on() == Some(id)
    }

    fn waiting(&self, id: ConditionId, tenant: Option<&TenantId>) -> u64 {
        let of_tenant = |head: &&Head| tenant.is_none_or(|tenant| head.session.tenant == *tenant);
        self.heads.values().filter(|head| Self::waits(head, id)).filter(of_tenant).count() as u64
    }

    /// Who leaves next: the one of the next tenant that waited longest.
    fn next_waiting(&self, condition: &Condition) -> Option<(TenantId, SessionId)> {
        let waiting = self.heads.values().filter(|head| Self::waits(head, condition.id));
        let key = |head: &&Head| {
            let tenant = &head.session.tenant;
            let is_before = condition.turn.as_ref().is_some_and(|turn| tenant <= turn);
            (is_before, tenant.clone(), head.state_since, head.session.id)
        };
        waiting.min_by_key(key).map(|head| (head.session.tenant.clone(), head.session.id))
    }

    /// Queues the next one, with the right to leave in this generation.
    fn let_go(&mut self, condition: &mut Condition) -> Option<SessionId> {
        let (tenant, session) = self.next_waiting(condition)?;
        condition.turn = Some(tenant);
        self.queue(session);
        if let Some(head) = self.heads.get_mut(&session) {
            head.granted = Some(condition.generation);
        }
        Some(session)
    }

    fn look(&mut self, id: ConditionId, hints: &mut Vec<Hint>) -> u64 {
        let now = self.now;
        let waiting = self.waiting(id, None);
        let Some(mut condition) = self.conditions.remove(&id) else { return 0 };
        let turn = condition.look(waiting, now);
        let mut woken = Vec::new();
        match turn {
            Turn::Nothing => {}
            Turn::Remove => return 0,
            Turn::Probe => {
                woken.extend(self.let_go(&mut condition));
                if let Some(session) = woken.first() {
                    condition.give_probe(*session, now);
                }
            }
            Turn::Release(count) => {
                for _ in 0..count {
                    woken.extend(self.let_go(&mut condition));
                }
                condition.released(woken.len() as u64, now);
            }
        }
        self.conditions.insert(id, condition);
        hints.extend(woken.iter().map(|session| Hint::Session(*session)));
        if !woken.is_empty() {
            hints.push(Hint::Runnable);
        }
        woken.len() as u64
    }

    fn views(&self, tenant: Option<&TenantId>) -> Vec<ConditionView> {
        let view = |condition: &Condition| ConditionView {
            waiting: self.waiting(condition.id, tenant),
            condition: condition.clone(),
        };
        let mut views: Vec<ConditionView> = self.conditions.values().map(view).collect();
        views.sort_by(|one, other| one.condition.key.cmp(&other.condition.key));
        views
    }
}

#[async_trait]
impl Conditions for Memory {
    async fn report_condition(&self, report: Report) -> Result<Condition, Error> {
        let mut data = self.lock();
        let now = data.now;
        let earlier = data.conditions.values().find(|condition| condition.key == report.key).cloned();
        let condition = Condition::after(earlier, &report, now);
        data.conditions.insert(condition.id, condition.clone());
        Ok(condition)
    }

    async fn admit(&self, admit: Admit) -> Result<Admission, Error> {
        let mut data = self.lock();
        let (now, session) = (data.now, admit.lease.session);
        let has_others = data.waiting(admit.condition, None) > 0;
        let Data { heads, conditions, .. } = &mut *data;
        let head = heads.get_mut(&session).filter(|head| head.is_fenced_by(&admit.lease)).ok_or_else(|| {
            Error::new(Kind::Fenced, format!("the lease of session {session} with epoch {} is gone", admit.lease.epoch))
        })?;
        let grant = head.granted.take();
        let Some(condition) = conditions.get_mut(&admit.condition) else { return Ok(Admission::Free) };
        Ok(condition.admit(session, grant, has_others, admit.insists, now))
    }

    async fn settle_probe(&self, id: ConditionId, number: u64, settlement: Settlement) -> Result<bool, Error> {
        let mut data = self.lock();
        let now = data.now;
        Ok(data.conditions.get_mut(&id).is_some_and(|condition| condition.settle(number, settlement, now)))
    }

    async fn release_waiting(&self) -> Result<Released, Error> {
        let mut data = self.lock();
        let ids: Vec<ConditionId> = data.conditions.keys().copied().collect();
        let mut hints = Vec::new();
        let woken = ids.into_iter().map(|id| data.look(id, &mut hints)).sum();
        let released = Released { conditions: data.views(None), woken, now: data.now };
        drop(data);
        hints.into_iter().for_each(|hint| self.hint(hint));
        Ok(released)
    }

    async fn conditions(&self, tenant: Option<TenantId>) -> Result<Vec<ConditionView>, Error> {
        Ok(self.lock().views(tenant.as_ref()))
    }

    async fn clear_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        let mut data = self.lock();
        let now = data.now;
        Ok(data.conditions.get_mut(&id).map(|condition| {
            condition.clear(now);
            condition.clone()
        }))
    }

    async fn hasten_condition(&self, id: ConditionId) -> Result<Option<Condition>, Error> {
        let mut data = self.lock();
        let now = data.now;
        Ok(data.conditions.get_mut(&id).map(|condition| {
            condition.hasten(now);
            condition.clone()
        }))
    }
}
