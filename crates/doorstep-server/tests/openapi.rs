//! The API's description is the one that is committed, whole and unambiguous.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::collections::BTreeSet;
use std::path::Path;

use doorstep_core::retry::{BUILT_IN, PRESET_NAME_MAX};
use doorstep_core::search::{DeliveryFilter, EventFilter, Search};
use doorstep_server::{openapi, router};
use serde_json::Value;

/// The document, with what is shared put where it is referred to.
fn document() -> Value {
    let mut document: Value = serde_json::from_str(&openapi::text(&router::document())).unwrap();
    let shared = document["components"]["responses"].take();
    for item in document["paths"].as_object_mut().unwrap().values_mut() {
        for operation in item.as_object_mut().unwrap().values_mut() {
            for answer in operation["responses"].as_object_mut().unwrap().values_mut() {
                if let Some(reference) = answer.get("$ref").and_then(Value::as_str) {
                    *answer = shared[reference.strip_prefix("#/components/responses/").unwrap()].clone();
                }
            }
        }
    }
    document
}

#[test]
fn the_document_is_small_enough_to_be_read_by_anything() {
    let document: Value = serde_json::from_str(&openapi::text(&router::document())).unwrap();
    let bytes = document.to_string().len();
    assert!(bytes <= 200_000, "{bytes} bytes");
}

#[test]
fn every_answer_says_what_it_is() {
    for (what, operation) in operations(&document()) {
        for (status, answer) in answers(operation) {
            let description = answer["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{what} {status}");
        }
    }
}

fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

#[test]
fn the_committed_copy_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/openapi.json");
    let said = openapi::text(&router::document());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == said,
        "api/openapi.json differs from the code: run this test with UPDATE=1, and look at the change"
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_and_a_summary() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut names = BTreeSet::new();
    for (what, operation) in operations(&document) {
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{what}: its name is taken");
        assert!(
            operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()),
            "{what} says nothing of itself"
        );
    }
}

#[test]
fn a_list_describes_what_its_filter_reads() {
    let document = document();
    for (path, names) in [("/v1/deliveries", DeliveryFilter::NAMES), ("/v1/events", EventFilter::NAMES)] {
        let described = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let described: Vec<&str> = described.iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
        assert_eq!(described, [names, &["limit", "cursor"]].concat(), "{path}");
    }
}

/// Each answer of an operation, with its status.
fn answers(operation: &Value) -> impl Iterator<Item = (&String, &Value)> {
    operation["responses"].as_object().unwrap().iter()
}

#[test]
fn every_refusal_is_named_by_its_status_and_its_codes() {
    let document = document();
    let known = document["components"]["schemas"]["ProblemCode"]["enum"].as_array().unwrap();
    let is_open = |operation: &Value| operation["security"] == serde_json::json!([{}]);
    for (what, operation) in operations(&document) {
        for (status, answer) in answers(operation).filter(|(status, _)| !status.starts_with('2')) {
            let at = format!("{what} {status}");
            assert!(status.parse::<u16>().is_ok(), "{at}: a whole class says nothing");
            if (what.as_str(), status.as_str()) == ("get /readyz", "503") {
                continue;
            }
            let problem = &answer["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(problem, "#/components/schemas/Problem", "{at}");
            let codes = answer["x-problem-codes"].as_array().unwrap();
            assert!(!codes.is_empty() && codes.iter().all(|code| known.contains(code)), "{at}: {codes:?}");
        }
        for status in ["401", "403", "500"] {
            assert!(is_open(operation) || operation["responses"].get(status).is_some(), "{what}: {status}");
        }
    }
}

/// Said once more, in words of its own: an operation here and there, whole.
#[test]
fn operations_name_what_they_can_say_no_with() {
    let document = document();
    let all: std::collections::BTreeMap<String, &Value> = operations(&document).collect();
    let named = |what: &str| {
        let refused = answers(all[what]).filter_map(|(status, answer)| Some((status, answer.get("x-problem-codes")?)));
        refused.map(|(status, codes)| format!("{status} {codes}")).collect::<Vec<String>>()
    };
    assert_eq!(named("get /healthz"), [r#"400 ["malformed_request"]"#]);
    assert_eq!(
        named("post /v1/deliveries/{id}/retry"),
        [
            r#"400 ["malformed_request"]"#,
            r#"401 ["unauthorized"]"#,
            r#"403 ["cross_site","missing_scope","wrong_source"]"#,
            r#"404 ["not_found"]"#,
            r#"409 ["destination_gone","not_dead"]"#,
            r#"422 ["too_broad"]"#,
            r#"429 ["too_many_refused_credentials"]"#,
            r#"500 ["internal"]"#,
            r#"503 ["busy","shutting_down","store_unavailable","unreadable"]"#,
        ]
    );
    assert_eq!(
        named("patch /v1/tenants/{id}"),
        [
            r#"400 ["malformed_request"]"#,
            r#"401 ["unauthorized"]"#,
            r#"403 ["cross_site","limited_to_a_tenant","missing_scope","wrong_source"]"#,
            r#"404 ["not_found"]"#,
            r#"408 ["too_slow"]"#,
            r#"412 ["changed_meanwhile"]"#,
            r#"413 ["too_large"]"#,
            r#"415 ["not_json"]"#,
            r#"422 ["invalid_request"]"#,
            r#"429 ["too_many_refused_credentials"]"#,
            r#"500 ["internal"]"#,
            r#"503 ["busy","shutting_down","store_unavailable","unreadable"]"#,
        ]
    );
}

#[test]
fn portal_sessions_are_let_in_where_the_rules_let_them_in() {
    let document = document();
    let cookie = &document["components"]["securitySchemes"]["portal"];
    assert_eq!((&cookie["type"], &cookie["in"]), (&"apiKey".into(), &"cookie".into()), "{cookie}");
    let (key, portal) = (serde_json::json!({"key": []}), serde_json::json!({"portal": []}));
    let all: std::collections::BTreeMap<String, &Value> = operations(&document).collect();
    for (what, expected) in [
        ("get /v1/deliveries", vec![&key, &portal]),
        ("post /v1/destinations/{id}/pause", vec![&key, &portal]),
        ("get /portal/session", vec![&portal]),
        ("post /v1/events", vec![]),
        ("get /v1/keys", vec![]),
        ("post /v1/tenants", vec![]),
    ] {
        let said: Vec<&Value> = all[what]["security"].as_array().into_iter().flatten().collect();
        assert_eq!(said, expected, "{what}");
    }
    assert_eq!(document["security"], serde_json::json!([key]), "the rest needs a key");
}

#[test]
fn events_are_described_in_every_form_that_they_are_taken_in() {
    let document = document();
    let all: std::collections::BTreeMap<String, &Value> = operations(&document).collect();
    let forms = |what: &str| {
        let content = all[what]["requestBody"]["content"].as_object().unwrap();
        content.keys().cloned().collect::<BTreeSet<String>>()
    };
    let expected = |kinds: [&str; 2]| kinds.map(str::to_owned).into();
    assert_eq!(forms("post /v1/events"), expected(["application/json", "application/cloudevents+json"]));
    assert_eq!(forms("post /v1/events/batch"), expected(["application/json", "application/cloudevents-batch+json"]));
    let parameters = all["post /v1/events"]["parameters"].as_array().unwrap().iter();
    let headers: BTreeSet<&str> = parameters.filter_map(|parameter| parameter["name"].as_str()).collect();
    for header in ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "ce-tenantid"] {
        assert!(headers.contains(header), "{header} is not described");
    }
}

/// The operator's own presets are accepted by name, and the document does not know which there are.
#[test]
fn a_policy_is_described_as_any_name_that_a_preset_may_have_or_an_object() {
    let document = document();
    for body in ["NewDestination", "DestinationChange", "DestinationView", "DefaultsBody", "DefaultsView"] {
        let schema = &document["components"]["schemas"][body]["properties"]["policy"];
        let whole = serde_json::json!({"allOf": [schema], "components": document["components"]});
        let validator = jsonschema::validator_for(&whole).unwrap();
        let longest = "p".repeat(PRESET_NAME_MAX);
        for fitting in BUILT_IN.into_iter().chain(["weekend", "our_own-2", &longest]) {
            assert!(validator.is_valid(&fitting.into()), "{body}: {fitting}");
        }
        for misfit in ["", "Weekend", "week end", &format!("{longest}p")] {
            assert!(!validator.is_valid(&misfit.into()), "{body}: {misfit}");
        }
        assert!(validator.is_valid(&serde_json::json!({"strategy": "fixed"})), "{body}");
        assert!(!validator.is_valid(&serde_json::json!({"strategy": "eager"})), "{body}");
    }
}

/// Every example in it, with its place, and the schema that it has to fit.
fn examples(document: &Value) -> Vec<(String, Value, Value)> {
    let mut found = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        examples_within(schema, name, &mut found);
    }
    for (what, operation) in operations(document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let at = format!("{what} {}", parameter["name"]);
            examples_within(&parameter["schema"], &at, &mut found);
            let own = parameter.get("example").cloned().map(|example| (at, example, parameter["schema"].clone()));
            found.extend(own);
        }
        for (status, answer) in answers(operation) {
            for (name, header) in answer["headers"].as_object().into_iter().flatten() {
                examples_within(&header["schema"], &format!("{what} {status} {name}"), &mut found);
            }
        }
    }
    found
}

fn examples_within(schema: &Value, at: &str, found: &mut Vec<(String, Value, Value)>) {
    let Value::Object(words) = schema else { return };
    let several = words.get("examples").and_then(Value::as_array).into_iter().flatten();
    for example in words.get("example").into_iter().chain(several) {
        found.push((at.to_owned(), example.clone(), schema.clone()));
    }
    for word in ["oneOf", "anyOf", "allOf"] {
        for (n, part) in words.get(word).and_then(Value::as_array).into_iter().flatten().enumerate() {
            examples_within(part, &format!("{at}/{word}/{n}"), found);
        }
    }
    for word in ["items", "additionalProperties", "propertyNames"] {
        words.get(word).into_iter().for_each(|part| examples_within(part, &format!("{at}/{word}"), found));
    }
    for (name, part) in words.get("properties").and_then(Value::as_object).into_iter().flatten() {
        examples_within(part, &format!("{at}/{name}"), found);
    }
}

#[test]
fn every_example_fits_its_schema() {
    let document = document();
    let examples = examples(&document);
    assert!(examples.len() > 20, "only {} examples were found", examples.len());
    for (at, example, schema) in examples {
        // References lead into the document.
        let whole = serde_json::json!({"allOf": [schema], "components": document["components"]});
        let validator = jsonschema::options().should_validate_formats(true).build(&whole).unwrap();
        let faults: Vec<String> = validator.iter_errors(&example).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{at}: {example} {faults:?}");
    }
}
