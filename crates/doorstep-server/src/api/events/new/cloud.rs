//! CloudEvents 1.0 as input, over HTTP: structured (the event is the body) and binary (its attributes are headers).

use std::borrow::Cow;
use std::str::FromStr;

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

/// A CloudEvent 1.0 in structured mode. Other attributes may be there, and are not kept.
#[derive(Debug, Deserialize, ToSchema)]
struct CloudEvent<'a> {
    #[serde(borrow)]
    #[schema(value_type = shape::CloudEventsVersion)]
    specversion: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = shape::EventId)]
    id: Cow<'a, str>,
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
        shape::one_of(
            CloudEvent::schema(),
            json!([
                {"required": ["data"], "properties": {"data": {"not": {"type": "null"}}, "data_base64": {"type": "null"}}},
                {
                    "required": ["data_base64", "datacontenttype"],
                    "properties": {
                        "data": {"type": "null"},
                        "data_base64": {"type": "string"},
                        "datacontenttype": {"type": "string"},
                    },
                },
            ]),
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
    let mut new = NewEvent::bare(tenant_id, event.r#type, event.id);
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
    let attribute = |name: &str| text(&head.headers, name);
    let needed = |name: &str| {
        attribute(name)?.ok_or_else(|| Problem::invalid_at(format!("{name}:"), "is missing: a CloudEvent has it"))
    };
    check_version(needed("ce-specversion")?, "ce-specversion:")?;
    let given: Option<TenantId> = attribute("ce-tenantid")?.map(|id| read("ce-tenantid:", id)).transpose()?;
    let tenant_id = asked_tenant(&head.uri)?.or(given).ok_or_else(|| no_tenant("ce-tenantid:"))?;
    let mut new = NewEvent::bare(tenant_id, needed("ce-type")?.into(), needed("ce-id")?.into());
    let time = attribute("ce-time")?.map(|at| Given::parse(at).map_err(|wrong| Problem::invalid_at("ce-time:", wrong)));
    new.produced_at = time.transpose()?;
    new.content_type = text(&head.headers, CONTENT_TYPE.as_str())?.map(Cow::from);
    if !body.is_empty() {
        new.bytes = Some(body.into());
    }
    Ok(new)
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
