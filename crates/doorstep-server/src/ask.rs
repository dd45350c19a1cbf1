//! What a request asks for beside its body: parts of its path and its query, read into types.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Query as AxumQuery};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::problem::Problem;

/// A query string is at most this long.
const QUERY_BYTES_MAX: usize = 4_096;

/// The ID at the end of the path, or within it.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T> FromRequestParts<Arc<App>> for Id<T>
where
    T: FromStr + Send,
    T::Err: Display,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::not_found("the path holds something that is not an ID"))?;
        text.parse().map(Self).map_err(|fault: T::Err| Problem::not_found(fault.to_string()))
    }
}

/// The query string.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        if parts.uri.query().is_some_and(|query| query.len() > QUERY_BYTES_MAX) {
            return Err(Problem::invalid_at("?", format!("the query is longer than {QUERY_BYTES_MAX} bytes")));
        }
        let AxumQuery(asked) = AxumQuery::try_from_uri(&parts.uri).map_err(|fault| {
            let told = fault.body_text();
            let (pointer, detail) = placed(told.trim_start_matches("Failed to deserialize query string: "));
            Problem::invalid_at(pointer, detail)
        })?;
        Ok(Self(asked))
    }
}

/// The parameter that a fault is about, which stands before it: `limit: invalid digit found in string`.
fn placed(told: &str) -> (String, &str) {
    let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    match told.split_once(": ") {
        Some((name, detail)) if is_name(name) => (format!("?{name}"), detail),
        _ => ("?".to_owned(), told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_query_names_its_parameter() {
        assert_eq!(placed("limit: invalid digit"), ("?limit".to_owned(), "invalid digit"));
        assert_eq!(placed("no name here: at all"), ("?".to_owned(), "no name here: at all"));
        assert_eq!(placed("nothing"), ("?".to_owned(), "nothing"));
    }
}
