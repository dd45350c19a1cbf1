//! The grammar, by examples and by its one law: what was read is written, and read again as the same.

use proptest::prelude::*;

use super::*;
use crate::time::Millis;

fn deliveries(text: &str) -> Result<DeliveryFilter, String> {
    text.parse().map_err(|fault: SearchFault| fault.to_string())
}

fn events(text: &str) -> Result<EventFilter, String> {
    text.parse().map_err(|fault: SearchFault| fault.to_string())
}

#[test]
fn nothing_asks_for_everything() {
    assert_eq!(deliveries("").unwrap(), DeliveryFilter::default());
    assert_eq!(DeliveryFilter::default().to_string(), "");
    assert_eq!(events("").unwrap(), EventFilter::default());
}

#[test]
fn each_name_asks_for_its_own() {
    let any = DeliveryFilter::default;
    let id = "01j9zq3k5v8w2x4y6z7a8b9c0d";
    let noon = Timestamp(1_794_744_000_000);
    for (text, expected) in [
        ("status=dead", DeliveryFilter { statuses: Statuses::DEAD, ..any() }),
        ("type=invoice.*,*.paid", DeliveryFilter { types: read_types("invoice.*,*.paid").ok(), ..any() }),
        ("event_id=order-1", DeliveryFilter { event_id: "order-1".parse().ok(), ..any() }),
        (
            &format!("destination_id=dst_{id}"),
            DeliveryFilter { destination_id: format!("dst_{id}").parse().ok(), ..any() },
        ),
        (&format!("tenant_id=ten_{id}"), DeliveryFilter { tenant_id: format!("ten_{id}").parse().ok(), ..any() }),
        ("reason=expired", DeliveryFilter { reason: Some(DeadReason::Expired), ..any() }),
        ("code=5xx", DeliveryFilter { codes: Some(Codes { from: 500, to: 599 }), ..any() }),
        ("created_after=2026-11-15T12:00:00.000Z", DeliveryFilter { created_after: Some(noon), ..any() }),
        ("created_before=2026-11-15T12:00:00.000Z", DeliveryFilter { created_before: Some(noon), ..any() }),
    ] {
        assert_eq!(deliveries(text).unwrap(), expected, "{text}");
        assert_eq!(expected.to_string(), text);
    }
    let whole = "type=a.b&tenant_id=ten_01j9zq3k5v8w2x4y6z7a8b9c0d&ordering_key=caf%C3%A9+%26%3D1\
                 &created_after=2026-11-15T12:00:00.000Z&created_before=2026-11-15T12:00:00.001Z";
    let expected = EventFilter {
        types: read_types("a.b").ok(),
        tenant_id: format!("ten_{id}").parse().ok(),
        ordering_key: Some("café &=1".into()),
        accepted_after: Some(noon),
        accepted_before: Some(noon + Millis(1)),
    };
    assert_eq!((events(whole).unwrap(), expected.to_string()), (expected, whole.to_owned()));
}

#[test]
fn states_are_listed_with_commas_and_written_in_their_order() {
    for (text, expected, written) in [
        ("queued, delivered", Statuses::QUEUED.or(Statuses::DELIVERED), "queued,delivered"),
        ("dead,queued", Statuses::QUEUED.or(Statuses::DEAD), "queued,dead"),
        ("failed,dead", Statuses::RETRY_SCHEDULED.or(Statuses::DEAD), "retry_scheduled,dead"),
    ] {
        assert_eq!(text.parse(), Ok(expected), "{text}");
        assert_eq!(expected.to_string(), written);
    }
    assert_eq!(deliveries("status=queued,failed,delivered").unwrap().to_string(), "", "all of them are no filter");
}

#[test]
fn a_code_is_one_or_a_class() {
    assert_eq!("503".parse(), Ok(Codes::one(503)));
    assert_eq!("5xx".parse(), Ok(Codes { from: 500, to: 599 }));
    for wrong in ["", "xx", "0xx", "6xx", "55xx", "5xxxx", "99", "600", "70000", "5XX", "5xx ", "+50", "0503", "é"] {
        assert!(wrong.parse::<Codes>().is_err(), "{wrong:?}");
    }
}

#[test]
fn a_reason_is_called_the_same_everywhere() {
    for reason in DeadReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        assert_eq!(deliveries(&format!("reason={}", reason.name())).unwrap().reason, Some(reason));
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_its_name_and_what_to_do() {
    let long = format!("ordering_key={}", "k".repeat(257));
    for (text, part) in [
        ("statsu=dead", "statsu: `statsu` is none: did you mean `status`? there are status, type, event_id"),
        ("ordering_key=a", "ordering_key: `ordering_key` is none: there are status"),
        ("status=dead&status=queued", "status: is given twice"),
        ("status=deliverd", "status: `deliverd` is none: did you mean `delivered`? there are queued"),
        (
            "status=in_flight",
            "status: `in_flight` cannot be asked for, since what is on its way is not written down: ask for `queued,",
        ),
        ("status=dead,in_flight", "status: `in_flight` cannot be asked for"),
        ("status=", "status: `` is none"),
        ("status=dead,", "status: `` is none"),
        ("type=", "type: ``: an event type cannot be empty"),
        ("type=a,inv*", "type: `inv*`: `*` stands for whole segments only"),
        ("event_id=a.b", "event_id: an event's ID consists of"),
        ("destination_id=ten_1", "destination_id: \"ten_1\" is not a destination's ID: it looks like dst_"),
        (
            "reason=exausted",
            "reason: `exausted` is none: did you mean `exhausted`? there are exhausted, expired, rejected, abandoned",
        ),
        ("code=6xx", "code: is a status code, such as 503, or a class"),
        ("created_after=2h", "created_after: \"2h\" is not a time: write it like 2026-11-15T12:00:00Z"),
    ] {
        let told = deliveries(text).unwrap_err();
        assert!(told.starts_with(part), "{text}: {told}");
    }
    for (text, part) in [
        ("status=dead", "status: `status` is none: there are type, tenant_id, ordering_key"),
        ("ordering_key=", "ordering_key: an ordering key has 1 to 256 characters, but this has 0"),
        (&long, "ordering_key: an ordering key has 1 to 256 characters, but this has 257"),
        ("ordering_key=a%0Ab", "ordering_key: an ordering key has no control characters, but this has '\\n'"),
    ] {
        let told = events(text).unwrap_err();
        assert!(told.starts_with(part), "{text}: {told}");
    }
}

/// Some of the terms, in some order: right ones, and a few that are not.
fn queries() -> impl Strategy<Value = String> {
    let term = prop_oneof![
        "status=(queued|retry_scheduled|delivered|dead|failed|x)(,(queued|dead|failed)){0,3}",
        "type=[a-c*]{1,2}(\\.[a-c*]){0,3}(,\\*\\.a){0,2}",
        "event_id=[A-Za-z0-9_-]{1,5}",
        "(destination_id=dst|tenant_id=ten)_[0-7][0-9a-hjkmnp-tv-z]{25}",
        "reason=(exhausted|expired|rejected|abandoned|other)",
        "code=[1-6]([0-9]{2}|xx)",
        "ordering_key=([a-z +%]|%26|%3D|%C3%A9){0,4}",
        "created_(after|before)=[0-9]{4}-(0[1-9]|1[012])-[012][1-9]T[012][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,5})?(Z|[+-]0[0-9]:30|%2B01:00)",
    ];
    prop::collection::vec(term, 0..5).prop_map(|terms| terms.join("&"))
}

proptest! {
    #[test]
    fn what_was_read_is_written_and_read_as_the_same(query in queries()) {
        if let Ok(filter) = deliveries(&query) {
            prop_assert_eq!(&deliveries(&filter.to_string()).unwrap(), &filter);
            let pairs = filter.pairs();
            let given = pairs.iter().map(|(name, text)| (*name, text.as_str()));
            prop_assert_eq!(&DeliveryFilter::read(given).unwrap(), &filter);
        }
        if let Ok(filter) = events(&query) {
            prop_assert_eq!(&events(&filter.to_string()).unwrap(), &filter);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = (deliveries(&text), events(&text));
        for name in DeliveryFilter::NAMES.iter().chain(EventFilter::NAMES) {
            let _ = (DeliveryFilter::read([(*name, &*text)]), EventFilter::read([(*name, &*text)]));
        }
    }
}
