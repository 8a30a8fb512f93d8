//! Recorded cases of the scaling configuration in which we answer otherwise, with our answer.

/// Why we differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The release of February.
    Older,
    /// No valid `default`.
    NeverSkipped,
    /// A partial entry over a tuned `default`.
    Inherits,
    /// NaN and infinities.
    NoNumber,
    /// A text of the YAML reader.
    OwnWords,
    /// A bad version after a good one.
    LastValid,
}

impl Why {
    /// The reason.
    pub fn text(self) -> &'static str {
        match self {
            Self::Older => {
                "that release reads no `analyzers` list, no entry of a model and no priority, and \
                 leaves unset bounds at zero; the specification has them"
            }
            Self::NeverSkipped => {
                "a model without a valid `default` keeps being planned: V2 with the shared defaults, \
                 and the rejected entry is told; upstream skips it or falls back to V1"
            }
            Self::Inherits => {
                "what an entry leaves out comes from `default`, as upstream's own document says; its \
                 code puts built-in values over tuned ones first"
            }
            Self::NoNumber => "a threshold that is no finite number is refused, and told",
            Self::OwnWords => {
                "refused alike, in the words of another YAML reader; then as for any other rejected \
                 `default`"
            }
            Self::LastValid => "an invalid entry keeps its last valid value; upstream forgets it",
        }
    }
}

/// One case, as one release answered it, and our answer.
pub struct Difference {
    /// Name of the case.
    pub case: &'static str,
    /// The first release of the recorded line.
    pub release: &'static str,
    /// Our answer.
    pub ours: &'static str,
    /// Why.
    pub why: Why,
}

/// The table.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "cfg_default_v2_list",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_v2_name_without_thresholds",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"saturation\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_v2_list_without_thresholds",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_v2_list_only",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_list_without_saturation",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [throughput*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_no_default",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_no_default",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_override_key",
        release: "2026-02-19",
        ours: "v1 kv 0.9-0.05 queue 15-2 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_partial_tuned_default",
        release: "2026-02-19",
        ours: "v1 kv 0.9-0.2 queue 10-4 bounds 0.85/0.7 own 0.85/0.7 priority 3 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_partial_tuned_default",
        release: "2026-07-22",
        ours: "v1 kv 0.9-0.2 queue 10-4 bounds 0.85/0.7 own 0.85/0.7 priority 3 limiter false name \"\" analyzers []",
        why: Why::Inherits,
    },
    Difference {
        case: "cfg_override_partial_tuned_default_v2",
        release: "2026-02-19",
        ours: "v2 kv 0.7-0.1 queue 10-3 bounds 0.95/0.6 own 0.95/0.6 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_partial_tuned_default_v2",
        release: "2026-07-22",
        ours: "v2 kv 0.7-0.1 queue 10-3 bounds 0.95/0.6 own 0.95/0.6 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Inherits,
    },
    Difference {
        case: "cfg_override_only_spare_trigger",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.15 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_free_name",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_zero_inherits",
        release: "2026-02-19",
        ours: "v1 kv 0.9-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_inverts_pair",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_override_inverted_inside",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | m#ns: scaleUpThreshold (0.60) must be > scaleDownBoundary (0.65)",
        why: Why::Older,
    },
    Difference {
        case: "cfg_kv_over_one",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold must be between 0 and 1, got 1.50",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_kv_negative",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold must be between 0 and 1, got -0.10",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_queue_negative",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: queueLengthThreshold must be >= 0, got -1.0",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_spare_over_threshold",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold (0.50) should be >= kvSpareTrigger (0.60)",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_queue_spare_over_threshold",
        release: "2026-02-19",
        ours: "v1 kv 0.7-0.2 queue 3-5 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_v2_inverted",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: scaleUpThreshold (0.70) must be > scaleDownBoundary (0.85)",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_v2_up_over_one",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: scaleUpThreshold must be in (0, 1], got 1.20",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_per_analyzer_override",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.9/0.6 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::Older,
    },
    Difference {
        case: "cfg_per_analyzer_inverted",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: analyzer \"saturation\": scaleUpThreshold (0.50) must be > scaleDownBoundary (0.70)",
        why: Why::Older,
    },
    Difference {
        case: "cfg_per_analyzer_inverted",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: analyzer \"saturation\": scaleUpThreshold (0.50) must be > scaleDownBoundary (0.70)",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_unknown_key",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_wrong_case",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_string_number",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold must be a number, got text \"0.80\"",
        why: Why::OwnWords,
    },
    Difference {
        case: "cfg_bad_yaml",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 1, column 19: cannot be parsed as YAML: unclosed bracket '['",
        why: Why::OwnWords,
    },
    Difference {
        case: "cfg_duplicate_key",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 2, column 1: cannot be parsed as YAML: duplicate mapping key: kvCacheThreshold, set DuplicateKeyPolicy in Options if acceptable",
        why: Why::OwnWords,
    },
    Difference {
        case: "cfg_empty_entry",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_nan",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 1, column 19: cannot be parsed as YAML: non-finite float `.nan` rejected by the configured policy",
        why: Why::NoNumber,
    },
    Difference {
        case: "cfg_nan",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 1, column 19: cannot be parsed as YAML: non-finite float `.nan` rejected by the configured policy",
        why: Why::NoNumber,
    },
    Difference {
        case: "cfg_inf_queue",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 2, column 23: cannot be parsed as YAML: non-finite float `.inf` rejected by the configured policy",
        why: Why::NoNumber,
    },
    Difference {
        case: "cfg_inf_queue",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: line 2, column 23: cannot be parsed as YAML: non-finite float `.inf` rejected by the configured policy",
        why: Why::NoNumber,
    },
    Difference {
        case: "cfg_integer_like_float",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 2.7-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_namespace_replaces_global",
        release: "2026-02-19",
        ours: "v1 kv 0.6-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_namespace_without_default",
        release: "2026-02-19",
        ours: "v1 kv 0.6-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "cfg_namespace_v1_global_v2",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_model_with_hash",
        release: "2026-02-19",
        ours: "v1 kv 0.9-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers []",
        why: Why::Older,
    },
    Difference {
        case: "cfg_priority_negative",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: priority must be >= 0, got -1.00",
        why: Why::Older,
    },
    Difference {
        case: "cfg_priority_negative",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: priority must be >= 0, got -1.00",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "reload_bad_default_v1",
        release: "2026-02-19",
        ours: "v1 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [] | default: kvCacheThreshold must be between 0 and 1, got 1.50",
        why: Why::LastValid,
    },
    Difference {
        case: "reload_bad_default_v2_with_override",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold must be between 0 and 1, got 1.50",
        why: Why::LastValid,
    },
    Difference {
        case: "reload_bad_default_v2_with_override",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1] | default: kvCacheThreshold must be between 0 and 1, got 1.50",
        why: Why::LastValid,
    },
    Difference {
        case: "reload_bad_override",
        release: "2026-02-19",
        ours: "v1 kv 0.9-0.05 queue 15-2 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [] | m#ns: kvCacheThreshold must be between 0 and 1, got 9.00",
        why: Why::LastValid,
    },
    Difference {
        case: "reload_bad_override",
        release: "2026-07-22",
        ours: "v1 kv 0.9-0.05 queue 15-2 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [] | m#ns: kvCacheThreshold must be between 0 and 1, got 9.00",
        why: Why::LastValid,
    },
    Difference {
        case: "reload_remove_default",
        release: "2026-02-19",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::NeverSkipped,
    },
    Difference {
        case: "reload_remove_default",
        release: "2026-07-22",
        ours: "v2 kv 0.8-0.1 queue 5-3 bounds 0.85/0.7 own 0.85/0.7 priority 1 limiter false name \"\" analyzers [saturation*1]",
        why: Why::NeverSkipped,
    },
];
