//! Tenants: customers of the operator.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doorstep_core::audit::Action;
use doorstep_core::defaults::{TIMEOUT_MIN, TenantDefaults};
use doorstep_core::destination::Tenant;
use doorstep_core::id::TenantId;
use doorstep_core::ingest_rate::IngestRate;
use doorstep_core::quota::OwnQuota;
use doorstep_core::retry::PolicySpec;
use doorstep_core::time::Millis;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::ask::{Id, Query};
use crate::auth::caller::Caller;
use crate::body::Json;
use crate::etag::{check_match, etag};
use crate::field::Field;
use crate::object;
use crate::page::Stretch;
use crate::problem::{Code, FieldFault, Problem};
use crate::shape;
use crate::when::When;

/// A tenant's name is at most this many characters.
pub(crate) const NAME_CHARS_MAX: usize = 200;
const EMAIL_CHARS_MAX: usize = 254;
/// A tenant's share in the turns is at most this.
const WEIGHT_MAX: u32 = 1_000;
/// Events a second, and at once.
const RATE_MAX: u32 = 1_000_000;
/// Of a tenant's quota: as much as JSON's numbers hold everywhere.
const QUOTA_MAX: u64 = (1 << 53) - 1;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change))
        .routes(routes!(usage))
        .routes(routes!(erase_payloads))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTenant {
    #[schema(value_type = shape::Name)]
    name: String,
    /// Where notices about its destinations go.
    #[schema(value_type = Option<shape::Email>)]
    contact_email: Option<String>,
    /// Its share in the turns when capacity is short. 1 unless given.
    #[schema(minimum = 1, maximum = 1000)]
    weight: Option<u32>,
    /// How fast its producers may send. Without it, `ingest_per_second` of the configuration counts.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<RateBody>)]
    ingest_rate: Field<RateBody>,
    /// How much it may take of the store. What is not given is as the configuration says.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<QuotaBody>)]
    quota: Field<QuotaBody>,
    /// What its destinations get that are given nothing of their own. Given, it replaces all of what was there.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<DefaultsBody>)]
    defaults: Field<DefaultsBody>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChange {
    #[schema(value_type = Option<shape::Name>)]
    name: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<shape::Email>)]
    contact_email: Field<String>,
    #[schema(minimum = 1, maximum = 1000)]
    weight: Option<u32>,
    /// How fast its producers may send. Without it, `ingest_per_second` of the configuration counts.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<RateBody>)]
    ingest_rate: Field<RateBody>,
    /// How much it may take of the store, in place of what it had; `null`: as the configuration says.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<QuotaBody>)]
    quota: Field<QuotaBody>,
    /// What its destinations get that are given nothing of their own. Given, it replaces all of what was there.
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<DefaultsBody>)]
    defaults: Field<DefaultsBody>,
}

/// 0 is no limit; what is not given is as the configuration says.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaBody {
    /// Deliveries that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    queued_deliveries: Option<u64>,
    /// Bytes of events and attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    stored_bytes: Option<u64>,
}

impl QuotaBody {
    fn read(self) -> OwnQuota {
        OwnQuota { queued_deliveries: self.queued_deliveries, stored_bytes: self.stored_bytes }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateBody {
    #[schema(minimum = 1, maximum = 1_000_000)]
    per_second: u32,
    /// At once, after a pause; as many as in a second unless given.
    #[schema(minimum = 1, maximum = 1_000_000)]
    burst: Option<u32>,
}

/// What has no value here is the operator's default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefaultsBody {
    #[schema(value_type = Option<shape::Policy>)]
    policy: Option<PolicySpec>,
    #[schema(minimum = 100, maximum = 300_000)]
    timeout_ms: Option<u64>,
    #[schema(minimum = 1, maximum = 1000)]
    concurrency: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DefaultsView {
    #[schema(value_type = Option<shape::Policy>, required)]
    policy: Option<PolicySpec>,
    #[schema(required)]
    timeout_ms: Option<u64>,
    #[schema(required)]
    concurrency: Option<u32>,
}

impl DefaultsView {
    fn of(defaults: TenantDefaults) -> Self {
        let TenantDefaults { policy, timeout, concurrency } = defaults;
        Self { policy, timeout_ms: timeout.map(|timeout| timeout.0), concurrency }
    }
}

impl DefaultsBody {
    fn read(self) -> TenantDefaults {
        let Self { policy, timeout_ms, concurrency } = self;
        TenantDefaults { policy, timeout: timeout_ms.map(Millis), concurrency }
    }
}

impl RateBody {
    fn read(self) -> IngestRate {
        IngestRate { per_second: self.per_second, burst: self.burst.unwrap_or(self.per_second) }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantView {
    #[schema(value_type = shape::TenantId)]
    id: TenantId,
    #[schema(value_type = shape::Name)]
    name: String,
    #[schema(value_type = Option<shape::Email>, required)]
    contact_email: Option<String>,
    weight: u32,
    #[schema(required)]
    ingest_rate: Option<RateBody>,
    #[schema(required)]
    quota: Option<QuotaBody>,
    defaults: DefaultsView,
    created_at: When,
}

/// What a tenant takes of the store, and what it may.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageView {
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    /// Deliveries that have not ended.
    queued_deliveries: Used,
    /// Bytes of events with their deliveries, and of attempts.
    stored_bytes: Used,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Used {
    used: u64,
    /// `null`: any number.
    #[schema(required)]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantPage {
    data: Vec<TenantView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantList {
    #[param(value_type = shape::Limit, required = false)]
    limit: Option<usize>,
    #[param(value_type = shape::Cursor, required = false)]
    cursor: Option<String>,
}

impl TenantView {
    fn of(tenant: &Tenant) -> Self {
        let Tenant { id, name, contact_email, weight, ingest_rate, quota, defaults, created_at, version: _ } =
            tenant.clone();
        let OwnQuota { queued_deliveries, stored_bytes } = quota;
        let quota = (!quota.is_none()).then_some(QuotaBody { queued_deliveries, stored_bytes });
        let ingest_rate = ingest_rate.map(|rate| RateBody { per_second: rate.per_second, burst: Some(rate.burst) });
        let defaults = DefaultsView::of(defaults);
        Self { id, name, contact_email, weight, ingest_rate, quota, defaults, created_at: When(created_at) }
    }
}

/// Make a tenant
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, body = TenantView)))]
async fn create(State(app): State<Arc<App>>, caller: Caller, Json(new): Json<NewTenant>) -> Result<Response, Problem> {
    let tenant = Tenant {
        id: TenantId(app.engine.new_id()),
        name: new.name,
        contact_email: new.contact_email,
        weight: new.weight.unwrap_or(1),
        ingest_rate: match new.ingest_rate {
            Field::Absent | Field::Null => None,
            Field::Given(rate) => Some(rate.read()),
        },
        quota: match new.quota {
            Field::Absent | Field::Null => OwnQuota::default(),
            Field::Given(quota) => quota.read(),
        },
        defaults: new.defaults.or_default(DefaultsBody::default).unwrap_or_default().read(),
        created_at: app.engine.now(),
        version: 1,
    };
    check(&app, &tenant)?;
    let mandate =
        caller.mandate(&app, Action::TenantCreate, Some(tenant.id), tenant.id, (&Value::Null, &told(&tenant)));
    let tenant = app.engine.put_tenant(mandate, tenant).await??;
    let at = [(LOCATION, format!("/v1/tenants/{}", tenant.id))];
    Ok((StatusCode::CREATED, at, shown(&tenant)).into_response())
}

/// Tenants, oldest first
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", params(TenantList),
    responses((status = 200, body = TenantPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(asked): Query<TenantList>,
) -> Result<axum::Json<TenantPage>, Problem> {
    let stretch = Stretch::asked("ten", asked.limit, asked.cursor.as_deref())?;
    let mut found = app.engine.tenants(caller.reach, stretch.behind, stretch.and_one());
    let places = stretch.cut(&mut found, |last| last.id);
    let (data, next_cursor) = places.fit(found.iter().map(|tenant| TenantView::of(tenant)).collect());
    Ok(axum::Json(TenantPage { data, next_cursor }))
}

/// One tenant
#[utoipa::path(get, path = "/v1/tenants/{id}", tag = "tenants", params(("id" = shape::TenantId, Path)),
    responses((status = 200, body = TenantView)))]
async fn get(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<TenantId>) -> Result<Response, Problem> {
    Ok(shown(&*known(&app, &caller, id)?))
}

/// Change a tenant
#[utoipa::path(patch, path = "/v1/tenants/{id}", tag = "tenants",
    params(("id" = shape::TenantId, Path), ("if-match" = Option<shape::IfMatch>, Header)), request_body = TenantChange,
    responses((status = 200, body = TenantView)))]
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<TenantId>,
    headers: HeaderMap,
    Json(change): Json<TenantChange>,
) -> Result<Response, Problem> {
    let before = known(&app, &caller, id)?;
    check_match(&headers, before.version)?;
    let mut tenant = Tenant::clone(&before);
    tenant.version += 1;
    tenant.name = change.name.unwrap_or(tenant.name);
    tenant.weight = change.weight.unwrap_or(tenant.weight);
    match change.contact_email {
        Field::Absent => {}
        Field::Null => tenant.contact_email = None,
        Field::Given(email) => tenant.contact_email = Some(email),
    }
    match change.ingest_rate {
        Field::Absent => {}
        Field::Null => tenant.ingest_rate = None,
        Field::Given(rate) => tenant.ingest_rate = Some(rate.read()),
    }
    match change.quota {
        Field::Absent => {}
        Field::Null => tenant.quota = OwnQuota::default(),
        Field::Given(quota) => tenant.quota = quota.read(),
    }
    if let Some(defaults) = change.defaults.or_default(DefaultsBody::default) {
        tenant.defaults = defaults.read();
    }
    check(&app, &tenant)?;
    let changes = (&told(&before), &told(&tenant));
    let mandate = caller.mandate(&app, Action::TenantUpdate, Some(id), id, changes);
    Ok(shown(&*app.engine.put_tenant(mandate, tenant).await??))
}

/// How much of the store a tenant takes, and how much it may
#[utoipa::path(get, path = "/v1/tenants/{id}/usage", tag = "tenants", params(("id" = shape::TenantId, Path)),
    responses((status = 200, body = UsageView)))]
async fn usage(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<TenantId>,
) -> Result<axum::Json<UsageView>, Problem> {
    let tenant = known(&app, &caller, id)?;
    let quota = app.limits.quota.with(tenant.quota);
    let usage = app.find(caller.reach, |store, reach| store.usage(reach, id)).await?;
    Ok(axum::Json(UsageView {
        tenant_id: id,
        queued_deliveries: Used { used: usage.queued_deliveries, limit: quota.queued_deliveries },
        stored_bytes: Used { used: usage.stored_bytes, limit: quota.stored_bytes },
    }))
}

/// Erase the payloads of all its events so far
///
/// Only of those that were taken in while payloads were encrypted (`encrypt_payloads`): their key is forgotten, at once and for ever.
/// What of them is still to be delivered ends as abandoned when its turn comes.
#[utoipa::path(delete, path = "/v1/tenants/{id}/payloads", tag = "tenants", params(("id" = String, Path)),
    responses((status = 204)))]
async fn erase_payloads(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<TenantId>,
) -> Result<StatusCode, Problem> {
    known(&app, &caller, id)?;
    let nothing = (&Value::Null, &Value::Null);
    let mandate = caller.mandate(&app, Action::TenantErasePayloads, Some(id), id, nothing);
    match app.engine.erase_payloads(mandate, id).await? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(_) => Err(Problem::new(
            Code::NothingEncrypted,
            "none of its payloads is encrypted, or all were erased before: see `encrypt_payloads` in the configuration",
        )),
    }
}

/// What the audit log tells of it: all that is shown, but for what never changes.
fn told(tenant: &Tenant) -> Value {
    let mut told = serde_json::to_value(TenantView::of(tenant)).unwrap_or_default();
    if let Some(fields) = told.as_object_mut() {
        fields.retain(|name, _| !matches!(name.as_str(), "id" | "created_at"));
    }
    told
}

fn shown(tenant: &Tenant) -> Response {
    (etag(tenant.version), axum::Json(TenantView::of(tenant))).into_response()
}

pub(crate) fn known(app: &App, caller: &Caller, id: TenantId) -> Result<Arc<Tenant>, Problem> {
    app.engine.tenant(caller.reach, id).ok_or_else(|| Problem::not_found(format!("there is no tenant {id}")))
}

fn check(app: &App, tenant: &Tenant) -> Result<(), Problem> {
    let mut faults = Vec::new();
    if let Err(fault) = check_name(&tenant.name) {
        faults.push(FieldFault::new("/name", fault));
    }
    if let Some(email) = &tenant.contact_email
        && !is_email(email)
    {
        faults.push(FieldFault::new("/contact_email", "is not an e-mail address: it looks like name@example.com"));
    }
    if !(1..=WEIGHT_MAX).contains(&tenant.weight) {
        let given = tenant.weight;
        faults.push(FieldFault::new("/weight", format!("must be between 1 and {WEIGHT_MAX}, but is {given}")));
    }
    let OwnQuota { queued_deliveries, stored_bytes } = tenant.quota;
    for (at, n) in [("/quota/queued_deliveries", queued_deliveries), ("/quota/stored_bytes", stored_bytes)] {
        if n.is_some_and(|n| n > QUOTA_MAX) {
            faults.push(FieldFault::new(at, format!("must be at most {QUOTA_MAX}; 0 is no limit")));
        }
    }
    if let Some(rate) = tenant.ingest_rate {
        for (at, n) in [("/ingest_rate/per_second", rate.per_second), ("/ingest_rate/burst", rate.burst)] {
            if !(1..=RATE_MAX).contains(&n) {
                faults.push(FieldFault::new(at, format!("must be between 1 and {RATE_MAX}, but is {n}")));
            }
        }
    }
    let (operator, defaults) = (app.engine.defaults(), &tenant.defaults);
    if let Some(spec) = &defaults.policy
        && let Err(fault) = operator.presets.read(spec.clone())
    {
        faults.push(FieldFault::new("/defaults/policy", fault.to_string()));
    }
    let maxima = &operator.maxima;
    let timeout = defaults.timeout.map(|timeout| ("/defaults/timeout_ms", TIMEOUT_MIN.0, maxima.timeout.0, timeout.0));
    let concurrency =
        defaults.concurrency.map(|n| ("/defaults/concurrency", 1, u64::from(maxima.concurrency), u64::from(n)));
    for (at, least, most, given) in timeout.into_iter().chain(concurrency) {
        if !(least..=most).contains(&given) {
            faults.push(FieldFault::new(at, format!("must be between {least} and {most}, but is {given}")));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
}

/// A name for people: some text, not too much, on one line.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) {
        return Err(format!("a name has 1 to {NAME_CHARS_MAX} characters, but this has {chars}"));
    }
    if name.chars().any(char::is_control) {
        return Err("a name has no line breaks or other control characters".to_owned());
    }
    Ok(())
}

/// Whether mail could be sent there. What the receiving server thinks of it, only sending tells.
fn is_email(text: &str) -> bool {
    let visible =
        text.chars().count() <= EMAIL_CHARS_MAX && text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    visible
        && text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'))
}
