//! What the demo says about itself: what stands before the traffic, what to try by hand after it.
//!
//! Decides words and the lines to copy; prints nothing. Lines fit 100 columns.

use super::Settings;
use super::faults::Break;
use super::stage::Stage;

/// What stands and what is about to happen.
pub(super) fn standing(stage: &Stage, settings: &Settings) -> String {
    let models: Vec<_> = stage.models().map(|(_, address)| address.port().to_string()).collect();
    let broken = match settings.broken {
        None => "",
        Some(Break::KillEndpoint) => ", killing a model server on the way",
        Some(Break::KillPlumbline) => ", killing Plumbline on the way",
        Some(Break::Saturate) => ", pinning model servers over the line on the way",
    };
    format!(
        "  model servers  127.0.0.1 ports {}, simulated\n  \
           Plumbline      http://{}, ext_proc over TLS\n  \
           Envoy          http://{}, asks Plumbline where each request goes\n\n  \
           {:?} of traffic, {} requests a second, seed {}{broken}",
        models.join(" "),
        stage.admin(),
        stage.gateway,
        settings.duration,
        settings.rate,
        settings.seed,
    )
}

/// Lines to copy while everything runs.
pub(super) fn by_hand(stage: &Stage) -> String {
    let (gateway, admin) = (stage.gateway, stage.admin());
    let (name, model) = stage.models().next().unwrap_or(("sim-0", gateway));
    format!(
        "Try it by hand; Ctrl-C ends everything\n\n  \
         a request through Envoy, and which endpoint served it:\n  \
         curl -i {gateway}/v1/completions -d '{{\"prompt\": \"Hello\", \"max_tokens\": 8}}'\n\n  \
         a stream:\n  \
         curl -N {gateway}/v1/chat/completions \\\n    \
           -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"stream\": true}}'\n\n  \
         what Plumbline knows, by what line it decides, what it counts:\n  \
         curl {admin}/debug/pool\n  \
         curl {admin}/debug/policy\n  \
         curl {admin}/metrics\n\n  \
         put {name} over the line, and back:\n  \
         curl {model}/admin/set -d '{{\"waiting\": 50}}'\n  \
         curl {model}/admin/set -d '{{\"waiting\": null}}'\n"
    )
}
