//! What of a thing differs from what is wanted.
//!
//! The server completes what it is given: a limit gets its burst, a policy its defaults. So both sides are read as the
//! server reads them before they are compared.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorstep_core::filter::Filter;
use doorstep_core::retry::{PolicySpec, RetryPolicy};
use doorstep_core::route::TypePatterns;
use reqwest::Url;
use serde_json::{Map, Value};

#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) rewrite_secrets: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) field: String,
    pub(super) before: Value,
    pub(super) after: Value,
    /// What the server is given: of schemas, those that are new.
    pub(super) sent: Value,
}

/// Fields whose values are shown to nobody.
pub(super) fn is_secret(field: &str) -> bool {
    matches!(field, "secret" | "headers" | "tls")
}

pub(super) fn changes(wanted: &Map<String, Value>, there: &Value, rules: Rules) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    let moves = wanted.get("url").is_some_and(|after| url(after) != url(&there["url"]));
    let has_new_schemas = wanted.get("schemas").is_some_and(|after| !same_schemas(&there["schemas"], after));
    for (field, after) in wanted {
        let Some(before) = there.get(field) else {
            // The signing secret is given once, when the destination is made.
            if field == "secret" {
                continue;
            }
            return Err(format!("there is no field `{field}`"));
        };
        let given_again = match field.as_str() {
            // The server hands headers to no other host than the one they were given for.
            "headers" => moves && !names(after).is_empty(),
            // A new schema would be the default from then on.
            "default_version" => has_new_schemas && !after.is_null(),
            _ => false,
        };
        if !given_again && same(field, before, after, rules)? {
            continue;
        }
        let (before, after, sent) = (before.clone(), after.clone(), sent(field, before, after));
        changes.push(Change { field: field.clone(), before, after, sent });
    }
    Ok(changes)
}

fn same(field: &str, before: &Value, after: &Value, rules: Rules) -> Result<bool, String> {
    if after.is_null() && !before.is_null() && !can_be_none(field) {
        return Err(format!("`{field}: null` stands for a default that may change: write the value, or leave it out"));
    }
    let wrong = |why: String| format!("{field}: {why}");
    Ok(match field {
        "headers" => !rules.rewrite_secrets && names(before) == names(after),
        "tls" => !rules.rewrite_secrets && same_tls(before, after),
        "schemas" => same_schemas(before, after),
        "signing" => within(&signing(after), &signing(before)),
        "rate_limit" | "pinned_pace" | "ingest_rate" => within(&rate(after), &rate(before)),
        "defaults" => set_fields(before) == set_fields(after),
        "policy" => policy(before).map_err(wrong)? == policy(after).map_err(wrong)?,
        "event_types" if after.is_array() => patterns(before).map_err(wrong)? == patterns(after).map_err(wrong)?,
        "filter" if after.is_object() && before.is_object() => {
            filter(before).map_err(wrong)? == filter(after).map_err(wrong)?
        }
        "url" => url(before) == url(after),
        _ => before == after || (before.is_number() && before.as_f64() == after.as_f64()),
    })
}

fn can_be_none(field: &str) -> bool {
    matches!(
        field,
        "contact_email"
            | "filter"
            | "description"
            | "example"
            | "ttl_ms"
            | "headers"
            | "tls"
            | "ingest_rate"
            | "pinned_pace"
            | "quota"
            | "defaults"
    )
}

/// Of a client certificate the server shows its fingerprint, and of the key nothing.
fn same_tls(before: &Value, after: &Value) -> bool {
    let (shown, given) = (&before["client_certificate"], &after["client_certificate_pem"]);
    let same_certificate = match given.as_str() {
        Some(pem) => fingerprint(pem).is_some_and(|sha256| shown["sha256"] == sha256),
        None => shown.is_null(),
    };
    same_certificate && before["ca_pem"] == after["ca_pem"]
}

/// Of the first certificate, as the server and `openssl x509 -fingerprint -sha256` have it.
fn fingerprint(pem: &str) -> Option<String> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    Some(digest(&SHA256, &der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether each version that is wanted is there, word for word: what a schema says more is a rule more. There may be
/// other versions.
fn same_schemas(before: &Value, after: &Value) -> bool {
    match after {
        Value::Object(all) => all.iter().all(|(version, schema)| before.get(version) == Some(schema)),
        other => before == other,
    }
}

/// Whether all of it is in there; there may be more.
fn within(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            wanted.iter().all(|(name, value)| there.get(name).is_some_and(|there| within(value, there)))
        }
        (Value::Number(wanted), Value::Number(there)) => wanted.as_f64() == there.as_f64(),
        (wanted, there) => wanted == there,
    }
}

/// The styles are a set: in which order they are named says nothing.
fn signing(given: &Value) -> Value {
    let mut given = given.clone();
    if let Some(Value::Array(also)) = given.get_mut("also") {
        also.sort_by_key(Value::to_string);
        also.dedup();
    }
    given
}

/// The server keeps rates in millionths of a request per second.
fn rate(given: &Value) -> Value {
    let mut given = given.clone();
    if let Some(per_second) = given.get_mut("per_second")
        && let Some(exact) = per_second.as_f64()
    {
        *per_second = ((exact * 1e6).round() / 1e6).into();
    }
    given
}

fn sent(field: &str, before: &Value, after: &Value) -> Value {
    match (field, after) {
        ("schemas", Value::Object(all)) => {
            let new = all.iter().filter(|(version, schema)| before.get(version) != Some(schema));
            new.map(|(version, schema)| (version.clone(), schema.clone())).collect::<Map<_, _>>().into()
        }
        _ => after.clone(),
    }
}

/// Those that have a value: the server shows the others as null.
fn set_fields(given: &Value) -> Vec<(&String, &Value)> {
    given.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).collect()
}

fn names(headers: &Value) -> Vec<String> {
    let fields = headers.as_object().into_iter().flatten();
    let mut names: Vec<_> = fields.map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    names
}

fn policy(given: &Value) -> Result<PolicySpec, String> {
    let spec: PolicySpec = serde_json::from_value(given.clone()).map_err(|fault| fault.to_string())?;
    match spec {
        // What a name means is the server's to say.
        PolicySpec::Preset(_) => Ok(spec),
        PolicySpec::Custom(_) => Ok(RetryPolicy::try_from(spec).map_err(|fault| fault.to_string())?.into()),
    }
}

fn patterns(given: &Value) -> Result<Value, String> {
    let patterns: TypePatterns = serde_json::from_value(given.clone()).map_err(|fault| fault.to_string())?;
    serde_json::to_value(patterns).map_err(|fault| fault.to_string())
}

fn filter(given: &Value) -> Result<Value, String> {
    let filter = Filter::parse(&given.to_string()).map_err(|fault| format!("{}: {}", fault.pointer, fault.problem))?;
    serde_json::to_value(filter).map_err(|fault| fault.to_string())
}

fn url(given: &Value) -> Option<Url> {
    given.as_str().and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEEP: Rules = Rules { rewrite_secrets: false };

    fn differ(wanted: Value, there: Value, rules: Rules) -> Result<Vec<String>, String> {
        let changes = changes(wanted.as_object().unwrap(), &there, rules)?;
        Ok(changes.into_iter().map(|change| change.field).collect())
    }

    #[test]
    fn what_the_server_completes_is_no_difference() {
        let there = json!({
            "url": "https://x.example/", "rate_limit": {"per_second": 10.0, "burst": 1}, "policy": "patient", "event_types": ["*"],
            "headers": {"authorization": "***"}, "concurrency": 10, "filter": null, "tls": {"client_certificate": null},
        });
        let wanted = json!({
            "url": "https://x.example", "rate_limit": {"per_second": 10}, "policy": "patient", "event_types": ["*"],
            "headers": {"Authorization": "Bearer x"}, "concurrency": 10, "filter": null, "secret": "whsec_x",
        });
        assert_eq!(differ(wanted, there, KEEP), Ok(vec![]));
    }

    #[test]
    fn a_tenants_rate_is_completed_and_may_be_taken_away() {
        let there = json!({"ingest_rate": {"per_second": 5, "burst": 5}});
        assert_eq!(differ(json!({"ingest_rate": {"per_second": 5}}), there.clone(), KEEP), Ok(vec![]));
        assert_eq!(differ(json!({"ingest_rate": null}), there, KEEP), Ok(vec!["ingest_rate".to_owned()]));
        let none = json!({"ingest_rate": null});
        assert_eq!(differ(json!({"ingest_rate": {"per_second": 5}}), none, KEEP), Ok(vec!["ingest_rate".to_owned()]));
    }

    #[test]
    fn a_pinned_pace_is_rounded_and_may_be_taken_away() {
        let pinned = |per_second: f64| json!({"pinned_pace": {"per_second": per_second}});
        let none = json!({"pinned_pace": null});
        assert_eq!(differ(pinned(0.333_333_333), pinned(0.333_333), KEEP), Ok(vec![]));
        for (wanted, there) in [(pinned(2.0), pinned(3.0)), (none.clone(), pinned(3.0)), (pinned(3.0), none)] {
            assert_eq!(differ(wanted, there, KEEP), Ok(vec!["pinned_pace".to_owned()]));
        }
    }

    #[test]
    fn a_tenants_defaults_are_those_that_have_a_value() {
        let there = json!({"defaults": {"policy": null, "timeout_ms": 9000, "concurrency": null}});
        let differs = |defaults: Value| !differ(json!({"defaults": defaults}), there.clone(), KEEP).unwrap().is_empty();
        assert!(!differs(json!({"timeout_ms": 9000})));
        assert!(differs(json!({"timeout_ms": 9000, "concurrency": 2})));
        assert!(differs(json!({})) && differs(Value::Null));
    }

    #[test]
    fn what_the_server_orders_and_rounds_is_no_difference() {
        let there = json!({
            "signing": {"algorithm": "hmac_sha256", "also": ["github", "stripe"]},
            "rate_limit": {"per_second": 0.333333, "burst": 1},
        });
        let also = |styles: Value| json!({"signing": {"also": styles}});
        for (wanted, differs) in [
            (also(json!(["stripe", "github"])), false),
            (also(json!(["stripe", "github", "stripe"])), false),
            (also(json!(["stripe"])), true),
            (also(json!(["stripe", "x_signature"])), true),
            (json!({"rate_limit": {"per_second": 0.333_333_333}}), false),
            (json!({"rate_limit": {"per_second": 0.333_334}}), true),
        ] {
            let found = differ(wanted.clone(), there.clone(), KEEP).unwrap();
            assert_eq!(!found.is_empty(), differs, "{wanted}");
        }
    }

    #[test]
    fn differences_are_found_field_by_field() {
        let there = json!({
            "url": "https://x.example/", "rate_limit": {"per_second": 10.0, "burst": 1}, "policy": "patient", "concurrency": 10,
            "filter": {"a": 1}, "headers": {"a": "***"},
        });
        let wanted = json!({"url": "https://y.example/", "rate_limit": {"per_second": 9}, "policy": "brief", "filter": null, "headers": {"b": "1"}});
        let all = ["filter", "headers", "policy", "rate_limit", "url"];
        assert_eq!(differ(wanted, there.clone(), KEEP).unwrap(), all);
        let again = Rules { rewrite_secrets: true };
        assert_eq!(differ(json!({"headers": {"a": "1"}}), there.clone(), again).unwrap(), ["headers"]);
        assert!(differ(json!({"concurrency": null}), there.clone(), KEEP).unwrap_err().contains("write the value"));
        assert!(differ(json!({"concurency": 1}), there, KEEP).unwrap_err().contains("no field `concurency`"));
    }

    #[test]
    fn headers_go_along_to_a_new_url() {
        let there = json!({"url": "https://x.example/", "headers": {"a": "***"}});
        let moved = |headers: Value| json!({"url": "https://y.example/", "headers": headers});
        assert_eq!(differ(moved(json!({"A": "1"})), there.clone(), KEEP).unwrap(), ["headers", "url"]);
        let stays = json!({"url": "https://x.example", "headers": {"A": "1"}});
        assert_eq!(differ(stays, there, KEEP).unwrap(), [""; 0]);
        let bare = json!({"url": "https://x.example/", "headers": {}});
        assert_eq!(differ(moved(json!({})), bare, KEEP).unwrap(), ["url"], "there are none to give");
    }

    #[test]
    fn a_new_schema_does_not_become_the_default_by_the_way() {
        let there = json!({"schemas": {"1": {}}, "default_version": "1"});
        let wanted = |schemas: Value| json!({"schemas": schemas, "default_version": "1"});
        assert_eq!(
            differ(wanted(json!({"1": {}, "2": {}})), there.clone(), KEEP).unwrap(),
            ["default_version", "schemas"]
        );
        assert_eq!(differ(wanted(json!({"1": {}})), there, KEEP).unwrap(), [""; 0]);
    }

    #[test]
    fn of_schemas_only_the_new_ones_are_sent() {
        let wanted = json!({"schemas": {"1": {"type": "object"}, "2": {"type": "array"}}});
        let there = json!({"schemas": {"1": {"type": "object"}, "0": {}}});
        let found = changes(wanted.as_object().unwrap(), &there, KEEP).unwrap();
        assert_eq!(found[0].sent, json!({"2": {"type": "array"}}));
    }

    #[test]
    fn a_schema_is_the_same_only_word_for_word() {
        let there = json!({"schemas": {"1": {"type": "object", "required": ["a"]}, "2": {}}});
        let differs =
            |schema: Value| !differ(json!({"schemas": {"1": schema}}), there.clone(), KEEP).unwrap().is_empty();
        assert!(!differs(json!({"required": ["a"], "type": "object"})));
        assert!(differs(json!({"type": "object"})), "a rule less");
        assert!(differs(json!({"type": "object", "required": ["a"], "title": "A"})), "a word more");
    }

    #[test]
    fn tls_is_compared_by_what_the_server_shows_of_it() {
        let pem = |der: &str| format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
        // SHA-256 of "a", which is as good as a certificate here.
        let sha256 = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let there = json!({"tls": {"client_certificate": {"sha256": sha256, "not_after": null}, "ca_pem": "root"}});
        let none = json!({"tls": {"client_certificate": null, "ca_pem": null}});
        let with =
            |der: &str, ca: &str| json!({"client_certificate_pem": pem(der), "client_key_pem": "key", "ca_pem": ca});
        for (wanted, there, differs) in [
            (with("YQ==", "root"), &there, false),
            (with("Yg==", "root"), &there, true),
            (with("no base64!", "root"), &there, true),
            (with("YQ==", "another"), &there, true),
            (json!({"client_certificate_pem": pem("YQ==")}), &there, true),
            (json!({"ca_pem": "root"}), &there, true),
            (Value::Null, &there, true),
            (Value::Null, &none, false),
            (json!({}), &none, false),
            (json!({"ca_pem": "root"}), &none, true),
        ] {
            let found = differ(json!({"tls": wanted}), there.clone(), KEEP).unwrap();
            assert_eq!(!found.is_empty(), differs, "{wanted}");
        }
    }
}
