//! Portal sessions: a tenant's person looks at that tenant's things, for a short time (S7).
//!
//! The operator's back end asks for a session and hands its code to the browser. The code is exchanged once, soon, for
//! a token that lives in a cookie. Only hashes of both are kept.

use serde::{Deserialize, Serialize};

use crate::api_key::KeyHash;
use crate::id::{SessionId, TenantId, letters_of};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalSession {
    pub id: SessionId,
    pub tenant_id: TenantId,
    pub key: PortalKey,
    pub created_at: Timestamp,
    /// Whatever happens, it is over then.
    pub expires_at: Timestamp,
}

/// What the one who comes has to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortalKey {
    /// Not opened yet: the code, and until when it can be exchanged.
    Code { hash: KeyHash, until: Timestamp },
    /// Opened: the token.
    Token { hash: KeyHash },
}

impl PortalSession {
    /// The same with a token, if this is its code and comes in time.
    pub fn opened(&self, code: &KeyHash, token: KeyHash, now: Timestamp) -> Option<Self> {
        match &self.key {
            PortalKey::Code { hash, until } if hash == code && now < *until && now < self.expires_at => {
                Some(Self { key: PortalKey::Token { hash: token }, ..self.clone() })
            }
            PortalKey::Code { .. } | PortalKey::Token { .. } => None,
        }
    }
}

/// Bytes of chance in a code and in a token: 256 bits.
pub const SECRET_LEN: usize = 32;
const SECRET_LETTERS: usize = 52;

/// A code's or a token's text: the session's ID, and a secret.
pub fn secret_text(id: SessionId, chance: &[u8; SECRET_LEN]) -> String {
    format!("{id}_{}", letters_of(chance))
}

/// Whose code or token this may be; whether it is, the hash tells.
pub fn session_of(text: &str) -> Option<SessionId> {
    let (id, secret) = text.rsplit_once('_')?;
    id.parse().ok().filter(|_| secret.len() == SECRET_LETTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_names_its_session() {
        let text = secret_text(SessionId(5), &[0xff; SECRET_LEN]);
        assert_eq!(session_of(&text), Some(SessionId(5)));
        for wrong in ["", "pss_", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(session_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_code_opens_a_session_once_and_in_time() {
        let (code, token) = (KeyHash::of("code"), KeyHash::of("token"));
        let session = PortalSession {
            id: SessionId(1),
            tenant_id: TenantId(1),
            key: PortalKey::Code { hash: code.clone(), until: Timestamp(10) },
            created_at: Timestamp(0),
            expires_at: Timestamp(100),
        };
        let opened = session.opened(&code, token.clone(), Timestamp(9)).expect("it is in time");
        assert_eq!(opened.key, PortalKey::Token { hash: token.clone() });
        assert_eq!(session.opened(&code, token.clone(), Timestamp(10)), None, "too late");
        assert_eq!(session.opened(&KeyHash::of("other"), token.clone(), Timestamp(9)), None);
        assert_eq!(opened.opened(&code, token, Timestamp(9)), None, "a second time");
    }
}
