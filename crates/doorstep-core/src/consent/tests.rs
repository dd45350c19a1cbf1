use super::*;

const ORIGIN: &str = "hooks.example.com";
fn key(byte: u8) -> LinkKey {
    [byte; 32].into()
}
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const URL: &str = "https://receiver.example/in?a=1";

fn read(headers: &[(&str, &str)]) -> Result<Option<u32>, NoConsent> {
    let lines: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    Leave::read(ORIGIN, &lines).map(|leave| leave.per_minute.map(NonZeroU32::get))
}

#[test]
fn consent_is_two_headers_and_nothing_else() {
    let rate = ("WebHook-Allowed-Rate", "120");
    assert_eq!(read(&[("WebHook-Allowed-Origin", "Hooks.Example.COM"), rate]), Ok(Some(120)));
    assert_eq!(read(&[("webhook-allowed-origin", " * "), ("webhook-allowed-rate", "*")]), Ok(None));
    assert_eq!(read(&[("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "99999999999")]), Ok(Some(u32::MAX)));

    assert_eq!(read(&[("allow", "POST"), rate]), Err(NoConsent::NotSaid));
    assert_eq!(read(&[("webhook-allowed-origin", "*")]), Err(NoConsent::NoRate));
    let other = Err(NoConsent::OtherOrigin(ORIGIN.to_owned()));
    for wrong in ["other.example", "", "example.com", "*.example.com", "hooks.example.com, *"] {
        assert_eq!(read(&[("webhook-allowed-origin", wrong), rate]), other, "{wrong:?}");
    }
    let twice = [("webhook-allowed-origin", "*"), ("webhook-allowed-origin", ORIGIN), rate];
    assert_eq!(read(&twice), Err(NoConsent::NotSaid), "two could be read either way");
    for wrong in ["0", "-1", "+5", "1.5", "", "many", "1 2", "é"] {
        let headers = [("webhook-allowed-origin", "*"), ("webhook-allowed-rate", wrong)];
        assert_eq!(read(&headers), Err(NoConsent::BadRate), "{wrong:?}");
    }
}

#[test]
fn less_than_the_limits_is_kept_to_evenly_and_more_changes_nothing() {
    let limits = GateLimits { rate: Rate::per_second(5), burst: 9, ..GateLimits::default() };
    let narrowed = |per_minute| {
        let narrow = Leave { per_minute: NonZeroU32::new(per_minute) }.narrow(limits.clone());
        (narrow.rate, narrow.burst)
    };
    assert_eq!(narrowed(60), (Rate::per_second(1), 1));
    assert_eq!(narrowed(300), (Rate::per_second(5), 9), "exactly as much");
    assert_eq!(narrowed(600), (Rate::per_second(5), 9));
    assert_eq!(narrowed(0), (Rate::per_second(5), 9), "no rate at all");
    assert_eq!(per_minute(&limits), 300);
    assert_eq!(per_minute(&GateLimits { rate: Rate::SLOWEST, ..limits }), 1, "the least that can be asked for");
}

#[test]
fn it_is_asked_ever_more_seldom_and_not_for_ever() {
    let after = |asked| ask_again_after(asked, Jitter::LOWEST);
    assert_eq!([1, 2, 3].map(after), [1, 2, 4].map(|n| Some(Millis::from_mins(n))));
    assert_eq!([7, 8, ASKS_MAX - 1].map(after), [Some(ASK_AGAIN_MAX); 3]);
    assert_eq!([ASKS_MAX, u32::MAX].map(after), [None; 2]);
    assert_eq!(ask_again_after(1, Jitter::HIGHEST), Some(Millis::from_secs(75)));
}

#[test]
fn a_link_is_good_for_one_url_of_one_destination_and_for_a_while() {
    let link = ConsentLink::new(DestinationId(1), URL, NOW);
    let href = link.href("https://doorstep.example", &key(7));
    let (path, query) = href.split_once('?').unwrap();
    assert_eq!(path, format!("https://doorstep.example/v1/destinations/{}/consent", DestinationId(1)));
    let (expires, signature) = query.split_once("&signature=").unwrap();
    assert_eq!(expires, format!("expires={}", (NOW + ANSWERABLE_FOR).as_secs()));

    let before_end = link.expires_at - Millis(1);
    assert_eq!(link.check(&key(7), signature, before_end), Ok(()));
    assert_eq!(link.check(&key(7), signature, link.expires_at), Err(LinkFault::Expired));
    assert_eq!(link.check(&key(8), signature, NOW), Err(LinkFault::Forged));
    assert_eq!(link.check(&key(7), "", NOW), Err(LinkFault::Forged));
    let forged = [
        ConsentLink { url: "https://victim.example/", ..link.clone() },
        ConsentLink { destination_id: DestinationId(2), ..link.clone() },
        ConsentLink { expires_at: link.expires_at + Millis::from_secs(1), ..link.clone() },
    ];
    for forged in forged {
        assert_eq!(forged.check(&key(7), signature, NOW), Err(LinkFault::Forged), "{forged:?}");
    }
}
