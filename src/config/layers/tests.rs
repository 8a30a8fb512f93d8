//! The merge, the presence rules and the conflicts, as tables.
