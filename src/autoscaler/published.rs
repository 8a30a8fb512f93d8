//! What the scaling loop published last, as those read it who tell it to scalers.
//!
//! Decides which variant a name means and when nobody may act on the plan. Readers answer from this
//! value alone: none of them calls the planner. Counts are replicas.

use crate::scaling::plan::{ModelPlan, Plan, VariantPlan};

/// Whether this process speaks for the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    /// No plan was made yet since the start.
    #[default]
    Starting,
    /// Plans are shown and nobody is to act on them (`--scaler advisory`).
    Advisory,
    /// Its plans count.
    Holder,
    /// Another process plans; its address where known.
    Standby {
        /// Who holds the lease.
        holder: Option<String>,
    },
}

/// The last plan and what it is worth.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Published {
    /// Whether it counts.
    pub standing: Standing,
    /// The plan; empty before the first.
    pub plan: Plan,
}

/// Which variant is asked for. Names that are not given match anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The variant's name.
    pub variant: &'a str,
    /// Its model.
    pub model: Option<&'a str>,
    /// Its namespace.
    pub namespace: Option<&'a str>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody may act on the plan.
    #[error("{0}")]
    NotActing(String),
    /// No variant has that name.
    #[error("no variant {wanted:?}; known are {known}")]
    Unknown {
        /// The name that was asked for.
        wanted: String,
        /// `namespace/model/variant` of each there is.
        known: String,
    },
    /// Several have it.
    #[error("variant {wanted:?} is several: {known}; say modelID and namespace")]
    Ambiguous {
        /// The name that was asked for.
        wanted: String,
        /// `namespace/model/variant` of each that has it.
        known: String,
    },
}

impl Published {
    /// The decision for one variant, if somebody is to act on it.
    ///
    /// # Errors
    /// [`NoAnswer`] says what is missing.
    pub fn variant(&self, wanted: Wanted<'_>) -> Result<&VariantPlan, NoAnswer> {
        self.acting()?;
        let fits = |given: Option<&str>, name: &str| given.is_none_or(|given| given == name);
        let mut found = self.all().filter(|(model, variant)| {
            variant.name == wanted.variant
                && fits(wanted.model, &model.model_id)
                && fits(wanted.namespace, &model.namespace)
        });
        let Some((_, first)) = found.next() else {
            let wanted = wanted.variant.to_owned();
            return Err(NoAnswer::Unknown { wanted, known: names(self.all()) });
        };
        if found.next().is_some() {
            let wanted = wanted.variant.to_owned();
            let same = self.all().filter(|(_, variant)| variant.name == wanted);
            let known = names(same);
            return Err(NoAnswer::Ambiguous { wanted, known });
        }
        Ok(first)
    }

    /// Whether somebody may act on the plan.
    ///
    /// # Errors
    /// [`NoAnswer::NotActing`].
    pub fn acting(&self) -> Result<(), NoAnswer> {
        let why = match &self.standing {
            Standing::Holder => return Ok(()),
            Standing::Starting => "no plan was made yet".to_owned(),
            Standing::Advisory => {
                "--scaler is advisory: plans are shown, nobody is to act on them".to_owned()
            }
            Standing::Standby { holder: Some(holder) } => {
                format!("{holder} holds the lease and plans")
            }
            Standing::Standby { holder: None } => {
                "another process plans and is not reachable".to_owned()
            }
        };
        Err(NoAnswer::NotActing(why))
    }

    /// Every variant with its model, in the plan's order.
    pub fn all(&self) -> impl Iterator<Item = (&ModelPlan, &VariantPlan)> {
        self.plan
            .models
            .iter()
            .flat_map(|model| model.variants.iter().map(move |variant| (model, variant)))
    }
}

fn names<'a>(all: impl Iterator<Item = (&'a ModelPlan, &'a VariantPlan)>) -> String {
    let names: Vec<_> = all
        .map(|(model, variant)| format!("{}/{}/{}", model.namespace, model.model_id, variant.name))
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(standing: Standing) -> Published {
        let variant = |name: &str| VariantPlan { name: name.to_owned(), ..VariantPlan::default() };
        let model = |id: &str, variants: &[&str]| ModelPlan {
            model_id: id.to_owned(),
            namespace: "ns".to_owned(),
            variants: variants.iter().map(|name| variant(name)).collect(),
            ..ModelPlan::default()
        };
        let models = vec![model("a", &["x", "y"]), model("b", &["x"])];
        Published { standing, plan: Plan { models, ..Plan::default() } }
    }

    fn ask(published: &Published, variant: &str, model: Option<&str>) -> String {
        match published.variant(Wanted { variant, model, namespace: Some("ns") }) {
            Ok(found) => found.name.clone(),
            Err(error) => error.to_string(),
        }
    }

    /// Mutants: the first of several taken; the model ignored.
    #[test]
    fn a_name_means_one_variant_or_none() {
        let holder = published(Standing::Holder);
        assert_eq!(ask(&holder, "y", None), "y");
        assert_eq!(ask(&holder, "x", Some("b")), "x");
        assert_eq!(
            ask(&holder, "x", None),
            "variant \"x\" is several: ns/a/x, ns/b/x; say modelID and namespace"
        );
        assert_eq!(ask(&holder, "z", None), "no variant \"z\"; known are ns/a/x, ns/a/y, ns/b/x");
        assert_eq!(
            ask(&holder, "y", Some("b")),
            "no variant \"y\"; known are ns/a/x, ns/a/y, ns/b/x"
        );
    }

    /// Mutant: an advisory plan answered.
    #[test]
    fn only_a_holder_is_acted_on() {
        for standing in [Standing::Starting, Standing::Advisory, Standing::Standby { holder: None }]
        {
            assert!(published(standing).acting().is_err());
        }
        assert_eq!(published(Standing::Holder).acting(), Ok(()));
    }
}
