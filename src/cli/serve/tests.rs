//! What flags become, where the binary does not print it.

use clap::Parser;

use super::ServeArgs;
use crate::app::{Security, Settings};
use crate::ext_proc::Options;
use crate::telemetry::LogFormat;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

fn args(flags: &[&str]) -> ServeArgs {
    Line::try_parse_from([&["plumbline", "--endpoints=127.0.0.1:1"], flags].concat()).unwrap().serve
}

fn settings(flags: &[&str]) -> Settings {
    args(flags).resolve().unwrap_or_else(|errors| panic!("{errors:?}")).settings
}

/// Mutants: the environment winning; an empty flag or variable taken as a name; another default.
#[test]
fn the_namespace_is_the_flag_then_the_environment_then_default() {
    let namespace = |flags: &[&str], environment: Option<&str>| {
        args(flags).endpoints.pool(environment.map(str::to_owned)).namespace
    };
    assert_eq!(namespace(&["--pool-namespace=a"], Some("b")), "a");
    assert_eq!(namespace(&["--pool-namespace="], Some("b")), "b");
    assert_eq!(namespace(&[], Some("b")), "b");
    assert_eq!(namespace(&[], Some("")), "default");
    assert_eq!(namespace(&[], None), "default");
    let pool = args(&["--pool-name=p", "--pool-group=g"]).endpoints.pool(None);
    assert_eq!((pool.group.as_str(), pool.name.as_deref()), ("g", Some("p")));
    assert_eq!(pool.to_string(), "default/p");
}

/// Mutants: -v winning over --zap-log-level; a verbosity read as a level of its own; upstream's encoder
/// winning over our flag.
#[test]
fn level_and_format_follow_either_name() {
    let level = |flags: &[&str]| args(flags).logging.level();
    assert_eq!(level(&[]), "info");
    assert_eq!(level(&["-v4"]), "debug");
    assert_eq!(level(&["--zap-log-level=error", "-v=5"]), "error");
    assert_eq!(level(&["--zap-log-level=DEBUG"]), "debug");
    assert_eq!(level(&["--zap-log-level=3"]), "info");
    assert_eq!(level(&["--zap-log-level=5"]), "trace");
    assert_eq!(level(&["--zap-log-level=panic"]), "error");
    let format = |flags: &[&str]| args(flags).logging.format();
    assert_eq!(format(&[]), LogFormat::Text);
    assert_eq!(format(&["--zap-encoder=json"]), LogFormat::Json);
    assert_eq!(format(&["--zap-encoder=console"]), LogFormat::Text);
    assert_eq!(format(&["--zap-encoder=json", "--log-format=text"]), LogFormat::Text);
}

/// Mutants: two switches mixed up; a limit of 0 taken as one; reload without its flag.
#[test]
fn switches_reach_the_settings() {
    assert_eq!(settings(&[]).options, Options::default());
    let flags = [
        "--emit-endpoint-scores=false",
        "--disable-endpoint-subset-filter",
        "--grpc-max-recv-msg-size=100Mi",
        "--grpc-max-send-msg-size=0",
    ];
    let expected = Options {
        disable_subset_filter: true,
        max_message_in: Some(100 << 20),
        ..Options::default()
    };
    assert_eq!(settings(&flags).options, expected);
    let reload = |flags: &[&str]| match settings(flags).security {
        Security::Files { reload, .. } => Some(reload),
        _ => None,
    };
    assert_eq!(reload(&["--cert-path=/c"]), Some(false));
    assert_eq!(reload(&["--cert-path=/c", "--enable-cert-reload"]), Some(true));
    assert_eq!(reload(&["--cert-path=/c", "--secure-serving=false"]), None);
}

/// Mutants: on by default; a timeout that is not passed on; no word on one that the gateway cuts short,
/// or that does nothing.
#[test]
fn the_waiting_room_is_off_unless_asked_for() {
    use crate::flow::Limits;
    use std::time::Duration;
    let room = |flags: &[&str]| {
        let resolved = args(flags).resolve().unwrap_or_else(|errors| panic!("{errors:?}"));
        (resolved.settings.waiting_room, resolved.warnings.len())
    };
    assert_eq!(room(&[]), (None, 0));
    assert_eq!(room(&["--waiting-room=off"]), (None, 0));
    assert_eq!(room(&["--waiting-room=on"]), (Some(Limits::default()), 0));
    let short = Limits { wait: Duration::from_secs(50), ..Limits::default() };
    assert_eq!(room(&["--waiting-room", "on", "--waiting-room-timeout=50s"]), (Some(short), 0));
    let long = Limits { wait: Duration::from_secs(300), ..Limits::default() };
    assert_eq!(room(&["--waiting-room=on", "--waiting-room-timeout=5m"]), (Some(long), 1));
    assert_eq!(room(&["--waiting-room-timeout=50s"]), (None, 1));
    for bad in ["0s", "-1s", "25h"] {
        let flag = format!("--waiting-room-timeout={bad}");
        assert!(Line::try_parse_from(["plumbline", "--endpoints=127.0.0.1:1", &flag]).is_err());
    }
}
