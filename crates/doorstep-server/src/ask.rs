//! What a request asks for beside its body: parts of its path and its query, read into types.

mod pairs;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Query as AxumQuery};
use doorstep_core::search::Search;
use doorstep_core::similar::none_of;
use http::Uri;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::problem::Problem;
use crate::when;

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

/// Two IDs within the path.
#[derive(Debug)]
pub(crate) struct Ids<T, U>(pub(crate) T, pub(crate) U);

impl<T, U> FromRequestParts<Arc<App>> for Ids<T, U>
where
    T: FromStr<Err: Display> + Send,
    U: FromStr<Err: Display> + Send,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path((one, other)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::not_found("the path holds something that is not an ID"))?;
        let one = one.parse().map_err(|fault: T::Err| Problem::not_found(fault.to_string()))?;
        let other = other.parse().map_err(|fault: U::Err| Problem::not_found(format!("`{other}`: {fault}")))?;
        Ok(Self(one, other))
    }
}

/// The query string.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        pairs::read(given(&parts.uri)?).map(Self)
    }
}

/// The query string of a list: what is asked for, and which page of it.
#[derive(Debug)]
pub(crate) struct List<F> {
    pub(crate) filter: F,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paging {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// The names of that.
pub(crate) const PAGING: [&str; 2] = ["limit", "cursor"];

impl<F: Search> FromRequestParts<Arc<App>> for List<F> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        Self::read(given(&parts.uri)?)
    }
}

impl<F: Search> List<F> {
    fn read(given: Vec<(String, String)>) -> Result<Self, Problem> {
        let (paging, asked): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _)| PAGING.contains(&&**name));
        if let Some((name, _)) = asked.iter().find(|(name, _)| !F::NAMES.contains(&&**name)) {
            return Err(at(name, none_of(name, &[F::NAMES, &PAGING].concat())));
        }
        let filter = F::read(asked.iter().map(|(name, text)| (&**name, &**text)));
        let filter = filter.map_err(|fault| at(&fault.name, fault.detail))?;
        let Paging { limit, cursor } = pairs::read(paging)?;
        Ok(Self { filter: filter.by(&when::timeline()), limit, cursor })
    }
}

/// The names and values of a query.
fn given(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    if uri.query().is_some_and(|query| query.len() > QUERY_BYTES_MAX) {
        return Err(Problem::invalid_at("?", format!("the query is longer than {QUERY_BYTES_MAX} bytes")));
    }
    let AxumQuery(given) = AxumQuery::try_from_uri(uri).map_err(|fault| Problem::invalid_at("?", fault.body_text()))?;
    Ok(given)
}

/// How much of a parameter's name an error repeats.
const NAME_SHOWN_MAX: usize = 64;

fn at(name: &str, detail: String) -> Problem {
    let shown: String = name.chars().take(NAME_SHOWN_MAX).collect();
    Problem::invalid_at(format!("?{shown}"), detail)
}
