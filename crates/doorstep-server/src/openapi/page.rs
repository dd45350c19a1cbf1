//! The page at `/docs`: what the browser makes of the description, and every problem, where problems say that it is explained.

use crate::problem::Code;

pub(super) const CSS: &str = include_str!("../docs_page/page.css");
pub(super) const JS: &str = include_str!("../docs_page/page.js");
const HTML: &str = include_str!("../docs_page/index.html");
/// Where the problems stand in it.
const PLACE: &str = "<!-- problems -->";

/// The problems are in the page itself: their links lead there with any program, before any script has run.
pub(super) fn html() -> String {
    let problems: String = Code::ALL.iter().map(|code| explained(*code)).collect();
    HTML.replace(PLACE, &format!("<dl>\n{problems}</dl>"))
}

fn explained(code: Code) -> String {
    let (anchor, name, status) = (code.anchor(), code.name(), code.status().as_u16());
    let (title, about) = (escaped(code.title()), marked(code.about()));
    format!("<dt id=\"{anchor}\"><code>{name}</code> · {status} · {title}</dt>\n<dd>{about}</dd>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What stands between backticks is code.
fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(n, part)| match (escaped(part), n % 2) {
        (part, 0) => part,
        (part, _) => format!("<code>{part}</code>"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_explained_where_its_type_leads() {
        let html = html();
        for code in Code::ALL {
            let place = code.place();
            let (page, anchor) = place.split_once('#').unwrap();
            assert_eq!(page, "/docs");
            let start = html.find(&format!("<dt id=\"{anchor}\">")).unwrap_or_else(|| panic!("{place} leads nowhere"));
            let rest = &html[start..];
            let told = &rest[..rest.find("</dd>").unwrap()];
            assert!(told.contains(code.name()) && told.contains(code.status().as_str()), "{told}");
            assert!(told.contains(&marked(code.about())), "{told}");
        }
        assert!(!html.contains(PLACE), "the place was found");
    }

    #[test]
    fn text_is_text() {
        assert_eq!(marked("a <b> & `c\"d` e"), "a &lt;b&gt; &amp; <code>c&quot;d</code> e");
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        for text in [html().as_str(), CSS, JS] {
            assert!(["http:", "https:", "@import", "import("].iter().all(|way| !text.contains(way)), "{text}");
        }
    }
}
