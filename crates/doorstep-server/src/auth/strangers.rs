//! Who shows a credential that is not good: a line in the log each, as long as they are few.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use doorstep_core::api_key::KeyText;
use doorstep_core::id::SessionId;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{bearer, cookie};
use crate::problem::Problem;

/// So many are logged between two writes of the notes. Of more, only how many they were.
const LOGGED_MAX: u64 = 20;

#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Counted>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    logged: u64,
    left_out: u64,
}

impl Strangers {
    /// A request was not recognised. One without any credential tells nothing, and is not logged.
    pub(crate) fn refused(&self, headers: &HeaderMap, from: Option<IpAddr>, problem: &Problem) {
        let given = headers.get(AUTHORIZATION);
        if given.is_none() && cookie::read(headers).is_none() {
            return;
        }
        if !self.may_log() {
            return;
        }
        // The key itself is nobody's business: only which one it says it is.
        let key = given.and_then(|given| given.to_str().ok()).and_then(bearer).and_then(|key| KeyText::parse(key).ok());
        let key_id = key.map(|key| key.id.to_string());
        let from = from.map(|from| from.to_string());
        tracing::warn!(key_id, from, reason = problem.detail(), "a credential was refused");
    }

    /// A code opens no portal session. Which one it says it is of is no secret.
    pub(crate) fn wrong_code(&self, session_id: Option<SessionId>, from: Option<IpAddr>, problem: &Problem) {
        if self.may_log() {
            let (session_id, from) = (session_id.map(|id| id.to_string()), from.map(|from| from.to_string()));
            tracing::warn!(session_id, from, reason = problem.detail(), "a portal code was refused");
        }
    }

    fn may_log(&self) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = counted.logged < LOGGED_MAX;
        *(if may { &mut counted.logged } else { &mut counted.left_out }) += 1;
        may
    }

    /// Begins anew, and says how many were not logged.
    pub(super) fn tell_of_the_rest(&self) {
        let Counted { left_out, .. } = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if left_out > 0 {
            tracing::warn!(left_out, "more credentials were refused than are logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_logged() {
        let strangers = Strangers::default();
        let counted = || *strangers.0.lock().unwrap();
        let refuse = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            strangers.refused(&headers, None, &Problem::unauthorized("why"));
        };
        refuse(&[]);
        assert_eq!(counted(), Counted::default(), "without a credential there is nothing to tell");
        for _ in 0..LOGGED_MAX + 5 {
            refuse(&[("authorization", "Bearer x")]);
        }
        refuse(&[("cookie", "doorstep_portal=x")]);
        assert_eq!(counted(), Counted { logged: LOGGED_MAX, left_out: 6 });
        strangers.tell_of_the_rest();
        assert_eq!(counted(), Counted::default());
    }
}
