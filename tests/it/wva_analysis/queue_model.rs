//! The queueing model is refused, as the newer releases refuse it: nothing ever decided by it.

use super::cases;

/// Its parameters (milliseconds of service, targets for latency) exist in no input of ours; a
/// configuration that names the analyzer gets a warning that none of that name exists.
const WHY: &str = "the release that has it wires it to nothing, the newer ones hold every model when it is configured";

/// Mutant: an analyzer of that name in the registry that the program starts with.
#[test]
fn the_queueing_model_is_no_analyzer() {
    assert!(!WHY.is_empty());
    for (name, case) in cases("queue_model") {
        for parameter in ["alpha_ms", "beta_ms", "gamma_ms", "max_batch_size"] {
            assert!(!case.input[parameter].is_null(), "{name}: {parameter}");
        }
        let releases: Vec<_> = case.answers.iter().flat_map(|(of, _)| of).collect();
        assert_eq!(releases, ["2026-02-19"], "{name}");
    }
    let built_in = plumbline::scaling::registry::Registry::built_in();
    assert_eq!(built_in.unknown(["queue_model", "queueing-model"]).len(), 2);
}
