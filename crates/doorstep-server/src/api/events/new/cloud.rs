//! CloudEvents 1.0 as input, over HTTP: structured (the event is the body) and binary (its attributes are headers).

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use doorstep_core::event::CloudAttributes;
use doorstep_core::id::TenantId;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Uri};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::NewEvent;
use crate::object::Object;
use crate::problem::{FieldFault, Problem};
use crate::shape;
use crate::when::Given;

const SPEC_VERSION: &str = "1.0";

/// How a request brings an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Form {
    /// As described in the API.
    Own,
    Structured,
    Binary,
}

impl Form {
    pub(in super::super) fn of(head: &Parts) -> Self {
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        // In a batch, each of them is in the same form.
        let structured = ["application/cloudevents+json", "application/cloudevents-batch+json"];
        if structured.iter().any(|kind| essence.eq_ignore_ascii_case(kind)) {
            Self::Structured
        } else if head.headers.contains_key("ce-specversion") {
            Self::Binary
        } else {
            Self::Own
        }
    }

    /// Where a field of ours is in such an event.
    pub(in super::super) fn pointer(self, ours: &str) -> String {
        let (field, rest) = match ours.strip_prefix('/').and_then(|path| path.find('/')) {
            Some(at) => ours.split_at(at + 1),
            None => (ours, ""),
        };
        let attribute = match field {
            "/tenant_id" => "tenantid",
            "/produced_at" => "time",
            "/content_type" => "datacontenttype",
            "/payload" => "data",
            "/payload_base64" => "data_base64",
            other => other.trim_start_matches('/'),
        };
        match self {
            Self::Own => ours.to_owned(),
            Self::Structured => format!("/{attribute}{rest}"),
            // The body is the data.
            Self::Binary if attribute == "data" => rest.to_owned(),
            Self::Binary if attribute == "datacontenttype" => "content-type:".to_owned(),
            Self::Binary => format!("ce-{attribute}:"),
        }
    }
}

/// The ID, source and subject of a CloudEvent are at most this many bytes long.
const ID_BYTES_MAX: usize = 256;
const ATTRIBUTE_BYTES_MAX: usize = 1_024;

/// A CloudEvent 1.0 in structured mode. Other attributes may be there, and are not kept.
#[derive(Debug, Deserialize, ToSchema)]
struct CloudEvent<'a> {
    #[serde(borrow)]
    #[schema(value_type = shape::CloudEventsVersion)]
    specversion: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = shape::CloudEventId)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = shape::CloudEventSource)]
    source: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::CloudEventSubject>)]
    subject: Option<Cow<'a, str>>,
    #[serde(borrow)]
    #[schema(value_type = shape::EventType)]
    r#type: Cow<'a, str>,
    #[serde(default)]
    time: Option<Given>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::ContentType>)]
    datacontenttype: Option<Cow<'a, str>>,
    /// The payload, if it is JSON; text of another type as a string.
    #[serde(borrow, default)]
    #[schema(value_type = Value, required = false, example = json!({"amount": 100}))]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::Base64>)]
    data_base64: Option<Cow<'a, str>>,
    /// Whose event it is, unless `?tenant_id=` says so.
    #[serde(default)]
    #[schema(value_type = Option<shape::TenantId>)]
    tenantid: Option<TenantId>,
}

/// What the API says of it: its data is JSON, or it is in base64 and has a content type.
#[derive(Debug)]
pub(in super::super) enum CloudEventBody {}

impl PartialSchema for CloudEventBody {
    fn schema() -> RefOr<Schema> {
        shape::with_rule(
            CloudEvent::schema(),
            [
                json!({"required": ["data"], "properties": {"data": {"not": {"type": "null"}}}}),
                json!({"properties": {"data_base64": {"type": "null"}}}),
                json!({
                    "required": ["data_base64", "datacontenttype"],
                    "properties": {"data_base64": {"type": "string"}, "datacontenttype": {"type": "string"}},
                }),
            ],
        )
    }
}

impl ToSchema for CloudEventBody {
    fn name() -> Cow<'static, str> {
        "CloudEvent".into()
    }

    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        CloudEvent::schemas(all);
    }
}

pub(in super::super) fn structured<'a>(body: &'a [u8], uri: &Uri) -> Result<NewEvent<'a>, Problem> {
    let Object(event): Object<CloudEvent<'a>> = crate::body::parse(body)?;
    check_version(&event.specversion, "/specversion")?;
    let tenant_id = asked_tenant(uri)?.or(event.tenantid).ok_or_else(|| no_tenant("/tenantid"))?;
    let is_json = event.datacontenttype.as_deref().is_none_or(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        essence == "application/json" || essence.ends_with("+json")
    });
    let attributes = attributes(Form::Structured, &event.id, &event.source, event.subject.as_deref())?;
    let mut new = NewEvent::bare(tenant_id, event.r#type, attributes);
    match event.data {
        // Text that is not JSON stands there as a string.
        Some(data) if !is_json && data.get().starts_with('"') => {
            let text: String = crate::body::parse(data.get().as_bytes())?;
            new.bytes = Some(text.into_bytes().into());
        }
        data => new.payload = data,
    }
    new.payload_base64 = event.data_base64;
    new.content_type = event.datacontenttype;
    new.produced_at = event.time;
    Ok(new)
}

pub(in super::super) fn binary<'a>(head: &'a Parts, body: &'a [u8]) -> Result<NewEvent<'a>, Problem> {
    for name in head.headers.keys().filter(|name| name.as_str().starts_with("ce-")) {
        if head.headers.get_all(name).iter().nth(1).is_some() {
            return Err(Problem::invalid_at(format!("{name}:"), "is there more than once: send each attribute once"));
        }
    }
    let attribute = |name: &str| match text(&head.headers, name)? {
        None => Ok(None),
        Some(value) => decoded(value).map(Some).map_err(|wrong| Problem::invalid_at(format!("{name}:"), wrong)),
    };
    let needed = |name: &str| {
        attribute(name)?.ok_or_else(|| Problem::invalid_at(format!("{name}:"), "is missing: a CloudEvent has it"))
    };
    check_version(&needed("ce-specversion")?, "ce-specversion:")?;
    let given: Option<TenantId> = attribute("ce-tenantid")?.map(|id| read("ce-tenantid:", &id)).transpose()?;
    let tenant_id = asked_tenant(&head.uri)?.or(given).ok_or_else(|| no_tenant("ce-tenantid:"))?;
    let (id, source, subject) = (needed("ce-id")?, needed("ce-source")?, attribute("ce-subject")?);
    let attributes = attributes(Form::Binary, &id, &source, subject.as_deref())?;
    let mut new = NewEvent::bare(tenant_id, needed("ce-type")?.into(), attributes);
    let time =
        attribute("ce-time")?.map(|at| Given::parse(&at).map_err(|wrong| Problem::invalid_at("ce-time:", wrong)));
    new.produced_at = time.transpose()?;
    new.content_type = text(&head.headers, CONTENT_TYPE.as_str())?.map(Cow::from);
    if !body.is_empty() {
        new.bytes = Some(body.into());
    }
    Ok(new)
}

/// What identifies the event, as long as it may be and without control characters, which CloudEvents exclude.
fn attributes(form: Form, id: &str, source: &str, subject: Option<&str>) -> Result<CloudAttributes, Problem> {
    let given = [("/id", Some(id), ID_BYTES_MAX), ("/source", Some(source), ATTRIBUTE_BYTES_MAX)];
    let mut faults = Vec::new();
    for (field, text, max) in given.into_iter().chain([("/subject", subject, ATTRIBUTE_BYTES_MAX)]) {
        if text.is_some_and(|text| !(1..=max).contains(&text.len()) || text.chars().any(char::is_control)) {
            let detail = format!("has 1 to {max} bytes, and no line breaks or other control characters");
            faults.push(FieldFault::new(form.pointer(field), detail));
        }
    }
    if !faults.is_empty() {
        return Err(Problem::invalid(faults));
    }
    Ok(CloudAttributes { id: id.into(), source: source.into(), subject: subject.map(Arc::from) })
}

/// An attribute as its header carries it (HTTP binding, 3.1.3.2): it may stand in quotes, and is percent-encoded.
fn decoded(value: &str) -> Result<String, &'static str> {
    let bare = match value.strip_prefix('"') {
        None => Cow::Borrowed(value),
        Some(quoted) => Cow::Owned(unquoted(quoted).ok_or("has a quote that does not end")?),
    };
    let mut bytes = Vec::with_capacity(bare.len());
    let mut rest = bare.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = rest else { return Err(NOT_ENCODED) };
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit(high).ok_or(NOT_ENCODED)?, digit(low).ok_or(NOT_ENCODED)?);
        bytes.push(high << 4 | low);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 when it is percent-decoded")
}

const NOT_ENCODED: &str = "has a `%` that is not followed by two hexadecimal digits: write it as `%25`";

/// What stands between quotes, without the backslashes that protect characters in it. `quoted` begins behind the first quote.
fn unquoted(quoted: &str) -> Option<String> {
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(text),
            '\\' => text.push(rest.next()?),
            other => text.push(other),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Problem::invalid_at(format!("{name}:"), "is not visible ASCII"))
}

fn read<T: FromStr<Err: std::fmt::Display>>(at: &str, given: &str) -> Result<T, Problem> {
    given.parse().map_err(|wrong| Problem::invalid(vec![FieldFault::new(at, wrong)]))
}

fn asked_tenant(uri: &Uri) -> Result<Option<TenantId>, Problem> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix("tenant_id=")).map(|id| read("?tenant_id", id)).transpose()
}

fn no_tenant(at: &str) -> Problem {
    Problem::invalid_at(at, "is missing: say whose event it is, with this extension attribute or with `?tenant_id=`")
}

fn check_version(given: &str, at: &str) -> Result<(), Problem> {
    if given == SPEC_VERSION {
        return Ok(());
    }
    Err(Problem::invalid_at(at, format!("has to be {SPEC_VERSION}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_decoded_as_the_http_binding_says() {
        for (value, attribute) in [
            ("a%2Eb", "a.b"),
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
            ("100%25", "100%"),
            ("%2525", "%25"),
            (r#""a \"b\" c""#, r#"a "b" c"#),
            (r#""a%20b""#, "a b"),
            ("plain/text?x=1", "plain/text?x=1"),
        ] {
            assert_eq!(decoded(value).as_deref(), Ok(attribute), "{value}");
        }
        for wrong in ["%", "%2", "%zz", "100%", "%ff", r#""open"#, r#""a"b"#, r#""a\"#] {
            assert!(decoded(wrong).is_err(), "{wrong}");
        }
    }
}
