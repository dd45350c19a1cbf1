use super::*;

const HERE: Place = Place::Destination(TenantId(1), DestinationId(2));

fn key(n: u8) -> MasterKey {
    MasterKey::new(&[n; KEY_LEN])
}

fn ring(n: u8) -> Keyring {
    Keyring::new(key(n))
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_is_sealed_opens_and_shows_nothing() {
    for clear in [&b""[..], b"whsec_hush", &[7; 5_000]] {
        let sealed = ring(1).seal(HERE, clear);
        assert_eq!(ring(1).open(HERE, &sealed).unwrap().as_slice(), clear);
        assert_eq!(sealed.len(), clear.len() + AT_BODY + TAG_LEN);
        assert!(clear.is_empty() || !holds(&sealed, clear));
    }
}

#[test]
fn the_same_secret_never_looks_the_same() {
    let [one, two] = [(); 2].map(|()| ring(1).seal(HERE, b"hush"));
    assert_ne!(one[AT_NONCE..AT_WRAPPED], two[AT_NONCE..AT_WRAPPED]);
    assert_ne!(one[AT_BODY..], two[AT_BODY..]);
}

#[test]
fn a_record_opens_only_where_it_belongs() {
    let sealed = ring(1).seal(HERE, b"hush");
    for elsewhere in [
        Place::Check,
        Place::Destination(TenantId(1), DestinationId(3)),
        Place::Destination(TenantId(2), DestinationId(2)),
        Place::Destination(TenantId(2), DestinationId(1)),
    ] {
        assert_eq!(ring(1).open(elsewhere, &sealed), Err(SealError::Broken), "{elsewhere:?}");
        let both = ring(2).and_opens(key(1));
        assert_eq!(both.rewrap(elsewhere, &sealed), Err(SealError::Broken), "{elsewhere:?}");
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let sealed = ring(1).seal(HERE, b"hush");
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        let expected = match at {
            0 => SealError::Version(VERSION ^ 1),
            AT_ID..AT_NONCE => {
                SealError::KeyMissing { needed: ring(1).key_of(&sealed).map(|_| id_in(&changed)).unwrap() }
            }
            _ => SealError::Broken,
        };
        assert_eq!(ring(1).open(HERE, &changed), Err(expected), "byte {at}");
        assert!(ring(1).open(HERE, &sealed[..at]).is_err(), "cut off at {at}");
    }
}

fn id_in(sealed: &[u8]) -> KeyId {
    KeyId(sealed[AT_ID..AT_NONCE].try_into().unwrap())
}

#[test]
fn another_master_key_is_told_which_one_is_needed() {
    let sealed = ring(1).seal(HERE, b"hush");
    let fault = ring(2).open(HERE, &sealed).unwrap_err();
    assert_eq!(fault, SealError::KeyMissing { needed: key(1).id() });
    assert!(fault.to_string().contains(&key(1).id().to_string()), "{fault}");
}

#[test]
fn a_record_goes_over_to_a_new_master_key_and_leaves_the_old_one() {
    let sealed = ring(1).seal(HERE, b"hush");
    let both = ring(2).and_opens(key(1));
    assert_eq!(both.open(HERE, &sealed).unwrap().as_slice(), b"hush", "until then both open");
    let moved = both.rewrap(HERE, &sealed).unwrap().unwrap();
    assert_eq!(moved[AT_BODY..], sealed[AT_BODY..], "what it holds stays as it is");
    assert_eq!(ring(2).open(HERE, &moved).unwrap().as_slice(), b"hush");
    assert_eq!(ring(1).open(HERE, &moved), Err(SealError::KeyMissing { needed: key(2).id() }));
    assert_eq!(both.rewrap(HERE, &moved), Ok(None), "once is enough");
}

#[test]
fn keys_do_not_show_themselves() {
    let shown = format!("{:?} {}", ring(0xab).and_opens(key(0xcd)), key(0xab).id());
    assert!(!shown.contains("171, 171") && !shown.to_lowercase().contains("abab"), "{shown}");
    assert_ne!(key(1).id(), key(2).id());
}
