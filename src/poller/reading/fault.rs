//! Why a page does not give what its engine exports, in words.

use std::fmt;

use crate::poller::spec::Spec;

/// Why a page does not give a signal that its engine exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No line of the family.
    NotFound(String),
    /// The family is there, no series has the spec's labels.
    NoSeries(Spec),
    /// Every line was malformed, or a value was no reading.
    Unusable(String),
    /// A label that should hold a number does not.
    Label {
        /// The label.
        label: String,
        /// Its family.
        family: String,
        /// The head of its value.
        value: String,
    },
    /// The fault of a custom metric.
    Custom(String, Box<Fault>),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(family) => write!(f, "metric family {family:?} not found"),
            Self::NoSeries(spec) => write!(f, "no series matches {spec}"),
            Self::Unusable(family) => write!(f, "metric family {family:?} has no usable value"),
            Self::Label { label, family, value } => {
                write!(f, "label {label:?} of metric family {family:?}: {value:?} is no count")
            }
            Self::Custom(key, fault) => write!(f, "custom metric {key:?}: {fault}"),
        }
    }
}
