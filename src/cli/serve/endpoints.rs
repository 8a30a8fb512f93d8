//! Which endpoints: a list, a file, or a pool of a cluster.
//!
//! Decides what excludes what. A pool's name and a selector are checked as upstream checks them,
//! although nothing reads a cluster yet: the same flags must be right or wrong after a change of image.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::app::Source;
use crate::cli::boolean;
use crate::discovery::static_list::StaticList;
use crate::manifests::{Findings, Manifests};
use crate::pool::PoolName;

/// Most ports that a selector may have, as upstream.
const MAX_PORTS: usize = 8;

/// Flags that say where endpoints come from.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Endpoints")]
pub(super) struct Endpoints {
    /// Model servers as ip:port, comma-separated; `[v6]:port` and `name=ip:port` are understood.
    #[arg(long, value_name = "LIST", conflicts_with = "endpoints_file")]
    endpoints: Option<String>,
    /// Watched YAML or JSON file of endpoints, in upstream's file-discovery schema.
    #[arg(long, value_name = "FILE")]
    pub(super) endpoints_file: Option<PathBuf>,
    /// Watched YAML or JSON file of Kubernetes documents, or a folder of them:
    /// InferenceModelRewrite and InferenceObjective.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// Name of the InferencePool: of --manifests only documents whose poolRef has it count; its
    /// endpoints cannot be read from a cluster yet.
    #[arg(long, value_name = "NAME")]
    pool_name: Option<String>,
    /// Namespace of the InferencePool. Default: the environment's NAMESPACE, then `default`.
    #[arg(long, value_name = "NAMESPACE")]
    pool_namespace: Option<String>,
    /// API group of the InferencePool.
    #[arg(long, value_name = "GROUP", default_value = "inference.networking.k8s.io")]
    pool_group: String,
    /// Labels of model-server pods, instead of a pool; they cannot be read from a cluster yet.
    #[arg(long, value_name = "SELECTOR")]
    endpoint_selector: Option<String>,
    /// Ports of the pods of --endpoint-selector, 1 to 8, comma-separated.
    #[arg(long, value_name = "PORTS", value_delimiter = ',', action = ArgAction::Append)]
    endpoint_target_ports: Vec<u16>,
    /// Ignore the subset of endpoints that a gateway may ask for.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub(super) disable_endpoint_subset_filter: bool,
}

impl Endpoints {
    /// Where endpoints come from.
    ///
    /// # Errors
    /// A bad list; no list and no file although a cluster is meant.
    pub(super) fn source(&self) -> Result<Source, String> {
        if let Some(path) = &self.endpoints_file {
            return Ok(Source::File(path.clone()));
        }
        if let Some(list) = &self.endpoints {
            let parsed = StaticList::parse(list).map(Source::Static);
            return parsed.map_err(|error| format!("--endpoints: {error}"));
        }
        let flag = match (self.pool_name(), self.selector()) {
            (None, None) => return Ok(Source::Static(StaticList::default())),
            (Some(_), _) => "--pool-name",
            (None, Some(_)) => "--endpoint-selector",
        };
        Err(format!(
            "{flag}: endpoints cannot be read from Kubernetes yet; give --endpoints or \
             --endpoints-file"
        ))
    }

    /// The documents of `--manifests`, read once; they are watched from the start of serving on.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub(super) fn open_manifests(&self) -> Result<(Option<Manifests>, Findings), String> {
        let Some(path) = &self.manifests else { return Ok((None, Findings::default())) };
        let (manifests, mut findings) = Manifests::open(path, self.pool_name().map(str::to_owned))
            .map_err(|error| format!("--manifests: {:#}", anyhow::Error::from(error)))?;
        if !findings.ignored.is_empty() {
            let kinds: Vec<_> =
                findings.ignored.iter().map(|(k, n)| format!("{k} ({n})")).collect();
            let (path, kinds) = (path.display(), kinds.join(", "));
            findings.warnings.push(format!("{path}: other kinds are ignored: {kinds}"));
        }
        Ok((Some(manifests), findings))
    }

    /// The pool's name in a cluster, where `NAMESPACE` of the environment is `fallback`.
    pub(super) fn pool(&self, fallback: Option<String>) -> PoolName {
        let given = self.pool_namespace.clone().filter(|text| !text.is_empty());
        let namespace = given.or(fallback.filter(|text| !text.is_empty()));
        PoolName {
            group: self.pool_group.clone(),
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            name: self.pool_name().map(str::to_owned),
        }
    }

    /// Whether any flag says where endpoints come from.
    pub(super) fn is_given(&self) -> bool {
        self.endpoints.is_some() || self.endpoints_file.is_some()
    }

    /// The rules that hold wherever endpoints come from.
    pub(super) fn judge(&self, errors: &mut Vec<String>, warnings: &mut Vec<String>) {
        let ports = self.ports().len();
        if self.pool_name().is_some() && self.selector().is_some() {
            errors.push("--pool-name and --endpoint-selector exclude each other".to_owned());
        }
        let here = self.endpoints_file.is_some() || self.endpoints.is_some();
        match self.selector() {
            Some(_) if !(1..=MAX_PORTS).contains(&ports) => errors.push(format!(
                "--endpoint-selector needs 1 to {MAX_PORTS} different --endpoint-target-ports, got \
                 {ports}"
            )),
            Some(_) if here => warnings.push(
                "--endpoint-selector does nothing beside --endpoints or --endpoints-file"
                    .to_owned(),
            ),
            None if ports > 0 => warnings.push(
                "--endpoint-target-ports does nothing without --endpoint-selector".to_owned(),
            ),
            _ => {}
        }
    }

    /// An empty name is none, as upstream's default is.
    fn pool_name(&self) -> Option<&str> {
        self.pool_name.as_deref().filter(|text| !text.is_empty())
    }

    fn selector(&self) -> Option<&str> {
        self.endpoint_selector.as_deref().filter(|text| !text.is_empty())
    }

    /// Each port once, in the order given.
    fn ports(&self) -> Vec<u16> {
        let mut ports = Vec::new();
        for port in &self.endpoint_target_ports {
            if !ports.contains(port) {
                ports.push(*port);
            }
        }
        ports
    }
}
