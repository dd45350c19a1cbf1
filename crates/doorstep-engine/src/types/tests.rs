use bytes::Bytes;
use doorstep_core::id::{EventId, TenantId};
use doorstep_core::time::Timestamp;
use serde_json::{Value, json};

use super::*;

fn registered(schemas: &[(&str, Value)]) -> RegisteredType {
    RegisteredType {
        name: "invoice.paid".parse().unwrap(),
        description: None,
        schemas: schemas.iter().map(|(version, schema)| ((*version).to_owned(), schema.clone())).collect(),
        default_version: schemas.last().map(|(version, _)| (*version).to_owned()),
        example: None,
        ttl: Some(Millis::from_mins(1)),
        archived: false,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        version: 1,
    }
}

fn event(schema_version: Option<&str>, payload: &str) -> Event {
    Event {
        id: EventId::new("e").unwrap(),
        tenant_id: TenantId(1),
        event_type: "invoice.paid".parse().unwrap(),
        content_type: "application/json".into(),
        payload: Bytes::from(payload.to_owned()),
        ordering_key: None,
        produced_at: None,
        schema_version: schema_version.map(Arc::from),
        headers: Vec::new(),
        ttl: None,
        accepted_at: Timestamp(0),
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}

fn types(schemas: &[(&str, Value)]) -> Types {
    let types = Types::default();
    assert_eq!(types.misfits_of_type(&registered(schemas)), []);
    types.put(registered(schemas));
    types
}

/// The places that are told of.
fn pointers(misfits: &[Misfit]) -> Vec<&str> {
    misfits.iter().map(|misfit| misfit.pointer.as_str()).collect()
}

fn refused(schema: Value) -> (String, String) {
    let misfits = Types::default().misfits_of_type(&registered(&[("1", schema)]));
    assert_eq!(misfits.len(), 1, "{misfits:?}");
    (misfits[0].pointer.clone(), misfits[0].detail.clone())
}

#[test]
fn a_payload_has_to_fit_the_version_that_its_event_names() {
    let amount = |kind: &str| json!({ "required": ["amount"], "properties": { "amount": { "type": kind } } });
    let types = types(&[("1", amount("string")), ("2", amount("integer"))]);
    for (version, payload, expected) in [
        (Some("1"), r#"{"amount": "7"}"#, vec![]),
        (Some("1"), r#"{"amount": 7}"#, vec!["/payload/amount"]),
        (Some("2"), r#"{"amount": 7}"#, vec![]),
        (None, r#"{"amount": "7"}"#, vec!["/payload/amount"]),
        (None, "{}", vec!["/payload"]),
        (None, "not JSON", vec!["/payload"]),
        (Some("3"), r#"{"amount": 7}"#, vec!["/schema_version"]),
    ] {
        assert_eq!(pointers(&types.misfits(&event(version, payload))), expected, "{version:?} {payload}");
    }
}

#[test]
fn what_is_not_registered_or_has_no_schema_is_taken_as_it_is() {
    assert_eq!(Types::default().misfits(&event(Some("9"), "not JSON")), []);
    assert_eq!(types(&[]).misfits(&event(Some("9"), "not JSON")), []);
}

#[test]
fn an_archived_type_takes_no_more_events() {
    let types = types(&[]);
    types.put(RegisteredType { archived: true, ..registered(&[]) });
    assert_eq!(pointers(&types.misfits(&event(None, "{}"))), ["/type"]);
}

#[test]
fn faults_are_told_by_place_up_to_twenty_and_without_the_value() {
    let types = types(&[("1", json!({ "items": { "maxLength": 3 } }))]);
    let payload = serde_json::to_string(&vec!["secret"; 50]).unwrap();
    let misfits = types.misfits(&event(None, &payload));
    assert_eq!(misfits.len(), 20);
    assert_eq!(misfits[1], Misfit::new("/payload/1", "value is longer than 3 characters"));
}

#[test]
fn a_types_ttl_is_for_events_that_have_none() {
    let types = types(&[]);
    let mut event = event(None, "{}");
    assert_eq!(types.ttl_of(&event), Some(Millis::from_mins(1)));
    event.ttl = Some(Millis(5));
    assert_eq!(types.ttl_of(&event), Some(Millis(5)));
    types.remove(&event.event_type);
    event.ttl = None;
    assert_eq!(types.ttl_of(&event), None);
}

#[test]
fn a_faulty_schema_is_refused_with_its_place() {
    for (schema, pointer, part) in [
        (json!({ "type": "objec" }), "/schemas/1/type", "not valid under any"),
        (json!({ "properties": { "a": { "minLength": -1 } } }), "/schemas/1/properties/a/minLength", "less than"),
        (json!({ "pattern": "(" }), "/schemas/1/pattern", "no regular expression"),
        (json!({ "pattern": "(?=a)b" }), "/schemas/1/pattern", "looks ahead"),
        (json!({ "pattern": "a{1000}{1000}" }), "/schemas/1/pattern", "too much memory"),
        (json!({ "items": { "$ref": "https://example.com/x" } }), "/schemas/1/items/$ref", "not found"),
        (json!({ "items": { "$ref": "file:///etc/passwd" } }), "/schemas/1/items/$ref", "not found"),
        (json!({ "$ref": "#/$defs/x" }), "/schemas/1/$ref", "not found"),
        (json!({ "$ref": "#/enum/0", "enum": [{ "$ref": "#" }] }), "/schemas/1/$ref", "no schema is"),
        (
            json!({ "not": { "$ref": "#/$defs/a~1b/const" }, "$defs": { "a/b": { "const": {} } } }),
            "/schemas/1/not/$ref",
            "no schema is",
        ),
        (json!({ "items": { "$id": "https://example.com/x" } }), "/schemas/1/items/$id", "whole schema"),
        (json!({ "$schema": "https://example.com/x" }), "/schemas/1", "meta-schema"),
        (json!(5), "/schemas/1", "boolean"),
        (json!({ "description": "x".repeat(70_000) }), "/schemas/1", "65536 bytes"),
    ] {
        let (at, detail) = refused(schema.clone());
        assert_eq!(at, pointer, "{schema}: {detail}");
        assert!(detail.contains(part), "{schema}: {detail}");
    }
}

/// 2³⁰ rules in two kilobytes.
#[test]
fn references_to_references_do_not_take_forever() {
    let mut defs = serde_json::Map::new();
    for n in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
        defs.insert(format!("a{n}"), json!({ "allOf": [next, next] }));
    }
    defs.insert("a30".to_owned(), json!({ "type": "integer" }));
    let (at, detail) = refused(json!({ "$defs": defs, "$ref": "#/$defs/a0" }));
    assert!(at == "/schemas/1" && detail.contains("50000 rules"), "{at}: {detail}");
}

#[test]
fn rules_that_refer_to_each_other_too_deeply_are_refused() {
    let mut defs = serde_json::Map::new();
    for n in 0..1_000 {
        defs.insert(format!("a{n}"), json!({ "$ref": format!("#/$defs/a{}", n + 1) }));
    }
    defs.insert("a1000".to_owned(), json!(true));
    let (_, detail) = refused(json!({ "$defs": defs, "$ref": "#/$defs/a0" }));
    assert!(detail.contains("deep"), "{detail}");
    // From the far end, each step is short.
    let steps: serde_json::Map<_, _> =
        (0..1_000).map(|n| (format!("p{n:03}"), json!({ "$ref": format!("#/$defs/a{}", 999 - n) }))).collect();
    let (_, detail) = refused(json!({ "properties": steps, "definitions": {}, "$defs": defs }));
    assert!(detail.contains("deep"), "{detail}");
}

/// On a thread with as much stack as those that serve requests have.
#[test]
fn a_schema_that_refers_to_itself_is_followed_as_deep_as_the_payload_goes() {
    let tree = json!({ "properties": { "child": { "$ref": "#" }, "n": { "type": "integer" } } });
    for looped in [json!({ "$ref": "#" }), json!({ "allOf": [{ "$ref": "#" }] }), json!({ "not": { "$ref": "#" } })] {
        types(&[("1", looped)]).misfits(&event(None, "{}"));
    }
    let served = std::thread::Builder::new().stack_size(2 << 20);
    let checked = move || {
        let types = types(&[("1", tree)]);
        let nested = |depth: usize| r#"{"child":"#.repeat(depth) + r#"{"n":"x"}"# + &"}".repeat(depth);
        assert_eq!(types.misfits(&event(None, &nested(100)))[0].pointer.matches("/child").count(), 100);
        assert_eq!(pointers(&types.misfits(&event(None, &nested(1_000)))), ["/payload"]);
    };
    served.spawn(checked).unwrap().join().unwrap();
}

/// With backtracking, this takes longer than the universe has lasted.
#[test]
fn a_pattern_takes_time_linear_in_the_text() {
    let types = types(&[("1", json!({ "pattern": "^(a+)+$" }))]);
    let payload = format!("{:?}", "a".repeat(100_000) + "b");
    assert_eq!(pointers(&types.misfits(&event(None, &payload))), ["/payload"]);
}

/// Also where it does not fit: the library stops at the first rule that fails, and what it has done by then must have been counted.
#[test]
fn whatever_looks_at_every_element_takes_a_step_for_each() {
    let elements = Value::from(vec![0; 1_000]);
    let text = Value::from("a".repeat(16_000));
    for (rule, value) in [
        (json!({ "contains": { "const": 1 } }), &elements),
        (json!({ "contains": { "enum": [1] } }), &elements),
        (json!({ "items": { "type": "integer" } }), &elements),
        (json!({ "items": { "type": "integer", "minimum": 0 } }), &elements),
        (json!({ "unevaluatedItems": false }), &elements),
        (json!({ "uniqueItems": true }), &elements),
        (json!({ "uniqueItems": true, "enum": ["another"] }), &elements),
        (json!({ "pattern": "b$" }), &text),
        (json!({ "$schema": "http://json-schema.org/draft-04/schema#", "pattern": "b$" }), &text),
    ] {
        let steps = Schema::new(&rule).unwrap().steps(value);
        assert!((1_000..20_000).contains(&steps), "{rule}: {steps}");
    }
}

/// 64 KiB of alternatives, none of which fits, would each read the whole payload.
#[test]
fn alternatives_that_do_not_fit_are_counted() {
    let alternatives: Vec<Value> = (1..2_000).map(|n| json!({ "contains": { "const": n } })).collect();
    let types = types(&[("1", json!({ "anyOf": alternatives }))]);
    let zeros = json!(vec![0; 100_000]).to_string();
    let misfits = types.misfits(&event(None, &zeros));
    assert_eq!(pointers(&misfits), ["/payload"]);
    assert!(misfits[0].detail.contains("steps"), "{misfits:?}");
    let few = json!(vec![0; 100]).to_string();
    assert_eq!(types.misfits_inline(&event(None, &few)), Inline::TooLong);
}

/// A tree whose every level may be of one of several kinds. What does not fit at the bottom is looked for under each of them, on every level.
fn forked(kinds: usize) -> Value {
    let kind = |n: usize| json!({ "type": "object", "properties": { "child": { "$ref": "#/$defs/tree" }, (format!("p{n}")): true }, "required": ["child"] });
    let kinds: Vec<Value> = (0..kinds).map(kind).chain([json!({ "type": "integer" })]).collect();
    json!({ "$defs": { "tree": { "anyOf": kinds } }, "$ref": "#/$defs/tree" })
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("a leaf that does not fit"), |inner, _| json!({ "child": inner }))
}

/// Listing the faults of the library took 0.09 s for 12 levels, 0.41 s for 14 and 1.49 s for 16.
#[test]
fn a_misfit_deep_in_a_forked_tree_is_refused_in_steps_that_grow_with_its_depth() {
    for (kinds, depths) in [(2, [12, 14, 16, 100]), (8, [12, 14, 16, 100])] {
        let schema = Schema::new(&forked(kinds)).unwrap();
        let types = types(&[("1", forked(kinds))]);
        for depth in depths {
            let payload = nested(depth);
            let (shallow, deep) = (schema.steps(&nested(10)), schema.steps(&payload));
            assert!(deep <= shallow * depth as u64, "{kinds} kinds, {depth} levels: {shallow} and {deep} steps");
            let misfits = types.misfits(&event(None, &payload.to_string()));
            assert!(!misfits.is_empty() && misfits.len() <= 20, "{misfits:?}");
            assert!(misfits[0].pointer.starts_with("/payload"), "{misfits:?}");
        }
        assert_eq!(
            types.misfits(&event(None, &nested(100).to_string().replace("\"a leaf that does not fit\"", "7"))),
            []
        );
    }
}

#[test]
fn few_faults_are_told_by_place_and_of_many_values_the_first_one() {
    let types = types(&[("1", json!({ "items": { "type": "integer", "maximum": 5 } }))]);
    let mut values = vec![1; 100_000];
    assert_eq!(types.misfits(&event(None, &json!(values).to_string())), []);
    values.extend([6, 7]);
    let misfits = types.misfits(&event(None, &json!(values).to_string()));
    assert_eq!(pointers(&misfits), ["/payload/100000"], "all of them would take too many steps to list");
    let misfits = types.misfits(&event(None, &json!(values[99_000..]).to_string()));
    assert_eq!(pointers(&misfits), ["/payload/1000", "/payload/1001"]);
}

#[test]
fn a_payload_that_takes_too_many_steps_is_refused_and_says_so() {
    let rules = vec![json!({ "minimum": 0 }); 1_000];
    let patterns: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("^a*{n}$"), json!(true))).collect();
    let keys: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("aaaa{n}"), json!(0))).collect();
    for (schema, payload) in [
        (json!({ "items": { "allOf": rules } }), json!(vec![0; 100_000])),
        (json!({ "patternProperties": patterns }), json!(keys)),
    ] {
        let misfits = types(&[("1", schema)]).misfits(&event(None, &payload.to_string()));
        assert_eq!(pointers(&misfits), ["/payload"]);
        assert!(misfits[0].detail.contains("steps"), "{misfits:?}");
    }
}

#[test]
fn a_runtime_thread_compares_what_is_small_and_leaves_the_rest() {
    let types = types(&[("1", json!({ "items": { "type": "integer" } }))]);
    let inline = |n: usize| types.misfits_inline(&event(None, &json!(vec![1; n]).to_string()));
    assert_eq!(inline(100), Inline::Compared(vec![]));
    assert_eq!(inline(7_000), Inline::TooLong, "too many steps");
    assert_eq!(inline(20_000), Inline::TooLong, "too many bytes");
    let none = Types::default().misfits_inline(&event(None, &"x".repeat(100_000)));
    assert_eq!(none, Inline::AtOnce(vec![]), "there is no schema");
}

/// Counting must not change what fits: our keyword stands beside the schema's, and never in values or among names.
#[test]
fn counted_schemas_mean_what_they_meant() {
    let counted = super::steps::COUNTED;
    let closed = json!({ "properties": { "a": { "type": "integer" } }, "additionalProperties": false });
    for (schema, payload, fits) in [
        (closed.clone(), json!({ "a": 1 }), true),
        (closed, json!({ counted: 1 }), false),
        (json!({ "const": { "a": { "b": 1 } } }), json!({ "a": { "b": 1 } }), true),
        (json!({ "enum": [{ "items": {} }, 2] }), json!({ "items": {} }), true),
        (json!({ "default": {}, "examples": [{}], "not": {} }), json!(1), false),
        (json!({ "dependencies": { "a": ["b"], "c": { "required": ["d"] } } }), json!({ "a": 1, "b": 2 }), true),
        (json!({ "properties": { "items": { "items": { "type": "integer" } } } }), json!({ "items": ["x"] }), false),
        (
            json!({ "allOf": [{ "properties": { "a": true } }], "unevaluatedProperties": false }),
            json!({ "a": 1 }),
            true,
        ),
        (
            json!({ "allOf": [{ "properties": { "a": true } }], "unevaluatedProperties": false }),
            json!({ "b": 1 }),
            false,
        ),
        (json!({ "x": { "minimum": 3 }, "$ref": "#/x" }), json!(2), false),
        (json!({ "$defs": { "x": { "$anchor": "x", "minimum": 3 } }, "$ref": "#x" }), json!(2), false),
        (json!({ "$defs": { "a%b": { "minimum": 3 } }, "$ref": "#/$defs/a%25b" }), json!(2), false),
        (json!({ "properties": { "enum": { "minimum": 3 } }, "$ref": "#/properties/enum" }), json!(2), false),
        (json!({ counted: "theirs", "minimum": 3 }), json!(4), true),
        (json!({ "enum": ["a", "b"] }), json!("b"), true),
        (json!({ "enum": ["a"], "const": "b" }), json!("b"), false),
        (json!({ "enum": ["a"], "allOf": [{ "minLength": 1 }] }), json!("b"), false),
        (json!({ "enum": ["a"], "allOf": [{ "minLength": 1 }] }), json!("a"), true),
        (json!({ "enum": [1], "$ref": "#/allOf/0", "allOf": [{ "minimum": 1 }] }), json!(1), true),
        (json!(false), json!(4), false),
    ] {
        let misfits = types(&[("1", schema.clone())]).misfits(&event(None, &payload.to_string()));
        assert_eq!(misfits.is_empty(), fits, "{schema} on {payload}: {misfits:?}");
        let plain = jsonschema::options().build(&schema).unwrap();
        assert_eq!(plain.is_valid(&payload), fits, "{schema} on {payload}");
    }
}

#[test]
fn faults_do_not_show_how_a_schema_is_counted_and_are_told_once() {
    let same = json!({ "properties": { "a": { "not": { "type": "integer" } } } });
    let schema = json!({ "allOf": [same, same, { "minProperties": 1 }] });
    let misfits = types(&[("1", schema)]).misfits(&event(None, r#"{"a":1}"#));
    assert_eq!(misfits, [Misfit::new("/payload/a", "fits a schema that `not` rules out")]);
}
