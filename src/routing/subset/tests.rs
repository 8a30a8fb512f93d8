//! What hints say, and that they only ever restrict.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::endpoint::{Endpoint, Load, Signal};
use crate::pool::{Member, PoolView, Slot};
use crate::routing::{Ask, Profile, Refusal, Scratch, schedule};
use crate::thresholds::Thresholds;

/// A pool of two ranks, another IPv4 server and two ranks of an IPv6 server.
const POOL: [&str; 5] =
    ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[fd00::1]:8000", "[fd00::1]:8001"];

fn list(items: &[&str]) -> Hint {
    Hint::List(items.iter().map(|item| HintItem::Text((*item).to_owned())).collect())
}

/// Indices of `POOL` that a hint admits.
fn admitted(hint: &Hint) -> Vec<usize> {
    let subset = Subset::from_hint(hint);
    let may = |at: &usize| {
        let address = POOL[*at].parse().unwrap();
        subset.as_ref().is_none_or(|subset| subset.admits(address))
    };
    (0..POOL.len()).filter(may).collect()
}

/// Mutants: one per line, such as ignoring the port, no trimming, no split at commas, a bare IPv6
/// address cut at its last colon, `Other` as no restriction.
#[test]
fn what_each_spelling_names() {
    let text = |text: &str| Hint::Text(text.to_owned());
    let all = [0, 1, 2, 3, 4];
    let cases: [(Hint, &[usize]); 20] = [
        (Hint::Absent, &all),
        (Hint::Other, &[]),
        (list(&[]), &[]),
        (text(""), &[]),
        (text(" , ,"), &[]),
        (Hint::List(vec![HintItem::Other]), &[]),
        (Hint::List(vec![HintItem::Other, HintItem::Text("10.0.0.2".to_owned())]), &[2]),
        (list(&["10.0.0.1:8001"]), &[1]),
        (list(&["10.0.0.1"]), &[0, 1]),
        (list(&["10.0.0.1:9999"]), &[]),
        (list(&["10.0.0.9", "not an address", "10.0.0.1:", "10.0.0.1:70000"]), &[]),
        (list(&[" 10.0.0.2:8000 ", "\t10.0.0.1:8000"]), &[0, 2]),
        (list(&["10.0.0.1:8000, 10.0.0.2:8000"]), &[0, 2]),
        (text("10.0.0.2:8000"), &[2]),
        (text("10.0.0.2:8000 ,[fd00::1]:8001"), &[2, 4]),
        (text("fd00::1"), &[3, 4]),
        (text("[fd00::1]"), &[3, 4]),
        (text("[FD00:0:0::1]:8000"), &[3]),
        // An address of its own, not port 8000 of fd00::1.
        (text("fd00::1:8000"), &[]),
        (text("::ffff:10.0.0.2"), &[2]),
    ];
    for (hint, expected) in cases {
        assert_eq!(admitted(&hint), expected, "{hint:?}");
    }
}

fn members() -> Vec<Member> {
    let member = |(index, address): (usize, &&str)| Member {
        endpoint: Endpoint::new("default", &format!("e{index}"), address.parse().unwrap()),
        slot: Slot(index as u32),
        destination: (*address).into(),
    };
    POOL.iter().enumerate().map(member).collect()
}

fn pick(loads: &[Load], hint: &Hint, seed: u64) -> Result<Option<usize>, Refusal> {
    let (members, subset) = (members(), Subset::from_hint(hint));
    let view = PoolView { members: &members, loads };
    let (profile, thresholds) = (Profile::default(), Thresholds::default());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut scratch = Scratch::default();
    let ask = Ask { subset: subset.as_ref(), ..Ask::default() };
    let order = schedule(&view, &ask, &profile, &thresholds, &mut rng, &mut scratch);
    order.map(|mut order| order.next())
}

fn load(waiting: f64) -> Load {
    let read = |value| Signal::Read { value, age: std::time::Duration::ZERO };
    Load { waiting: read(waiting), running: read(0.0), kv: read(0.0), ..Load::default() }
}

/// The filter fails open within the subset, not out of it. Mutant: applying the subset after the
/// filters, or the filter falling back to the whole pool.
#[test]
fn a_saturated_subset_is_used_before_an_idle_stranger() {
    let mut loads = [load(0.0); 5];
    loads[1] = load(50.0);
    assert_eq!(pick(&loads, &list(&["10.0.0.1:8001"]), 1), Ok(Some(1)));
}

fn any_item() -> impl Strategy<Value = HintItem> {
    let text = prop_oneof![
        prop::sample::select(&POOL[..]).prop_map(str::to_owned),
        prop::sample::select(&["10.0.0.1", "10.0.0.3:8000", "fd00::1", "fd00::2", "x", ""][..])
            .prop_map(str::to_owned),
        "[ ,:0-9.\\[\\]a-f]{0,12}",
    ];
    prop_oneof![4 => text.prop_map(HintItem::Text), 1 => Just(HintItem::Other)]
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Whatever the hint, the answer is a member that it admits, and a refusal exactly if there is
    /// none. Mutants: an empty subset treated as no subset; a hint address handed out as it stands.
    #[test]
    fn only_admitted_members_are_picked(
        items in prop::collection::vec(any_item(), 0..6), queues in prop::array::uniform5(0_u8..9),
        seed in any::<u64>(),
    ) {
        let hint = Hint::List(items);
        let allowed = admitted(&hint);
        let loads = queues.map(|waiting| load(f64::from(waiting)));
        match pick(&loads, &hint, seed) {
            Ok(picked) => prop_assert!(allowed.contains(&picked.unwrap())),
            Err(refusal) => {
                prop_assert_eq!(refusal, Refusal::NoEndpoints);
                prop_assert!(allowed.is_empty());
            }
        }
    }

    /// Any text is read without a panic, and as one string says the same as in a list. Mutant:
    /// slicing at a byte index.
    #[test]
    fn a_string_says_what_a_list_of_it_says(text in "\\PC{0,40}") {
        let one = Subset::from_hint(&Hint::Text(text.clone()));
        prop_assert_eq!(one, Subset::from_hint(&Hint::List(vec![HintItem::Text(text)])));
    }
}
