//! Metric families of the scaling loop: WVA's names, labels and meaning, and our own.
//!
//! Decides who sees a target: the series that autoscalers act on exist only while somebody may act on
//! them, and an autoscaler that sums series must find one. Counts are replicas, capacities tokens,
//! utilisation a fraction.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Error, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry,
};

use crate::scaling::plan::{Action, AnalyzerVersion, ModelPlan, Plan, VariantPlan};

const VARIANT: [&str; 3] = ["variant_name", "namespace", "accelerator_type"];
const CAPACITY: [&str; 4] = ["variant_name", "namespace", "model_name", "unit"];
const UTILISATION: [&str; 4] = ["variant_name", "namespace", "model_name", "accelerator_type"];

/// Buckets of the time of a plan in seconds.
const PLAN_BUCKETS: [f64; 9] = [1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1.0];

/// What the process may tell of its plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telling {
    /// Somebody may act on the targets.
    pub targets: bool,
    /// Nobody else plans for the model.
    pub capacities: bool,
}

/// The families.
pub struct ScalingMetrics {
    desired: GaugeVec,
    ratio: GaugeVec,
    current: GaugeVec,
    planned: GaugeVec,
    utilisation: GaugeVec,
    required: GaugeVec,
    spare: GaugeVec,
    moves: IntCounterVec,
    plans: IntCounterVec,
    plan_seconds: HistogramVec,
    models: IntGauge,
    inert: IntGauge,
    /// 1 while the pages of a peer are read, by `peer`.
    pub peer_up: GaugeVec,
    /// 1 while a peer has decided by another policy for longer than it may.
    pub digest_differs: IntGauge,
}

impl ScalingMetrics {
    /// Registers every family.
    pub(super) fn new(registry: &Registry) -> Result<Self, Error> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, GaugeVec::new(Opts::new(name, help), labels)?)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help)?);
        let plan_seconds = HistogramOpts::new(
            "wva_optimization_duration_seconds",
            "Time of one plan, from gathered readings to published targets.",
        );
        let plan_seconds = plan_seconds.buckets(PLAN_BUCKETS.to_vec());
        Ok(Self {
            desired: gauges("wva_desired_replicas", "Replicas that should exist.", &VARIANT)?,
            ratio: gauges(
                "wva_desired_ratio",
                "Desired over current replicas; desired where there are none.",
                &VARIANT,
            )?,
            current: gauges("wva_current_replicas", "Replicas that exist.", &VARIANT)?,
            planned: gauges(
                "plumbline_plan_target_replicas",
                "Target of the newest plan, whether or not anybody may act on it.",
                &VARIANT,
            )?,
            utilisation: gauges(
                "wva_saturation_utilization",
                "Demand over the capacity of the ready replicas.",
                &UTILISATION,
            )?,
            required: gauges("wva_required_capacity", "Capacity that is missing.", &CAPACITY)?,
            spare: gauges("wva_spare_capacity", "Capacity that could go.", &CAPACITY)?,
            moves: counters(
                "wva_replica_scaling_total",
                "Changes of a published target.",
                &["variant_name", "namespace", "direction", "reason"],
            )?,
            plans: counters("plumbline_plans_total", "Plans, by what made them.", &["trigger"])?,
            plan_seconds: registered(registry, HistogramVec::new(plan_seconds, &["status"])?)?,
            models: gauge("wva_models_processed", "Models of the newest plan.")?,
            inert: gauge(
                "plumbline_autoscaler_inert",
                "1 while the pool is saturated for long and neither did a target rise nor a bound hold it.",
            )?,
            peer_up: gauges("plumbline_peer_up", "1 while a peer's page is read.", &["peer"])?,
            digest_differs: gauge(
                "plumbline_policy_digest_differs",
                "1 while a peer decides by another policy for longer than 10 seconds.",
            )?,
        })
    }

    /// Counts one plan.
    pub fn planned(&self, trigger: &str, took: Duration) {
        self.plans.with_label_values(&[trigger]).inc();
        self.plan_seconds.with_label_values(&["success"]).observe(took.as_secs_f64());
    }

    /// Counts one change of a published target.
    pub fn moved(&self, model: &ModelPlan, variant: &VariantPlan, before: u32) {
        let direction = match Action::between(before, variant.target) {
            Action::ScaleUp => "up",
            Action::ScaleDown => "down",
            Action::NoChange => return,
        };
        // The reason in full would be a label without end; the part of it that names the stage is few.
        let reason = variant.reason.split([':', ',']).next().unwrap_or_default();
        let labels = [variant.name.as_str(), &model.namespace, direction, reason];
        self.moves.with_label_values(&labels).inc();
    }

    /// Sets the alarm of an autoscaler that nobody follows, or that cannot move.
    pub fn inert(&self, inert: bool) {
        self.inert.set(i64::from(inert));
    }

    /// Brings the gauges up to `plan`; series of variants that are gone vanish.
    pub fn mirror(&self, plan: &Plan, telling: Telling) {
        let all = [&self.desired, &self.ratio, &self.current, &self.planned];
        all.into_iter()
            .chain([&self.utilisation, &self.required, &self.spare])
            .for_each(GaugeVec::reset);
        self.models.set(i64::try_from(plan.models.len()).unwrap_or(i64::MAX));
        for model in &plan.models {
            for variant in &model.variants {
                self.variant(model, variant, telling);
            }
        }
    }

    fn variant(&self, model: &ModelPlan, variant: &VariantPlan, telling: Telling) {
        let labels = [variant.name.as_str(), &model.namespace, &variant.accelerator];
        let set = |family: &GaugeVec, value: f64| family.with_label_values(&labels).set(value);
        let (target, current) = (f64::from(variant.target), f64::from(variant.current));
        set(&self.planned, target);
        if telling.targets {
            set(&self.desired, target);
            set(&self.ratio, if current > 0.0 { target / current } else { target });
        }
        if !telling.capacities {
            return;
        }
        set(&self.current, current);
        if let Some(utilisation) = variant.utilization {
            let labels =
                [variant.name.as_str(), &model.namespace, &model.model_id, &variant.accelerator];
            self.utilisation.with_label_values(&labels).set(utilisation);
        }
        let truth = |truth: Option<bool>| truth.map(|truth| f64::from(u8::from(truth)));
        let (unit, required, spare) = match model.analyzer {
            AnalyzerVersion::V2 => ("continuous", model.required_capacity, model.spare_capacity),
            AnalyzerVersion::V1 => ("binary", truth(model.scale_up), truth(model.scale_down_safe)),
        };
        for (family, value) in [(&self.required, required), (&self.spare, spare)] {
            if let Some(value) = value {
                let labels = [variant.name.as_str(), &model.namespace, &model.model_id, unit];
                family.with_label_values(&labels).set(value);
            }
        }
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, family: C) -> Result<C, Error> {
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder as _, TextEncoder};

    use super::*;

    fn plan(target: u32) -> Plan {
        let variant = VariantPlan {
            name: "v".to_owned(),
            accelerator: "L4".to_owned(),
            current: 2,
            target,
            utilization: Some(0.5),
            ..VariantPlan::default()
        };
        let model = ModelPlan {
            model_id: "m".to_owned(),
            namespace: "ns".to_owned(),
            required_capacity: Some(10.0),
            variants: vec![variant],
            ..ModelPlan::default()
        };
        Plan { models: vec![model], ..Plan::default() }
    }

    fn page(registry: &Registry) -> String {
        let mut page = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    /// Mutants: desired told by one who may not; the ratio upside down; series that outlive their variant.
    #[test]
    fn targets_are_told_only_where_somebody_may_act() {
        let registry = Registry::new();
        let metrics = ScalingMetrics::new(&registry).unwrap();
        let labels = r#"{accelerator_type="L4",namespace="ns",variant_name="v"}"#;
        metrics.mirror(&plan(3), Telling { targets: true, capacities: true });
        let told = page(&registry);
        assert!(told.contains(&format!("wva_desired_replicas{labels} 3\n")), "{told}");
        assert!(told.contains(&format!("wva_desired_ratio{labels} 1.5\n")), "{told}");
        assert!(told.contains(&format!("wva_current_replicas{labels} 2\n")), "{told}");
        let required = r#"wva_required_capacity{model_name="m",namespace="ns",unit="continuous",variant_name="v"} 10"#;
        assert!(told.contains(required), "{told}");

        metrics.mirror(&plan(3), Telling { targets: false, capacities: true });
        let told = page(&registry);
        assert!(!told.contains("wva_desired"), "{told}");
        assert!(told.contains(&format!("plumbline_plan_target_replicas{labels} 3\n")), "{told}");
        metrics.mirror(&Plan::default(), Telling { targets: true, capacities: true });
        assert!(!page(&registry).contains("variant_name"));
    }
}
