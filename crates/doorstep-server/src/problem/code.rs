//! Every kind of problem, in one table: the API's description and the page at `/docs` are made from it.

use std::borrow::Cow;

use http::StatusCode;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! codes {
    ($($code:ident $name:literal $status:ident $title:literal $about:literal;)*) => {
        /// What a problem is called by programs. There is no problem without one of these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Code { $($code,)* }

        impl Code {
            pub(crate) const ALL: &[Self] = &[$(Self::$code,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)* }
            }

            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)* }
            }

            /// When it is said, and what to do then.
            pub(crate) const fn about(self) -> &'static str {
                match self { $(Self::$code => $about,)* }
            }
        }
    };
}

codes! {
    MalformedRequest "malformed_request" BAD_REQUEST "The request cannot be read"
        "The body is not JSON or broke off, or the request could be read in two ways: look at how it is put together.";
    Unauthorized "unauthorized" UNAUTHORIZED "A key is needed"
        "There is no credential, or it is not known, has expired or was revoked: send `Authorization: Bearer KEY` with one that is good.";
    WrongSource "wrong_source" FORBIDDEN "This is not allowed"
        "The key may not be used from this address: see its `source_cidrs`.";
    CrossSite "cross_site" FORBIDDEN "This is not allowed"
        "A portal session changes things from the portal's own pages alone, and this came from elsewhere.";
    MissingScope "missing_scope" FORBIDDEN "This is not allowed"
        "The credential lacks the scope that this needs: use another one.";
    LimitedToATenant "limited_to_a_tenant" FORBIDDEN "This is not allowed"
        "This is the operator's to do, and the credential is limited to one tenant.";
    NotAPortalSession "not_a_portal_session" FORBIDDEN "This is not allowed"
        "This is for portal sessions: keys do not need it.";
    LessLimited "less_limited" FORBIDDEN "This is not allowed"
        "The key is limited less than your own, in its ranges or its end: use one that is not limited.";
    BadLink "bad_link" FORBIDDEN "This link is not valid"
        "The link was not made here, was changed, or its destination is gone or has another URL: use it exactly as it came.";
    NotFound "not_found" NOT_FOUND "There is no such thing"
        "There is nothing of that ID, there is not any more, or it is somebody else's. `errors` says where in the request it is named.";
    MethodNotAllowed "method_not_allowed" METHOD_NOT_ALLOWED "This method is not allowed here"
        "The path is there, but not for this method: see the header `Allow`.";
    TooSlow "too_slow" REQUEST_TIMEOUT "The body took too long"
        "The body did not arrive in time: send it again.";
    NotDead "not_dead" CONFLICT "This cannot be done now"
        "The delivery was delivered or is still being tried: it needs no retry by hand.";
    AlreadyEnded "already_ended" CONFLICT "This cannot be done now"
        "The delivery has already been delivered or abandoned.";
    DestinationGone "destination_gone" CONFLICT "This cannot be done now"
        "The delivery's destination has been deleted: there is nowhere to send it.";
    TooManyDestinations "too_many_destinations" CONFLICT "This cannot be done now"
        "The tenant has as many destinations as it may: delete one, or have the operator raise `destinations_per_tenant_max`.";
    Unsendable "unsendable" CONFLICT "This cannot be done now"
        "The destination cannot be sent to as it is set up: `detail` says why.";
    NoConsent "no_consent" CONFLICT "This cannot be done now"
        "The receiver has not agreed to be sent to: see `consent` of the destination, and ask again with POST …/verify.";
    NeedsNoConsent "needs_no_consent" CONFLICT "This cannot be done now"
        "Nobody has to agree: the destination's `verification` is `none`.";
    NoLinks "no_links" CONFLICT "This cannot be done now"
        "The destination has never been thin, nor asked for consent: there are no links that could end.";
    TooManySecrets "too_many_secrets" CONFLICT "This cannot be done now"
        "The destination has as many active secrets as it may: wait until an old one has retired.";
    AlreadyExists "already_exists" CONFLICT "This cannot be done now"
        "An event type of this name is registered already: change it with PATCH.";
    NotArchived "not_archived" CONFLICT "This cannot be done now"
        "The event type is in use: archive it first.";
    NothingEncrypted "nothing_encrypted" CONFLICT "This cannot be done now"
        "None of the tenant's payloads is encrypted, or all were erased before: see `encrypt_payloads` in the configuration.";
    TooManyKeys "too_many_keys" CONFLICT "This cannot be done now"
        "As many keys are in use as may be: revoke one that is not needed any more.";
    KeyEnded "key_ended" CONFLICT "This cannot be done now"
        "The key was revoked or has expired, for ever: make another one.";
    TooManyPortalSessions "too_many_portal_sessions" CONFLICT "This cannot be done now"
        "As many portal sessions are open as may be: some are over within the hour.";
    Gone "gone" GONE "This link can no longer be followed"
        "The link has expired, or what it leads to is not kept any more: have it sent again.";
    ChangedMeanwhile "changed_meanwhile" PRECONDITION_FAILED "It has changed meanwhile"
        "Somebody else has changed it, or `If-Match` names another version: read it again, and make your change once more.";
    TooLarge "too_large" PAYLOAD_TOO_LARGE "The body is too large"
        "The body or the payload is longer than it may be: make it shorter, or have the operator raise the limit.";
    NotJson "not_json" UNSUPPORTED_MEDIA_TYPE "The body has to be JSON"
        "Send the body as JSON, with the header `Content-Type: application/json`.";
    InvalidRequest "invalid_request" UNPROCESSABLE_ENTITY "The request is not valid"
        "It can be read, but asks for something that cannot be: `errors` says what is wrong, and where.";
    EventDiffers "event_differs" UNPROCESSABLE_ENTITY "This event is another one"
        "An event with this ID was accepted before and says something else: repeat it exactly, or choose another ID.";
    IdempotencyKeyReused "idempotency_key_reused" UNPROCESSABLE_ENTITY "This key was used for something else"
        "A request with this `Idempotency-Key` said something else: repeat that one exactly, or choose another key.";
    TooBroad "too_broad" UNPROCESSABLE_ENTITY "The search took too long"
        "Narrow it down: to a destination, a tenant, or a shorter time.";
    QuotaExceeded "quota_exceeded" TOO_MANY_REQUESTS "The quota is exceeded"
        "The tenant's events come faster than its ingest rate allows, or it has as many queued deliveries or stored bytes as it may: `violated-policies` says which, \
         `limit` and `used` how much. Try again after `Retry-After`.";
    TooOften "too_often" TOO_MANY_REQUESTS "That is too often"
        "One tenant's destinations are tested, or asked for consent, only so often: try again after `Retry-After`.";
    TooManyRefused "too_many_refused_credentials" TOO_MANY_REQUESTS "Too many refused credentials"
        "Too many credentials from this address were refused: check the one that is sent, and try again after `Retry-After`.";
    Internal "internal" INTERNAL_SERVER_ERROR "Something is broken"
        "A fault of ours, which the operator finds in the log. Whether anything was changed is not known.";
    Busy "busy" SERVICE_UNAVAILABLE "Too much is waiting"
        "Nothing was changed: try again after `Retry-After`.";
    ShuttingDown "shutting_down" SERVICE_UNAVAILABLE "This process is shutting down"
        "Nothing is taken any more: ask another node, or again after `Retry-After`.";
    NotSavedYet "not_saved_yet" SERVICE_UNAVAILABLE "It is in force, but not on disk"
        "What was asked for is done, but would be forgotten if the process ended now: ask again after `Retry-After`.";
    Unreadable "unreadable" SERVICE_UNAVAILABLE "Stored data cannot be read"
        "What this needs is damaged on disk, and nothing was changed. `detail` says what to do; the operator finds the reason in the log.";
    StoreUnavailable "store_unavailable" SERVICE_UNAVAILABLE "The store does not answer"
        "Nothing was changed: try again after `Retry-After`. The operator finds the reason in the log.";
}

impl Code {
    /// Where it is explained.
    pub(crate) fn place(self) -> String {
        format!("/docs#{}", self.anchor())
    }

    pub(crate) fn anchor(self) -> String {
        format!("problem-{}", self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let told = |code: &Self| (code.name().to_owned(), Value::from(format!("{}. {}", code.title(), code.about())));
        let told: Map<String, Value> = Self::ALL.iter().map(told).collect();
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("What kind of problem it is, for programs."))
            .enum_values(Some(Self::ALL.iter().map(|code| code.name())))
            .extensions(Some(Extensions::from_iter([("x-enumDescriptions", Value::Object(told))])));
        RefOr::T(Schema::Object(schema.build()))
    }
}

impl ToSchema for Code {
    fn name() -> Cow<'static, str> {
        "ProblemCode".into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own_and_says_what_to_do() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len(), "{names:?}");
        for code in Code::ALL {
            let told = format!("{code:?}: {} {}", code.title(), code.about());
            assert!(code.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{told}");
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{told}");
            assert!(!code.title().ends_with('.') && code.about().ends_with('.'), "{told}");
        }
    }
}
