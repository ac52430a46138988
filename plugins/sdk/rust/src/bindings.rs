//! What wit-bindgen makes of the contract. The rest of the crate gives it shape.
#![allow(missing_docs, clippy::all, clippy::pedantic)]

wit_bindgen::generate!({
    path: "wit",
    world: "domain",
    pub_export_macro: true,
    generate_all,
});
