//! What the file may say, and what each mistake costs.
