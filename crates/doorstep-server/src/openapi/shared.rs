//! Answers that many operations give stand in the document once, under `components/responses`: it is half as large, and a client that is
//! made from it has one type for each.

use serde_json::{Map, Value, json};

use super::refusals::CODES;

/// Puts each problem answer under `components/responses`, and a reference in its place.
pub(super) fn share_problems(document: &mut Value) {
    let mut shared = Map::new();
    for item in document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            for (status, answer) in operation["responses"].as_object_mut().into_iter().flatten() {
                if let Some(name) = name(status, answer) {
                    let reference = json!({"$ref": format!("#/components/responses/{name}")});
                    shared.insert(name, std::mem::replace(answer, reference));
                }
            }
        }
    }
    document["components"]["responses"] = shared.into();
}

/// `Problem404.not_found`: what has the same status and codes is the same.
fn name(status: &str, answer: &Value) -> Option<String> {
    let codes: Vec<&str> = answer.get(CODES)?.as_array()?.iter().filter_map(Value::as_str).collect();
    Some(format!("Problem{status}.{}", codes.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_stands_there_once() {
        let answer = |codes: &[&str]| json!({"description": codes.join(", "), CODES: codes});
        let mut document = json!({"components": {}, "paths": {
            "/a": {"get": {"responses": {"200": {"description": "OK"}, "404": answer(&["not_found"])}}},
            "/b": {"get": {"responses": {"404": answer(&["not_found"]), "409": answer(&["gone", "ended"])}}},
        }});
        share_problems(&mut document);
        let shared = document["components"]["responses"].as_object().unwrap();
        assert_eq!(shared.keys().collect::<Vec<_>>(), ["Problem404.not_found", "Problem409.gone.ended"]);
        let there = |path: &str| document["paths"][path]["get"]["responses"].clone();
        let reference = json!({"$ref": "#/components/responses/Problem404.not_found"});
        assert_eq!(there("/a"), json!({"200": {"description": "OK"}, "404": reference}));
        assert_eq!(there("/b")["404"], reference);
        assert_eq!(shared["Problem409.gone.ended"], answer(&["gone", "ended"]));
    }
}
