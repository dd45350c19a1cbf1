//! API keys and portal sessions: who may come in.

use doorstep_core::api_key::{ApiKey, KeyHash};
use doorstep_core::id::{KeyId, SessionId, TenantId};
use doorstep_core::portal::PortalSession;
use doorstep_core::reach::Reach;
use doorstep_core::store::{Ages, Refusal, Written};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, params};
use serde::de::DeserializeOwned;

use super::batch::Batch;
use super::catalog::from;
use super::fault::Fault;
use super::row;

pub(super) const PURGE_KEYS: &str = "
    delete from api_keys where id in (
        select id from api_keys where ended_at is not null and ended_at < ?1 order by ended_at, id limit ?2)";

pub(super) const PURGE_SESSIONS: &str = "
    delete from portal_sessions where id in (
        select id from portal_sessions where expires_at < ?1 order by expires_at, id limit ?2)";

pub(super) const END_SESSIONS: &str = "delete from portal_sessions where tenant_id = ?1";

impl Batch<'_> {
    pub(super) fn put_api_key(&self, key: &ApiKey) -> Result<Written, Fault> {
        let made = self.execute(
            "insert or ignore into api_keys (id, tenant_id, ended_at, key) values (?1, ?2, ?3, ?4)",
            params![
                key.id.0.to_be_bytes(),
                key.tenant_id.map(|id| id.0.to_be_bytes()),
                key.ended_at().map(|at| at.0),
                row::json("a key", key)?
            ],
        )?;
        Ok(if made == 0 { Written::Refused(Refusal::VersionDiffers) } else { Written::Saved })
    }

    pub(super) fn change_api_key(&self, to: ApiKey) -> Result<Written, Fault> {
        let Some(key) = self.api_key(to.id)? else { return Ok(Written::Refused(Refusal::NotFound)) };
        match key.changed(to) {
            Ok(changed) => self.save_key(&changed),
            Err(refusal) => Ok(Written::Refused(refusal)),
        }
    }

    pub(super) fn revoke_api_key(&self, id: KeyId, now: Timestamp) -> Result<Written, Fault> {
        let Some(mut key) = self.api_key(id)?.filter(|key| key.revoked_at.is_none()) else {
            return Ok(Written::Refused(Refusal::NotFound));
        };
        key.revoked_at = Some(now);
        self.save_key(&key)
    }

    pub(super) fn used_api_keys(&self, used: &[(KeyId, Timestamp)]) -> Result<Written, Fault> {
        for (id, at) in used {
            if let Some(mut key) = self.api_key(*id)? {
                key.last_used_at = key.last_used_at.max(Some(*at));
                self.save_key(&key)?;
            }
        }
        Ok(Written::Saved)
    }

    fn save_key(&self, key: &ApiKey) -> Result<Written, Fault> {
        self.execute(
            "update api_keys set ended_at = ?2, key = ?3 where id = ?1",
            params![key.id.0.to_be_bytes(), key.ended_at().map(|at| at.0), row::json("a key", key)?],
        )?;
        Ok(Written::Saved)
    }

    pub(super) fn api_key(&self, id: KeyId) -> Result<Option<ApiKey>, Fault> {
        self.one("a key", "select key from api_keys where id = ?1", id.0)
    }

    pub(super) fn put_portal_session(&self, session: &PortalSession) -> Result<Written, Fault> {
        let made = self.execute(
            "insert or ignore into portal_sessions (id, tenant_id, expires_at, session) values (?1, ?2, ?3, ?4)",
            params![
                session.id.0.to_be_bytes(),
                session.tenant_id.0.to_be_bytes(),
                session.expires_at.0,
                row::json("a session", session)?
            ],
        )?;
        Ok(if made == 0 { Written::Refused(Refusal::VersionDiffers) } else { Written::Saved })
    }

    pub(super) fn open_portal_session(
        &self,
        id: SessionId,
        code: &KeyHash,
        token: KeyHash,
        now: Timestamp,
    ) -> Result<Written, Fault> {
        let opened = self.portal_session(id)?.and_then(|session| session.opened(code, token, now));
        let Some(opened) = opened else { return Ok(Written::Refused(Refusal::NotFound)) };
        self.execute(
            "update portal_sessions set session = ?2 where id = ?1",
            params![id.0.to_be_bytes(), row::json("a session", &opened)?],
        )?;
        Ok(Written::Saved)
    }

    pub(super) fn end_portal_session(&self, id: SessionId) -> Result<Written, Fault> {
        let ended = self.execute("delete from portal_sessions where id = ?1", [id.0.to_be_bytes()])?;
        Ok(if ended == 0 { Written::Refused(Refusal::NotFound) } else { Written::Saved })
    }

    pub(super) fn end_portal_sessions(&self, tenant_id: TenantId) -> Result<Written, Fault> {
        self.execute(END_SESSIONS, [tenant_id.0.to_be_bytes()])?;
        Ok(Written::Saved)
    }

    pub(super) fn portal_session(&self, id: SessionId) -> Result<Option<PortalSession>, Fault> {
        self.one("a session", "select session from portal_sessions where id = ?1", id.0)
    }

    fn one<T: DeserializeOwned>(&self, what: &'static str, sql: &'static str, id: u128) -> Result<Option<T>, Fault> {
        let stored: Option<Vec<u8>> = self.find(sql, [id.to_be_bytes()], |row| row.get(0))?;
        stored.map(|stored| row::read_json(what, &stored)).transpose()
    }

    /// Keys and sessions that have ended, the keys first.
    pub(super) fn purge_access(&self, ages: Ages, limit: usize) -> Result<usize, Fault> {
        let keys = self.execute(PURGE_KEYS, params![ages.keys.0, row::number(limit)])?;
        let sessions = self.execute(PURGE_SESSIONS, params![ages.sessions.0, row::number(limit - keys)])?;
        Ok(keys + sessions)
    }
}

pub(super) fn api_keys(
    sql: &Connection,
    reach: Reach,
    after: Option<KeyId>,
    limit: usize,
) -> Result<Vec<ApiKey>, Fault> {
    let text = "select key from api_keys where id > ?1 and (?3 is null or tenant_id = ?3) order by id limit ?2";
    behind(sql, "a key", text, reach, after.map(|id| id.0), limit)
}

pub(super) fn portal_sessions(
    sql: &Connection,
    reach: Reach,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<PortalSession>, Fault> {
    let text =
        "select session from portal_sessions where id > ?1 and (?3 is null or tenant_id = ?3) order by id limit ?2";
    behind(sql, "a session", text, reach, after.map(|id| id.0), limit)
}

fn behind<T: DeserializeOwned>(
    sql: &Connection,
    what: &'static str,
    text: &str,
    reach: Reach,
    after: Option<u128>,
    limit: usize,
) -> Result<Vec<T>, Fault> {
    let of = reach.tenant_id().map(|id| id.0.to_be_bytes());
    let mut found = sql.prepare_cached(text)?;
    let mut rows = found.query(params![from(after), row::number(limit), of])?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        read.push(row::read_json(what, row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?);
    }
    Ok(read)
}
