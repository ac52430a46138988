//! Formatting is idempotent and loses no token or comment.

#![no_main]

#[path = "../../tests/common/tokens.rs"]
mod tokens;

use libfuzzer_sys::fuzz_target;
use tokens::essence;

fuzz_target!(|text: &str| {
    let Ok(once) = pl_dsl::format(text) else { return };
    assert_eq!(pl_dsl::format(&once).as_ref(), Ok(&once));
    assert_eq!(essence(&once), essence(text));
});
